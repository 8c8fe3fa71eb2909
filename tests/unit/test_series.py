"""Diffs and the series of patches: parsed strictly, applied to the letter, made so that they lead back."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.sample import SAMPLES
from tools import diff, series
from tools.check import MOST_CHANGED_LINES, check_patch, read_all
from tools.diff import FileDiff, Hunk, RejectedError
from tools.fail import Fail

OLD = diff.split("".join(f"line {number}\n" for number in range(1, 21)))

ONE_LINE = """\
--- a/f
+++ b/f
@@ -9,3 +9,3 @@
 line 9
-line 10
+line ten
 line 11
"""


def parse_one(text: str) -> FileDiff:
    _, diffs = diff.parse(text)
    assert len(diffs) == 1
    return diffs[0]


# --- parse -----------------------------------------------------------------------------------------------------------


def test_header_and_files() -> None:
    header, diffs = diff.parse(f"About it.\n---\n--- not a file\n\n{ONE_LINE}{ONE_LINE.replace('/f', '/g')}")
    assert header == "About it.\n---\n--- not a file\n\n"
    assert [one.path for one in diffs] == ["f", "g"]
    assert diffs[0].hunks == (
        Hunk(9, ((" ", "line 9\n"), ("-", "line 10\n"), ("+", "line ten\n"), (" ", "line 11\n"))),
    )


def test_what_git_writes_around_a_diff() -> None:
    git = f"diff --git a/f b/f\nindex 0123abc..4567def 100644\n{ONE_LINE}-- \n2.39.5\n\n"
    assert parse_one(git) == parse_one(ONE_LINE)


def test_created_and_deleted_files() -> None:
    created = parse_one("--- /dev/null\n+++ b/f\n@@ -0,0 +1,2 @@\n+a\n+b\n")
    assert (created.path, created.created, diff.apply(created, [])[0]) == ("f", True, ["a\n", "b\n"])
    deleted = parse_one("--- a/f\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-a\n-b\n")
    assert (deleted.path, deleted.deleted, diff.apply(deleted, ["a\n", "b\n"])[0]) == ("f", True, [])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "there is no diff in it"),
        ("only words\n", "there is no diff in it"),
        (ONE_LINE.replace("\n", "\r\n"), "line 1: it ends in CR LF; patches have LF only"),
        ("--- a/f\n", "line 2: wanted '+++ b/PATH' or '+++ /dev/null'"),
        ("--- a/f\n+++ f\n", "line 2: wanted '+++ b/PATH' or '+++ /dev/null'"),
        ("--- a/f\n+++ b/g\n", "line 3: the two paths above differ: f, g"),
        ("--- a/f\n+++ b/f\n", "line 3: wanted a hunk (@@ -1,3 +1,4 @@) for f"),
        ("--- a/f\n+++ b/f\n@@ -1 1 @@\n", "line 3: wanted a hunk head of the form @@ -1,3 +1,4 @@"),
        (ONE_LINE[:-9], "line 7: the hunk does not have the lines its head says (1 old, 1 new to come)"),
        (ONE_LINE.replace(" line 9", "line 9"), "line 4: the hunk does not have the lines its head says"),
        (ONE_LINE.replace("+line ten\n", ""), "line 7: the hunk does not have the lines its head says (0 old, 1 new"),
        (ONE_LINE + " line 12\n", "line 8: wanted a hunk or the next file, got ' line 12'"),
        (ONE_LINE + "\nSome words.\n", "line 8: wanted a hunk or the next file, got ''"),
        ("diff --git a/f b/g\nrename from f\n", "line 2: wanted '--- a/PATH' (renames, modes and binary files"),
        ("diff --git a/f b/f\nold mode 100644\n", "line 2: wanted '--- a/PATH' (renames, modes and binary files"),
    ],
)
def test_what_is_no_diff(text: str, complaint: str) -> None:
    with pytest.raises(diff.ParseError) as error:
        diff.parse(text)
    assert str(error.value).startswith(complaint)


# --- apply -----------------------------------------------------------------------------------------------------------


def test_applied_where_stated() -> None:
    lines, offsets = diff.apply(parse_one(ONE_LINE), OLD)
    assert (lines[9], len(lines), offsets) == ("line ten\n", 20, [0])


@pytest.mark.parametrize(("moved", "offset"), [(["new\n"] * 7 + OLD, 7), (OLD[5:], -5)])
def test_found_at_an_offset(moved: list[str], offset: int) -> None:
    lines, offsets = diff.apply(parse_one(ONE_LINE), moved)
    assert (offsets, lines) == ([offset], [("line ten\n" if line == "line 10\n" else line) for line in moved])


def test_nearest_of_several_places() -> None:
    lines, offsets = diff.apply(parse_one(ONE_LINE), OLD * 3)
    assert (offsets, lines.count("line ten\n"), lines[9]) == ([0], 1, "line ten\n")


@pytest.mark.parametrize("line", [8, 9, 10])
@pytest.mark.parametrize("change", ["line  %d\n", "line %d \n", "line %d\r\n", "other\n"])
def test_no_fuzz(line: int, change: str) -> None:
    """One differing line, were it only a blank, in the context or not."""
    other = [*OLD]
    other[line] = change % (line + 1) if "%" in change else change
    with pytest.raises(RejectedError):
        diff.apply(parse_one(ONE_LINE), other)


def test_hunks_apply_in_order_only() -> None:
    first, second = (Hunk(start, (("-", f"line {start}\n"),)) for start in (5, 12))
    swapped = FileDiff("f", (second, first))
    with pytest.raises(RejectedError) as rejected:
        diff.apply(swapped, OLD)
    assert rejected.value.hunk is first


def test_last_line_without_newline() -> None:
    text = "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b\n"
    one = parse_one(text)
    assert diff.apply(one, ["a\n", "b"])[0] == ["a\n", "b\n"]
    with pytest.raises(RejectedError):
        diff.apply(one, ["a\n", "b\n"])
    assert diff.render(one, ["a\n", "b"]) == text


def test_created_file_that_is_there_already() -> None:
    with pytest.raises(RejectedError):
        diff.apply(parse_one("--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+a\n"), ["b\n"])


def test_partly() -> None:
    other = [*OLD]
    other[4] = "changed upstream\n"
    hunks = tuple(Hunk(n, (("-", f"line {n}\n"), ("+", f"{n}\n"))) for n in (2, 5, 8))
    lines, rejected = diff.apply_partly(FileDiff("f", hunks), other)
    assert (lines[1], lines[4], lines[7], rejected) == ("2\n", "changed upstream\n", "8\n", [hunks[1]])


# --- make ------------------------------------------------------------------------------------------------------------


def random_texts(seed: int) -> tuple[list[str], list[str]]:
    """An old and a new text of a small alphabet, so that the same lines stand in many places."""
    chance = random.Random(seed)
    old = [f"{chance.choice('abcd{}')}\n" for _ in range(chance.randrange(60))]
    new = [*old]
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(new) + 1)
        new[at : at + chance.randrange(4)] = [f"{chance.choice('abcdxyz')}\n" for _ in range(chance.randrange(4))]
    for text in (old, new):
        if text and chance.random() < 0.3:
            text[-1] = text[-1].rstrip("\n")
    return old, new


@pytest.mark.parametrize("seed", range(200))
def test_made_diff_leads_there_and_back(seed: int) -> None:
    old, new = random_texts(seed)
    made = diff.make("f", old, new)
    if old == new:
        assert made is None
        return
    assert made is not None
    text = diff.render(made, old)
    parsed = parse_one(text)
    assert parsed == made
    assert diff.apply(parsed, old) == (new, [0] * len(parsed.hunks))
    assert diff.apply(diff.reverse(parsed), new) == (old, [0] * len(parsed.hunks))
    assert all(len(hunk.old) - hunk.removed <= 2 * diff.CONTEXT * 4 for hunk in parsed.hunks)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize("seed", range(0, 200, 10))
def test_made_diff_is_understood_by_git(tmp_path: Path, seed: int) -> None:
    old, new = random_texts(seed)
    made = diff.make("f", old or None, new or None)
    if made is None:
        return
    series.write_text(tmp_path / "f", old or None)
    (tmp_path / "p").write_text(diff.render(made, old))
    subprocess.run(["git", "apply", "--whitespace=nowarn", "p"], cwd=tmp_path, check=True)
    assert series.read_text(tmp_path / "f") == (new or None)


def test_rendered_as_git_does() -> None:
    old = diff.split((SAMPLES / "upstream/src/buffer.c").read_text())
    patch = series.read(SAMPLES / "patches", "0001-count-buffers.patch")
    new, _ = diff.apply(patch.diffs[0], old)
    made = diff.make("src/buffer.c", old, new)
    assert made is not None
    assert diff.render(made, old) == patch.body


# --- series ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(SAMPLES / "patches", tmp_path / "patches")


def test_header(folder: Path) -> None:
    first, second = series.load(folder)
    assert series.header_value(first.header, "Why") == "The sample has to have something to count."
    assert second.touches == second.paths == ["src/buffer.c", "src/main.c"]
    assert [patch.changed_lines for patch in (first, second)] == [1, 3]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("0001-count-buffers.patch\n0001-count-buffers.patch\n", "each number must be above the one before it"),
        ("0002-trace-buffers.patch\n0001-count-buffers.patch\n", "each number must be above the one before it"),
        ("count.patch\n", "'count.patch' is not of the form 0001-some-words.patch"),
        ("../0001-count-buffers.patch\n", "is not of the form 0001-some-words.patch"),
        ("0003-missing.patch\n", "series lists 0003-missing.patch, but there is no such file beside it"),
    ],
)
def test_series_out_of_order(folder: Path, text: str, complaint: str) -> None:
    (folder / "series").write_text(text)
    with pytest.raises(Fail, match=complaint):
        series.load(folder)


def test_patch_that_does_not_parse_is_named_with_its_line(folder: Path) -> None:
    file = folder / "0001-count-buffers.patch"
    file.write_text(file.read_text().replace("@@ -7,6 +7,7 @@", "@@ -7,6 +7,8 @@"))
    with pytest.raises(Fail, match=r"^0001-count-buffers\.patch: line 18: the hunk does not have the lines its head"):
        series.load(folder)


def test_our_own_series_is_in_order() -> None:
    patches, problems = read_all(series.PATCHES)
    assert problems + [problem for patch in patches for problem in check_patch(patch)] == []
    assert sum(patch.changed_lines for patch in patches) <= MOST_CHANGED_LINES
