"""Prepare the pinned sources with the patch series applied; check the series or change it."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools import fetch, pin, series
from tools.console import err, out, say, warn
from tools.fail import Fail
from tools.lock import locked
from tools.paths import flavour_dir
from tools.series import Patch, Sources
from tools.unpack import unpack

STAMP = ".prepared.json"
MADE = "tools/ui/dist"  # the web page, which tools/ui.py lays into a tree: no part of its sources
UNPATCHED = "upstream"  # the flavour that gets no patches
EDITED = "native"  # the flavour whose tree is edited to change a patch

DESCRIPTION = """\
Prepare build/FLAVOUR/tree: the pinned sources with the patch series applied, exactly and without fuzz. Does nothing
if the tree is up to date; otherwise replaces only the files that differ, so that little has to be built again.

To change a patch, edit the files in build/native/tree and write the edits into it with --refresh. To begin a new one,
edit and use --new. Where later patches are in the way, or a patch does not apply any more, --edit lays the tree out
with the series up to that patch; edit and --refresh it. --check tells whether all is in order.
"""


def register(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "patch", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--flavour", default=EDITED, help="which tree to prepare (default: %(default)s)")
    action.add_argument("--check", action="store_true", help="check the series and all prepared trees")
    action.add_argument("--refresh", metavar="N", help="write the edits in build/native/tree into patch N")
    action.add_argument("--edit", metavar="N", help="lay build/native/tree out with the series up to patch N")
    action.add_argument("--new", metavar="WORDS", help="make the edits in build/native/tree a new patch, the last")
    parser.add_argument("--force", action="store_true", help="drop edits in the tree that no patch holds")


def run(args: argparse.Namespace) -> int:
    from tools import check, refresh

    if args.check:
        check.check()
    elif args.refresh:
        refresh.refresh(args.refresh)
    elif args.edit:
        refresh.edit(args.edit, force=args.force)
    elif args.new:
        refresh.new(args.new)
    else:
        out.print(str(prepare(args.flavour, force=args.force)))
    return 0


# --- stamp -----------------------------------------------------------------------------------------------------------


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
        fresh.replace(tree / STAMP)


def read_stamp(tree: Path) -> Stamp | None:
    """The stamp of a tree, None if it has none that can be read."""
    try:
        return Stamp(**json.loads((tree / STAMP).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def digest(source: pin.Pin, patches: list[Patch]) -> str:
    """What a tree depends on: the archive, the part of it that is used, the patches in their order."""
    content = [source.sha256, source.subfolder, *source.include, *(patch.body for patch in patches)]
    return hashlib.sha256("\0".join(content).encode()).hexdigest()


def listing(tree: Path) -> dict[str, str]:
    """Paths below a tree, with "/" and without the stamp and what is made there, and the sha256 of each."""
    files = sorted(file for file in tree.rglob("*") if file.is_file() and not file.name.startswith(STAMP))
    kept = [file for file in files if not file.is_relative_to(made(tree))]
    return {file.relative_to(tree).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in kept}


def made(tree: Path) -> Path:
    """The folder in a tree that is no part of its sources."""
    return tree / MADE


def edits(tree: Path, stamp: Stamp) -> list[str]:
    """Files of a tree that are not as its stamp says: changed, missing, or added."""
    return sorted({path for path, _ in listing(tree).items() ^ stamp.files.items()})


# --- prepare ---------------------------------------------------------------------------------------------------------


def prepare(flavour: str = EDITED, *, force: bool = False) -> Path:
    """The folder of a flavour's sources, unpacked, patched and stamped.

    Does nothing if the stamp says so. Raises Fail if a patch does not apply (a report says why) or if the tree has
    edits that no patch holds (`force` drops them); the tree then stays as it was.
    """
    with tree_of(flavour) as tree:
        source = pin.load()
        patches = patches_of(flavour)
        stamp = read_stamp(tree)
        wanted = digest(source, patches)
        if stamp and stamp.editing and not force:
            warn(f"{flavour}/tree is laid out to edit {stamp.editing} and stays so until --refresh, or --force")
            return tree
        if force or not stamp or stamp.digest != wanted:
            say(f"preparing {flavour}: {source.upstream} {source.commit}, {len(patches)} patches")
            with pristine(tree, source) as sources:
                apply_series(patches, sources)
                lay_out(tree, sources, wanted, force=force)
    return tree


def patches_of(flavour: str) -> list[Patch]:
    return [] if flavour == UNPATCHED else series.load()


@contextmanager
def tree_of(flavour: str) -> Iterator[Path]:
    """The folder of a flavour's sources, which may be missing; nobody else changes it meanwhile."""
    if not re.fullmatch(r"[a-z0-9_]+", flavour):
        raise Fail(f"{flavour!r} is no name of a flavour; there are: native, upstream, portable")
    folder = flavour_dir(flavour)
    with locked(folder / ".lock", lambda: say(f"waiting for another run that prepares {flavour}")):
        yield folder / "tree"


@contextmanager
def pristine(tree: Path, source: pin.Pin) -> Iterator[Sources]:
    """The unpatched sources, unpacked beside a tree for as long as they are needed."""
    archive = fetch.fetch(source)
    fresh = tree.with_name("tree.fresh")
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        unpack(archive, source, fresh)
        yield Sources(fresh)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def apply_series(patches: list[Patch], sources: Sources) -> None:
    """Apply all patches, tell where one was found elsewhere than stated; Fail after a report on all that do not fit."""
    failures, offsets = series.apply_all(patches, sources)
    for offset in offsets:
        say(series.describe_offset(offset))
    if failures:
        for line in series.describe_failures(failures):
            err.print(line)
        failed = len({failure.patch.name for failure in failures})
        raise Fail(f"{failed} of {len(patches)} patches do not apply; {series.next_step(failures)}")


def lay_out(tree: Path, sources: Sources, wanted: str, *, editing: str = "", force: bool) -> None:
    """Make `tree` equal the sources, stamped as `wanted`.

    Files that are equal already keep their times. Fail, before anything is changed, if edits would be lost.
    """
    for path, text in sources.changed.items():
        series.write_text(sources.folder / path, text)
    files = listing(sources.folder)
    stamp = read_stamp(tree)
    if stamp and not force:
        refuse_to_lose_edits(tree, stamp, files)
    if tree.exists():
        before = stamp.files if stamp else {}
        Stamp("", before).write(tree)  # from here to the end it is neither the old tree nor the new
        sync(sources.folder, tree, files, before)
    else:
        sources.folder.replace(tree)
    Stamp(wanted, files, editing).write(tree)


def refuse_to_lose_edits(tree: Path, stamp: Stamp, files: dict[str, str]) -> None:
    there = listing(tree)
    known = stamp.files | files  # what lay_out() writes or removes
    lost = [path for path in edits(tree, stamp) if path in there and path in known and there[path] != files.get(path)]
    if lost:
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        keep = f"python3 -m tools patch --refresh {stamp.editing[:4] or 'N'}"
        drop = f"python3 -m tools patch --flavour {tree.parent.name} --force"
        raise Fail(f"{tree.parent.name}/tree has edits in {lost[0]}{more}; to keep them: {keep}; to drop them: {drop}")


def sync(fresh: Path, tree: Path, files: dict[str, str], before: dict[str, str]) -> None:
    """Move the files that differ from `fresh` to `tree`, and remove those that were there before and are no more."""
    there = listing(tree)
    for path, sha256 in files.items():
        if there.get(path) != sha256:
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            os.utime(fresh / path)  # the time in the archive is older than what was built from the file before
            (fresh / path).replace(tree / path)
    for path in before.keys() - files.keys():
        (tree / path).unlink(missing_ok=True)
