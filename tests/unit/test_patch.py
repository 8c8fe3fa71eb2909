"""`patch`, from archive to the tree: what is in it, what a second run does, what failures leave, how to change it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.sample import FILENAME, SAMPLES, TREE, Project, contents, listing, make_project, pack, upstream_members

BUFFER_C = (SAMPLES / "upstream/src/buffer.c").read_text()
FIRST, SECOND = "0001-count-buffers.patch", "0002-trace-buffers.patch"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path)


@pytest.fixture
def prepared(project: Project) -> Project:
    project.ok("patch")
    return project


def change_upstream(project: Project, changes: dict[str, bytes]) -> None:
    """A new upstream release under the old name."""
    project.archive = pack(upstream_members(changes))
    (project.root.parent / "links" / FILENAME).write_bytes(project.archive)
    (project.downloads / FILENAME).unlink(missing_ok=True)
    project.pin()


def source(project: Project, path: str = "src/buffer.c") -> str:
    return (project.tree / path).read_text()


def edit(project: Project, before: str, after: str, path: str = "src/buffer.c") -> None:
    text = source(project, path)
    assert text.count(before) == 1
    (project.tree / path).write_text(text.replace(before, after))


def times(project: Project) -> dict[str, int]:
    return {path: (project.tree / path).stat().st_mtime_ns for path in listing(project.tree)}


# --- prepare ---------------------------------------------------------------------------------------------------------


def test_tree_is_patched_and_nothing_else_is_left(project: Project) -> None:
    done = project.ok("patch")
    assert done.stdout == f"{project.tree}\n"
    assert listing(project.root / "build") == [f"native/tree/{path}" for path in TREE]
    assert "    count_buffer();\n    return malloc(size);\n" in source(project)
    assert "    trace_free(buffer);\n" in source(project)
    assert "    trace_start();\n" in source(project, "src/main.c")


def test_upstream_flavour_is_not_patched(project: Project) -> None:
    project.ok("patch", "--flavour", "upstream")
    assert listing(project.root / "build") == [f"upstream/tree/{path}" for path in TREE]
    assert "count_buffer" not in (project.root / "build/upstream/tree/src/buffer.c").read_text()


def test_second_run_changes_nothing(prepared: Project) -> None:
    before = times(prepared)
    done = prepared.ok("patch")
    assert (times(prepared), done.stderr) == (before, "")


def test_second_run_needs_no_archive(prepared: Project) -> None:
    (prepared.downloads / FILENAME).unlink()
    prepared.environment["PIP_FIND_LINKS"] = ""
    prepared.ok("patch")


def test_only_what_differs_is_replaced(prepared: Project) -> None:
    before = times(prepared)
    patch = prepared.patches / FIRST
    patch.write_text(patch.read_text().replace("count_buffer()", "count_one_buffer()"))
    prepared.ok("patch")
    assert "count_one_buffer();" in source(prepared)
    after = times(prepared)
    assert {path for path in before if after[path] != before[path]} == {"src/buffer.c", ".prepared.json"}
    assert after["src/buffer.c"] > before["src/buffer.c"]


def test_header_alone_changes_nothing(prepared: Project) -> None:
    before = times(prepared)
    patch = prepared.patches / FIRST
    patch.write_text(f"More words.\n{patch.read_text()}")
    prepared.ok("patch")
    assert times(prepared) == before


def test_new_upstream_release(prepared: Project) -> None:
    change_upstream(prepared, {"src/new.c": b"int new;\n", "LICENSE": b"Another.\n"})
    prepared.ok("patch")
    assert listing(prepared.tree) == sorted([*TREE, "src/new.c"])
    assert source(prepared, "LICENSE") == "Another.\n"
    change_upstream(prepared, {})
    prepared.ok("patch")
    assert listing(prepared.tree) == TREE


def test_offsets_are_told(prepared: Project) -> None:
    change_upstream(prepared, {"src/buffer.c": f"// new\n// lines\n{BUFFER_C}".encode()})
    done = prepared.ok("patch")
    assert f"{FIRST}: src/buffer.c: hunk 1 found +2 lines from its stated place" in done.stderr


def test_unknown_name_of_a_flavour(project: Project) -> None:
    assert project.fails("patch", "--flavour", "../up") == (
        "error: '../up' is no name of a flavour; there are: native, upstream, portable"
    )


# --- failures --------------------------------------------------------------------------------------------------------


def test_failed_run_reports_all_and_leaves_the_tree_as_it_was(prepared: Project) -> None:
    before = contents(prepared.tree), times(prepared)
    changed = BUFFER_C.replace("size = 1;", "size = 2;").replace("free(buffer);", "release(buffer);")
    change_upstream(prepared, {"src/buffer.c": changed.encode()})
    done = prepared.run("patch")
    assert done.returncode == 1
    assert done.stderr.splitlines()[2:] == [
        FIRST,
        "  src/buffer.c: hunk 1, stated at line 7, does not apply",
        "    nearest is line 7, where 5 of 6 lines fit; line 8 does not:",
        "      wanted          size = 1;",
        "      there           size = 2;",
        SECOND,
        "  src/buffer.c: hunk 1, stated at line 20, does not apply",
        "    nearest is line 19, where 4 of 5 lines fit; line 22 does not:",
        "      wanted      free(buffer);",
        "      there       release(buffer);",
        "error: 2 of 2 patches do not apply; next: python3 -m tools patch --edit 1",
    ]
    assert (contents(prepared.tree), times(prepared)) == before
    assert listing(prepared.root / "build") == [f"native/tree/{path}" for path in TREE]


def test_failed_first_run_leaves_no_tree(project: Project) -> None:
    (project.patches / FIRST).write_text((project.patches / FIRST).read_text().replace("size = 1;", "size = 7;"))
    project.fails("patch")
    assert listing(project.root / "build") == []


def test_patch_that_upstream_took(prepared: Project) -> None:
    taken = BUFFER_C.replace("    return malloc", "    count_buffer();\n    return malloc")
    change_upstream(prepared, {"src/buffer.c": taken.encode()})
    done = prepared.run("patch")
    assert "    upstream has this change already" in done.stderr.splitlines()
    assert done.stderr.splitlines()[-1] == (
        f"error: 1 of 2 patches do not apply; upstream has all of {FIRST}: take it out of series and delete it"
    )


def test_file_that_is_gone(project: Project) -> None:
    patch = project.patches / SECOND
    patch.write_text(patch.read_text().replace("src/main.c", "src/gone.c"))
    done = project.run("patch")
    assert "  src/gone.c: there is no such file any more" in done.stderr.splitlines()


def test_edits_are_not_lost(prepared: Project) -> None:
    edit(prepared, "size = 1;", "size = 8;")
    patch = prepared.patches / FIRST
    patch.write_text(patch.read_text().replace("count_buffer()", "count_one_buffer()"))
    error = prepared.fails("patch")
    assert error.startswith("error: native/tree has edits in src/buffer.c; to keep them: ")
    assert "size = 8;" in source(prepared)
    prepared.ok("patch", "--force")
    assert "size = 1;" in source(prepared)


def test_interrupted_exchange_is_completed(prepared: Project) -> None:
    """A run that died while it replaced files has emptied the digest, so the next does not trust the tree."""
    stamp = prepared.tree / ".prepared.json"
    wanted = contents(prepared.tree)
    stamp.write_text(json.dumps({**json.loads(stamp.read_text()), "digest": ""}))
    (prepared.tree / "src/main.c").unlink()
    prepared.ok("patch")
    assert contents(prepared.tree) == wanted


# --- check -----------------------------------------------------------------------------------------------------------


def problems(project: Project) -> list[str]:
    done = project.run("patch", "--check")
    lines = done.stderr.splitlines()
    assert done.returncode == (1 if lines else 0)
    return [line.strip() for line in lines[:-1]]


def test_check_of_what_is_in_order(prepared: Project) -> None:
    done = prepared.ok("patch", "--check")
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["patch", "lines", "touches"],
        [FIRST, "1", "src/buffer.c"],
        [SECOND, "3", "src/buffer.c,", "src/main.c"],
        ["2", "patches,", "4", "of", "at", "most", "80", "upstream", "lines", "added", "or", "removed"],
    ]


def test_check_finds_edits_and_strangers(prepared: Project) -> None:
    edit(prepared, "size = 1;", "size = 8;")
    (prepared.tree / "src/stray.c").write_text("")
    (prepared.tree / "LICENSE").unlink()
    assert problems(prepared) == [
        "build/native/tree/LICENSE is not as it was prepared",
        "build/native/tree/src/buffer.c is not as it was prepared",
        "build/native/tree/src/stray.c is not part of it",
    ]


def test_check_finds_a_tree_that_is_behind(prepared: Project) -> None:
    prepared.ok("patch", "--flavour", "upstream")
    patch = prepared.patches / FIRST
    patch.write_text(patch.read_text().replace("count_buffer()", "count_one_buffer()"))
    assert problems(prepared) == ["build/native/tree is behind the series; python3 -m tools patch --flavour native"]


def test_check_of_headers_and_hooks(project: Project) -> None:
    first, second = project.patches / FIRST, project.patches / SECOND
    first.write_text(first.read_text().replace("Can go when: upstream counts by itself.\n", ""))
    text = second.read_text().replace("Touches: src/buffer.c,\n  src/main.c", "Touches: src/main.c")
    hook = "+    trace_start();\n"
    second.write_text(text.replace(hook, hook * 4).replace("@@ -3,6 +3,7 @@", "@@ -3,6 +3,10 @@"))
    (project.patches / "0003-new.patch").write_text("--- /dev/null\n+++ b/src/new.c\n@@ -0,0 +1 @@\n+int x;\n")
    (project.patches / "series").write_text(f"{FIRST}\n{SECOND}\n0003-new.patch\n")
    (project.patches / "notes.txt").write_text("")
    assert problems(project) == [
        "notes.txt is not listed in series",
        f"{FIRST}: its header says nothing under 'Can go when:'",
        f"{SECOND}: says that it touches src/main.c, but touches src/buffer.c, src/main.c",
        f"{SECOND}: src/main.c: adds 4 lines in one place; hooks have at most 3",
        "0003-new.patch: its header says nothing under 'Why:'",
        "0003-new.patch: its header says nothing under 'Can go when:'",
        "0003-new.patch: its header says nothing under 'Touches:'",
        "0003-new.patch: src/new.c: patches only change files; new code belongs in src/numa_node",
    ]


def test_check_counts_lines_over_all_patches(project: Project) -> None:
    hunks = "".join(f"@@ -{3 * n + 1} +{3 * n + 1} @@\n-line {n}\n+line {n}!\n" for n in range(40))
    header = "Why: a\nCan go when: b\nTouches: src/long.c\n\n"
    (project.patches / "0003-long.patch").write_text(f"{header}--- a/src/long.c\n+++ b/src/long.c\n{hunks}")
    (project.patches / "series").write_text(f"{FIRST}\n{SECOND}\n0003-long.patch\n")
    assert problems(project) == ["84 upstream lines are added or removed, at most 80 are wanted"]


# --- change ----------------------------------------------------------------------------------------------------------


def assert_in_order(project: Project) -> None:
    """The series leads from the archive to the very tree there is."""
    before = contents(project.tree)
    project.ok("patch", "--check")
    project.ok("patch", "--force")
    assert contents(project.tree) == before


def test_refresh_without_edits_changes_no_byte(prepared: Project) -> None:
    before = contents(prepared.patches)
    for number in ("1", "2"):
        prepared.ok("patch", "--refresh", number)
    assert contents(prepared.patches) == before


@pytest.mark.parametrize("name", ["1", "0001", FIRST])
def test_edit_goes_into_an_earlier_patch_of_the_same_file(prepared: Project, name: str) -> None:
    second = (prepared.patches / SECOND).read_text()
    edit(prepared, "count_buffer();", "count_buffer(size);\n    log_buffer();")
    before = source(prepared)
    prepared.ok("patch", "--refresh", name)
    assert source(prepared) == before
    assert (
        (prepared.patches / FIRST)
        .read_text()
        .endswith(
            "@@ -7,6 +7,8 @@ void * buffer_new(size_t size) {\n"
            "     if (size == 0) {\n"
            "         size = 1;\n"
            "     }\n"
            "+    count_buffer(size);\n"
            "+    log_buffer();\n"
            "     return malloc(size);\n"
            " }\n"
            " \n"
        )
    )
    assert (prepared.patches / SECOND).read_text() == second
    assert_in_order(prepared)


def test_edit_of_another_file_is_added_to_what_the_header_names(prepared: Project) -> None:
    edit(prepared, "void * buffer_new", "// counted\nvoid * buffer_new", "src/buffer.h")
    prepared.ok("patch", "--refresh", "1")
    text = (prepared.patches / FIRST).read_text()
    assert "Touches: src/buffer.c,\n  src/buffer.h\n\n--- a/src/buffer.c\n" in text
    assert_in_order(prepared)


def test_edits_in_the_lines_of_a_later_patch_are_refused(prepared: Project) -> None:
    edit(prepared, "trace_free(buffer);", "trace_free(buffer, 1);")
    before = contents(prepared.patches)
    assert f"touch lines of {SECOND}, a later patch" in prepared.fails("patch", "--refresh", "1")
    assert contents(prepared.patches) == before
    prepared.ok("patch", "--refresh", "2")
    assert_in_order(prepared)


def test_new_files_are_left_out_and_left_alone(prepared: Project) -> None:
    (prepared.tree / "src/new.c").write_text("int new;\n")
    done = prepared.ok("patch", "--refresh", "2")
    assert "src/new.c is new and left out" in done.stderr
    assert source(prepared, "src/new.c") == "int new;\n"


def test_nothing_left_of_a_patch(prepared: Project) -> None:
    edit(prepared, "    count_buffer();\n", "")
    assert prepared.fails("patch", "--refresh", "1").startswith(f"error: nothing is left of {FIRST}")


def test_unknown_patch(prepared: Project) -> None:
    assert prepared.fails("patch", "--refresh", "7") == (f"error: there is no patch '7'; there are: {FIRST}, {SECOND}")


def test_refresh_of_a_tree_that_is_not_there(project: Project) -> None:
    assert "is not prepared" in project.fails("patch", "--refresh", "1")


def test_new_patch(prepared: Project) -> None:
    assert prepared.fails("patch", "--new", "Clear buffers").startswith("error: there are no edits")
    edit(prepared, "return malloc(size);", "return calloc(1, size);")
    prepared.ok("patch", "--new", "Clear buffers!")
    assert (prepared.patches / "series").read_text().endswith(f"{SECOND} # after the count\n0003-clear-buffers.patch\n")
    text = (prepared.patches / "0003-clear-buffers.patch").read_text()
    assert text.startswith("Clear buffers!\n\nWhy:\nCan go when:\nTouches: src/buffer.c\n\n--- a/src/buffer.c\n")
    assert problems(prepared) == [
        "0003-clear-buffers.patch: its header says nothing under 'Why:'",
        "0003-clear-buffers.patch: its header says nothing under 'Can go when:'",
    ]


def test_edit_lays_out_the_series_up_to_a_patch(prepared: Project) -> None:
    prepared.ok("patch", "--edit", "1")
    assert "count_buffer();" in source(prepared)
    assert "trace_free" not in source(prepared)
    assert "is laid out to edit" in prepared.ok("patch").stderr
    assert "is laid out to edit" in prepared.fails("patch", "--refresh", "2")
    edit(prepared, "count_buffer();", "count_buffer(1);")
    prepared.ok("patch", "--refresh", "1")
    assert "trace_free" in source(prepared)
    assert_in_order(prepared)


def test_series_is_carried_to_a_new_upstream(prepared: Project) -> None:
    """The way that a failed run tells: --edit, bring in by hand what does not fit, --refresh; patch after patch."""
    changed = BUFFER_C.replace("size = 1;", "size = 2;").replace("free(buffer);", "release(buffer);")
    change_upstream(prepared, {"src/buffer.c": changed.encode()})
    assert prepared.fails("patch").endswith("--edit 1")

    done = prepared.ok("patch", "--edit", "1")
    assert "+    count_buffer();\n" in done.stdout
    edit(prepared, "    return malloc(size);", "    count_buffer();\n    return malloc(size);")
    assert prepared.fails("patch", "--refresh", "1").endswith("--edit 2")

    done = prepared.ok("patch", "--edit", "2")
    assert "+    trace_free(buffer);\n" in done.stdout
    assert "trace_start();" in source(prepared, "src/main.c"), "the hunk that fits is there"
    edit(prepared, "release(buffer);", "trace_release(buffer);")
    prepared.ok("patch", "--refresh", "2")
    assert_in_order(prepared)
