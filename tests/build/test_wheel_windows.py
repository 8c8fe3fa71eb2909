"""The wheel for Windows: audited, installed into a folder, and run from there under Wine.

It is the one that `wheel --target win_amd64 --one-variant` makes: the one for every CPU takes too long for a test.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pefile
import pytest

from tests.build.programs import GENERATE, Program
from tests.build.wheels import BIN, Change, Members, added, changed, install_for_windows, replaced, unchanged, without
from tests.wine import host
from tests.wine.program import WindowsProgram
from tools import audit, wine
from tools.paths import ROOT
from tools.wheel import ONE_VARIANT, ONE_VARIANT_DIST, wheel

pytestmark = pytest.mark.wine

PROGRAM = f"{BIN}llamafile-numa.exe"
FOREIGN = "Bücher λόγος 本"  # no code page but UTF-8 has all of these


@pytest.fixture(scope="module")
def packed() -> Path:
    return wheel(ONE_VARIANT)


@pytest.fixture(scope="module")
def installed(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a foreign name that pip has installed the wheel into, as for Windows."""
    folder = tmp_path_factory.mktemp("installed") / FOREIGN
    install_for_windows(packed, folder)
    return folder


@pytest.fixture(scope="module")
def windows(installed: Path) -> WindowsProgram:
    return WindowsProgram(installed / PROGRAM, prefix=host.prefix())


@pytest.fixture(scope="module")
def old_windows(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> WindowsProgram:
    """The same as a Windows before 1903 takes it, which does not know what the manifest says of the code page."""
    content = (installed / PROGRAM).read_bytes()
    assert content.count(b"<activeCodePage ") == content.count(b"</activeCodePage>") == 1
    copy = tmp_path_factory.mktemp("old") / "llamafile-numa.exe"
    copy.write_bytes(content.replace(b"activeCodePage", b"unheardOfEntry"))
    return WindowsProgram(copy, prefix=host.prefix())


@pytest.fixture(scope="module")
def foreign_model(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copy(model, tmp_path_factory.mktemp("models") / f"{FOREIGN}.gguf"))


# --- run -------------------------------------------------------------------------------------------------------------


def test_generates_what_linux_does(windows: WindowsProgram, ours: Program, node: str, model: Path) -> None:
    arguments = ("--numa-node", node, "-m", model, *GENERATE)
    done = windows.ok(*arguments)
    assert done.stdout == ours.ok(*arguments).stdout
    assert done.stderr.startswith(f"NUMA node {node}:")


def test_licence_of_the_c_runtime_is_printed(windows: WindowsProgram, ours: Program) -> None:
    text = windows.ok("licenses").stdout
    assert text.startswith(ours.ok("licenses").stdout)
    assert "License for mingw-w64" in text


def test_program_is_found_as_on_windows(installed: Path) -> None:
    find = "import sys; sys.platform = 'win32'; import llamafile_numa; print(llamafile_numa.find_bin())"
    found = subprocess.check_output([sys.executable, "-c", find], cwd=installed, encoding="utf-8").strip()
    assert Path(found) == installed / PROGRAM


# --- what the user typed ---------------------------------------------------------------------------------------------


@pytest.fixture(params=["since 1903", "before 1903"])
def either(request: pytest.FixtureRequest, windows: WindowsProgram, old_windows: WindowsProgram) -> WindowsProgram:
    return windows if request.param == "since 1903" else old_windows


def test_any_character_arrives(either: WindowsProgram, node: str, foreign_model: Path, tmp_path: Path) -> None:
    report = tmp_path / f"{FOREIGN}.json"
    flags = ("--numa-node", node, "--numa-report", report, "-m", foreign_model, *GENERATE[2:])
    text = either.ok(*flags, "-p", FOREIGN, "--display-prompt").stdout
    assert text.lstrip().startswith(FOREIGN)
    assert json.loads(report.read_text(encoding="utf-8"))["node"] == int(node)


def test_any_character_arrives_by_the_environment(
    either: WindowsProgram, node: str, foreign_model: Path, tmp_path: Path
) -> None:
    report = tmp_path / f"{FOREIGN}.json"
    names = {"LLAMA_ARG_MODEL": wine.path(foreign_model), "LLAMA_ARG_NUMA_REPORT": wine.path(report)}
    either.ok("--numa-node", node, *GENERATE, **names)
    assert json.loads(report.read_text(encoding="utf-8"))["node"] == int(node)


def test_any_character_is_in_names_that_upstream_opens(
    windows: WindowsProgram, node: str, model: Path, tmp_path: Path
) -> None:
    """By their narrow form, so only a Windows that heeds the manifest finds them all."""
    prompt = tmp_path / f"{FOREIGN}.txt"
    prompt.write_text(GENERATE[1], encoding="utf-8")
    assert len(windows.ok("--numa-node", node, "-m", model, "-f", prompt, *GENERATE[2:]).stdout.split()) == 12


def test_any_character_arrives_in_programs_with_parsers_of_their_own(
    either: WindowsProgram, node: str, foreign_model: Path
) -> None:
    done = either.ok("bench", "--numa-node", node, "-m", foreign_model, "-p", "8", "-n", "0", "-r", "1", "-o", "json")
    assert [result["n_prompt"] for result in json.loads(done.stdout)] == [8]  # the model was found


def test_words_that_were_taken_do_not_come_back(windows: WindowsProgram, node: str, model: Path) -> None:
    """Three words go, three others come: upstream took that for the command line as it was typed."""
    done = windows.ok("--cli", "--numa-node", node, "-v", "-m", model, *GENERATE)
    assert len(done.stdout.split()) == 12


def test_wildcards_are_left_alone(windows: WindowsProgram, node: str, model: Path, tmp_path: Path) -> None:
    flags = ("--numa-node", node, "-m", model, *GENERATE[2:], "--display-prompt")
    assert windows.ok(*flags, "-p", "*?").stdout.lstrip().startswith("*?")


# --- audited ---------------------------------------------------------------------------------------------------------


def test_wheel_is_named_after_what_it_is_for(packed: Path) -> None:
    assert packed.parent == ONE_VARIANT_DIST
    assert packed.name.endswith("-1avx2-py3-none-win_amd64.whl")
    assert audit.audit(packed) == []


def hardened_less(members: Members) -> None:
    info, content = members[PROGRAM]
    file: Any = pefile.PE(data=content, fast_load=True)
    file.OPTIONAL_HEADER.DllCharacteristics = 0
    members[PROGRAM] = (info, bytes(file.write()))


def with_our_folder(members: Members) -> None:
    info, content = members[PROGRAM]
    members[PROGRAM] = (info, content + f"{ROOT}/main.cpp".encode("utf-16-le"))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (without("licenses/mingw-w64/COPYING"), "licence mingw-w64/COPYING is missing"),
        (without("licenses/llama.cpp/LICENSE"), "licence llama.cpp/LICENSE is missing"),
        (without("llamafile-numa.exe"), "0 programs named llamafile-numa"),
        (without("entry_points.txt"), "console script llamafile-numa"),
        (added("llama_cpp/lib/llama.dll", b"MZ"), "llama_cpp/lib/llama.dll lies outside"),
        (replaced("llamafile-numa.exe", b"\x7fELF"), "is no Windows program"),
        (added(f"{BIN}ggml-cpu-x64.dll", b"MZ"), "the build tag 1avx2 says one kind of CPU"),
        (hardened_less, "has no HIGH_ENTROPY_VA"),
        (with_our_folder, f"holds a path of the machine it was built on, {ROOT}"),
    ],
)
def test_fault_is_found(packed: Path, tmp_path: Path, change: Change, says: str) -> None:
    faults = audit.audit(changed(packed, tmp_path, change))
    assert [fault for fault in faults if says in fault], faults


def test_wheel_for_every_cpu_has_to_have_variants(packed: Path, tmp_path: Path) -> None:
    plain = changed(packed, tmp_path, unchanged)
    plain = plain.rename(plain.with_name(plain.name.replace("-1avx2-", "-")))
    assert audit.audit(plain) == ["the wheel is for every CPU, but has libraries for 0 kinds, wanted several"]
