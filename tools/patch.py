"""Unpack the pinned sources and apply the patch series to them; check or change the series."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools import fetch, pin, series
from tools.console import err, out, say
from tools.fail import Fail
from tools.lock import locked
from tools.paths import flavour_dir
from tools.series import Patch, Sources
from tools.unpack import unpack

STAMP = ".prepared.json"
UNPATCHED = "upstream"  # the flavour that gets no patches
EDITED = "native"  # the flavour whose tree is edited to change a patch


def register(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "patch",
        help="prepare patched sources",
        description="Prepare build/FLAVOUR/tree: the pinned sources with the patch series applied, exactly and without"
        " fuzz. Does nothing if the tree is up to date; otherwise replaces only the files that differ.",
    )
    parser.add_argument("--flavour", default=EDITED, help="which tree (default: %(default)s)")
    parser.add_argument("--force", action="store_true", help="drop edits made in the tree")


def run(args: argparse.Namespace) -> int:
    out.print(str(prepare(args.flavour, force=args.force)))
    return 0


@dataclass(frozen=True)
class Stamp:
    """What a tree was prepared from and the sha256 of each file in it.

    `editing` is the name of the patch that the tree is laid out for to be changed, else empty.
    """

    digest: str
    files: dict[str, str]
    editing: str = ""

    def write(self, tree: Path) -> None:
        fresh = tree / f"{STAMP}.fresh"
        fresh.write_text(json.dumps(asdict(self), indent=0, sort_keys=True), encoding="utf-8")
        os.replace(fresh, tree / STAMP)


def read_stamp(tree: Path) -> Stamp | None:
    """The stamp of a tree, None if it has none that can be read."""
    try:
        return Stamp(**json.loads((tree / STAMP).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def digest(source: pin.Pin, patches: list[Patch]) -> str:
    """What a tree depends on: the archive, the part of it that is used, the patches in their order."""
    content = [source.sha256, source.subfolder, *source.include, *(patch.text for patch in patches)]
    return hashlib.sha256("\0".join(content).encode()).hexdigest()


def listing(tree: Path) -> dict[str, str]:
    """Paths below a tree, with "/" and without the stamp, and the sha256 of each."""
    files = sorted(file for file in tree.rglob("*") if file.is_file() and file.name != STAMP)
    return {file.relative_to(tree).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def prepare(flavour: str = EDITED, *, force: bool = False) -> Path:
    """The folder of a flavour's sources, unpacked, patched and stamped.

    Does nothing if the stamp says so. Raises Fail if a patch does not apply (a report says why) or if the tree has
    edits that no patch holds (`force` drops them); the tree then stays as it was.
    """
    if not re.fullmatch(r"[a-z0-9_]+", flavour):
        raise Fail(f"{flavour!r} is no name of a flavour; there are: native, upstream, portable")
    tree = flavour_dir(flavour) / "tree"
    with locked(flavour_dir(flavour) / ".lock", lambda: say(f"waiting for another run that prepares {flavour}")):
        source = pin.load()
        patches = [] if flavour == UNPATCHED else series.load()
        wanted = digest(source, patches)
        stamp = read_stamp(tree)
        if not (stamp and stamp.digest == wanted) or force:
            rebuild(tree, stamp, source, patches, wanted, force=force)
    return tree


def rebuild(tree: Path, stamp: Stamp | None, source: pin.Pin, patches: list[Patch], wanted: str, *, force: bool) -> None:
    archive = fetch.fetch(source)
    say(f"preparing {tree.parent.name}: {source.upstream} {source.commit}, {len(patches)} patches")
    fresh = tree.with_name("tree.fresh")
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        unpack(archive, source, fresh)
        sources = Sources(fresh)
        apply_series(patches, sources)
        write_changed(sources)
        files = listing(fresh)
        if stamp and not force:
            refuse_to_lose_edits(tree, stamp, files)
        sync(fresh, tree, stamp, files)
        Stamp(wanted, files).write(tree)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def apply_series(patches: list[Patch], sources: Sources) -> None:
    failures, offsets = series.apply_all(patches, sources)
    for offset in offsets:
        say(series.describe_offset(offset))
    if failures:
        for line in series.describe_failures(failures):
            err.print(line)
        failed = len({failure.patch.name for failure in failures})
        raise Fail(f"{failed} of {len(patches)} patches do not apply; {series.next_step(failures)}")


def write_changed(sources: Sources) -> None:
    for path, text in sources.changed.items():
        if text is None:
            (sources.folder / path).unlink(missing_ok=True)
        else:
            series.write_text(sources.folder / path, text)


def edits(tree: Path, stamp: Stamp) -> list[str]:
    """Files of a tree that are not as its stamp says: changed, missing, or added."""
    return sorted(path for path, _ in listing(tree).items() ^ stamp.files.items())


def refuse_to_lose_edits(tree: Path, stamp: Stamp, files: dict[str, str]) -> None:
    there = listing(tree)
    lost = sorted({path for path in edits(tree, stamp) if path in there and there[path] != files.get(path)})
    if lost:
        keep = f"python3 -m tools patch --refresh {stamp.editing or 'N'}"
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        raise Fail(f"{tree.parent.name}/tree has edits: {lost[0]}{more}; keep them: {keep}; drop them: --force")


def sync(fresh: Path, tree: Path, stamp: Stamp | None, files: dict[str, str]) -> None:
    """Make `tree` equal `fresh` and leave files that are equal alone, times included, so that little is rebuilt."""
    if not tree.exists():
        os.replace(fresh, tree)
        return
    Stamp("", stamp.files if stamp else {}).write(tree)  # from here to the end it is neither the old nor the new
    there = listing(tree)
    for path, sha256 in files.items():
        if there.get(path) != sha256:
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            os.utime(fresh / path)  # the time in the archive is older than what was built before
            os.replace(fresh / path, tree / path)
    for path in there.keys() - files.keys():
        (tree / path).unlink()
