"""--numa-selftest of the real program: what it finds on this machine, and that it leaves nothing behind."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from tests.build.programs import Program, clean, machine
from tests.wine import sysfs
from tools import models, pack

ENOUGH = 60  # seconds, as is promised


def selftest(program: Program, *flags: str | Path, **environment: str) -> dict[str, Any]:
    done = program.ok("--numa-selftest", "--json", *flags, **environment)
    read: dict[str, Any] = json.loads(done.stdout)
    return read


# --- the machine -----------------------------------------------------------------------------------------------------


def test_it_finds_this_machine(ours: Program, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    begin = time.monotonic()
    done = ours.ok("--numa-selftest", "--numa-report", report)
    assert time.monotonic() - begin < ENOUGH
    assert done.stdout.startswith("llamafile-numa selftest\n  system  Linux ")
    assert all(line.startswith("selftest, ") for line in done.stderr.splitlines())
    read = json.loads(report.read_text(encoding="utf-8"))
    listed = machine(ours)["nodes"]
    fixed = ("node", "cpus", "cores", "distances", "cpus_allowed", "memory_allowed")
    assert [{key: node[key] for key in fixed} for node in read["nodes"]] == [
        {key: node[key] for key in fixed} for node in listed
    ]
    check_bandwidth(read, {node["node"]: node for node in listed})
    assert (read["cpu_sets"]["answer"], read["gain"]["model"]) == (None, None)
    assert read["unbuffered"]["answer"] == "keeps" or "past the cache" in read["unbuffered"]["reason"]
    if len(listed) == 1:
        assert "two nodes" in read["prefetch"]["reason"]
        assert "nothing is to be gained" in done.stdout


def test_it_takes_a_model_in_an_archive_and_nothing_else_of_it(ours: Program, model: Path, tmp_path: Path) -> None:
    archive = tmp_path / "x.llamafile"
    pack.pack([model], ["-c", "256", "--server"], archive)
    read = selftest(ours, "-m", archive)
    assert read["gain"]["model"] == selftest(ours, "-m", model)["gain"]["model"]
    assert (read["file"], read["file_note"]) == ("temporary", "not the model: it cannot be read, or is in an archive")


def check_bandwidth(read: dict[str, Any], nodes: dict[int, dict[str, Any]]) -> None:
    assert [(cell["threads_on"], cell["memory_on"]) for cell in read["bandwidth"]] == [
        (i, k) for i in nodes for k in nodes
    ]
    for cell in read["bandwidth"]:
        measurable = nodes[cell["threads_on"]]["cpus_allowed"] and nodes[cell["memory_on"]]["memory_allowed"]
        if not measurable or cell["reason"]:
            assert cell["gb_per_s"] is None
            assert cell["reason"]
            continue
        assert 0.1 < cell["gb_per_s"] < 2000
        assert 0 < cell["busy"] < 1.2
        assert cell["threads"] == nodes[cell["threads_on"]]["cores"]
        seen = cell["seen"]
        assert seen["on_node"] + seen["elsewhere"] + seen["not_resident"] == seen["checked"] > 0
        assert seen["on_node"] >= 0.99 * seen["checked"]


def test_a_mask_of_cpus_is_kept(ours: Program) -> None:
    """As `taskset` would: threads run on the CPUs that are left."""
    mine = subprocess.run(
        ["taskset", "-c", "0", ours.path, "--numa-selftest", "--json"], capture_output=True, text=True, env=clean({})
    )
    assert mine.returncode == 0, mine.stderr
    assert {cell["threads"] for cell in json.loads(mine.stdout)["bandwidth"] if cell["gb_per_s"]} == {1}


def test_a_node_that_is_none_is_not_measured(ours: Program, tmp_path: Path) -> None:
    """Two nodes are made up where the kernel has one: the other one has no figure and no answer."""
    if len(machine(ours)["nodes"]) != 1 or not {0, 1} <= os.sched_getaffinity(0):
        pytest.skip("needs a machine with one node and the CPUs 0 and 1")
    under = sysfs.inside(sysfs.MadeUp({0: "0", 1: "1"}).write(tmp_path))
    for node in (0, 1):
        amounts = "".join(f"Node {node} {name}: {1 << 20} kB\n" for name in ("MemTotal", "MemFree"))
        (tmp_path / sysfs.SYSTEM / "node" / f"node{node}" / "meminfo").write_text(amounts, encoding="ascii")
    done = subprocess.run(
        [*under, ours.path, "--numa-selftest", "--json"], capture_output=True, text=True, env=clean({})
    )
    assert done.returncode == 0, done.stderr
    read = json.loads(done.stdout)
    for cell in read["bandwidth"]:
        remote = cell["memory_on"] == 1
        assert (cell["gb_per_s"] is None) == remote
        assert cell["reason"] == ("memory of node 1 is not allowed to this process" if remote else None)
    assert "two nodes" in read["prefetch"]["reason"]
    assert read["gain"]["nodes"][1]["remote_node"] == 0
    assert [node["ratio"] for node in read["gain"]["nodes"]] == [None, None]


# --- the model -------------------------------------------------------------------------------------------------------


def write(file: Path, tensors: dict[str, int], **counts: int) -> Path:
    """A GGUF with tensors of so many bytes, and counts in its metadata."""
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_name("a\nmodel")
    for key, count in counts.items():
        if key.startswith("split"):
            writer.add_uint16(key.replace("_", ".", 1), count)
        else:
            writer.add_uint32(f"llama.{key}", count)
    for name, size in tensors.items():
        writer.add_tensor(name, np.zeros((size // 4,), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def weighed(program: Program, model: Path) -> dict[str, Any]:
    read = selftest(program, "-m", model)
    found: dict[str, Any] = read["gain"]["model"]
    for node in read["gain"]["nodes"]:
        if node["local_gb_per_s"]:
            expected = node["local_gb_per_s"] * 1e9 / found["per_token"]
            assert node["local_tokens_per_s"] == pytest.approx(expected, rel=1e-3)
    return found


def test_a_model_is_weighed_as_gguf_weighs_it(ours: Program, model: Path) -> None:
    sizes = {tensor.name: int(tensor.n_bytes) for tensor in gguf.GGUFReader(model).tensors}
    assert "output.weight" in sizes  # so the embeddings are a table, of which a token reads a line
    found = weighed(ours, model)
    assert found["weights"] == sum(sizes.values())
    assert found["per_token"] == sum(sizes.values()) - sizes["token_embd.weight"]
    assert (found["experts"], found["experts_used"]) == (0, 0)


@pytest.mark.real_model
def test_embeddings_that_are_the_output_too_count(ours: Program) -> None:
    real = models.real_model()
    sizes = {tensor.name: int(tensor.n_bytes) for tensor in gguf.GGUFReader(real).tensors}
    assert "output.weight" not in sizes
    assert weighed(ours, real)["per_token"] == sum(sizes.values())


def test_of_experts_those_that_are_used_count(ours: Program, tmp_path: Path) -> None:
    tensors = {"output.weight": 4096, "blk.0.attn_q.weight": 8192, "blk.0.ffn_up_exps.weight": 80000}
    found = weighed(ours, write(tmp_path / "m.gguf", tensors, expert_count=8, expert_used_count=2))
    assert found == {
        **{"name": "a?model", "weights": 92288, "per_token": 4096 + 8192 + 20000},
        **{"experts": 8, "experts_used": 2},
    }


def test_all_parts_of_a_split_model_count(ours: Program, tmp_path: Path) -> None:
    first = write(tmp_path / "m-00001-of-00002.gguf", {"token_embd.weight": 4096}, split_count=2, split_no=0)
    done = ours("--numa-selftest", "-m", first)
    assert done.returncode == 2
    assert "m-00002-of-00002.gguf" in done.stderr
    write(tmp_path / "m-00002-of-00002.gguf", {"output.weight": 4096, "x.weight": 8192}, split_count=2, split_no=1)
    found = weighed(ours, first)
    assert (found["weights"], found["per_token"]) == (16384, 12288)
    renamed = first.rename(tmp_path / "other.gguf")
    assert "NAME-00001-of-00002.gguf" in ours("--numa-selftest", "-m", renamed).stderr


def test_a_model_is_read_only_and_its_path_is_not_told(ours: Program, model: Path, tmp_path: Path) -> None:
    copy = tmp_path / "secret-folder" / "model.gguf"
    copy.parent.mkdir()
    copy.write_bytes(model.read_bytes())
    copy.chmod(0o444)
    before = (hashlib.sha256(copy.read_bytes()).digest(), copy.stat().st_mtime_ns)
    done = ours.ok("--numa-selftest", "--numa-report", tmp_path / "report.json", "-m", copy)
    read = (tmp_path / "report.json").read_text(encoding="utf-8")
    assert json.loads(read)["file"] == "model"
    assert (hashlib.sha256(copy.read_bytes()).digest(), copy.stat().st_mtime_ns) == before
    said = done.stdout + read + done.stderr
    assert [private for private in ("secret-folder", str(tmp_path), str(Path.home())) if private in said] == []
    assert socket.gethostname() not in said.split()


# --- what is left behind ---------------------------------------------------------------------------------------------


def test_a_temporary_file_goes_even_on_ctrl_c(ours: Program, tmp_path: Path) -> None:
    with subprocess.Popen(
        [ours.path, "--numa-selftest"], env=clean({"TMPDIR": str(tmp_path)}), stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr
        assert any("opened past" in line for line in process.stderr)
        process.send_signal(signal.SIGINT)
        process.wait(ENOUGH)
    assert list(tmp_path.iterdir()) == []


def test_a_temporary_file_is_on_a_disk(ours: Program, tmp_path: Path) -> None:
    """What lies in memory says nothing of the file cache: another folder is taken, or none."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        pytest.skip("no file system in memory here (/dev/shm)")
    before = sorted(memory.iterdir())
    read = selftest(ours, TMPDIR=str(memory))
    assert sorted(memory.iterdir()) == before
    assert read["file"] == "temporary" or "TMPDIR" in read["prefetch"]["reason"]


# --- bad input -------------------------------------------------------------------------------------------------------


def one_line(ours: Program, *flags: str | Path) -> str:
    done = ours("--numa-selftest", *flags)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


def test_no_model(ours: Program, tmp_path: Path) -> None:
    assert "cannot read /no/such/model.gguf" in one_line(ours, "-m", "/no/such/model.gguf")
    assert "not a GGUF file" in one_line(ours, "-m", tmp_path)


def test_a_file_that_is_no_model(ours: Program, model: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.gguf"
    for content in (b"", b"GGUF", b"not a model at all", model.read_bytes()[:1000], b"GGUF" + bytes(4096)):
        bad.write_bytes(content)
        assert "bad.gguf" in one_line(ours, "-m", bad)


def test_other_flags_are_refused(ours: Program, model: Path) -> None:
    assert "takes no --numa-node" in one_line(ours, "--numa-node", "auto", "-m", model)
    assert "does not take '-p'" in one_line(ours, "-m", model, "-p", "x")
