"""Models inside a .llamafile, read by the Windows program."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from tests.build.gguf_files import write_projector, write_split
from tests.build.programs import GENERATE
from tests.build.servers import post, serving
from tests.build.test_llamafile import assert_one_clear_line, far_inside, seen, with_args, zipped
from tests.wine.program import WindowsProgram
from tools import pack, wine

pytestmark = pytest.mark.wine

FOREIGN = "Modèle Größe файл モデル 🦙"


@pytest.fixture(scope="module")
def ours(two_nodes: WindowsProgram) -> WindowsProgram:
    return two_nodes


@pytest.fixture(scope="module")
def expected(ours: WindowsProgram, model: Path) -> str:
    """What is said with the plain file."""
    text = ours.ok("--numa-node", "1", "-m", model, *GENERATE).stdout
    assert len(text.split()) == 12
    return text


@pytest.mark.parametrize("weights", ["auto", "map", "copy"])
def test_says_what_the_plain_file_says(
    ours: WindowsProgram, model: Path, packed: Path, expected: str, weights: str, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    for name in (wine.path(packed), f"{wine.path(packed)}@{model.name}"):
        flags = ("--numa-node", "1", "--numa-weights", weights, "--numa-report", report)
        assert ours.ok(*flags, "-m", name, *GENERATE).stdout == expected
        found = json.loads(report.read_text(encoding="utf-8"))
        assert weights in ("auto", found["weights_mode"])
        assert found["threads"]["bound"] == found["threads"]["workers"]


@pytest.mark.parametrize("flags", [(), ("--load-mode", "none"), ("--mlock",)], ids=" ".join)
def test_without_a_node(ours: WindowsProgram, packed: Path, expected: str, flags: tuple[str, ...]) -> None:
    assert ours.ok("--numa-node", "none", *flags, "-m", packed, *GENERATE).stdout == expected


@pytest.mark.parametrize("weights", ["map", "copy"])
def test_beyond_4_gib(ours: WindowsProgram, model: Path, expected: str, tmp_path: Path, weights: str) -> None:
    archive = far_inside(tmp_path / "x.llamafile", model, (5 << 30) + 12345)
    assert ours.ok("--numa-node", "1", "--numa-weights", weights, "-m", archive, *GENERATE).stdout == expected


@pytest.mark.parametrize("weights", ["map", "copy"])
def test_a_split_model(
    ours: WindowsProgram, expected: str, tmp_path: Path, weights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = write_split(tmp_path, monkeypatch)
    archive = tmp_path / "x.llamafile"
    pack.pack(parts[:1], [], archive)
    for part in parts:
        part.unlink()
    assert ours.ok("--numa-node", "1", "--numa-weights", weights, "-m", archive, *GENERATE).stdout == expected


def test_foreign_names(ours: WindowsProgram, model: Path, expected: str, tmp_path: Path) -> None:
    folder = tmp_path / FOREIGN
    folder.mkdir()
    archive = zipped(folder / f"{FOREIGN}.llamafile", {f"{FOREIGN}.gguf": model, ".args": "\n".join(GENERATE).encode()})
    for name, more in ((wine.path(archive), ()), (f"{wine.path(archive)}@{FOREIGN}.gguf", GENERATE)):
        done = ours.ok("--numa-node", "1", "-m", name, *more)
        assert done.stdout == expected
    assert f"{FOREIGN}.gguf" in ours("-m", f"{wine.path(archive)}@none.gguf").stderr


def test_arguments_of_the_archive(ours: WindowsProgram, model: Path, expected: str, tmp_path: Path) -> None:
    """A user may have written them on Windows, too."""
    for end in ("\n", "\r\n"):
        file = zipped(tmp_path / "x.llamafile", {"m.gguf": model, ".args": end.join((*GENERATE, "...")).encode()})
        done = ours.ok("--numa-node", "1", "-m", file)
        assert done.stdout == expected
        assert "arguments in it: -p one day ban -n 12" in done.stderr.splitlines()[0]
        assert len(ours.ok("--numa-node", "1", "-m", file, "-n", "3").stdout.split()) == 3


def test_an_archive_that_serves(ours: WindowsProgram, model: Path, expected: str, tmp_path: Path) -> None:
    file = with_args(tmp_path / "x.llamafile", model, "--server", "-m", "/zip/m.gguf", "-c", "256")
    with serving(ours, "--numa-node", "1", "-m", file) as url:
        answer = post(f"{url}/completion", {"prompt": GENERATE[1], "n_predict": 12, "temperature": 0})
    assert answer["content"].split() == expected.split()


def test_a_projector_inside_or_beside(ours: WindowsProgram, model: Path, tmp_path: Path) -> None:
    mmproj = tmp_path / "mmproj-x.gguf"
    write_projector(mmproj, 256)
    archive = tmp_path / "x.llamafile"
    pack.pack([model, mmproj], [], archive)
    plain = seen(ours, "--numa-node", "1", "-m", model, "--mmproj", mmproj)
    assert plain.strip()
    assert seen(ours, "--numa-node", "1", "-m", archive) == plain
    assert seen(ours, "--numa-node", "1", "-m", model, "--mmproj", f"{wine.path(archive)}@{mmproj.name}") == plain


def test_bad_archives_give_one_clear_line(ours: WindowsProgram, model: Path, tmp_path: Path) -> None:
    def bad(file: str | Path, *says: str) -> None:
        assert_one_clear_line(ours("--numa-node", "1", "-m", file, *GENERATE), *says)

    good = zipped(tmp_path / "good.llamafile", {"m.gguf": model})
    bad(f"{wine.path(good)}@n.gguf", "there is no member n.gguf; there are: m.gguf")
    bad(f"{wine.path(model)}@n.gguf", "it is a GGUF file and has no member n.gguf")
    bad(zipped(tmp_path / "two", {"a.gguf": model, "b.gguf": model}), "more than one model", "a.gguf, b.gguf")
    bad(zipped(tmp_path / "deflated", {"m.gguf": model}, compression=zipfile.ZIP_DEFLATED), "m.gguf is compressed")
    bad(zipped(tmp_path / "text", {"m.gguf": b"no model"}), "m.gguf is no GGUF file")
    cut = tmp_path / "cut.llamafile"
    cut.write_bytes(good.read_bytes()[:-100])
    bad(cut, "it has no end record of a zip archive")
    with zipfile.ZipFile(tmp_path / "unaligned", "w") as archive:
        archive.write(model, "mm.gguf")
    bad(tmp_path / "unaligned", "mm.gguf begins at 37, which is no multiple of 32")
