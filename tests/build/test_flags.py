"""The flags of the real program: what it lists, what it reports, and what it says to bad input."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.build.programs import GENERATE, NO_MODEL, Program, absent_node, machine

REPORT_KEYS = {
    "schema",
    "requested",
    "node",
    "how",
    "policy",
    "policy_note",
    "weights_mode",
    "threads",
    "regions",
    "look_ms",
    "ok",
}
REGION_KEYS = {"name", "bytes", "checked", "on_node", "elsewhere", "not_resident"}
REGIONS = {"weights", "repack", "kv", "compute", "other"}
FLAGS = ("--numa-node", "--numa-weights", "--numa-strict", "--numa-report", "--numa-list", "--numa-selftest")


# --- what there is ---------------------------------------------------------------------------------------------------


def test_nodes_are_listed_for_people(ours: Program, node: str) -> None:
    lines = ours.ok("--numa-list").stdout.splitlines()
    assert lines[0].split()[:2] == ["node", "CPUs"]
    assert [line.split()[0] for line in lines[1:]] == [str(n["node"]) for n in machine(ours)["nodes"]]


def test_nodes_are_listed_as_the_system_has_them(ours: Program) -> None:
    nodes = machine(ours)["nodes"]
    online = Path("/sys/devices/system/node").glob("node[0-9]*")
    assert sorted(n["node"] for n in nodes) == sorted(int(folder.name.removeprefix("node")) for folder in online)
    for n in nodes:
        meminfo = Path(f"/sys/devices/system/node/node{n['node']}/meminfo").read_text(encoding="ascii")
        assert f"MemTotal: {n['memory'] // 1024:>14} kB" in meminfo


@pytest.mark.parametrize("mode", [(), ("server",), ("cli",), ("completion",)])
def test_help_lists_the_flags(ours: Program, mode: tuple[str, ...]) -> None:
    text = ours.ok(*mode, "--help").stdout
    assert [flag for flag in FLAGS if flag not in text] == []


def test_commands_of_upstream_are_reachable(ours: Program) -> None:
    for command in ("server", "cli", "completion", "bench", "batched-bench", "fit-params", "perplexity"):
        assert ours.ok(command, "--help").stdout


def test_licences_of_all_parts_are_printed(ours: Program) -> None:
    text = ours.ok("licenses").stdout
    for part in ("llama.cpp", "cpp-httplib", "jsonhpp", "xxhash"):
        assert f"License for {part}" in text


def test_version_names_the_pinned_commit(ours: Program) -> None:
    from tools import pin

    assert f"commit {pin.load().commit}" in ours.ok("--version").stdout


# --- the report ------------------------------------------------------------------------------------------------------


def test_report_has_exactly_the_keys_of_the_contract(ours: Program, node: str, model: Path, tmp_path: Path) -> None:
    ours.ok("--numa-node", node, "--numa-report", tmp_path / "report.json", "-m", model, *GENERATE)
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert set(report) == REPORT_KEYS
    assert (report["schema"], report["requested"], report["node"], report["how"]) == (1, node, int(node), "flag")
    assert report["policy"] in ("bind", "preferred", "cpus-only", "none")
    assert set(report["threads"]) == {"workers", "bound"}
    assert report["threads"]["bound"] == report["threads"]["workers"] > 0
    names = [region["name"] for region in report["regions"]]
    assert set(names) <= REGIONS
    assert {"weights", "kv", "compute"} <= set(names)
    assert len(names) == len(set(names))
    for region in report["regions"]:
        assert set(region) == REGION_KEYS
        assert region["checked"] == region["on_node"] + region["elsewhere"] + region["not_resident"]


def test_report_goes_to_stdout_on_request(ours: Program, node: str, model: Path) -> None:
    out = ours.ok("--numa-node", node, "--numa-report", "-", "-m", model, *GENERATE).stdout
    report, _ = json.JSONDecoder().raw_decode(out[out.index("{") :])
    assert report["node"] == int(node)


@pytest.mark.parametrize("mode", ["map", "copy"])
def test_weights_are_where_the_mode_puts_them(ours: Program, node: str, model: Path, tmp_path: Path, mode: str) -> None:
    file = tmp_path / "report.json"
    ours.ok("--numa-node", node, "--numa-weights", mode, "--numa-report", file, "-m", model, *GENERATE)
    assert json.loads(file.read_text(encoding="utf-8"))["weights_mode"] == mode


def test_verdict_is_for_people_and_on_stderr(ours: Program, node: str, model: Path) -> None:
    done = ours.ok("--numa-node", node, "-m", model, *GENERATE)
    assert done.stderr.startswith(f"NUMA node {node}:")
    assert "NUMA" not in done.stdout


# --- the environment -------------------------------------------------------------------------------------------------


def test_environment_has_twins_of_the_flags(ours: Program, node: str, model: Path, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    flags = {"LLAMA_ARG_NUMA_NODE": node, "LLAMA_ARG_NUMA_WEIGHTS": "copy"}
    ours.ok("--numa-report", file, "-m", model, *GENERATE, **flags)
    report = json.loads(file.read_text(encoding="utf-8"))
    assert (report["how"], report["weights_mode"]) == ("env", "copy")


def test_flag_wins_over_the_environment(ours: Program, node: str, model: Path, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    absent = {"LLAMA_ARG_NUMA_NODE": absent_node(ours)}
    ours.ok("--numa-node", node, "--numa-report", file, "-m", model, *GENERATE, **absent)
    assert json.loads(file.read_text(encoding="utf-8"))["how"] == "flag"


def test_none_binds_nothing(ours: Program, model: Path) -> None:
    done = ours.ok("--numa-node", "none", "-m", model, *GENERATE)
    assert "NUMA node" not in done.stderr


# --- bad input -------------------------------------------------------------------------------------------------------

BAD = {
    "letters": (["--numa-node", "1x"], "1x"),
    "negative": (["--numa-node", "-1"], "-1"),
    "more than 32 bits": (["--numa-node", "4294967296"], "4294967296"),
    "more than 64 bits": (["--numa-node", "18446744073709551616"], "18446744073709551616"),
    "a sign": (["--numa-node", "+0"], "+0"),
    "a space": (["--numa-node", " 0"], "' 0'"),
    "hexadecimal": (["--numa-node", "0x0"], "0x0"),
    "a fraction": (["--numa-node", "0.5"], "0.5"),
    "a list": (["--numa-node", "0,1"], "0,1"),
    "another case": (["--numa-node", "AUTO"], "AUTO"),
    "empty": (["--numa-node", ""], "empty"),
    "empty after =": (["--numa-node="], "empty"),
    "unknown weights": (["--numa-node", "auto", "--numa-weights", "moved"], "moved"),
    "empty weights": (["--numa-node", "auto", "--numa-weights", ""], "empty"),
    "with --numa": (["--numa-node", "auto", "--numa", "distribute"], "--numa "),
    "report into no folder": (["--numa-node", "auto", "--numa-report", "/no/such/folder/r.json"], "/no/such/folder"),
    "empty report": (["--numa-node", "auto", "--numa-report", ""], "--numa-report"),
    "strict about nothing": (["--numa-node", "none", "--numa-strict"], "--numa-strict"),
}


def assert_one_clear_line(ours: Program, arguments: list[str], says: str, **environment: str) -> None:
    done = ours(*arguments, *NO_MODEL, **environment)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert says in done.stderr
    assert "model.gguf" not in done.stderr


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gives_one_clear_line(ours: Program, case: str) -> None:
    arguments, says = BAD[case]
    assert_one_clear_line(ours, arguments, says)


@pytest.mark.parametrize("value", ["1x", "-1", "4294967296", ""])
def test_bad_environment_gives_one_clear_line(ours: Program, value: str) -> None:
    assert_one_clear_line(ours, [], "LLAMA_ARG_NUMA_NODE", LLAMA_ARG_NUMA_NODE=value)


def test_absent_node_is_an_error_that_names_those_there_are(ours: Program) -> None:
    absent = absent_node(ours)
    assert_one_clear_line(ours, ["--numa-node", absent], f"no node {absent}")
    message = ours("--numa-node", absent, *NO_MODEL).stderr
    there = [str(n["node"]) for n in machine(ours)["nodes"]]
    assert all(number in message for number in there)


def test_two_different_nodes_are_an_error(ours: Program, node: str) -> None:
    assert_one_clear_line(ours, ["--numa-node", node, "--numa-node", absent_node(ours)], "twice")


def test_report_that_cannot_be_written_leaves_nothing(ours: Program, node: str, tmp_path: Path) -> None:
    assert_one_clear_line(ours, ["--numa-node", node, "--numa-report", str(tmp_path)], str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_model_that_is_not_there_is_named(ours: Program, node: str) -> None:
    for _ in range(5):  # llama.cpp writes its log in a thread, which must not be left behind at the exit
        done = ours("--numa-node", node, *NO_MODEL)
        assert done.returncode == 1
        assert "/no/such/model.gguf" in done.stderr


def test_modes_exclude_each_other(ours: Program) -> None:
    assert_one_clear_line(ours, ["--server", "--chat"], "--server")


# --- what is not to be lost ------------------------------------------------------------------------------------------


def test_report_takes_no_other_file_s_place(ours: Program, node: str, model: Path, tmp_path: Path) -> None:
    """Such as the model's, by a slip; a report of an earlier run may go."""
    other = tmp_path / "model.gguf"
    other.write_bytes(model.read_bytes()[:1000])
    flags = ("--numa-node", node, "-m", model, *GENERATE)
    done = ours(*flags, "--numa-report", other)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "is there and is no report" in done.stderr
    assert other.read_bytes() == model.read_bytes()[:1000]
    report = tmp_path / "report.json"
    for before in ("", '{"schema":1,"node":77}'):
        report.write_text(before, encoding="utf-8")
        ours.ok(*flags, "--numa-report", report)
        assert json.loads(report.read_text(encoding="utf-8"))["node"] == int(node)


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("complete",)], ids=" ".join)
def test_text_that_cannot_be_written_is_an_error(ours: Program, model: Path, arguments: tuple[str, ...]) -> None:
    words = ("-m", model, *GENERATE) if arguments == ("complete",) else arguments
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(
            ours.command(*words), env=ours.environment(), stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert "standard output cannot be written" in done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_are_not_taken_for_others(
    ours: Program, node: str, model: Path, closed: str, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    command = ours.command("--numa-node", node, "--numa-report", report, "-m", model, *GENERATE)
    done = subprocess.run(["sh", "-c", f'exec "$0" "$@" {closed}', *command], env=ours.environment(), check=False)
    assert done.returncode == 0
    assert json.loads(report.read_text(encoding="utf-8"))["node"] == int(node)
