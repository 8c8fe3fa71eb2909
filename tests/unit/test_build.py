"""The build verb on small projects of its own: what is kept, what is thrown away, what is shown when it fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import build
from tools.compiler import Compiler
from tools.fail import Fail

RULES = """\
rule copy
  command = cp $in $out
rule fail
  command = echo "first line"; echo "[1/2] is no status of ours" >&2; false
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as CMake leaves it, with nothing to compile."""
    (tmp_path / "out").mkdir()
    for n in range(3):
        (tmp_path / "out" / f"in{n}").touch()
    return tmp_path / "out"


def plan(folder: Path, *lines: str) -> None:
    (folder / "build.ninja").write_text(RULES + "".join(f"{line}\n" for line in lines), encoding="ascii")


# --- ninja -----------------------------------------------------------------------------------------------------------


def test_all_is_built(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan(folder, *(f"build out{n}: copy in{n}" for n in range(3)))
    build.compile_all(folder, "sample")
    assert [(folder / f"out{n}").exists() for n in range(3)] == [True] * 3
    capsys.readouterr()
    build.compile_all(folder, "sample")
    assert capsys.readouterr().err == ""  # nothing to do is nothing to say


def test_failure_is_shown_in_full(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan(folder, "build out0: copy in0", "build out1: fail in1")
    with pytest.raises(Fail, match=r"^sample does not build"):
        build.compile_all(folder, "sample")
    shown = capsys.readouterr().err
    assert "FAILED:" in shown
    assert "first line" in shown


def test_plan_that_cannot_be_read_is_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan(folder, "build out0: nosuchrule in0")
    with pytest.raises(Fail):
        build.compile_all(folder, "sample")
    assert "unknown build rule" in capsys.readouterr().err


# --- CMake -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project without a language: configured in no time."""
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(sample LANGUAGES NONE)\n", encoding="ascii"
    )
    monkeypatch.setattr(build, "ROOT", tmp_path)
    return tmp_path


def configure(project: Path, *, identity: str = "a compiler 1.0", extra: tuple[str, ...] = ()) -> Path:
    out = project / "build" / "native" / "out"
    build.configure("native", out, project / "tree", Compiler((), identity), extra)
    return out


def test_folder_is_configured_once(project: Path) -> None:
    out = configure(project)
    before = (out / "build.ninja").stat().st_mtime_ns
    assert (configure(project) / "build.ninja").stat().st_mtime_ns == before


@pytest.mark.parametrize("change", [{"identity": "a compiler 2.0"}, {"extra": ("-DOTHER=ON",)}])
def test_nothing_of_another_configuration_is_kept(project: Path, change: dict[str, str]) -> None:
    old = configure(project) / "object.o"
    old.touch()
    configure(project, **change)  # type: ignore[arg-type]
    assert not old.exists()
    assert (old.parent / "build.ninja").exists()


def test_folder_that_another_cmake_configured_is_repaired_and_kept(project: Path) -> None:
    """pip leaves a folder whose CMake, in an environment of pip's own, is gone."""
    out = configure(project)
    (out / "object.o").touch()
    cache = out / "CMakeCache.txt"
    cmake = str(build.installed("cmake", "CMAKE_BIN_DIR"))
    cache.write_text(cache.read_text().replace(f"CMAKE_COMMAND:INTERNAL={cmake}", "CMAKE_COMMAND:INTERNAL=/gone/cmake"))
    configure(project)
    assert build.cached(out, "CMAKE_COMMAND") == Path(cmake)
    assert (out / "object.o").exists()


def test_folder_without_a_plan_is_configured_again(project: Path) -> None:
    out = configure(project)
    (out / "build.ninja").unlink()
    assert (configure(project) / "build.ninja").exists()


def test_configuration_that_fails_is_shown_and_not_taken_for_done(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = project / "CMakeLists.txt"
    good = file.read_text(encoding="ascii")
    file.write_text(f'{good}message(FATAL_ERROR "the reason")\n', encoding="ascii")
    with pytest.raises(Fail, match=r"^CMake cannot configure native"):
        configure(project)
    assert "the reason" in capsys.readouterr().err
    file.write_text(good, encoding="ascii")
    assert (configure(project) / "build.ninja").exists()
