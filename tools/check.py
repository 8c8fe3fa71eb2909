"""Checks the patch series and the trees prepared with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tools import paths, pin, series
from tools.console import err, out, table
from tools.fail import Fail
from tools.patch import digest, edits, patches_of, read_stamp
from tools.series import HEADER_KEYS, PATCHES, SERIES, Patch

MOST_CHANGED_LINES = 80  # upstream lines added plus removed, over all patches
LONGEST_HOOK = 3  # lines added one after the other


def check() -> None:
    """Print the series as a table; Fail after a list of everything that is not in order."""
    patches, problems = read_all(PATCHES)
    problems += [problem for patch in patches for problem in check_patch(patch)]
    total = sum(patch.changed_lines for patch in patches)
    if total > MOST_CHANGED_LINES:
        problems.append(f"{total} upstream lines are added or removed, at most {MOST_CHANGED_LINES} are wanted")
    if not problems:
        problems += check_trees()
    out.print(table(["patch", ">lines", "touches"], [(p.name, p.changed_lines, ", ".join(p.paths)) for p in patches]))
    out.print(f"{len(patches)} patches, {total} of at most {MOST_CHANGED_LINES} upstream lines added or removed")
    for problem in problems:
        err.print(f"  {problem}")
    if problems:
        raise Fail(f"{len(problems)} problem{'s' if len(problems) > 1 else ''} in the patch series, listed above")


def read_all(folder: Path) -> tuple[list[Patch], list[str]]:
    """All patches that can be read, and what is wrong with the others and with the list."""
    try:
        listed = series.names(folder)
    except Fail as failure:
        return [], [str(failure)]
    patches, problems = [], []
    for name in listed:
        try:
            patches.append(series.read(folder, name))
        except Fail as failure:
            problems.append(str(failure))
    there = {file.name for file in folder.iterdir() if file.name != SERIES}
    problems += [f"{name} is not listed in {SERIES}" for name in sorted(there - set(listed))]
    return patches, problems


def check_patch(patch: Patch) -> Iterator[str]:
    for key in HEADER_KEYS:
        if not series.header_value(patch.header, key):
            yield f"{patch.name}: its header says nothing under '{key}:'"
    if patch.touches and sorted(patch.touches) != sorted(patch.paths):
        yield f"{patch.name}: says that it touches {', '.join(patch.touches)}, but touches {', '.join(patch.paths)}"
    for one in patch.diffs:
        if one.created or one.deleted:
            yield f"{patch.name}: {one.path}: patches only change files; new code belongs in src/numa_node"
        elif (longest := max(hunk.longest_addition for hunk in one.hunks)) > LONGEST_HOOK:
            yield f"{patch.name}: {one.path}: adds {longest} lines in one place; hooks have at most {LONGEST_HOOK}"


def check_trees() -> Iterator[str]:
    """What is wrong with the trees there are: behind the series, or not as their stamps say."""
    source = pin.load()
    for tree in sorted(paths.BUILD.glob("*/tree")):
        flavour = tree.parent.name
        where = f"build/{flavour}/tree"
        stamp = read_stamp(tree)
        if stamp is None:
            yield f"{where} has no stamp; python3 -m tools patch --flavour {flavour} prepares it again"
            continue
        if stamp.editing:
            yield f"{where} is laid out to edit {stamp.editing}; python3 -m tools patch --refresh {stamp.editing[:4]}"
        elif stamp.digest != digest(source, patches_of(flavour)):
            yield f"{where} is behind the series; python3 -m tools patch --flavour {flavour}"
        for path in edits(tree, stamp):
            yield f"{where}/{path} " + ("is not as it was prepared" if path in stamp.files else "is not part of it")
