"""tools pack: what is in a .llamafile, where, and that nothing is written where something is wrong."""

from __future__ import annotations

import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tools import pack
from tools.fail import Fail
from tools.paths import ROOT

MODEL = b"GGUF" + bytes(range(200))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return written(tmp_path / "a.gguf")


def written(file: Path, content: bytes = MODEL) -> Path:
    file.write_bytes(content)
    return file


def data_offset(archive: Path, name: str) -> int:
    """Where the bytes of a member begin, by the header in front of them."""
    with zipfile.ZipFile(archive) as source:
        header = source.getinfo(name).header_offset
    with archive.open("rb") as content:
        content.seek(header + 26)
        name_len, extra_len = struct.unpack("<HH", content.read(4))
    return int(header + 30 + name_len + extra_len)


def args_of(archive: Path) -> list[str]:
    with zipfile.ZipFile(archive) as source:
        return source.read(".args").decode().splitlines()


def test_member_is_stored_and_aligned(model: Path, tmp_path: Path) -> None:
    mmproj = written(tmp_path / "mmproj-a.gguf", b"GGUF" * 30_000)
    target = tmp_path / "a.llamafile"
    pack.pack([model, mmproj], [], target)
    with zipfile.ZipFile(target) as source:
        assert source.testzip() is None
        assert source.namelist() == ["a.gguf", "mmproj-a.gguf", ".args"]
        assert all(info.compress_type == zipfile.ZIP_STORED for info in source.infolist())
        assert source.read("a.gguf") == MODEL
        assert source.read("mmproj-a.gguf") == mmproj.read_bytes()
    for name in ("a.gguf", "mmproj-a.gguf"):
        assert data_offset(target, name) % 65536 == 0


def test_sizes_have_64_bits_in_front(model: Path, tmp_path: Path) -> None:
    """How large a member becomes is not known when its header is written."""
    pack.pack([model], [], tmp_path / "a.llamafile")
    content = (tmp_path / "a.llamafile").read_bytes()
    assert struct.unpack_from("<II", content, content.index(b"PK\3\4") + 18) == (0xFFFFFFFF, 0xFFFFFFFF)


def test_args(model: Path, tmp_path: Path) -> None:
    target = tmp_path / "x"
    pack.pack([model], [], target)
    assert args_of(target) == ["-m", "a.gguf", "..."]
    pack.pack([model], pack.split("-c 4096 -p 'Once upon a time'"), target)
    assert args_of(target) == ["-m", "a.gguf", "-c", "4096", "-p", "Once upon a time", "..."]
    pack.pack([model], pack.split("... -c 4096"), target)
    assert args_of(target) == ["-m", "a.gguf", "...", "-c", "4096"]
    pack.pack([model], pack.split("-m /zip/a.gguf --server"), target)
    assert args_of(target) == ["-m", "/zip/a.gguf", "--server", "..."]


def test_projector_becomes_mmproj(model: Path, tmp_path: Path) -> None:
    target = tmp_path / "x"
    pack.pack([model, written(tmp_path / "MMPROJ.gguf")], [], target)
    assert args_of(target) == ["-m", "a.gguf", "--mmproj", "MMPROJ.gguf", "..."]


def test_of_two_models_none_is_chosen(model: Path, tmp_path: Path) -> None:
    target = tmp_path / "x"
    pack.pack([model, written(tmp_path / "b.gguf")], [], target)
    assert args_of(target) == ["..."]


def test_parts_of_a_split_model_come_along(tmp_path: Path) -> None:
    parts = [written(tmp_path / f"a-0000{part}-of-00003.gguf") for part in (1, 2, 3)]
    pack.pack([parts[0]], [], tmp_path / "x")
    with zipfile.ZipFile(tmp_path / "x") as source:
        assert source.namelist() == [*(part.name for part in parts), ".args"]
    assert args_of(tmp_path / "x") == ["-m", parts[0].name, "..."]
    parts[2].unlink()
    with pytest.raises(Fail, match=r"there is no file .*a-00003-of-00003\.gguf"):
        pack.pack([parts[0]], [], tmp_path / "y")


def test_what_was_there_is_replaced(model: Path, tmp_path: Path) -> None:
    target = written(tmp_path / "x", b"old")
    pack.pack([model], [], target)
    assert data_offset(target, "a.gguf") % 65536 == 0
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.gguf", "x"]


def test_bad_input_leaves_nothing(model: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    other = written(tmp_path / "folder" / "a.gguf")
    cases = [
        ([tmp_path / "no.gguf"], "there is no file"),
        ([tmp_path], "there is no file"),
        ([written(tmp_path / "text.gguf", b"text")], "is no GGUF file"),
        ([written(tmp_path / "empty.gguf", b"")], "is no GGUF file"),
        ([written(tmp_path / "model.bin")], "call it model.bin.gguf"),
        ([model, other], "a.gguf is there twice"),
    ]
    before = sorted(tmp_path.rglob("*"))
    for models, says in cases:
        with pytest.raises(Fail, match=says) as failure:
            pack.pack(models, [], tmp_path / "x")
        assert failure.value.code == 2
    for argument in ("", "a\nb"):
        with pytest.raises(Fail, match="cannot be stored"):
            pack.pack([model], [argument], tmp_path / "x")
    with pytest.raises(Fail, match="one of the files to pack"):
        pack.pack([model], [], model)
    assert sorted(tmp_path.rglob("*")) == before
    assert model.read_bytes() == MODEL


def test_a_full_disk_leaves_nothing(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pack, "store", full)
    with pytest.raises(OSError, match="No space left"):
        pack.pack([model], [], tmp_path / "x")
    assert [file.name for file in tmp_path.iterdir()] == ["a.gguf"]


def test_arguments_that_llamafile_reads_otherwise_are_named(model: Path, tmp_path: Path) -> None:
    done = tools("pack", model, "--args=-p 'two words'", "-o", tmp_path / "x")
    assert done.returncode == 0, done.stderr
    assert "'two words'" in done.stderr


def test_verb(model: Path, tmp_path: Path) -> None:
    done = tools("pack", model, "--args=-c 64", "-o", tmp_path / "x")
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/x\n")
    assert args_of(tmp_path / "x") == ["-m", "a.gguf", "-c", "64", "..."]
    done = tools("pack", model, "--args=-p 'open", "-o", tmp_path / "y")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "--args" in done.stderr


def tools(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tools", *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, check=False
    )
