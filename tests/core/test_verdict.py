"""Start-up, verdict and list of the whole core over a made-up machine, as seen by who runs the program."""

import errno
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.core import harness

TWO = "0:0-3:4096 1:4-7:4096"
LOADED = "weights:100 alloc:repack:50 alloc:kv:20 alloc:compute:10 workers:3"
KEYS = ["schema", "requested", "node", "how", "policy", "policy_note", "weights_mode", "threads", "regions"]
KEYS += ["look_ms", "ok"]
REGION_KEYS = ["name", "bytes", "checked", "on_node", "elsewhere", "not_resident"]

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """run(machine and knobs, flags, actions) -> verdict_run when it is done."""
    program = harness.build_fake("verdict_run.c", tmp_path_factory.mktemp("verdict_run"))
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LLAMA_ARG_")}

    def start(
        flags: str | list[str] = "",
        actions: str | list[str] = "",
        *knobs: str,
        machine: str = TWO,
        env: dict[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        words, acts = (value.split() if isinstance(value, str) else value for value in (flags, actions))
        command = [str(program), machine, *knobs, "--", *words, "--", *acts]
        done = subprocess.run(command, capture_output=True, text=True, env=clean | (env or {}))
        assert "Sanitizer" not in done.stderr, done.stderr
        assert "runtime error" not in done.stderr, done.stderr
        assert "verdict_run:" not in done.stderr, done.stderr
        return done

    return start


def report(done: subprocess.CompletedProcess[str], code: int = 0) -> dict[str, Any]:
    """The JSON on stdout, checked for its keys."""
    assert done.returncode == code, done.stderr
    read: dict[str, Any] = json.loads(done.stdout)
    assert list(read) == KEYS
    assert list(read["threads"]) == ["workers", "bound"]
    for region in read["regions"]:
        assert list(region) == REGION_KEYS
        assert region["checked"] == region["on_node"] + region["elsewhere"] + region["not_resident"]
    return read


def regions(read: dict[str, Any]) -> dict[str, tuple[int, int, int]]:
    """Of each region: MiB, pages on the node, pages elsewhere."""
    return {one["name"]: (one["bytes"] >> 20, one["on_node"], one["elsewhere"]) for one in read["regions"]}


# --- the verdict, for whoever asks later ---


def test_seen_is_the_report(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    done = run(f"--numa-node 1 --numa-report {file}", LOADED + " seen:json")
    assert done.stdout == file.read_text(encoding="utf-8")
    assert report(done)["node"] == 1


def test_seen_without_a_node_says_so(run: Run) -> None:
    read = report(run("", "workers:1 seen:json"))
    assert (read["node"], read["ok"], read["weights_mode"], read["regions"]) == (None, None, None, [])
    assert read["policy_note"].startswith("no node was asked for")
    assert run("", "workers:1 seen:metrics").stdout == ""


def test_seen_as_metrics(run: Run) -> None:
    lines = run("--numa-node 1", "weights:2:0 alloc:kv:1 lazy:1 workers:1 seen:metrics").stdout.splitlines()
    assert lines == [
        "# HELP llamafile_numa_pages Pages looked at once the model was loaded, by where they are.",
        "# TYPE llamafile_numa_pages gauge",
        'llamafile_numa_pages{region="weights",place="on_node"} 512',
        'llamafile_numa_pages{region="weights",place="elsewhere"} 0',
        'llamafile_numa_pages{region="weights",place="not_resident"} 0',
        'llamafile_numa_pages{region="kv",place="on_node"} 256',
        'llamafile_numa_pages{region="kv",place="elsewhere"} 0',
        'llamafile_numa_pages{region="kv",place="not_resident"} 0',
        'llamafile_numa_pages{region="other",place="on_node"} 0',
        'llamafile_numa_pages{region="other",place="elsewhere"} 0',
        'llamafile_numa_pages{region="other",place="not_resident"} 256',
        "# HELP llamafile_numa_ok 1: every page looked at, and every worker, is on the node.",
        "# TYPE llamafile_numa_ok gauge",
        'llamafile_numa_ok{node="1"} 1',
    ]


def test_seen_elsewhere_as_metrics(run: Run) -> None:
    done = run("--numa-node 1 --numa-weights map", "weights:2:0 workers:1 seen:metrics", f"memory={errno.EPERM}")
    assert 'llamafile_numa_pages{region="weights",place="elsewhere"} 512' in done.stdout
    assert 'llamafile_numa_ok{node="1"} 0' in done.stdout


@pytest.mark.parametrize(("room", "expected"), [(0, ""), (1, ""), (10, '{"schema"')])
def test_seen_is_cut_to_the_room(run: Run, room: int, expected: str) -> None:
    assert run("--numa-node 1", f"workers:1 seen:json:{room}").stdout == expected


# --- the verdict ---


def test_all_on_node(run: Run) -> None:
    done = run("--numa-node 1 --numa-report -", LOADED + " lazy:5")
    read = report(done)
    assert read["look_ms"] == 1.5
    assert read | {"look_ms": 0} == {
        "schema": 1,
        "requested": "1",
        "node": 1,
        "how": "flag",
        "policy": "bind",
        "policy_note": "",
        "weights_mode": "map",
        "threads": {"workers": 3, "bound": 3},
        "regions": [
            dict(zip(REGION_KEYS, (name, mib << 20, mib * 256, on, 0, absent), strict=True))
            for name, mib, on, absent in [
                ("weights", 100, 25600, 0),
                ("repack", 50, 12800, 0),
                ("kv", 20, 5120, 0),
                ("compute", 10, 2560, 0),
                ("other", 5, 0, 1280),
            ]
        ],
        "look_ms": 0,
        "ok": True,
    }
    text = done.stderr
    assert "NUMA node 1: everything that was looked at is on the node (node chosen by: flag)" in text
    assert "3 of 3 on CPUs 4-7" in text
    assert "weights   map; memory policy bind" in text
    assert "note" not in text
    rows = [line for line in text.splitlines() if " MiB " in line]
    assert [row.split()[0] for row in rows] == ["weights", "repack", "kv", "compute", "other"]
    assert len({len(row) for row in [*rows, text.splitlines()[1]]}) == 1  # aligned


@pytest.mark.parametrize(
    ("actions", "knobs", "machine", "expected"),
    [
        # seen is what counts
        ("weights:100:0 workers:1", (), TWO, {"ok": True, "weights_mode": "copy", "policy": "bind"}),
        ("weights:100:0 workers:1", (f"memory={errno.EPERM}",), TWO, {"ok": False, "policy": "cpus-only"}),
        ("weights:100", (), TWO, {"ok": False, "threads": {"workers": 0, "bound": 0}}),
        ("workers:2", (), TWO, {"ok": True, "regions": []}),
        ("weights:100 workers:3 strayed:1", (), TWO, {"ok": False, "threads": {"workers": 4, "bound": 3}}),
        ("alloc:kv:300 workers:1", (), "0:0-3:4096 1:4-7:4096/200", {"ok": False, "policy": "preferred"}),
        ("alloc:kv:150 workers:1", (), "0:0-3:4096 1:4-7:4096/200", {"ok": True, "policy": "preferred"}),
        ("alloc:kv:100 workers:1", (), "0:0-3:4096 1:4-7:4096/200", {"ok": True, "policy": "bind"}),
        # what could not be had
        ("alloc:kv:100 workers:1", ("prefers-only",), TWO, {"ok": True, "policy": "preferred", "policy_note": ""}),
        ("alloc:kv:100 workers:1", (f"placed={errno.EINVAL}",), TWO, {"policy": "preferred"}),
        ("workers:1", (f"memory={errno.EPERM}",), TWO, {"ok": True, "policy": "cpus-only"}),
        ("workers:1", (f"memory={errno.EPERM}", f"cpus={errno.EPERM}"), TWO, {"ok": False, "policy": "none"}),
        ("workers:1", (f"cpus={errno.EINVAL}",), TWO, {"ok": False, "policy": "bind"}),
        ("weights:10 workers:1", (f"look={errno.EPERM}",), TWO, {"ok": False}),
        ("weights:10 workers:1", ("coarse",), TWO, {"ok": True}),
    ],
)
def test_judged(run: Run, actions: str, knobs: tuple[str, ...], machine: str, expected: dict[str, Any]) -> None:
    read = report(run("--numa-node 1 --numa-report -", actions, *knobs, machine=machine))
    assert read | expected == read


@pytest.mark.parametrize(
    ("knobs", "actions", "machine", "parts"),
    [
        ((f"memory={errno.EPERM}",), "", TWO, ("memory policy cannot be set", "not permitted", "--cap-add SYS_NICE")),
        ((f"memory={errno.EINVAL}",), "", TWO + ":m", ("memory of node 1 is not allowed", "cpuset.mems")),
        ((f"cpus={errno.EPERM}",), "", TWO, ("threads are not bound", "not permitted")),
        ((), "", "0:0-3:4096 1:-:4096", ("node 1 has no CPUs this process may use", "nearest node that has, 0")),
        ((), "", TWO + " allowed=0-3", ("node 1 has no CPUs this process may use", "nearest node that has, 0")),
        ((), "alloc:kv:300", "0:0-3:4096 1:4-7:4096/200", ("300 MiB did not fit", "200 MiB could be had on node 1")),
        ((f"placed={errno.EINVAL}",), "alloc:kv:1", TWO, ("a buffer could not be given to the node: Invalid",)),
        (("coarse",), "weights:1", TWO, ("numa_maps", "move_pages is not permitted")),
        ((f"look={errno.EIO}",), "weights:1", TWO, ("pages could not be looked at: Input/output error",)),
        ((f"cpus={errno.EPERM}", f"memory={errno.EPERM}"), "", TWO, ("threads are not bound", "; the memory policy")),
    ],
)
def test_notes(run: Run, knobs: tuple[str, ...], actions: str, machine: str, parts: tuple[str, ...]) -> None:
    done = run("--numa-node 1 --numa-report -", actions + " workers:1", *knobs, machine=machine)
    note = report(done)["policy_note"]
    assert f"  note      {note}\n" in done.stderr
    for part in parts:
        assert part in note


@pytest.mark.parametrize("note", ['"', "\\", 'a "b" \\c\\', "line\nbreak\ttab\r\x01\x1f\x7f", "ä€😀", "x" * 511])
def test_notes_are_valid_json(run: Run, note: str) -> None:
    assert report(run("--numa-node 1 --numa-report -", ["workers:1", f"note:{note}"]))["policy_note"] == note


@pytest.mark.parametrize(
    ("flags", "env", "knobs", "machine", "expected"),
    [
        ("--numa-node 0", {}, (), TWO, ("0", 0, "flag")),
        ("", {"LLAMA_ARG_NUMA_NODE": "1"}, (), TWO, ("1", 1, "env")),
        ("--numa-node auto", {}, (), "0:0-3:1024 2:4-7:2048", ("auto", 2, "emptiest")),
        ("--numa-node auto", {}, ("start=1",), "0:0-3:4096 2:4-7:2048", ("auto", 2, "start-node")),
        ("", {}, (), TWO + " allowed=4-5", ("", 1, "confined")),
        ("", {}, ("start=1",), TWO, ("", 1, "start-node")),
        ("--numa-node none", {}, ("start=1",), TWO, ("none", None, "")),
        ("", {}, (), TWO, ("", None, "")),
        ("--numa-node none", {}, (), TWO + " allowed=4-5", ("none", None, "")),
    ],
)
def test_choice_is_told(
    run: Run, flags: str, env: dict[str, str], knobs: tuple[str, ...], machine: str, expected: tuple[Any, ...]
) -> None:
    read = report(run(flags + " --numa-report -", "workers:1", *knobs, machine=machine, env=env))
    assert (read["requested"], read["node"], read["how"]) == expected


def test_the_system_s_own_choice_is_said_and_can_be_refused(run: Run) -> None:
    note = report(run("--numa-report -", "workers:1", "start=1"))["policy_note"]
    assert "started this process on node 1" in note
    assert "--numa-node none" in note
    assert report(run("--numa-node auto --numa-report -", "workers:1", "start=1"))["policy_note"] == ""


def test_large_pages_are_said_where_they_were_seen(run: Run) -> None:
    large = report(run("--numa-node 1 --numa-report -", LOADED, "large"))
    pages = sum(region["on_node"] + region["elsewhere"] for region in large["regions"])
    assert large["policy_note"] == f"{pages} of the pages that were looked at are parts of large pages"
    assert "large" not in report(run("--numa-node 1 --numa-report -", LOADED))["policy_note"]


def test_no_node_no_claim(run: Run) -> None:
    done = run("--numa-report -", LOADED)
    read = report(done)
    assert (
        read
        | {
            "node": None,
            "weights_mode": None,
            "policy": "none",
            "regions": [],
            "threads": {"workers": 0, "bound": 0},
            "ok": None,
        }
        == read
    )
    assert "no node was asked for" in read["policy_note"]
    assert done.stderr == ""


def test_unknown_machine_without_a_node(run: Run) -> None:
    read = report(run("--numa-report -", "", "no-topology"))
    assert (read["node"], read["how"]) == (None, "")


def test_room_unknown(run: Run) -> None:
    read = report(run("--numa-node 1 --numa-report -", LOADED, "unknown-room"))
    assert (read["ok"], read["policy_note"]) == (True, "")


@pytest.mark.parametrize(("flags", "env"), [("--numa distribute", {}), ("", {"LLAMA_ARG_NUMA": "distribute"})])
def test_confined_but_spread_by_upstream(run: Run, flags: str, env: dict[str, str]) -> None:
    done = run(flags + " --numa-report -", "workers:1", machine=TWO + " allowed=4-5", env=env)
    assert report(done)["node"] is None


@pytest.mark.parametrize(
    ("machine", "cpus", "threads"),
    [
        (TWO, "4-7", 2),
        (TWO + " allowed=0,4-5", "4-5", 1),
        (TWO + " allowed=0,5,7", "5,7", 2),  # of each core one
        (TWO + " allowed=2", "2", 1),  # the nearest node
        ("0:0-5:4096 1:-:4096 2:6-7:4096", "0-5", 3),
        ("0:0,2,4,6:4096 1:1,3,5,7:4096", "1,3,5,7", 4),
    ],
)
def test_threads_run_on_the_node(run: Run, machine: str, cpus: str, threads: int) -> None:
    done = run("--numa-node 1", "workers:2 threads", machine=machine)
    assert (done.returncode, done.stdout) == (0, f"{threads}\n")
    assert f"2 of 2 on CPUs {cpus}\n" in done.stderr


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("", {}),
        ("--numa-node none", {}),
        ("--numa-node 1 --numa-weights copy", {"NODE": "1", "WEIGHTS": "copy", "STRICT": "0"}),
        ("--numa-node auto --numa-strict", {"NODE": "0", "WEIGHTS": "auto", "STRICT": "1"}),
    ],
)
def test_children_are_told(run: Run, flags: str, expected: dict[str, str]) -> None:
    lines = run(flags, "env").stdout.splitlines()
    assert lines == [f"LLAMA_ARG_NUMA_{name}={value}" for name, value in expected.items()]


# --- strict, and the report ---


@pytest.mark.parametrize(
    ("actions", "knobs", "code"),
    [
        (LOADED, (), 0),
        ("weights:100:0 workers:1", (), 0),
        (LOADED + " strayed:1", (), 3),
        ("alloc:kv:4090 workers:1", (), 0),
        ("alloc:kv:4200 workers:1", (), 3),
        ("weights:100:0 workers:1", (f"memory={errno.EPERM}",), 3),
        (LOADED, (f"look={errno.EIO}",), 3),
    ],
)
def test_strict(run: Run, actions: str, knobs: tuple[str, ...], code: int) -> None:
    flags = "--numa-node 1 --numa-strict --numa-weights "
    flags += "auto" if "memory" not in " ".join(knobs) else "map"
    done = run(flags, actions, *knobs)
    assert done.returncode == code, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("llamafile-numa: error: --numa-strict: ") == (code == 3)
    assert run(flags.replace("--numa-strict", ""), actions, *knobs).returncode == 0


def test_strict_writes_the_report_first(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    done = run(["--numa-node", "1", "--numa-strict", "--numa-report", str(file)], "workers:1 strayed:1")
    assert (done.returncode, done.stdout) == (3, "")
    assert json.loads(file.read_text())["ok"] is False


def test_report_file(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text('{"of":"an earlier run, which was longer than this one will be"}' * 100)
    done = run(["--numa-node", "1", f"--numa-report={file}"], LOADED)
    assert (done.returncode, done.stdout) == (0, "")
    text = file.read_text()
    assert text.count("\n") == 1
    assert text.endswith("}\n")
    assert list(json.loads(text)) == KEYS


def test_report_takes_no_other_file_s_place(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    for content in (b"GGUF", b"\0", b" {"):
        file.write_bytes(content)
        done = run(["--numa-node", "1", f"--numa-report={file}"], LOADED)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert f"--numa-report: {file} is there and is no report" in done.stderr
        assert file.read_bytes() == content


def test_report_from_environment(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    assert run("--numa-node 1", LOADED, env={"LLAMA_ARG_NUMA_REPORT": str(file)}).returncode == 0
    assert json.loads(file.read_text())["ok"] is True


@pytest.mark.parametrize("flags", ["--numa-node 1", ""])
def test_report_cannot_be_written(run: Run, tmp_path: Path, flags: str) -> None:
    for file in (tmp_path, tmp_path / "none" / "report.json"):
        done = run([*flags.split(), "--numa-report", str(file)], LOADED)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert done.stderr.startswith(f"llamafile-numa: error: --numa-report: cannot write {file}: ")
        assert "a file name or - is possible" in done.stderr


def test_report_lost_on_the_way(run: Run) -> None:
    """The disk is full once the model is loaded: that is said, and under --numa-strict it ends the process."""
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    flags = "--numa-node 1 --numa-report /dev/full"
    done = run(flags, LOADED)
    assert done.returncode == 0
    assert "--numa-report: cannot write /dev/full: No space left on device" in done.stderr
    done = run(flags + " --numa-strict", LOADED)
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == "llamafile-numa: error: --numa-strict: the report could not be written"


# --- bad input ---


@pytest.mark.parametrize(
    ("flags", "machine", "part"),
    [
        ("--numa-node 2", TWO, "there is no node 2"),
        ("--numa-node 1x", TWO, "'1x' is not a node"),
        ("--numa-node", TWO, "--numa-node needs a value"),
        ("--numa-node=", TWO, "empty value"),
        ("--numa-node 0 --numa-node 1", TWO, "given twice"),
        ("--numa-node 1 --numa isolate", TWO, "give one of them"),
        ("--numa-strict", TWO, "--numa-strict needs a node"),
        ("--numa-weights move", TWO, "auto, map and copy are"),
        ("--numa-node 2", TWO + " 2:8-11:0", "node 2 has no memory"),
        ("--numa-node 2", TWO + " 2:8-11:4096:cm", "neither its memory nor its CPUs"),
    ],
)
def test_bad_input_names_the_nodes(run: Run, tmp_path: Path, flags: str, machine: str, part: str) -> None:
    file = tmp_path / "report.json"
    done = run(flags, LOADED, machine=machine, env={"LLAMA_ARG_NUMA_REPORT": str(file)})
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("llamafile-numa: error: ")
    assert part in done.stderr
    assert "nodes here: 0-1" in done.stderr
    assert not file.exists()


@pytest.mark.parametrize("flags", ["--numa-node 1", "--numa-node auto", "--numa-list", "--numa-node x"])
def test_machine_cannot_be_read(run: Run, flags: str) -> None:
    done = run(flags, LOADED, "no-topology")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "/nodes: cannot be read" in done.stderr


def test_machine_need_not_be_read(run: Run) -> None:
    done = run("-m x", "", "no-topology")
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


# --- the list ---

MANY = "0:0-3:4096/1000 2:4,6,8-11:2048 5:-:8192 7:12-15:0 9:16-17:1024:cm 10:18-19:1024:m 11:20-21:1024:c"


def test_list_json(run: Run) -> None:
    done = run("--numa-list --json", machine=MANY)
    assert (done.returncode, done.stderr) == (0, "")
    read = json.loads(done.stdout)
    assert list(read) == ["schema", "nodes", "confined", "emptiest"]
    assert (read["schema"], read["confined"], read["emptiest"]) == (1, None, 2)
    assert [node["node"] for node in read["nodes"]] == [0, 2, 5, 7, 9, 10, 11]
    assert read["nodes"][1] == {
        "node": 2,
        "cpus": [4, 6, 8, 9, 10, 11],
        "cores": 4,
        "group": 0,
        "memory": 2 << 30,
        "free": 1 << 30,
        "available": 2 << 30,
        "distances": {"0": 20, "2": 10, "5": 20, "7": 30, "9": 40, "10": 50, "11": 60},
        "cpus_allowed": True,
        "memory_allowed": True,
    }
    allowed = {node["node"]: (node["cpus_allowed"], node["memory_allowed"]) for node in read["nodes"]}
    both, cpus, memory, nothing = (True, True), (True, False), (False, True), (False, False)
    assert allowed == {0: both, 2: both, 5: memory, 7: cpus, 9: nothing, 10: cpus, 11: memory}


def test_list_text(run: Run) -> None:
    done = run("--numa-list", machine=MANY)
    assert (done.returncode, done.stderr) == (0, "")
    head, *rows = done.stdout.splitlines()
    may_use, distances = head.index("may use"), head.index("distances")
    assert [int(row[:4]) for row in rows] == [0, 2, 5, 7, 9, 10, 11]
    cpus = [row[6 : head.index("cores")].strip() for row in rows]
    assert cpus == ["0-3", "4,6,8-11", "-", "12-15", "16-17", "18-19", "20-21"]
    allowed = [row[may_use:distances].strip() for row in rows]
    assert allowed == ["CPUs, memory", "CPUs, memory", "memory", "CPUs", "nothing", "CPUs", "memory"]
    assert rows[1][distances:].split() == ["20", "10", "20", "30", "40", "50", "60"]
    assert rows[0][head.index("cores") : may_use].split() == ["2", "0", "4096", "500"]


@pytest.mark.parametrize("flags", ["--numa-list", "--numa-list --json"])
def test_list_of_any_size_is_aligned(run: Run, flags: str) -> None:
    machine = " ".join(f"{2 * i}:{','.join(map(str, range(i, 1000, 60)))}:{1 << (i % 24)}" for i in range(60))
    done = run(flags, machine=machine)
    assert done.returncode == 0
    if "--json" in flags:
        assert len(json.loads(done.stdout)["nodes"]) == 60
        return
    head, *rows = done.stdout.splitlines()
    assert len(rows) == 60
    assert {row[head.index("distances") - 1] for row in rows} == {" "}


def test_list_to_a_full_disk(run: Run, tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    done = run("--numa-list", machine=TWO)
    with Path("/dev/full").open("w") as full:
        assert subprocess.run(done.args, stdout=full, stderr=subprocess.PIPE).returncode == 1
