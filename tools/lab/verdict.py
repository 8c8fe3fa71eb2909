"""What a run showed, against what its scenario expects, and the program's own report against what was seen outside."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tools.lab import disk, evidence
from tools.lab.evidence import Seen
from tools.lab.qemu import Event
from tools.lab.scenario import Expect, Machine, Run, Scenario

# How far, in per cent of the pages, the report and what is seen from outside may be apart.
AGREEMENT = 1.0

# The regions of a report that lie in the model's mapping, by `weights_mode`; all others are anonymous memory.
MAPPED = {"map": {"weights"}, "moved": {"weights"}, "copy": set[str]()}


@dataclass
class Outcome:
    """One run: `exit` is its code, "running" if it had to be ended, "" if the machine died before."""

    scenario: Scenario
    run: Run
    ready_seconds: int | None = None
    answer: str = ""
    exit: str = ""
    errors: str = ""
    report: dict[str, Any] | None = None
    seen: Seen | None = None
    failures: list[str] = field(default_factory=list)

    @property
    def generated(self) -> bool:
        """It answered a completion with a token, be that a part of a character only."""
        try:
            return bool(json.loads(self.answer)["tokens_predicted"])
        except (ValueError, KeyError, TypeError):
            return False

    @property
    def weights(self) -> Mapping[int, int]:
        """Pages of the weights per node as seen from outside; a copy cannot be told from other buffers."""
        if not self.seen:
            return {}
        copied = self.report is not None and self.report.get("weights_mode") == "copy"
        return evidence.total([self.seen.model, self.seen.buffers]) if copied else self.seen.model

    @property
    def buffers(self) -> Mapping[int, int]:
        return self.seen.buffers if self.seen else {}


def outcome(
    scenario: Scenario, run: Run, events: Iterable[Event], lost: str = "", image: range = evidence.NO_IMAGE
) -> Outcome:
    """Put together and judge what the guest told about one run; `lost` is why its machine told no more."""
    told = {event.kind: event.text for event in events if (event.scenario, event.run) == (scenario.name, run.name)}
    result = Outcome(scenario, run, answer=told.get("answer", ""), exit=told.get("exit", "").strip())
    result.errors = told.get("errors", "")
    if "ready" in told:
        result.ready_seconds = int(told["ready"])
    if "numa_maps" in told and "pages" in told and "threads" in told:
        result.seen = evidence.see(told["numa_maps"], told["pages"], told["threads"], disk.path(run.model), image)
    if "report" in told:
        try:
            result.report = json.loads(told["report"])
        except ValueError as error:
            result.failures.append(f"the report is no JSON: {error}")
    result.failures += judge(result) if result.exit else [f"the machine ended before the run did: {lost}"]
    return result


def judge(result: Outcome) -> list[str]:
    """Every way in which a run that has ended is not as expected, a line each."""
    expect = result.run.expect
    faults = [*judge_end(result, expect), *judge_words(result, expect)]
    if expect.exit is None and result.seen:
        faults += [*judge_places(result, expect), *judge_threads(result.seen, expect, result.scenario.machine)]
        faults += judge_witnesses(result.seen)
    faults += judge_report(result, expect)
    return faults


def judge_end(result: Outcome, expect: Expect) -> list[str]:
    if expect.exit is None:
        if result.exit != "running" or not result.seen:
            return [f"should serve, but ended with {result.exit}: {last_line(result.errors)}"]
        return [] if result.generated else [f"generated nothing: {result.answer[:200]!r}"]
    faults = []
    if result.exit != str(expect.exit):
        faults.append(f"should exit {expect.exit}, but: {result.exit}: {last_line(result.errors)}")
    if result.ready_seconds is not None or result.answer.strip():
        faults.append(f"should serve nothing, but answered: {result.answer[:200]!r}")
    if expect.exit == 2 and len(lines := result.errors.strip().splitlines()) != 1:
        faults.append(f"should say one line, said {len(lines)}")
    return faults


def judge_words(result: Outcome, expect: Expect) -> list[str]:
    return [f"should say {wanted!r}" for wanted in expect.says if not re.search(wanted, result.errors)]


def judge_places(result: Outcome, expect: Expect) -> list[str]:
    faults = []
    for name, wanted, pages, strays in (
        ("weights", expect.weights, result.weights, 0),
        ("buffers", expect.buffers, result.buffers, expect.strays),
    ):
        if wanted is None or expect.node is None:
            continue
        found = evidence.share(pages, expect.node)
        elsewhere = sum(pages.values()) - pages.get(expect.node, 0)
        # All means all: not one page more than the strays may be elsewhere.
        if found is None or (elsewhere > strays if wanted == 100 else abs(found - wanted) > AGREEMENT):
            faults.append(f"{name}: should be {wanted:g} % on node {expect.node}, pages per node are {dict(pages)}")
    return faults


def judge_threads(seen: Seen, expect: Expect, machine: Machine) -> list[str]:
    if expect.threads is None:
        return []
    cpus = machine.nodes[expect.threads].cpus
    loose = [thread for thread in seen.threads if not thread.cpus <= cpus]
    return [f"{len(loose)} of {len(seen.threads)} threads may leave node {expect.threads}"] if loose else []


def judge_witnesses(seen: Seen) -> list[str]:
    """numa_maps and move_pages have to tell the same, but for pages that move_pages cannot see."""
    return [
        f"{name}: numa_maps says {dict(one)}, move_pages {dict(other)}"
        for name, one, other in (
            ("model", seen.model, seen.model_moved),
            ("buffers", seen.buffers, seen.buffers_moved),
        )
        if apart(one, other, unseen=seen.hinted)
    ]


def apart(one: Mapping[int, int], other: Mapping[int, int], *, unseen: bool) -> bool:
    """True where on some node `other` has more pages than `one`, or (if not `unseen`) less, by AGREEMENT per cent."""
    allowed = AGREEMENT / 100 * max(sum(one.values()), sum(other.values()))
    more = [other.get(node, 0) - one.get(node, 0) for node in one.keys() | other.keys()]
    return any(count > allowed or (count < -allowed and not unseen) for count in more)


def judge_report(result: Outcome, expect: Expect) -> list[str]:
    if result.run.program != "llamafile-numa" or (expect.exit is not None and not expect.report):
        return []
    report = result.report
    if report is None:
        return ["there is no report"]
    faults = []
    for key, wanted in (expect.report or {}).items():
        found = entries(report, key.split("."))
        accepted = wanted if isinstance(wanted, list) else [wanted]
        if not found or any(one not in accepted for one in found):
            faults.append(f"report: {key} should be {wanted!r}, is {', '.join(map(repr, found)) or 'not there'}")
    if report.get("ok") is True:
        faults += judge_claim(report, expect)
    return faults + (judge_agreement(report, result.seen) if result.seen else [])


def entries(value: Any, path: list[str]) -> list[Any]:
    """What a path of keys leads to, `*` being each element of a list; nothing where it leads nowhere."""
    if not path:
        return [value]
    if path[0] == "*":
        return [found for one in value for found in entries(one, path[1:])] if isinstance(value, list) else []
    return entries(value[path[0]], path[1:]) if isinstance(value, dict) and path[0] in value else []


def judge_claim(report: Mapping[str, Any], expect: Expect) -> list[str]:
    """A report that says all is well has looked at each region that the run has, and found nothing elsewhere."""
    regions = {region["name"]: region for region in report.get("regions", [])}
    return [
        f"report: ok, but {name} was {regions.get(name, 'left out')}"
        for name in ("weights", "kv", "compute", *expect.regions)
        if name not in regions or not regions[name]["on_node"] or regions[name]["elsewhere"]
    ]


def judge_agreement(report: Mapping[str, Any], seen: Seen) -> list[str]:
    """The report against what is seen from outside.

    Of the mapped file, the shares on the node are compared. The program's own memory includes more than the report's
    regions, and grows once it generates: so all that the report has elsewhere must be there, and no more than that, and
    at least what it has on the node. Where memory is short the kernel drops pages of the file between the two looks:
    what has gone since may have been anywhere.
    """
    node = report.get("node")
    if not isinstance(node, int):
        return []
    faults = []
    mapped = MAPPED.get(report.get("weights_mode", ""), set())
    there, away = (reported_pages(report, place, mapped) for place in ("on_node", "elsewhere"))
    gone = max(0.0, there + away - sum(seen.model.values()))
    said, found = reported_share(report, "model"), evidence.share(seen.model, node)
    if said is not None and (found is None or abs(said - found) > AGREEMENT + 100 * gone / (there + away)):
        faults.append(f"report: {said:.1f} % of the file on node {node}; from outside, pages: {dict(seen.model)}")
    pages = evidence.total([seen.model, seen.buffers])
    everything = sum(pages.values())
    allowed = AGREEMENT / 100 * everything + gone
    on_node, elsewhere = reported_pages(report, "on_node"), reported_pages(report, "elsewhere")
    if abs(elsewhere - (everything - pages.get(node, 0))) > allowed or on_node > pages.get(node, 0) + allowed:
        faults.append(
            f"report: {on_node:.0f} pages on node {node}, {elsewhere:.0f} elsewhere; from outside: {dict(pages)}"
        )
    return faults


def reported_pages(report: Mapping[str, Any], count: str, names: Container[str] | None = None) -> float:
    """All pages of a report, or of its regions of these names, that are `on_node` or `elsewhere`; sampled regions are
    scaled to their size."""
    pages = 0.0
    for region in report.get("regions", []):
        if region["checked"] and (names is None or region["name"] in names):
            pages += region["bytes"] / evidence.PAGE * region[count] / region["checked"]
    return pages


def reported_share(report: Mapping[str, Any], group: str) -> float | None:
    """Per cent on the node, by the report, of what lies in the model's mapping (`model`) or outside it (`buffers`).

    Regions are sampled, so each counts by its bytes. None where there is no such region, or none of it was looked at.
    """
    mapped = MAPPED.get(report.get("weights_mode", ""), set())
    there = everything = 0.0
    for region in report.get("regions", []):
        placed = region["on_node"] + region["elsewhere"]
        if (region["name"] in mapped) == (group == "model") and placed:
            there += region["bytes"] * region["on_node"] / placed
            everything += region["bytes"]
    return 100 * there / everything if everything else None


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["(it said nothing)"])[-1]
