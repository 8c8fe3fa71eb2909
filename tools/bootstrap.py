"""From a bare Python to one that has what the tools need: makes .venv, fills it, starts over in it.

Only the standard library may be imported here.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

from tools.fail import Fail
from tools.lock import locked
from tools.paths import BUILD, ROOT, VENV

# Set by whoever has seen to the requirements already, such as CMake inside pip's isolated build environment.
NO_BOOTSTRAP = "LLAMAFILE_NUMA_NO_BOOTSTRAP"

# What `fetch` and `patch` import, which is all that a build calls.
BUILD_TIME_MODULES = ("rich", "unearth")


def enter(groups: Iterable[str], arguments: list[str]) -> None:
    """Return if this Python has the requirement groups; else go on in .venv, which is made and filled as needed.

    On POSIX the process is replaced, on Windows a child runs and its exit code is passed on.
    Raises Fail if no virtual environment can be made or pip fails.
    """
    if os.environ.get(NO_BOOTSTRAP) == "1":
        require_modules(BUILD_TIME_MODULES)
        return
    ensure(groups)
    if not inside(VENV):
        restart(arguments)


def require_modules(names: Iterable[str]) -> None:
    if missing := [name for name in names if importlib.util.find_spec(name) is None]:
        raise Fail(f"{NO_BOOTSTRAP}=1 is set, but this Python lacks {', '.join(missing)}; unset it to have .venv made")


def ensure(groups: Iterable[str]) -> None:
    """Make .venv and install the groups whose requirements are not in it as listed."""
    wanted = {group: requirements(group) for group in groups}
    if all(is_installed(group, listed) for group, listed in wanted.items()):
        return
    with locked(BUILD / ".venv.lock", lambda: tell("waiting for another run that sets up .venv")):
        if not python().exists() or half_made().exists():
            make()
        try:
            for group, listed in wanted.items():
                if not is_installed(group, listed):
                    install(group, listed)
        except BaseException:
            if half_made().exists():
                shutil.rmtree(VENV, ignore_errors=True)
            raise
        half_made().unlink(missing_ok=True)


def requirements(group: str) -> list[str]:
    file = ROOT / "pyproject.toml"
    try:
        listed = tomllib.loads(file.read_text(encoding="utf-8"))["dependency-groups"][group]
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise Fail(f"cannot read {file.name}: {error}") from None
    except KeyError:
        raise Fail(f"{file.name} has no list `{group}` in [dependency-groups]") from None
    if not isinstance(listed, list) or not all(isinstance(item, str) for item in listed):
        raise Fail(f"{file.name}: [dependency-groups] {group} must be a list of requirements")
    return listed


def digest(listed: list[str]) -> str:
    return hashlib.sha256("\n".join(listed).encode()).hexdigest()


def stamp(group: str) -> Path:
    return VENV / f".installed-{group}"


def is_installed(group: str, listed: list[str]) -> bool:
    file = stamp(group)
    return python().exists() and file.is_file() and file.read_text(encoding="ascii") == digest(listed)


def python() -> Path:
    return VENV / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def half_made() -> Path:
    """Present from the first moment of a .venv until it is complete."""
    return VENV / ".half-made"


def inside(venv: Path) -> bool:
    return Path(sys.prefix).resolve() == venv.resolve()


def make() -> None:
    """A fresh .venv; nothing of it stays if that fails or is interrupted."""
    if missing := [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise Fail(
            f"{sys.executable} cannot make virtual environments (no {missing[0]});"
            f" on Debian and Ubuntu: apt install python{version}-venv"
        )
    shutil.rmtree(VENV, ignore_errors=True)
    try:
        VENV.mkdir()
        half_made().touch()
        run([sys.executable, "-m", "venv", str(VENV)], "making .venv")
    except BaseException:
        shutil.rmtree(VENV, ignore_errors=True)
        raise


def install(group: str, listed: list[str]) -> None:
    """pip as the user has configured it. Its progress shows on a terminal only."""
    quiet = [] if sys.stderr.isatty() else ["--quiet"]
    if listed:
        command = [str(python()), "-m", "pip", "install", "--disable-pip-version-check", *quiet, *listed]
        run(command, f"installing into .venv ({group}): {', '.join(listed)}")
    stamp(group).write_text(digest(listed), encoding="ascii")


def run(command: list[str], what: str) -> None:
    tell(what)
    # Results of a verb go to stdout, so what is said on the way there must not.
    code = subprocess.run(command, cwd=ROOT, stdout=sys.stderr, check=False).returncode
    if code:
        raise Fail(f"{what} failed (exit {code}); the lines above tell why")


def restart(arguments: list[str]) -> None:
    command = [str(python()), "-m", "tools", *arguments]
    sys.stdout.flush()
    sys.stderr.flush()
    if sys.platform == "win32":
        sys.exit(subprocess.run(command, check=False).returncode)
    os.execv(command[0], command)


def tell(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
