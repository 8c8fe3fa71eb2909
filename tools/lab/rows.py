"""Outcomes as a table for people, as Markdown and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tools.lab import evidence
from tools.lab.verdict import Outcome, reported_share

# '>': aligned right. Shares are per cent of the pages in memory, seen from outside; "says": by the program's report.
HEADINGS = (
    "scenario",
    "run",
    "program",
    "result",
    "mode",
    "policy",
    ">node",
    ">weights %",
    ">KV, compute %",
    ">elsewhere",
    ">says: weights %",
    ">says: KV, compute %",
)


def row(outcome: Outcome) -> list[str]:
    """A line of the table; `elsewhere` counts pages of weights and buffers that are on other nodes."""
    report = outcome.report or {}
    node = report.get("node", outcome.run.expect.node)
    head = [
        outcome.scenario.name,
        outcome.run.name,
        outcome.run.program,
        result(outcome),
        report.get("weights_mode", ""),
        report.get("policy", ""),
    ]
    if not outcome.seen or not isinstance(node, int):
        return [*head, "", "", "", "", "", ""]
    return [
        *head,
        str(node),
        percent(evidence.share(outcome.weights, node)),
        percent(evidence.share(outcome.buffers, node)),
        str(elsewhere(outcome, node)),
        percent(region_share(report, {"weights"})),
        percent(region_share(report, {"kv", "compute"})),
    ]


def result(outcome: Outcome) -> str:
    if outcome.exit == "running":
        return "serves" if outcome.generated else "hangs"
    return f"exit {outcome.exit}" if outcome.exit else "lost"


def elsewhere(outcome: Outcome, node: int) -> int:
    if not outcome.seen:
        return 0
    pages = evidence.total([outcome.seen.model, outcome.seen.buffers])
    return sum(count for on, count in pages.items() if on != node)


def region_share(report: Mapping[str, Any], names: set[str]) -> float | None:
    regions = [region for region in report.get("regions", []) if region["name"] in names]
    chosen = {**report, "weights_mode": "copy", "regions": regions}
    return reported_share(chosen, "buffers")


def percent(value: float | None) -> str:
    # Rounding up to 100 would hide the one page that is elsewhere.
    return "-" if value is None else "100" if value == 100 else f"{min(value, 99.9):.1f}".removesuffix(".0")


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """The table in Markdown."""
    heads = [heading.lstrip(">") for heading in HEADINGS]
    rule = ["---:" if heading.startswith(">") else "---" for heading in HEADINGS]
    return "\n".join("| " + " | ".join(line) + " |" for line in [heads, rule, *rows])


def to_json(outcomes: Iterable[Outcome], accelerator: str) -> str:
    """All there is to know, as text; `accelerator`: kvm or tcg."""
    return (
        json.dumps({"schema": 1, "accelerator": accelerator, "runs": [one(each) for each in outcomes]}, indent=1) + "\n"
    )


def one(outcome: Outcome) -> dict[str, Any]:
    seen = outcome.seen
    return {
        "scenario": outcome.scenario.name,
        "run": outcome.run.name,
        "program": outcome.run.program,
        "arguments": list(outcome.run.arguments),
        "under": list(outcome.run.under),
        "machine": outcome.scenario.machine.name,
        "exit": outcome.exit,
        "ready_seconds": outcome.ready_seconds,
        "generated": outcome.generated,
        "seen": {
            "model": dict(seen.model),
            "buffers": dict(seen.buffers),
            "model_by_move_pages": dict(seen.model_moved),
            "buffers_by_move_pages": dict(seen.buffers_moved),
            "threads": [{**asdict(thread), "cpus": sorted(thread.cpus)} for thread in seen.threads],
        }
        if seen
        else None,
        "report": outcome.report,
        "errors": outcome.errors,
        "failures": outcome.failures,
    }
