"""The patch series: which patches there are, what each says of itself, and how they apply one after the other."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from tools import diff
from tools.diff import FileDiff, RejectedError
from tools.fail import Fail
from tools.paths import ROOT

PATCHES = ROOT / "patches" / "llama.cpp"
SERIES = "series"

# What the text above the first diff has to say, each as "Key: text", further lines indented.
HEADER_KEYS = ("Why", "Can go when", "Touches")

NAME = re.compile(r"\d{4}-[a-z0-9-]+\.patch")

Text = list[str]


@dataclass(frozen=True)
class Patch:
    """One file of the series: the text above its first diff, and the diffs."""

    name: str
    header: str
    diffs: tuple[FileDiff, ...]
    body: str  # the text of the diffs

    @property
    def number(self) -> int:
        """The number that its name begins with."""
        return int(self.name[:4])

    @property
    def touches(self) -> list[str]:
        """The files that its header names."""
        return header_value(self.header, "Touches").replace(",", " ").split()

    @property
    def paths(self) -> list[str]:
        """The files that it does touch."""
        return [one.path for one in self.diffs]

    @property
    def changed_lines(self) -> int:
        """Upstream lines added plus removed."""
        return sum(hunk.added + hunk.removed for one in self.diffs for hunk in one.hunks)


def header_value(header: str, key: str) -> str:
    """The text of one header key, empty if it is missing."""
    found = re.search(rf"^{re.escape(key)}:(.*(?:\n[ \t]+.*)*)", header, re.MULTILINE)
    return " ".join(found.group(1).split()) if found else ""


def names(folder: Path = PATCHES) -> list[str]:
    """The file names that the series lists; Fail if one is not of the form NNNN-words.patch, numbers rising."""
    try:
        lines = (folder / SERIES).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise Fail(f"the patch series cannot be read: {error}") from None
    listed = [name for line in lines if (name := line.partition("#")[0].strip())]
    for name in listed:
        if not NAME.fullmatch(name):
            raise Fail(f"{SERIES}: {name!r} is not of the form 0001-some-words.patch")
    for before, after in pairwise(listed):
        if int(after[:4]) <= int(before[:4]):
            raise Fail(f"{SERIES}: {after} stands behind {before}; each number must be above the one before it")
    return listed


def read(folder: Path, name: str) -> Patch:
    """One patch; Fail names the file and the line that is not understood."""
    try:
        text = (folder / name).read_bytes().decode("utf-8")
        header, diffs = diff.parse(text)
    except FileNotFoundError:
        raise Fail(f"{SERIES} lists {name}, but there is no such file beside it") from None
    except (OSError, UnicodeDecodeError, diff.ParseError) as error:
        raise Fail(f"{name}: {error}") from None
    return Patch(name, header, tuple(diffs), text[len(header) :])


def load(folder: Path = PATCHES) -> list[Patch]:
    """All patches in their order."""
    return [read(folder, name) for name in names(folder)]


def pick(patches: list[Patch], wanted: str) -> int:
    """Index of the patch with this number or file name."""
    for index, patch in enumerate(patches):
        if wanted == patch.name or (wanted.isdecimal() and int(wanted) == patch.number):
            return index
    there = ", ".join(patch.name for patch in patches) or "none yet"
    raise Fail(f"there is no patch {wanted!r}; there are: {there}")


# --- apply -----------------------------------------------------------------------------------------------------------


@dataclass
class Sources:
    """Source texts: those of a folder, and over them, in memory, what has been changed. None: there is no such file."""

    folder: Path
    changed: dict[str, Text | None] = field(default_factory=dict)

    def read(self, path: str) -> Text | None:
        return self.changed[path] if path in self.changed else read_text(self.folder / path)

    def write(self, path: str, text: Text | None) -> None:
        self.changed[path] = text

    def copy(self) -> Sources:
        return Sources(self.folder, dict(self.changed))


def read_text(file: Path) -> Text | None:
    """Lines of a file, whatever its encoding; write_text() gives back the same bytes."""
    if not file.is_file():
        return None
    return diff.split(file.read_bytes().decode("utf-8", "surrogateescape"))


def write_text(file: Path, text: Text | None) -> None:
    """Write a file as read_text() gave it; None removes it."""
    if text is None:
        file.unlink(missing_ok=True)
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes("".join(text).encode("utf-8", "surrogateescape"))


@dataclass(frozen=True)
class Failure:
    """One file to which a patch does not apply: the text it met and, unless the file is missing, the hunk."""

    patch: Patch
    diff: FileDiff
    text: Text | None
    rejected: RejectedError | None


@dataclass(frozen=True)
class Offset:
    """A hunk that was found `lines` below its stated place."""

    patch: Patch
    path: str
    hunk: int  # from 1
    lines: int


def apply_patch(patch: Patch, sources: Sources) -> tuple[list[Failure], list[Offset]]:
    """Apply one patch to the sources, entirely or, when there is a failure, not at all."""
    results: dict[str, Text | None] = {}
    failures: list[Failure] = []
    offsets: list[Offset] = []
    for one in patch.diffs:
        text = sources.read(one.path)
        if text is None and not one.created:
            failures.append(Failure(patch, one, None, None))
            continue
        try:
            result, moved = diff.apply(one, text or [])
        except RejectedError as rejected:
            failures.append(Failure(patch, one, text, rejected))
            continue
        results[one.path] = None if one.deleted else result
        offsets += [Offset(patch, one.path, n, lines) for n, lines in enumerate(moved, 1) if lines]
    if not failures:
        sources.changed.update(results)
    return failures, offsets


def apply_all(patches: Iterable[Patch], sources: Sources) -> tuple[list[Failure], list[Offset]]:
    """Apply patches in order; one that fails is left out, so that all failures show at once."""
    failures: list[Failure] = []
    offsets: list[Offset] = []
    for patch in patches:
        failed, moved = apply_patch(patch, sources)
        failures += failed
        offsets += moved
    return failures, offsets


# --- report ----------------------------------------------------------------------------------------------------------


def describe_offset(offset: Offset) -> str:
    return f"{offset.patch.name}: {offset.path}: hunk {offset.hunk} found {offset.lines:+d} lines from its stated place"


def describe_failures(failures: list[Failure]) -> list[str]:
    """Lines that tell, for each patch and file that failed, where the first hunk nearly fits and whether upstream has
    the change already."""
    lines: list[str] = []
    for failure in failures:
        if not lines or failure.patch.name not in lines:
            lines.append(failure.patch.name)
        lines += [f"  {line}" for line in describe_failure(failure)]
    return lines


def describe_failure(failure: Failure) -> list[str]:
    path = failure.diff.path
    if failure.rejected is None or failure.text is None:
        return [f"{path}: there is no such file any more"]
    number = failure.diff.hunks.index(failure.rejected.hunk) + 1
    head = f"{path}: hunk {number}, stated at line {failure.rejected.hunk.start}, does not apply"
    if is_applied_already(failure.diff, failure.text):
        return [head, "  upstream has this change already"]
    if not failure.rejected.hunk.old:
        return [head, "  it creates the file, but there is one already"]
    return [head, *describe_nearest(failure.rejected)]


def describe_nearest(rejected: RejectedError) -> list[str]:
    wanted = rejected.hunk.old
    place, fitting, differing = diff.nearest(rejected.hunk, rejected.lines, rejected.expected)
    at = place + differing
    there = rejected.lines[at].rstrip("\n") if at < len(rejected.lines) else "(end of the file)"
    return [
        f"  nearest is line {place + 1}, where {fitting} of {len(wanted)} lines fit; line {at + 1} does not:",
        f"    wanted  {wanted[differing].rstrip(chr(10))}",
        f"    there   {there}",
    ]


def is_applied_already(one: FileDiff, text: Text) -> bool:
    try:
        diff.apply(diff.reverse(one), text)
    except RejectedError:
        return False
    return True


def next_step(failures: list[Failure]) -> str:
    """The command to type after a failure of the series."""
    first = failures[0].patch
    of_first = [failure for failure in failures if failure.patch == first]
    everything = len(of_first) == len(first.diffs)
    if everything and all(f.text is not None and is_applied_already(f.diff, f.text) for f in of_first):
        return f"upstream has all of {first.name}: take it out of {SERIES} and delete it"
    return f"next: python3 -m tools patch --edit {first.number}"
