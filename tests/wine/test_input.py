"""What the Windows program makes of bad input and of names that are long or foreign.

Wine reads a command line like Windows, but heeds no manifest and knows no limit of 260 characters, no network drive and
no drive that is taken out. The manifest is looked at in tests/build, the exceptions of a lost drive in tests/core, and
here how long names are written.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.build.programs import NO_MODEL
from tests.build.test_flags import BAD, assert_one_clear_line
from tests.wine import host, relay
from tests.wine.program import WindowsProgram
from tools import models, wine

pytestmark = pytest.mark.wine

SHORT = ("-p", "one day ban", "-n", "4", "-c", "64", "--temp", "0", "-t", "1")
# In no code page of Windows are all of these.
FOREIGN = "Modèle Größe файл モデル 🦙"


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gives_one_clear_line(windows: WindowsProgram, case: str) -> None:
    arguments, says = BAD[case]
    assert_one_clear_line(windows, arguments, says)


@pytest.mark.parametrize("value", ["1x", "-1", "4294967296", ""])
def test_bad_environment_gives_one_clear_line(windows: WindowsProgram, value: str) -> None:
    assert_one_clear_line(windows, [], "LLAMA_ARG_NUMA_NODE", LLAMA_ARG_NUMA_NODE=value)


def test_report_that_cannot_be_written_leaves_nothing(windows: WindowsProgram, tmp_path: Path) -> None:
    assert_one_clear_line(windows, ["--numa-node", "0", "--numa-report", wine.path(tmp_path)], str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_model_that_is_not_there_is_named(windows: WindowsProgram) -> None:
    for _ in range(3):  # llama.cpp writes its log in a thread, which must not be left behind at the exit
        done = windows("--numa-node", "0", *NO_MODEL)
        assert done.returncode == 1
        assert "/no/such/model.gguf" in done.stderr


def test_model_that_is_not_there_is_named_in_any_script(windows: WindowsProgram) -> None:
    done = windows("--numa-node", "0", "-m", f"/no/such/{FOREIGN}.gguf", *SHORT)
    assert done.returncode == 1
    assert f"{FOREIGN}.gguf" in done.stderr


@pytest.fixture(scope="module")
def model() -> Path:
    return models.synthetic_model(1)


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def expected(windows: WindowsProgram, model: Path) -> str:
    return windows.ok("--numa-node", "0", "-m", model, *SHORT).stdout


def long_folder(below: Path) -> Path:
    """A folder whose path has more than 300 characters, each part of it less than 256."""
    folder = below / ("long " * 30).strip() / ("longer " * 25).strip()
    folder.mkdir(parents=True)
    assert len(wine.path(folder)) > 300
    return folder


def put(model: Path, target: Path) -> Path:
    target.parent.mkdir(exist_ok=True)
    try:
        os.link(model, target)
    except OSError:
        target.symlink_to(model)
    return target


@pytest.mark.parametrize("weights", ["map", "copy"])
def test_foreign_names(windows: WindowsProgram, model: Path, expected: str, tmp_path: Path, weights: str) -> None:
    file = put(model, tmp_path / FOREIGN / f"{FOREIGN}.gguf")
    report = tmp_path / FOREIGN / f"{FOREIGN}.json"
    done = windows.ok("--numa-node", "0", "--numa-weights", weights, "--numa-report", report, "-m", file, *SHORT)
    assert done.stdout == expected
    assert json.loads(report.read_text(encoding="utf-8"))["weights_mode"] == weights


def test_foreign_names_in_the_environment(windows: WindowsProgram, model: Path, expected: str, tmp_path: Path) -> None:
    file = put(model, tmp_path / FOREIGN / f"{FOREIGN}.gguf")
    report = tmp_path / FOREIGN / f"{FOREIGN}.json"
    names = {"LLAMA_ARG_MODEL": wine.path(file), "LLAMA_ARG_NUMA_REPORT": wine.path(report)}
    assert windows.ok("--numa-node", "0", *SHORT, **names).stdout == expected
    assert json.loads(report.read_text(encoding="utf-8"))["node"] == 0


def test_long_names(windows: WindowsProgram, model: Path, expected: str, tmp_path: Path) -> None:
    folder = long_folder(tmp_path)
    file, report = put(model, folder / "model.gguf"), folder / "report.json"
    done = windows.ok("--numa-node", "0", "--numa-report", report, "-m", file, *SHORT)
    assert done.stdout == expected
    assert json.loads(report.read_text(encoding="utf-8"))["node"] == 0


OPENS = ("CreateFileW", "CreateFileA", "GetFileAttributesW", "GetFileAttributesA", "GetFileAttributesExW")


def test_long_names_need_no_permission(windows: WindowsProgram, model: Path, tmp_path: Path) -> None:
    """Each time one is used it is written as Windows takes it whether or not long paths are allowed."""
    folder = long_folder(tmp_path)
    prefix = host.prefix(*(f"kernel32.{name}" for name in OPENS))
    traced = replace(windows, prefix=prefix, debug="+relay,+pid")
    names = ("--numa-report", folder / "report.json", "-m", put(model, folder / "model.gguf"))
    done = traced.ok("--numa-node", "0", "--numa-weights", "copy", *names, *SHORT)
    used = [call for call in relay.parse(done.stderr.splitlines()).calls if call.strings and call.strings[0]]
    long_ones = [call for call in used if len(str(call.strings[0])) > 200]  # the trace cuts them short
    assert {call.function for call in long_ones} >= {"CreateFileW", "GetFileAttributesW"}
    assert [call for call in long_ones if not str(call.strings[0]).startswith("\\\\?\\")] == []


@pytest.mark.parametrize("mode", [("--cli",), ()])
def test_arguments_are_read_once(windows: WindowsProgram, model: Path, expected: str, mode: tuple[str, ...]) -> None:
    """llama.cpp reads the command line again where it counts as many words as it was given: as many as are left out
    (--numa-node 0 --cli, --numa-weights map) are added here."""
    flags = ("--numa-node", "0", "--numa-weights", "map")
    assert windows.ok(*flags, *mode, "-m", model, *SHORT).stdout == expected
