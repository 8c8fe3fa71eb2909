"""Judging a run of the lab: what was expected, what was seen, and what the program says of itself."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest

from tools.lab import qemu, rows, scenario
from tools.lab.qemu import Event
from tools.lab.scenario import Machine, Node
from tools.lab.verdict import Outcome, outcome, reported_share

MACHINE = Machine("pair", (Node(512, frozenset({0, 1})), Node(512, frozenset({2, 3}))), ((10, 21), (21, 10)))
LOCAL = "node = 1, weights = 100, buffers = 100, threads = 1, report = { node = 1, ok = true }"
SERVED = {"ready": "12", "answer": '{"tokens_predicted": 1}', "exit": "running", "errors": ""}


def region(name: str, on_node: int, elsewhere: int = 0, not_resident: int = 0) -> dict[str, Any]:
    pages = on_node + elsewhere + not_resident
    counts = {"checked": pages, "on_node": on_node, "elsewhere": elsewhere, "not_resident": not_resident}
    return {"name": name, "bytes": 4096 * pages, **counts}


def report(*regions: dict[str, Any], mode: str = "map", **more: Any) -> dict[str, Any]:
    return {"node": 1, "weights_mode": mode, "regions": list(regions), "ok": True, **more}


ALL_LOCAL = (region("weights", 60000), region("kv", 5000), region("compute", 1000, not_resident=500))


def numa_maps(model: str = "N1=60000", buffers: str = "N1=6000") -> str:
    return f"7f0000000000 bind:1 file=/disk/model.gguf {model}\n7e0000000000 bind:1 anon=1 {buffers}\n"


def pages(model: str = "N1=60000", buffers: str = "N1=6000") -> str:
    return f"7f0000000000 {model} absent=0\n7e0000000000 {buffers} absent=500\n"


def judge(expect: str, told: dict[str, str], program: str = "llamafile-numa", lost: str = "") -> Outcome:
    text = (
        f'title = "t"\nmachine = "pair"\nsteps = ["run it"]\n[run.it]\nprogram = "{program}"\nexpect = {{ {expect} }}'
    )
    one = scenario.parse("sample", text, {"pair": MACHINE})
    other = Event("sample", "other", "exit", "9", 1.0)
    events = [other, *(Event("sample", "it", kind, text, 1.0) for kind, text in told.items())]
    return outcome(one, one.runs["it"], events, lost)


def looked(
    said: dict[str, Any] | None, model: str = "N1=60000", buffers: str = "N1=6000", cpus: str = "2-3"
) -> dict[str, str]:
    evidence = {
        "numa_maps": numa_maps(model, buffers),
        "pages": pages(model, buffers),
        "threads": f"Name:\tx\nCpus_allowed_list:\t{cpus}\n",
    }
    return {**SERVED, **evidence, **({"report": json.dumps(said)} if said else {})}


def test_strays_are_a_number_of_pages() -> None:
    few = looked(None, buffers="N0=8 N1=5992")
    expect = "node = 1, buffers = 100"
    assert judge(f"{expect}, strays = 8", few, program="llama").failures == []
    for strays in ("", ", strays = 7"):
        assert len(judge(expect + strays, few, program="llama").failures) == 1


def test_all_on_the_node() -> None:
    result = judge(LOCAL, looked(report(*ALL_LOCAL)))
    assert result.failures == []
    assert rows.row(result)[3:] == ["serves", "map", "", "1", "100", "100", "0", "100", "100"]


def test_one_page_elsewhere_is_not_all() -> None:
    result = judge(LOCAL, looked(report(*ALL_LOCAL), model="N0=1 N1=59999"))
    assert result.failures == ["weights: should be 100 % on node 1, pages per node are {0: 1, 1: 59999}"]
    assert rows.row(result)[7:10] == ["99.9", "100", "1"]


def test_a_report_that_claims_more_than_is_so() -> None:
    expect = "node = 1, report = { ok = true }"
    result = judge(expect, looked(report(*ALL_LOCAL), model="N0=1000 N1=59000"))
    assert result.failures == [
        "report: 100.0 % of the file on node 1; from outside, pages: {0: 1000, 1: 59000}",
        "report: 66000 pages on node 1, 0 elsewhere; from outside: {0: 1000, 1: 65000}",
    ]


def test_within_one_per_cent_is_agreement() -> None:
    spilled = report(region("weights", 59500, 500), *ALL_LOCAL[1:], ok=False)
    assert judge("node = 1, report = { ok = false }", looked(spilled, model="N0=1000 N1=59000")).failures == []


def test_a_spill_is_told_page_by_page_although_the_program_has_other_memory_too() -> None:
    spilled = report(*ALL_LOCAL[:1], region("kv", 300, 4700), region("compute", 1000, not_resident=500), ok=False)
    expect = "node = 1, report = { ok = false }"
    assert judge(expect, looked(spilled, buffers="N0=4700 N1=3300")).failures == []
    told = judge(expect, looked(spilled, buffers="N0=6000 N1=2000")).failures
    assert told == ["report: 61300 pages on node 1, 4700 elsewhere; from outside: {0: 6000, 1: 62000}"]


def test_pages_that_the_kernel_dropped_since_may_have_been_anywhere() -> None:
    spilled = report(region("weights", 7000, 53000), *ALL_LOCAL[1:], ok=False)
    expect = "node = 1, report = { ok = false }"
    assert judge(expect, looked(spilled, model="N0=53000 N1=5800")).failures == []
    assert judge(expect, looked(spilled, model="N0=51800 N1=7000")).failures == []
    told = judge(expect, looked(spilled, model="N0=54200 N1=5800")).failures
    assert told[0] == "report: 11.7 % of the file on node 1; from outside, pages: {0: 54200, 1: 5800}"


def test_a_report_with_more_on_the_node_than_there_is() -> None:
    inflated = report(*ALL_LOCAL[:1], region("kv", 9000), ALL_LOCAL[2])
    told = judge("node = 1", looked(inflated)).failures
    assert told == ["report: 70000 pages on node 1, 0 elsewhere; from outside: {1: 66000}"]


def test_ok_without_having_looked() -> None:
    blind = report(region("weights", 60000), region("kv", 5000), region("compute", 0, not_resident=1500))
    assert [fault.partition(" was")[0] for fault in judge(LOCAL, looked(blind)).failures] == ["report: ok, but compute"]
    assert judge(LOCAL, looked(report(*ALL_LOCAL[:2]))).failures == ["report: ok, but compute was left out"]


def test_copied_weights_are_among_the_buffers() -> None:
    copied = looked(report(*ALL_LOCAL, mode="copy"), model="", buffers="N1=66000")
    assert judge(LOCAL, copied).failures == []
    copied = looked(report(*ALL_LOCAL, mode="copy"), model="", buffers="N0=33000 N1=33000")
    assert [fault.partition(":")[0] for fault in judge(LOCAL, copied).failures] == ["weights", "buffers", "report"]


def test_threads_that_may_leave() -> None:
    result = judge(LOCAL, looked(report(*ALL_LOCAL), cpus="1-3"))
    assert result.failures == ["1 of 1 threads may leave node 1"]


def test_witnesses_that_contradict_each_other() -> None:
    told = {**looked(report(*ALL_LOCAL)), "pages": pages(model="N0=700 N1=59300")}
    assert judge(LOCAL, told).failures == ["model: numa_maps says {1: 60000}, move_pages {0: 700, 1: 59300}"]


def test_pages_without_a_policy_may_be_out_of_sight_for_move_pages() -> None:
    told = looked(report(*ALL_LOCAL))
    told["numa_maps"] = numa_maps().replace("bind:1", "default")
    assert judge(LOCAL, {**told, "pages": pages(buffers="")}).failures == []
    assert judge(LOCAL, {**looked(report(*ALL_LOCAL)), "pages": pages(buffers="")}).failures
    assert judge(LOCAL, {**told, "pages": pages(buffers="N0=700 N1=5300")}).failures


def test_the_report_names_the_regions_there_must_be() -> None:
    expect = 'regions = ["repack"]'
    assert judge(expect, looked(report(*ALL_LOCAL))).failures == ["report: ok, but repack was left out"]
    assert judge(expect, looked(report(*ALL_LOCAL, region("repack", 10)))).failures == []


def test_the_baseline_has_no_report() -> None:
    told = looked(None, model="N0=60000")
    assert judge("node = 1, weights = 0, buffers = 100", told, program="llama").failures == []
    assert judge("node = 1, weights = 0, buffers = 100", told).failures == ["there is no report"]


def test_a_report_that_is_not_as_expected() -> None:
    said = report(*ALL_LOCAL, how="flag", policy="bind")
    expect = 'report = { how = "confined", policy = ["bind", "preferred"] }'
    assert judge(expect, looked(said)).failures == ["report: how should be 'confined', is 'flag'"]
    assert "the report is no JSON" in judge("", {**looked(None), "report": "{"}).failures[0]


def test_it_should_serve_but_ended() -> None:
    told = {"exit": "1\n", "errors": "first\nerror: no model\n", "answer": ""}
    assert judge("", told).failures[0] == "should serve, but ended with 1: error: no model"


def test_it_serves_but_generates_nothing() -> None:
    told = {**looked(report(*ALL_LOCAL)), "answer": '{"tokens_predicted": 0}'}
    assert judge("", told).failures == ["generated nothing: '{\"tokens_predicted\": 0}'"]


def test_it_should_end_and_serve_nothing() -> None:
    refused = {"exit": "2\n", "errors": "error: node 1 has no memory\n", "answer": ""}
    assert judge('exit = 2, says = ["node 1"]', refused).failures == []
    assert judge('exit = 2, says = ["node 2"]', refused).failures == ["should say 'node 2'"]
    assert judge("exit = 3", refused).failures == ["should exit 3, but: 2: error: node 1 has no memory"]
    assert judge("exit = 2", {**refused, "errors": "a\nb\n"}).failures == ["should say one line, said 2"]
    served = {**refused, "ready": "3", "answer": "{}"}
    assert judge("exit = 2", served).failures == ["should serve nothing, but answered: '{}'"]


def test_a_machine_that_died() -> None:
    result = judge(LOCAL, {"ready": "3"}, lost="QEMU ended with -11: -")
    assert result.failures == ["the machine ended before the run did: QEMU ended with -11: -"]
    assert rows.row(result)[3] == "lost"


def test_each_region_counts_by_its_bytes() -> None:
    sampled = {**region("weights", 10), "bytes": 3_000_000}, {**region("kv", 0, 1000), "bytes": 1_000_000}
    assert reported_share(report(*sampled, mode="copy"), "buffers") == 75
    assert reported_share(report(*sampled), "model") == 100
    assert reported_share(report(*sampled), "buffers") == 0
    assert reported_share(report(region("kv", 0, not_resident=9)), "buffers") is None


def test_an_event() -> None:
    data = base64.b64encode(gzip.compress(b"ein Wort\n")).decode()
    line = f'{{"scenario":"s","run":"r","kind":"exit","data":"{data}"}}\r\n'.encode()
    assert qemu.decode(line, 2.5) == Event("s", "r", "exit", "ein Wort\n", 2.5)


@pytest.mark.parametrize(("value", "text"), [(None, "-"), (100, "100"), (99.999, "99.9"), (12.34, "12.3"), (0, "0")])
def test_percent(value: float | None, text: str) -> None:
    assert rows.percent(value) == text


def test_markdown() -> None:
    text = rows.markdown([["x"] * len(rows.HEADINGS)])
    head, rule, line = text.splitlines()
    assert head.startswith("| scenario | run |")
    assert rule.count("---") == line.count(" x ") == len(rows.HEADINGS)


def test_entries_of_a_report_of_a_run_that_ends() -> None:
    said = {"kind": "x", "cells": [{"seen": {"elsewhere": 0}}, {"seen": {"elsewhere": 3}}], "none": []}
    told = {"exit": "0", "errors": "", "report": json.dumps(said)}

    def faults(entries: str) -> list[str]:
        return judge(f"exit = 0, report = {{ {entries} }}", told).failures

    assert faults('kind = "x", "cells.*.seen.elsewhere" = [0, 3]') == []
    assert faults('kind = "y"') == ["report: kind should be 'y', is 'x'"]
    assert faults('"cells.*.seen.elsewhere" = 0') == ["report: cells.*.seen.elsewhere should be 0, is 0, 3"]
    assert faults('"cells.seen" = 0') == ["report: cells.seen should be 0, is not there"]
    assert faults('"none.*" = 0') == ["report: none.* should be 0, is not there"]
    assert judge('exit = 0, report = { kind = "x" }', {"exit": "0", "errors": ""}).failures == ["there is no report"]
