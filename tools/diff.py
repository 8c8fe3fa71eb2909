"""Unified diffs of text: parsed strictly, applied exactly, made with three lines of context. No files are touched here.

A text is a list of lines that keep their "\\n"; only the last may lack it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass

CONTEXT = 3  # lines

HUNK_HEAD = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@.*\n")
EXTRA_LINES = ("diff --git ", "index ", "new file mode ", "deleted file mode ")
NO_NEWLINE = "\\ No newline at end of file\n"
MAIL_SIGNATURE = "-- \n"  # what git format-patch ends with


class ParseError(Exception):
    """The text is not a diff; the message names the line."""


@dataclass(frozen=True)
class Hunk:
    """One place of a file. `start` is the first old line, counted from 1; each line is (sign, text), sign in " +-"."""

    start: int
    lines: tuple[tuple[str, str], ...]

    @property
    def old(self) -> list[str]:
        return [text for sign, text in self.lines if sign != "+"]

    @property
    def new(self) -> list[str]:
        return [text for sign, text in self.lines if sign != "-"]

    @property
    def added(self) -> int:
        return sum(sign == "+" for sign, _ in self.lines)

    @property
    def removed(self) -> int:
        return sum(sign == "-" for sign, _ in self.lines)

    @property
    def longest_addition(self) -> int:
        """The most lines that are added one after the other."""
        signs = "".join(sign for sign, _ in self.lines)
        return max(map(len, re.findall(r"\++", signs)), default=0)


@dataclass(frozen=True)
class FileDiff:
    """What happens to one file. A file that is created has no old lines, one that is deleted no new ones."""

    path: str
    hunks: tuple[Hunk, ...]
    created: bool = False
    deleted: bool = False


class RejectedError(Exception):
    """A hunk whose old lines are not in the text."""

    def __init__(self, hunk: Hunk, lines: list[str], expected: int) -> None:
        super().__init__()
        self.hunk = hunk
        self.lines = lines
        self.expected = expected  # index of the line where the hunk should have been


def split(text: str) -> list[str]:
    """Lines with their "\\n". (str.splitlines would also split at form feeds and other marks.)"""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


# --- parse -----------------------------------------------------------------------------------------------------------


class Reader:
    """Lines of a diff, one at a time, with their numbers."""

    def __init__(self, lines: list[str], number: int) -> None:
        self.lines = lines
        self.number = number  # of the line before the next, counted from 1 in the file

    def peek(self) -> str:
        return self.lines[self.number] if self.number < len(self.lines) else ""

    def take(self) -> str:
        line = self.peek()
        self.number += 1
        return line

    def error(self, wanted: str) -> ParseError:
        return ParseError(f"line {self.number + 1}: {wanted}")


def parse(text: str) -> tuple[str, list[FileDiff]]:
    """The text before the first diff, and the diffs. Raises ParseError on anything that is not understood entirely."""
    lines = split(text)
    if "\r" in text:
        number = next(number for number, line in enumerate(lines, 1) if "\r" in line)
        raise ParseError(f"line {number}: it ends in CR LF; patches have LF only")
    begin = next((number for number, line in enumerate(lines) if starts_file(line)), len(lines))
    reader = Reader(lines, begin)
    diffs = []
    while reader.peek() not in ("", MAIL_SIGNATURE):
        diffs.append(parse_file(reader))
    if not diffs:
        raise ParseError("there is no diff in it")
    return "".join(lines[:begin]), diffs


def starts_file(line: str) -> bool:
    return line.startswith(("diff --git ", "--- a/", "--- /dev/null"))


def parse_file(reader: Reader) -> FileDiff:
    while reader.peek().startswith(EXTRA_LINES):
        reader.take()
    if not reader.peek().startswith("--- "):
        raise reader.error("wanted '--- a/PATH' (renames, modes and binary files cannot be patched)")
    old = parse_path(reader, "--- ", "a/")
    new = parse_path(reader, "+++ ", "b/")
    path = new or old
    if path is None or (old and new and old != new):
        raise reader.error(f"the two paths above differ: {old}, {new}")
    hunks = list(parse_hunks(reader))
    if not hunks:
        raise reader.error(f"wanted a hunk (@@ -1,3 +1,4 @@) for {path}")
    return FileDiff(path, tuple(hunks), created=old is None, deleted=new is None)


def parse_path(reader: Reader, mark: str, side: str) -> str | None:
    """The path of a '---' or '+++' line, None for /dev/null."""
    line = reader.peek()
    name = line.removeprefix(mark).rstrip("\n").partition("\t")[0]
    if not line.startswith(mark) or not (name == "/dev/null" or name.startswith(side)):
        raise reader.error(f"wanted '{mark}{side}PATH' or '{mark}/dev/null'")
    reader.take()
    return None if name == "/dev/null" else name.removeprefix(side)


def parse_hunks(reader: Reader) -> Iterator[Hunk]:
    while head := HUNK_HEAD.fullmatch(reader.peek()):
        reader.take()
        start, old_length, _, new_length = (1 if part is None else int(part) for part in head.groups())
        yield Hunk(start, tuple(parse_body(reader, old_length, new_length)))
    if reader.peek().startswith("@@"):
        raise reader.error("wanted a hunk head of the form @@ -1,3 +1,4 @@")
    if reader.peek() not in ("", MAIL_SIGNATURE) and not starts_file(reader.peek()):
        raise reader.error(f"wanted a hunk or the next file, got {reader.peek().rstrip()!r}")


def parse_body(reader: Reader, old: int, new: int) -> Iterator[tuple[str, str]]:
    """The lines of a hunk that has `old` lines before and `new` lines after."""
    while old > 0 or new > 0:
        sign, text = reader.peek()[:1], reader.peek()[1:]
        if sign not in (" ", "+", "-") or (sign != "+" and old == 0) or (sign != "-" and new == 0):
            raise reader.error(f"the hunk does not have the lines its head says ({old} old, {new} new to come)")
        reader.take()
        old -= sign != "+"
        new -= sign != "-"
        if reader.peek() == NO_NEWLINE:
            reader.take()
            text = text.removesuffix("\n")
        yield sign, text


# --- apply -----------------------------------------------------------------------------------------------------------


def apply(diff: FileDiff, lines: list[str]) -> tuple[list[str], list[int]]:
    """The new text, and for each hunk how many lines below its stated place it was found.

    Context and removed lines must be equal to the letter; only the place may differ. Raises RejectedError for the first
    hunk that is nowhere below the one before it.
    """
    result: list[str] = []
    done = 0  # lines of the old text that are dealt with
    drift = 0
    offsets = []
    for hunk in diff.hunks:
        stated = max(hunk.start - 1, 0)
        at = locate(hunk.old, lines, stated + drift, done)
        if at is None or (diff.created and lines):
            raise RejectedError(hunk, lines, stated + drift)
        drift = at - stated
        offsets.append(drift)
        result += lines[done:at] + hunk.new
        done = at + len(hunk.old)
    result += lines[done:]
    if diff.deleted and result:
        raise RejectedError(diff.hunks[-1], lines, 0)
    return result, offsets


def locate(wanted: list[str], lines: list[str], expected: int, least: int) -> int | None:
    """Index nearest to `expected`, and not below `least`, where `wanted` stands in `lines`."""
    last = len(lines) - len(wanted)
    for distance in range(max(expected, last - expected, expected - least) + 1):
        for at in (expected - distance, expected + distance):
            if least <= at <= last and lines[at : at + len(wanted)] == wanted:
                return at
    return None


def reverse(diff: FileDiff) -> FileDiff:
    """The diff that undoes this one."""
    swap = {"+": "-", "-": "+", " ": " "}
    hunks = []
    drift = 0
    for hunk in diff.hunks:
        hunks.append(Hunk(hunk.start + drift, tuple((swap[sign], text) for sign, text in hunk.lines)))
        drift += hunk.added - hunk.removed
    return FileDiff(diff.path, tuple(hunks), created=diff.deleted, deleted=diff.created)


def apply_partly(diff: FileDiff, lines: list[str]) -> tuple[list[str], list[Hunk]]:
    """The text with those hunks applied that fit, and the hunks that do not."""
    rejected = []
    drift = 0
    for hunk in diff.hunks:
        alone = FileDiff(diff.path, (Hunk(hunk.start + drift, hunk.lines),), diff.created, diff.deleted)
        try:
            lines, _ = apply(alone, lines)
            drift += hunk.added - hunk.removed
        except RejectedError:
            rejected.append(hunk)
    return lines, rejected


def nearest(hunk: Hunk, lines: list[str], expected: int) -> tuple[int, int, int]:
    """Where a rejected hunk fits best: (index of its place, how many of its old lines fit, index in hunk.old of the
    first that does not)."""
    wanted = hunk.old

    def fitting(at: int) -> int:
        return sum(a == b for a, b in zip(wanted, lines[at : at + len(wanted)], strict=False))

    at = max(range(max(len(lines), 1)), key=lambda place: (fitting(place), -abs(place - expected)))
    there = lines[at : at + len(wanted)]
    differing = next((i for i, line in enumerate(wanted) if i >= len(there) or there[i] != line), 0)
    return at, fitting(at), differing


# --- make ------------------------------------------------------------------------------------------------------------


def make(path: str, old: list[str] | None, new: list[str] | None) -> FileDiff | None:
    """The diff from one text to another, None if they are equal; a missing file is None."""
    if old == new:
        return None
    before, after = old or [], new or []
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    hunks = tuple(make_hunk(group, before, after) for group in matcher.get_grouped_opcodes(CONTEXT))
    return FileDiff(path, hunks, created=old is None, deleted=new is None)


def make_hunk(group: list[tuple[str, int, int, int, int]], before: list[str], after: list[str]) -> Hunk:
    lines: list[tuple[str, str]] = []
    for tag, i1, i2, j1, j2 in group:
        if tag == "equal":
            lines += [(" ", text) for text in before[i1:i2]]
        else:
            lines += [("-", text) for text in before[i1:i2]] + [("+", text) for text in after[j1:j2]]
    first, last = group[0][1], group[-1][2]
    return Hunk(first + (last > first), tuple(lines))


def render(diff: FileDiff, old: list[str]) -> str:
    """The diff as text; `old` is what it applies to, whose function heads are quoted behind the @@ as git does."""
    source = "/dev/null" if diff.created else f"a/{diff.path}"
    sink = "/dev/null" if diff.deleted else f"b/{diff.path}"
    parts = [f"--- {source}\n+++ {sink}\n"]
    drift = 0
    for hunk in diff.hunks:
        parts.append(render_hunk(hunk, drift, old))
        drift += hunk.added - hunk.removed
    return "".join(parts)


def render_hunk(hunk: Hunk, drift: int, old: list[str]) -> str:
    old_length, new_length = len(hunk.old), len(hunk.new)
    # A side without lines is counted from the line before it.
    new_start = hunk.start + drift + (old_length == 0) - (new_length == 0)
    head = f"@@ -{hunk.start},{old_length} +{new_start},{new_length} @@"
    if section := section_above(old, hunk.start - 1):
        head += f" {section}"
    body = "".join(sign + text + ("" if text.endswith("\n") else "\n" + NO_NEWLINE) for sign, text in hunk.lines)
    return f"{head}\n{body}"


def section_above(lines: list[str], index: int) -> str:
    """The nearest line above that begins in the first column with a name, as a head for people."""
    for line in reversed(lines[: max(index, 0)]):
        if re.match(r"[A-Za-z_$]", line):
            return line.rstrip()[:80].rstrip()
    return ""
