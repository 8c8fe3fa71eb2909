"""Changes the patch series from edits made in the prepared tree."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from tools import diff, pin, series
from tools.console import out, say, warn
from tools.fail import Fail
from tools.patch import (
    EDITED,
    Stamp,
    apply_series,
    digest,
    edits,
    lay_out,
    listing,
    prepare,
    pristine,
    read_stamp,
    tree_of,
)
from tools.series import PATCHES, SERIES, Patch, Sources, Text, read_text

NEW_HEADER = """\
{title}

Why:
Can go when:
Touches:

"""


def edit(wanted: str, *, force: bool = False) -> None:
    """Lay the tree out with the series up to a patch, and of that patch every hunk that fits; tell which do not."""
    with tree_of(EDITED) as tree:
        source = pin.load()
        patches = series.load()
        index = series.pick(patches, wanted)
        patch = patches[index]
        with pristine(tree, source) as sources:
            apply_series(patches[:index], sources)
            rejected = apply_partly(patch, sources)
            lay_out(tree, sources, "", editing=patch.name, force=force)
    for text in rejected:
        out.print(text, end="")
    todo = f"bring in by hand the {len(rejected)} hunks above" if rejected else "edit"
    say(f"build/{EDITED}/tree stands at {patch.name}: {todo}, then: python3 -m tools patch --refresh {patch.number}")


def apply_partly(patch: Patch, sources: Sources) -> list[str]:
    """Apply the hunks that fit; returns those that do not, as text."""
    rejected = []
    for one in patch.diffs:
        text = sources.read(one.path)
        result, misfits = diff.apply_partly(one, text or [])
        if text is not None or result:
            sources.write(one.path, result)
        if misfits:
            rest = diff.FileDiff(one.path, tuple(misfits), one.created, one.deleted)
            rejected.append(diff.render(rest, text or []))
    return rejected


def refresh(wanted: str) -> None:
    """Write the edits in the tree into a patch, then prepare the tree with the whole series again."""
    with tree_of(EDITED) as tree:
        source = pin.load()
        patches = series.load()
        index = series.pick(patches, wanted)
        patch = patches[index]
        stamp = stamp_for(tree, patch.name, digest(source, patches))
        edited = edited_files(tree, stamp)
        later = [] if stamp.editing else patches[index + 1 :]
        with pristine(tree, source) as sources:
            apply_series(patches[:index], sources)
            paths = [*patch.paths, *(path for path in edited if path not in patch.paths)]
            after = {path: without(later, path, read_text(tree / path)) for path in paths}
            write_patch(patch.name, patch.header, sources, after)
        accept_edits(tree, stamp)
    prepare(EDITED)


def new(words: str) -> None:
    """Make the edits in the tree a patch of its own, the last of the series; its header is left to be filled in."""
    slug = re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")
    if not slug:
        raise Fail(f"{words!r} does not name a patch; say in a few words what it does")
    with tree_of(EDITED) as tree:
        source = pin.load()
        patches = series.load()
        stamp = stamp_for(tree, "", digest(source, patches))
        edited = edited_files(tree, stamp)
        if not edited:
            raise Fail(f"there are no edits in build/{EDITED}/tree to make a patch of")
        name = f"{(patches[-1].number if patches else 0) + 1:04}-{slug}.patch"
        with pristine(tree, source) as sources:
            apply_series(patches, sources)
            header = NEW_HEADER.format(title=words.strip())
            write_patch(name, header, sources, {path: read_text(tree / path) for path in edited})
        with (PATCHES / SERIES).open("a", encoding="utf-8", newline="\n") as file:
            file.write(f"{name}\n")
        accept_edits(tree, stamp)
    prepare(EDITED)
    say(f"now say in {name} why it is there and when it can go")


def stamp_for(tree: Path, patch: str, current: str) -> Stamp:
    """The stamp of a tree whose edits can be told apart from the series; Fail tells what to do about any other."""
    stamp = read_stamp(tree)
    if stamp is None:
        raise Fail(f"build/{EDITED}/tree is not prepared; python3 -m tools patch does that, then edit it")
    if stamp.editing and stamp.editing != patch:
        raise Fail(f"build/{EDITED}/tree is laid out to edit {stamp.editing}; refresh that, or --edit another --force")
    if not stamp.editing and stamp.digest != current:
        raise Fail(
            f"the series has changed since build/{EDITED}/tree was prepared, so its edits cannot be told apart;"
            " put the patches back as they were, --refresh, then change them"
        )
    return stamp


def edited_files(tree: Path, stamp: Stamp) -> list[str]:
    """Upstream files that differ from the stamp. New ones do not count: patches are hooks, code goes elsewhere."""
    found = edits(tree, stamp)
    for path in found:
        if path not in stamp.files:
            warn(f"{path} is new and left out: new code belongs in src/numa_node")
    return [path for path in found if path in stamp.files]


def accept_edits(tree: Path, stamp: Stamp) -> None:
    """Stamp the tree as it is: its edits are in a patch now, so preparing it anew may replace them."""
    Stamp("", {path: sha256 for path, sha256 in listing(tree).items() if path in stamp.files}).write(tree)


def without(later: Iterable[Patch], path: str, text: Text | None) -> Text | None:
    """A text of the tree with later patches taken out; Fail if edits stand in their way."""
    for patch in reversed(list(later)):
        for one in patch.diffs:
            if one.path != path:
                continue
            try:
                text, _ = diff.apply(diff.reverse(one), text or [])
            except diff.RejectedError:
                raise Fail(
                    f"the edits of {path} touch lines of {patch.name}, a later patch; refresh that one instead,"
                    " or begin with --edit"
                ) from None
    return text


def write_patch(name: str, header: str, before: Sources, after: dict[str, Text | None]) -> None:
    """Write a patch that leads from one state to the other; Fail if nothing is left of it."""
    bodies = {}
    for path, text in after.items():
        old = before.read(path)
        if one := diff.make(path, old, text):
            bodies[path] = diff.render(one, old or [])
    if not bodies:
        raise Fail(f"nothing is left of {name}; to drop a patch, take it out of {SERIES} and delete it")
    content = with_touches(header, list(bodies)) + "".join(bodies.values())
    (PATCHES / name).write_bytes(content.encode("utf-8", "surrogateescape"))
    say(f"wrote {name}: {', '.join(bodies)}")


def with_touches(header: str, paths: list[str]) -> str:
    """A patch header whose Touches line names these files."""
    line = "Touches: " + ",\n  ".join(paths) + "\n"
    return re.sub(r"^Touches:.*\n(?:[ \t]+\S.*\n)*", lambda _: line, header, count=1, flags=re.MULTILINE)
