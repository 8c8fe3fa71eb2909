"""Build the server's web page with npm, from the pinned sources."""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tools import bootstrap, patch, pin
from tools.bootstrap import NO_BOOTSTRAP
from tools.console import err, out, say, warn
from tools.fail import Fail
from tools.lock import locked
from tools.paths import cache_dir

SOURCES = Path("tools", "ui")  # of a tree
NODE_FLOOR = (20, 19)  # what the tools that build the page ask for; Debian 12 has 18
WITHOUT = ("upstream",)  # flavours that nobody opens in a browser
LAST_WORDS = 30  # lines of npm that are shown if it fails


def register(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "ui",
        description="Build the web page of the server from the sources of a flavour, with npm as it is configured and"
        " the lock file as pinned, and lay it where the build embeds it. It is kept in the cache, so this takes minutes"
        f" once. Node.js {floor()} or newer is used if it is installed, else that of the package index.",
    )
    parser.add_argument("--flavour", default=patch.EDITED, help="whose sources (default: %(default)s)")
    parser.add_argument("--optional", action="store_true", help="a page that cannot be built is no failure")


def run(args: argparse.Namespace) -> int:
    from tools import build

    tree = patch.prepare(args.flavour)
    with build.lock(args.flavour):
        if args.optional:
            put(tree)
        else:
            out.print(str(lay(page(tree), tree)))
    return 0


def put(tree: Path) -> None:
    """Lay the page into a tree. If it cannot be built, say so, and leave none there: the server then has no page."""
    try:
        lay(page(tree), tree)
    except Fail as failure:
        warn(f"{failure}; the server will have no web page")
        shutil.rmtree(patch.made(tree), ignore_errors=True)


def lay(built: Path, tree: Path) -> Path:
    """Copy the page to where upstream's build looks for one that is there already; the copy."""
    target = patch.made(tree)
    if not target.is_dir() or digest(target) != digest(built):
        fresh = tree.with_name("page.fresh")
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.copytree(built, fresh)
        shutil.rmtree(target, ignore_errors=True)
        fresh.replace(target)
    return target


def page(tree: Path) -> Path:
    """The folder of the page that belongs to the sources in a tree, in the cache.

    Raises Fail if there is no Node.js that is new enough, or npm fails (its last words are above).
    """
    sources, version = tree / SOURCES, pin.load().commit
    key = hashlib.sha256(f"{digest(sources, without=patch.made(tree))} {version}".encode()).hexdigest()[:16]
    target = cache_dir() / "ui" / key
    with locked(cache_dir() / "locks" / "ui.lock", lambda: say("waiting for another run that builds the web page")):
        if not (target / "index.html").is_file():
            make(sources, target, version)
    return target


def make(sources: Path, target: Path, version: str) -> None:
    """Build the page in a copy of its sources, and move it to `target` when it is whole."""
    search_path = node()
    say("building the web page with npm: some minutes, once")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="work-", ignore_cleanup_errors=True) as folder:
        work, built = Path(folder, "ui"), Path(folder, "page")
        shutil.copytree(sources, work, ignore=shutil.ignore_patterns("dist", "node_modules"))
        environment = {
            **os.environ,
            "PATH": search_path,
            "npm_config_cache": str(cache_dir() / "npm"),
            "npm_config_update_notifier": "false",
            "LLAMA_UI_OUT_DIR": str(built),
            "LLAMA_BUILD_NUMBER": version,
        }
        npm(work, environment, "ci", "--no-audit", "--no-fund")
        npm(work, environment, "run", "build")
        if not (built / "index.html").is_file():
            raise Fail("npm has built a web page without an index.html")
        shutil.rmtree(target, ignore_errors=True)
        built.replace(target)


def npm(folder: Path, environment: dict[str, str], *arguments: str) -> None:
    program = shutil.which("npm", path=environment["PATH"])
    assert program  # node() has looked
    done = subprocess.run(
        [program, *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        err.print("\n".join(done.stdout.splitlines()[-LAST_WORDS:]))
        raise Fail(f"npm {arguments[0]} failed (exit {done.returncode}); its last words are above")


def node() -> str:
    """A search path with a node and an npm that are new enough: this process's, or with those of the package index."""
    found = version_of(os.environ.get("PATH", ""))
    if found >= NODE_FLOOR:
        return os.environ["PATH"]
    has = f"this is {'.'.join(map(str, found))}" if found else "there is none"
    wanted = f"the web page needs Node.js {floor()} or newer with npm, and {has}"
    if os.environ.get(NO_BOOTSTRAP) == "1":
        raise Fail(wanted)
    say(f"{wanted}: taking it from the package index")
    try:
        bootstrap.ensure(["node"])
    except Fail as failure:
        raise Fail(f"{wanted}; from the package index: {failure}") from None
    return os.pathsep.join([str(bootstrap.python().parent), os.environ.get("PATH", "")])


def version_of(search_path: str) -> tuple[int, ...]:
    """The version of the node on a search path, such as (20, 19, 0); empty if it, or npm, is missing."""
    program = shutil.which("node", path=search_path)
    if not program or not shutil.which("npm", path=search_path):
        return ()
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return ()
    numbers = re.match(r"v(\d+)\.(\d+)\.(\d+)", said)
    return tuple(map(int, numbers.groups())) if numbers else ()


def floor() -> str:
    return ".".join(map(str, NODE_FLOOR))


def digest(folder: Path, *, without: Path | None = None) -> str:
    """Of the paths and contents of all files below a folder."""
    whole = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        if file.is_file() and not (without and file.is_relative_to(without)):
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            whole.update(f"{file.relative_to(folder).as_posix()}\0{content}\0".encode())
    return whole.hexdigest()
