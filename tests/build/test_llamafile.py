"""Models inside a .llamafile: the real program says the same and places the same pages as with the plain file."""

from __future__ import annotations

import base64
import json
import os
import struct
import subprocess
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest

from tests.build.gguf_files import write_projector, write_split
from tests.build.programs import GENERATE, Program, clean
from tests.build.servers import post, serving
from tools import models, pack

MODES = ("auto", "map", "copy")


@pytest.fixture(scope="module")
def expected(ours: Program, node: str, model: Path) -> str:
    """What is said with the plain file."""
    text = ours.ok("--numa-node", node, "-m", model, *GENERATE).stdout
    assert len(text.split()) == 12
    return text


def zipped(target: Path, members: dict[str, Path | bytes], **options: Any) -> Path:
    """An archive of files at multiples of 65536 bytes, and texts; not made by tools pack."""
    with zipfile.ZipFile(target, "w", **options) as archive:
        for name, content in members.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = archive.compression
            info.CRC = info.compress_size = 0
            archive.start_dir += -(archive.start_dir + len(info.FileHeader())) % 65536
            archive.writestr(info, content if isinstance(content, bytes) else content.read_bytes())
    return target


def report_of(ours: Program, node: str, file: str | Path, *flags: str) -> dict[str, Any]:
    done = ours.ok("--numa-node", node, "--numa-report", "-", "-m", file, *flags, *GENERATE)
    report: dict[str, Any] = json.JSONDecoder().raw_decode(done.stdout)[0]
    return report


def assert_one_clear_line(done: subprocess.CompletedProcess[str], *says: str) -> None:
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("llamafile-numa: error: ")
    for part in says:
        assert part in done.stderr


# --- the same text, the same pages -----------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", MODES)
@pytest.mark.parametrize("member", [True, False])
def test_says_what_the_plain_file_says(
    ours: Program, node: str, model: Path, packed: Path, expected: str, weights: str, member: bool
) -> None:
    name = f"{packed}@{model.name}" if member else str(packed)
    done = ours.ok("--numa-node", node, "--numa-weights", weights, "-m", name, *GENERATE)
    assert done.stdout == expected
    assert done.stderr.startswith("NUMA node ")


@pytest.mark.parametrize("flags", [(), ("--numa-node", "none"), ("--load-mode", "none"), ("--load-mode", "dio")])
def test_without_a_node(ours: Program, packed: Path, expected: str, flags: tuple[str, ...]) -> None:
    assert ours.ok(*flags, "-m", packed, *GENERATE).stdout == expected


@pytest.mark.parametrize("weights", ["map", "copy"])
def test_pages_are_those_of_the_plain_file(ours: Program, node: str, model: Path, packed: Path, weights: str) -> None:
    plain = report_of(ours, node, model, "--numa-weights", weights)
    inside = report_of(ours, node, packed, "--numa-weights", weights)
    assert inside["weights_mode"] == plain["weights_mode"] == weights
    assert inside["ok"]
    regions = {region["name"]: region for region in plain["regions"]}
    assert {region["name"] for region in inside["regions"]} == set(regions)
    for region in inside["regions"]:
        same = regions[region["name"]]
        assert region["bytes"] == same["bytes"]
        if region["name"] == "weights":
            assert region["on_node"] == region["checked"] > 0
            # In a copy these are a few norms, in a block of malloc that may begin anywhere in a page.
            assert abs(region["checked"] - same["checked"]) <= (weights == "copy")


def test_a_hand_made_archive(ours: Program, node: str, model: Path, expected: str, tmp_path: Path) -> None:
    """An executable in front, other members, no .args, a larger end record with a comment."""
    file = zipped(tmp_path / "x.llamafile", {"usr/share/zoneinfo/UTC": b"TZif", "m.gguf": model, "README": b"read"})
    with zipfile.ZipFile(file, "a") as archive:
        archive.comment = b"by hand"
    for name in (file, f"{file}@m.gguf", f"{file}@/zip/m.gguf"):
        assert ours.ok("--numa-node", node, "-m", name, *GENERATE).stdout == expected


def peak(program: Program, *arguments: str | Path) -> int:
    """The most memory the program had at once, files that it had mapped included, in bytes."""
    command = [str(program.path), *map(str, arguments)]
    with subprocess.Popen(command, env=clean({}), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_maxrss << 10


def far_inside(file: Path, model: Path, before: int) -> Path:
    """The model in an archive, behind this many bytes, which take no space."""
    with file.open("wb") as content:
        content.truncate(before)
    with zipfile.ZipFile(file, "a") as archive:
        pack.store(archive, model, lambda _: None)
    return file


def test_only_the_model_is_brought_in(ours: Program, node: str, model: Path, tmp_path: Path) -> None:
    """Not what else is in the archive: 512 MiB before the model do not become resident."""
    archive = far_inside(tmp_path / "x.llamafile", model, 512 << 20)
    flags = ("--numa-node", node, "--numa-weights", "map", *GENERATE)
    assert peak(ours, *flags, "-m", archive) < peak(ours, *flags, "-m", model) + (64 << 20)


@pytest.mark.parametrize("weights", ["map", "copy"])
def test_beyond_4_gib(ours: Program, node: str, model: Path, expected: str, tmp_path: Path, weights: str) -> None:
    archive = far_inside(tmp_path / "x.llamafile", model, (5 << 30) + 12345)
    done = ours.ok("--numa-node", node, "--numa-weights", weights, "-m", archive, *GENERATE)
    assert done.stdout == expected


@pytest.mark.parametrize("weights", MODES)
def test_a_split_model(
    ours: Program, node: str, expected: str, tmp_path: Path, weights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = write_split(tmp_path, monkeypatch)
    assert len(parts) > 2
    archive = tmp_path / "x.llamafile"
    pack.pack(parts[:1], [], archive)
    flags = ("--numa-node", node, "--numa-weights", weights, "--numa-report", tmp_path / "report.json", *GENERATE)
    for name in (archive, f"{archive}@{parts[0].name}"):
        for part in parts:
            part.unlink(missing_ok=True)
        assert ours.ok("-m", name, *flags).stdout == expected
        report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
        assert report["ok"]
        assert report["weights_mode"] == ("copy" if weights == "copy" else "map")


def test_a_split_model_with_a_part_missing(
    ours: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = write_split(tmp_path, monkeypatch)
    file = zipped(tmp_path / "x.llamafile", {part.name: part for part in parts[:-1]})
    assert_one_clear_line(ours("-m", file, *GENERATE), f"there is no member {parts[-1].name}")
    assert_one_clear_line(ours("-m", f"{file}@{parts[0].name}", *GENERATE), f"there is no member {parts[-1].name}")


def test_bench_runs_a_model_inside(ours: Program, node: str, packed: Path, model: Path) -> None:
    for name in (packed, f"{packed}@{model.name}"):
        done = ours.ok("bench", "--numa-node", node, "-m", name, "-p", "8", "-n", "4", "-r", "1", "-o", "json")
        assert [result["n_gen"] for result in json.loads(done.stdout)] == [0, 4]


def test_named_by_the_environment(ours: Program, node: str, packed: Path, model: Path, expected: str) -> None:
    for name in (str(packed), f"{packed}@{model.name}"):
        assert ours.ok("--numa-node", node, *GENERATE, LLAMA_ARG_MODEL=name).stdout == expected


def test_ordinary_files_with_an_at_go_on_working(
    ours: Program, node: str, model: Path, expected: str, tmp_path: Path
) -> None:
    (tmp_path / "my").write_bytes(b"")
    (tmp_path / "my@model.gguf").symlink_to(model)
    assert ours.ok("--numa-node", node, "-m", tmp_path / "my@model.gguf", *GENERATE).stdout == expected
    done = ours("--numa-node", node, "-m", tmp_path / "your@model.gguf", *GENERATE)
    assert done.returncode == 1
    assert "your@model.gguf" in done.stderr


# --- the arguments in the archive ------------------------------------------------------------------------------------


def with_args(file: Path, model: Path, *lines: str) -> Path:
    return zipped(file, {"m.gguf": model, ".args": "\n".join(lines).encode()})


@pytest.mark.parametrize(
    "lines",
    [
        ("-m", "m.gguf", *GENERATE, "..."),
        ("-m", "/zip/m.gguf", *GENERATE, ""),
        (*GENERATE, "..."),
        ("...", *GENERATE, "..."),
        ("--model", "m.gguf\r", *(f"{word}\r" for word in GENERATE)),
        (*GENERATE, "--host", "0.0.0.0", "--port", "18500", "--mmproj", "none.gguf", "--no-webui"),
    ],
)
def test_arguments_of_the_archive(
    ours: Program, node: str, model: Path, expected: str, tmp_path: Path, lines: tuple[str, ...]
) -> None:
    file = with_args(tmp_path / "x.llamafile", model, *lines)
    done = ours.ok("--numa-node", node, "-m", file)
    assert done.stdout == expected
    said = done.stderr.splitlines()[0]
    assert said.startswith(f"llamafile-numa: {file}: arguments in it: -p one day ban -n 12")


def test_what_a_completion_has_no_use_for_is_left_out(ours: Program, node: str, model: Path, tmp_path: Path) -> None:
    file = with_args(tmp_path / "x.llamafile", model, *GENERATE, "--host", "0.0.0.0", "-n", "3", "--api-key", "k")
    done = ours.ok("--numa-node", node, "-m", file)
    assert len(done.stdout.split()) == 3
    assert done.stderr.splitlines()[0].endswith("; left out, as only a server knows them: --host --api-key")


def test_the_users_arguments_come_behind(ours: Program, node: str, model: Path, tmp_path: Path) -> None:
    for lines in ((*GENERATE, "..."), GENERATE):
        file = with_args(tmp_path / "x.llamafile", model, *lines)
        done = ours.ok("--numa-node", node, "-m", file, "-n", "3")
        assert len(done.stdout.split()) == 3


def test_the_users_arguments_go_where_they_belong(ours: Program, node: str, model: Path, tmp_path: Path) -> None:
    file = with_args(tmp_path / "x.llamafile", model, "-n", "2", "...", "-p", "one day ban", "-c", "256")
    assert len(ours.ok("--numa-node", node, "-m", file, "-n", "5", "--temp", "0").stdout.split()) == 5
    file = with_args(tmp_path / "y.llamafile", model, "...", *GENERATE)
    assert len(ours.ok("--numa-node", node, "-m", file, "-n", "5").stdout.split()) == 12


def test_a_named_member_brings_no_arguments(ours: Program, node: str, model: Path, tmp_path: Path) -> None:
    file = with_args(tmp_path / "x.llamafile", model, "-n", "2", "--no-such-flag", "...")
    done = ours.ok("--numa-node", node, "-m", f"{file}@m.gguf", *GENERATE)
    assert len(done.stdout.split()) == 12
    assert "arguments" not in done.stderr


def test_an_unknown_argument_of_the_archive_is_not_lost(ours: Program, node: str, model: Path, tmp_path: Path) -> None:
    file = with_args(tmp_path / "x.llamafile", model, "--no-such-flag", "...")
    done = ours("--numa-node", node, "-m", file, *GENERATE)
    assert done.returncode == 1
    assert "arguments in it: --no-such-flag" in done.stderr.splitlines()[0]
    assert "invalid argument: --no-such-flag" in done.stderr


def test_numa_flags_of_the_archive_give_way(ours: Program, node: str, model: Path, tmp_path: Path) -> None:
    flags = ("--numa-node", "77", "--numa-weights=copy", "--numa-report", "-")
    file = with_args(tmp_path / "x.llamafile", model, *flags, "...")
    done = ours.ok("--numa-node", node, "-m", file, *GENERATE)
    report = json.JSONDecoder().raw_decode(done.stdout)[0]
    assert (report["node"], report["weights_mode"]) == (int(node), "copy")
    assert "no node 77" in ours("-m", file, *GENERATE).stderr


def test_the_users_mode_beats_the_archives(ours: Program, node: str, model: Path, tmp_path: Path) -> None:
    file = with_args(tmp_path / "x.llamafile", model, "--server", "--host", "127.0.0.1", "...")
    assert len(ours.ok("--numa-node", node, "--cli", "-m", file, *GENERATE).stdout.split()) == 12


def test_a_prompt_of_the_archive_is_nothing_to_a_server(
    ours: Program, node: str, model: Path, tmp_path: Path
) -> None:
    file = with_args(tmp_path / "x.llamafile", model, "-p", "one", "-n", "4", "-c", "256", "...")
    with serving(ours, "--server", "--numa-node", node, "-m", file) as url:
        assert post(f"{url}/completion", {"prompt": "one", "n_predict": 1})["content"]


def test_the_users_prompt_beats_the_archives_server(ours: Program, node: str, model: Path, tmp_path: Path) -> None:
    file = with_args(tmp_path / "x.llamafile", model, "--server", "--host", "127.0.0.1", "...")
    assert len(ours.ok("--numa-node", node, "-m", file, *GENERATE).stdout.split()) == 12


def test_an_archive_that_serves(ours: Program, node: str, model: Path, expected: str, tmp_path: Path) -> None:
    file = with_args(tmp_path / "x.llamafile", model, "--server", "-m", "/zip/m.gguf", "-c", "256")
    with serving(ours, "--numa-node", node, "-m", file) as url:
        answer = post(f"{url}/completion", {"prompt": GENERATE[1], "n_predict": 12, "temperature": 0})
    assert answer["content"].split() == expected.split()


def test_a_file_beside_the_archive(ours: Program, node: str, model: Path, expected: str, tmp_path: Path) -> None:
    file = zipped(tmp_path / "x.llamafile", {"n.gguf": model, ".args": f"-m\n{model}\n...".encode()})
    assert ours.ok("--numa-node", node, "-m", file, *GENERATE).stdout == expected


# --- a projector -----------------------------------------------------------------------------------------------------


def png(pixels: int) -> str:
    """A picture of a slope, as a URL."""
    rows = b"".join(b"\0" + bytes((x * 9) % 256 for x in range(3 * pixels)) for _ in range(pixels))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", pixels, pixels, 8, 2, 0, 0, 0)
    content = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


def seen(ours: Program, *arguments: str | Path, **environment: str) -> str:
    """What a server says of the picture."""
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    flags = ("-c", "512", "--chat-template", template, "--temp", "0", "-np", "1")
    picture = {"type": "image_url", "image_url": {"url": png(28)}}
    words = {"type": "text", "text": "one day ban"}
    with serving(ours, "--server", *flags, *arguments, **environment) as url:
        body = {"messages": [{"role": "user", "content": [picture, words]}], "max_tokens": 8}
        answer: str = post(f"{url}/v1/chat/completions", body)["choices"][0]["message"]["content"]
    return answer


def test_a_projector_inside_or_beside(ours: Program, node: str, model: Path, tmp_path: Path) -> None:
    mmproj = tmp_path / "mmproj-x.gguf"
    write_projector(mmproj, 256)
    archive = tmp_path / "x.llamafile"
    pack.pack([model, mmproj], [], archive)
    bare = zipped(tmp_path / "y.llamafile", {"m.gguf": model, "p/MMPROJ.gguf": mmproj})
    on_node = ("--numa-node", node)
    plain = seen(ours, *on_node, "-m", model, "--mmproj", mmproj)
    write_projector(tmp_path / "other.gguf", 256, seed=1)
    assert plain.strip()
    assert seen(ours, *on_node, "-m", model, "--mmproj", tmp_path / "other.gguf") != plain
    assert seen(ours, *on_node, "-m", archive) == plain
    assert seen(ours, *on_node, "-m", bare, "--mmproj", mmproj) == plain
    assert seen(ours, *on_node, "-m", bare, LLAMA_ARG_MMPROJ=str(bare)) == plain
    assert seen(ours, *on_node, "-m", model, "--mmproj", f"{bare}@p/MMPROJ.gguf") == plain


# --- bad archives ----------------------------------------------------------------------------------------------------


def test_bad_archives_give_one_clear_line(ours: Program, node: str, model: Path, tmp_path: Path) -> None:
    def bad(file: str | Path, *says: str, flag: str = "-m") -> None:
        assert_one_clear_line(ours("--numa-node", node, flag, file, *GENERATE), *says)
        assert_one_clear_line(ours("--numa-node", node, "--server", flag, file), *says)

    good = zipped(tmp_path / "good.llamafile", {"m.gguf": model})
    bad(f"{good}@n.gguf", f"{good}: there is no member n.gguf; there are: m.gguf")
    bad(good, f"{good}: it holds no multimodal projector", flag="--mmproj")
    bad(f"{good}@n.gguf", f"{good}: there is no member n.gguf", flag="--lora")
    bad(f"{model}@n.gguf", f"{model}: it is a GGUF file and has no member n.gguf")
    bad(zipped(tmp_path / "two", {"a.gguf": model, "b.gguf": model}), "more than one model", "a.gguf, b.gguf")
    bad(zipped(tmp_path / "none", {"a.txt": b"a"}), "holds no model", "a.txt")
    bad(zipped(tmp_path / "deflated", {"m.gguf": model}, compression=zipfile.ZIP_DEFLATED), "m.gguf is compressed")
    bad(zipped(tmp_path / "text", {"m.gguf": b"no model"}), "m.gguf is no GGUF file")
    bad(zipped(tmp_path / "damaged", {"m.gguf": b"GGUF" + bytes(100)}), "damaged@m.gguf: its GGUF header is damaged")
    short = model.read_bytes()[: -(1 << 20)]
    bad(zipped(tmp_path / "short", {"m.gguf": short, "n.txt": bytes(2 << 20)}), "short@m.gguf: its tensors need")
    cut = tmp_path / "cut.llamafile"
    cut.write_bytes(good.read_bytes()[:-100])
    bad(cut, f"{cut}: it has no end record of a zip archive", "a GGUF file or a .llamafile is possible")
    with zipfile.ZipFile(tmp_path / "unaligned", "w") as archive:
        archive.write(model, "mm.gguf")
    bad(tmp_path / "unaligned", "mm.gguf begins at 37, which is no multiple of 32")
    bad(with_args(tmp_path / "lost", model, "-m", "lost.gguf"), "there is no member lost.gguf; there are: m.gguf")
    bad(with_args(tmp_path / "file", model, "--grammar-file", "/zip/g.gbnf"), "/zip/g.gbnf in its arguments is no model")


# --- the real model --------------------------------------------------------------------------------------------------


@pytest.mark.real_model
def test_real_model_inside(ours: Program, node: str, tmp_path: Path) -> None:
    model = models.real_model()
    archive = tmp_path / "x.llamafile"
    pack.pack([model], [], archive)
    flags = ("-p", "Paris is the capital and most populous city of", "-n", "8", "-c", "256", "--temp", "0")
    for weights in ("map", "copy"):
        seen = []
        for name in (model, archive):
            file = tmp_path / "report.json"
            on_node = ("--numa-node", node, "--numa-weights", weights, "--numa-report", file)
            done = ours.ok(*on_node, "-m", name, *flags)
            report = json.loads(file.read_text(encoding="utf-8"))
            assert report["ok"]
            weight = next(region for region in report["regions"] if region["name"] == "weights")
            seen.append((done.stdout, report["weights_mode"], weight))
        assert "France" in seen[0][0]
        assert seen[0] == seen[1]
