"""Whether two programs were built alike: only then do their speeds tell something about the patches."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tools.bench.measure import environment
from tools.console import err, say
from tools.fail import Fail

SYSTEM_INFO = re.compile(r"system_info:[^|]*\|(.*)")


@dataclass(frozen=True)
class Identity:
    """What a program says of itself: version and compiler (of --version), and the features it was built with."""

    version: str
    features: tuple[str, ...]


def identify(program: Path, model: Path) -> Identity:
    """Ask a program. Its features it tells only when it loads a model, so any small one is needed."""
    return Identity(version(words_of(program, "--version")), features(words_of(program, *completion(model))))


def completion(model: Path) -> tuple[str, ...]:
    return ("completion", "-m", str(model), "-p", "a", "-n", "1", "-no-cnv", "--no-warmup")


def words_of(program: Path, *arguments: str) -> str:
    """Everything a program prints. Raises Fail, below the last of it, if it does not end well."""
    done = subprocess.run(
        [str(program), *arguments],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if done.returncode:
        err.print(done.stdout[-2000:].rstrip())
        raise Fail(f"{program.name} {arguments[0]} ended with exit code {done.returncode}; its last words are above")
    return done.stdout


def version(text: str) -> str:
    """The lines `version: ...` and `built with ...`, as one."""
    return ", ".join(line.strip() for line in text.splitlines() if line.startswith(("version:", "built with")))


def features(text: str) -> tuple[str, ...]:
    """'system_info: n_threads = 2 / 2 | CPU : SSE3 = 1 | LLAMAFILE = 1 | ' -> ('CPU : SSE3 = 1', 'LLAMAFILE = 1')"""
    found = SYSTEM_INFO.search(text)
    if not found:
        raise Fail("a program does not tell its features: there is no line 'system_info' in what it prints")
    return tuple(feature.strip() for feature in found[1].split("|") if feature.strip())


def compare(upstream: Identity, ours: Identity) -> None:
    """Say what both are; Fail if they are not the same."""
    if upstream == ours:
        say(f"both are {ours.version}")
        say(f"both have {' | '.join(ours.features)}")
        return
    for name, one in (("upstream", upstream), ("ours", ours)):
        err.print(f"{name + ':':9} {one.version} | {' | '.join(one.features)}")
    raise Fail(
        f"ours is not built like upstream, so their speeds say nothing about the patches: {difference(upstream, ours)}"
    )


def difference(upstream: Identity, ours: Identity) -> str:
    theirs, own = ({one.version, *one.features} for one in (upstream, ours))
    sides = (("upstream", theirs - own), ("ours", own - theirs))
    return "; ".join(f"only {name} has {', '.join(sorted(only))}" for name, only in sides if only) or "other order"
