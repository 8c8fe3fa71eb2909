"""From a bare Python to .venv, with a real venv and a real pip; and the verbs `setup`, `clean` and `--help`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.unit.sample import Project, copy_tools, listing, make_project, plain_environment

# What a verb of ours sees, told on stdout; as a module of the sample project it needs none of our requirements.
PROBE = '''"""Tell what Python this is."""

import argparse
import importlib.util
import sys


def register(subparsers):
    parser = subparsers.add_parser("bench")
    parser.add_argument("words", nargs="*")
    parser.add_argument("--exit", type=int, default=0)


def run(args):
    there = [name for name in ("needed", "wanted_too") if importlib.util.find_spec(name)]
    print(sys.prefix, args.words, there)
    return args.exit
'''


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project whose one verb and requirements are made up, and a folder of packages instead of an index."""
    links = tmp_path / "links"
    links.mkdir()
    for name in ("needed", "wanted_too"):
        make_wheel(links, name)
    root = tmp_path / "project"
    root.mkdir()
    copy_tools(root)
    (root / "tools" / "bench.py").write_text(PROBE)
    shutil.rmtree(root / "tools" / "bench", ignore_errors=True)
    project = Project(root, b"", plain_environment(tmp_path / "cache"))
    del project.environment["LLAMAFILE_NUMA_NO_BOOTSTRAP"]
    project.environment["PIP_FIND_LINKS"] = str(links)
    require(project, "needed")
    return project


def make_wheel(folder: Path, name: str) -> None:
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", "")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def require(project: Project, *names: str) -> None:
    content = f"[dependency-groups]\ntools = {list(names)!r}\ntest = []\n"
    (project.root / "pyproject.toml").write_text(content)


def bare(project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a verb with a Python that is in no virtual environment."""
    python = Path(sys.base_prefix) / ("python.exe" if sys.platform == "win32" else "bin/python3")
    return subprocess.run(
        [str(python), "-m", "tools", *arguments],
        cwd=project.root,
        env=project.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def venv(project: Project) -> Path:
    return project.root / ".venv"


def test_first_run_makes_venv_and_starts_over_in_it(project: Project) -> None:
    done = bare(project, "bench", "two words", "--exit", "7")
    assert done.stdout == f"{venv(project)} ['two words'] ['needed']\n"
    assert done.returncode == 7
    assert done.stderr.splitlines() == ["making .venv", "installing into .venv (tools): needed"]


def test_second_run_installs_nothing(project: Project) -> None:
    bare(project, "bench")
    project.environment["PIP_FIND_LINKS"] = ""
    done = bare(project, "bench")
    assert (done.stdout, done.stderr) == (f"{venv(project)} [] ['needed']\n", "")


def test_changed_list_is_installed_into_the_same_venv(project: Project) -> None:
    bare(project, "bench")
    (venv(project) / "mine").touch()
    require(project, "needed", "wanted-too")
    done = bare(project, "bench")
    assert done.stdout == f"{venv(project)} [] ['needed', 'wanted_too']\n"
    assert done.stderr == "installing into .venv (tools): needed, wanted-too\n"
    assert (venv(project) / "mine").exists()


def test_failed_first_run_leaves_no_venv(project: Project) -> None:
    require(project, "needed", "not-to-be-had")
    done = bare(project, "bench")
    assert done.returncode == 1
    assert "not-to-be-had" in done.stderr
    assert done.stderr.splitlines()[-1] == (
        "error: installing into .venv (tools): needed, not-to-be-had failed (exit 1); the lines above tell why"
    )
    assert not venv(project).exists()


def test_failed_later_run_leaves_the_venv(project: Project) -> None:
    bare(project, "bench")
    require(project, "not-to-be-had")
    assert bare(project, "bench").returncode == 1
    require(project, "needed")
    assert bare(project, "bench").stderr == ""


def test_half_made_venv_is_made_again(project: Project) -> None:
    """As a run leaves it that was killed in the middle."""
    (venv(project) / "bin").mkdir(parents=True)
    (venv(project) / "bin" / "python").symlink_to(sys.executable)
    (venv(project) / ".half-made").touch()
    done = bare(project, "bench")
    assert done.stderr.splitlines()[0] == "making .venv"
    assert done.stdout == f"{venv(project)} [] ['needed']\n"
    assert not (venv(project) / ".half-made").exists()


def test_venv_whose_python_has_gone_is_made_again(project: Project) -> None:
    bare(project, "bench")
    python = venv(project) / "bin" / "python"
    python.unlink()
    python.symlink_to("/nowhere/python3")
    assert bare(project, "bench").stdout == f"{venv(project)} [] ['needed']\n"


def test_two_at_once_make_one_venv(project: Project) -> None:
    python = Path(sys.base_prefix) / "bin" / "python3"
    command = [str(python), "-m", "tools", "bench"]
    both = [
        subprocess.Popen(
            command,
            cwd=project.root,
            env=project.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    ends = [process.communicate(timeout=120) for process in both]
    assert [stdout for stdout, _ in ends] == [f"{venv(project)} [] ['needed']\n"] * 2
    assert sum(stderr.count("making .venv") for _, stderr in ends) == 1


def test_python_without_ensurepip_names_the_package(project: Project, tmp_path: Path) -> None:
    """Debian's python3 alone has no ensurepip: here it is taken away before anything else runs."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import sys\nsys.modules['ensurepip'] = None\n")
    project.environment["PYTHONPATH"] = str(site)
    done = bare(project, "bench")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert done.stderr.endswith(
        f"cannot make virtual environments (no ensurepip); on Debian and Ubuntu: apt install python{version}-venv\n"
    )
    assert not venv(project).exists()


def test_no_bootstrap_uses_this_python(project: Project) -> None:
    """As CMake calls it inside an isolated build, where what is needed is there."""
    project.environment["LLAMAFILE_NUMA_NO_BOOTSTRAP"] = "1"
    assert project.ok("bench").stdout == f"{sys.prefix} [] []\n"
    assert not venv(project).exists()


def test_no_bootstrap_with_something_missing(project: Project) -> None:
    project.environment["LLAMAFILE_NUMA_NO_BOOTSTRAP"] = "1"
    done = subprocess.run(
        [sys.executable, "-S", "-m", "tools", "bench"],
        cwd=project.root,
        env=project.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == (
        "error: LLAMAFILE_NUMA_NO_BOOTSTRAP=1 is set, but this Python lacks rich, unearth;"
        " unset it to have .venv made\n"
    )


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "cannot read pyproject.toml"),
        ("[x", "cannot read pyproject.toml"),
        ("[project]\n", "pyproject.toml has no list `tools` in [dependency-groups]"),
        ("[dependency-groups]\ntools = 'rich'\n", "[dependency-groups] tools must be a list of requirements"),
    ],
)
def test_requirements_that_cannot_be_read(project: Project, content: str | None, complaint: str) -> None:
    file = project.root / "pyproject.toml"
    file.unlink()
    if content is not None:
        file.write_text(content)
    done = bare(project, "bench")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert complaint in done.stderr


# --- the command line ------------------------------------------------------------------------------------------------


def test_help_needs_no_venv(project: Project) -> None:
    done = bare(project, "--help")
    assert "  bench  Tell what Python this is.\n" in done.stdout
    assert not venv(project).exists()


def test_unknown_verb_is_one_line(project: Project) -> None:
    done = bare(project, "bild")
    assert done.returncode == 2
    assert done.stderr.startswith("error: there is no verb 'bild'; there are: setup, fetch, patch, ")
    assert done.stderr.count("\n") == 1
    assert not venv(project).exists()


def test_no_verb_shows_the_verbs(project: Project) -> None:
    done = bare(project)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: python3 -m tools VERB")


@pytest.mark.parametrize("arguments", [["patch", "--nope"], ["fetch", "extra"], ["patch", "--check", "--edit", "1"]])
def test_wrong_options_are_one_line(tmp_path: Path, arguments: list[str]) -> None:
    project = make_project(tmp_path)
    done = project.run(*arguments)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("error: ")
    assert done.stderr.endswith("--help)\n")


# --- clean and setup -------------------------------------------------------------------------------------------------


def fill(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "file").write_bytes(b"x" * 1000)


def test_clean_removes_what_was_built_and_says_so(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    for name in ("build", "dist", ".venv"):
        fill(project.root / name)
    fill(project.cache)
    before = listing(project.root)
    done = project.ok("clean")
    assert done.stdout.splitlines() == [f"removed {project.root / name} (1.0 kB)" for name in ("build", "dist")]
    assert listing(project.root) == [path for path in before if path not in ("build/file", "dist/file")]
    assert listing(project.cache) == ["file"]
    assert project.ok("clean").stdout == "nothing to remove\n"


def test_clean_all(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    fill(project.root / ".venv")
    fill(project.cache)
    done = project.ok("clean", "--all")
    assert done.stdout.splitlines() == [f"removed {path} (1.0 kB)" for path in (project.root / ".venv", project.cache)]


def test_clean_does_not_follow_links(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    fill(tmp_path / "elsewhere")
    fill(project.root / "build")
    (project.root / "build" / "link").symlink_to(tmp_path / "elsewhere")
    (project.root / "dist").symlink_to(tmp_path / "elsewhere")
    project.ok("clean")
    assert not (project.root / "build").exists()
    assert not (project.root / "dist").is_symlink()
    assert listing(tmp_path / "elsewhere") == ["file"]


def test_setup_tells_what_each_system_package_is_for(tmp_path: Path) -> None:
    text = make_project(tmp_path).ok("setup", "--help").stdout
    assert "  qemu-system-x86      machines with several NUMA nodes\n" in text


def test_setup_system_elsewhere_than_on_debian(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    project.environment["PATH"] = os.devnull
    error = project.fails("setup", "--system")
    assert error.startswith("error: --system needs Debian's apt-get; elsewhere install by hand: busybox-static, ")
