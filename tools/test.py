"""Run the linters, the type checks and the tests."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from typing import Any

from tools import build, wine
from tools.console import say
from tools.fail import Fail
from tools.paths import ROOT

# From what fails first and fastest to what takes longest.
ORDER = ("tests/unit", "tests/core", "tests/build", "tests/wine", "tests/lab")
CHECKS = {
    "ruff check": ["ruff", "check"],
    "ruff format": ["ruff", "format", "--check"],
    "mypy": ["mypy", "--strict", "tools", "tests", "src/llamafile_numa"],
    # What Windows does not have, such as os.geteuid, is an error there.
    "mypy for Windows": [
        *("mypy", "--strict", "--platform", "win32", "--cache-dir", ".mypy_cache/win32"),
        *("tools", "src/llamafile_numa"),
    ],
    "mypy for Python 3.9": [
        *("mypy", "--strict", "--python-version", "3.9", "--cache-dir", ".mypy_cache/3.9"),
        "src/llamafile_numa",
    ],
}


def register(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "test",
        help="run linters, type checks, tests",
        description="Check the sources with ruff and mypy, build native, upstream and, where there is Wine,"
        " win_amd64, run pytest. What this machine cannot run is skipped and named with the reason; where CI is set, a"
        " skip is a failure. Tests that take many minutes (marked slow) run with --slow, with -m and where CI is set;"
        " those marked long only with -m long.",
        epilog="Other arguments for pytest follow --, for example: python3 -m tools test tests/unit -- -x --pdb",
    )
    parser.add_argument("tests", nargs="*", metavar="TEST", help="files or folders; all, if none is given")
    parser.add_argument("-k", metavar="EXPRESSION", help="pytest's: only tests whose names match")
    parser.add_argument("-m", metavar="EXPRESSION", help="pytest's: only tests with these markers")
    parser.add_argument("--slow", action="store_true", help="run the tests marked slow, too")
    parser.add_argument("--no-skips", action="store_true", help="a test that is skipped fails")


def run(args: argparse.Namespace) -> int:
    ci = in_ci()
    selected = args.tests or [folder for folder in ORDER if (ROOT / folder).is_dir()]
    check()
    if not args.tests:
        for flavour in ("native", "upstream", *(["win_amd64"] if wine.installed() else [])):
            build.build(flavour)
    markers = args.m or ("not long" if args.slow or ci else "not slow and not long")
    command = [sys.executable, "-m", "pytest", *selected, "-m", markers, *(["-k", args.k] if args.k else [])]
    command += ["--no-skips", "--continue-on-collection-errors"] if args.no_skips or ci else []
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in ("1", "true")


def check() -> None:
    """Run all linters, each in full, before failing for any."""
    failed = [name for name, command in CHECKS.items() if not passes(name, command)]
    if failed:
        raise Fail(f"{' and '.join(failed)} found faults, listed above; the tests were not run")


def passes(name: str, command: list[str]) -> bool:
    say(f"{name}:")
    return subprocess.run([sys.executable, "-m", *command], cwd=ROOT, stdout=sys.stderr, check=False).returncode == 0
