"""--numa-selftest of the Windows program. To Wine each page is on node 0, which must not pass for an answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.build.programs import Program
from tests.wine.program import WindowsProgram

pytestmark = pytest.mark.wine

QUESTIONS = ("prefetch", "cached", "cpu_sets", "large_pages", "unbuffered")


def selftest(program: Program, *flags: str | Path, **environment: str) -> dict[str, Any]:
    done = program.ok("--numa-selftest", "--json", *flags, **environment)
    assert all(line.startswith("selftest, ") for line in done.stderr.splitlines())
    read: dict[str, Any] = json.loads(done.stdout)
    for question in QUESTIONS:
        assert (read[question]["answer"] is None) == bool(read[question]["reason"])
    return read


def test_one_node(windows: WindowsProgram, linux: Program, model: Path) -> None:
    read = selftest(windows, "-m", model)
    assert read["system"].startswith("Windows ")
    assert " in truth Wine " in read["system"]
    assert [(cell["threads_on"], cell["memory_on"]) for cell in read["bandwidth"]] == [(0, 0)]
    cell = read["bandwidth"][0]
    assert cell["gb_per_s"] > 0.1
    assert cell["seen"]["on_node"] == cell["seen"]["checked"] > 0
    assert read["file"] == "temporary"
    assert read["file_note"] == "not the model: Windows does not drop a file from its cache on request"
    assert "two nodes" in read["prefetch"]["reason"]
    theirs = selftest(linux, "-m", model)
    for key in ("schema", "kind", "page_bytes"):
        assert read[key] == theirs[key]
    assert read.keys() == theirs.keys()
    assert read["gain"]["model"] == theirs["gain"]["model"]
    assert [[row["alone"] for row in one["unbuffered"]["rows"]] for one in (read, theirs)] == [[False, True], [False]]


def test_what_is_not_seen_on_a_node_is_not_measured(two_nodes: WindowsProgram) -> None:
    read = selftest(two_nodes)
    cells = {(cell["threads_on"], cell["memory_on"]): cell for cell in read["bandwidth"]}
    assert list(cells) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for (_, memory), cell in cells.items():
        assert cell["threads"] == 1
        assert cell["seen"]["checked"] > 0
        assert (cell["gb_per_s"] is None) == (cell["reason"] is not None) == (memory == 1)
        assert (cell["seen"]["elsewhere"] == cell["seen"]["checked"]) == (memory == 1)
    for question in ("prefetch", "cached"):  # pages seem to stay on node 0, whoever asks for what
        assert read[question]["answer"] is None
        assert read[question]["reason"].startswith("no page is seen on node 1")
    assert read["unbuffered"]["answer"] is None
    assert {row["cached_on"] for row in read["unbuffered"]["rows"]} == {0}
    assert read["gain"]["nodes"][0]["ratio"] is None


def test_text_says_it_is_wine(windows: WindowsProgram) -> None:
    text = windows.ok("--numa-selftest").stdout
    assert text.startswith("llamafile-numa selftest")
    assert " in truth Wine " in text.splitlines()[1]
    assert "Z:" not in text


def test_nothing_is_left(windows: WindowsProgram, tmp_path: Path) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    told = windows.command("x", folder)[-1]
    assert selftest(windows, TMP=told, TEMP=told)["file"] == "temporary"
    assert list(folder.iterdir()) == []


def test_a_model_of_any_name(windows: WindowsProgram, model: Path, tmp_path: Path) -> None:
    named = tmp_path / "模型 ж é.gguf"
    named.symlink_to(model)
    report = tmp_path / "отчёт.json"
    windows.ok("--numa-selftest", "-m", named, "--numa-report", report)
    assert json.loads(report.read_text(encoding="utf-8"))["gain"]["model"]["weights"] > 0


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("-m", "nothing.gguf"), "cannot read nothing.gguf"),
        (("--numa-node", "0"), "takes no --numa-node"),
        (("-p", "x"), "does not take '-p'"),
    ],
)
def test_bad_input_gives_one_line(windows: WindowsProgram, flags: tuple[str, ...], says: str) -> None:
    done = windows("--numa-selftest", *flags)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1
