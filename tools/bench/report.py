"""The results as tables for people, as Markdown for docs/, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tools.bench.identity import Identity
from tools.bench.plan import BASE, Job, Variant
from tools.bench.stats import METRICS, Metric, Round, Spread, ratio, value
from tools.console import out, size, table

HEADINGS = ("measured", "better", "variant", ">median", ">ratio", ">quartiles", ">least to greatest")


@dataclass(frozen=True)
class Result:
    """All rounds of one job."""

    job: Job
    rounds: tuple[Round, ...]


@dataclass(frozen=True)
class Report:
    machine: dict[str, str]
    identity: Identity
    variants: tuple[Variant, ...]
    results: tuple[Result, ...]


def rows(result: Result, variants: Sequence[Variant]) -> Iterator[tuple[str, ...]]:
    """The cells under HEADINGS, metric by metric; what is as in the row above is left empty."""
    for metric in METRICS:
        for variant in variants:
            first = variant is variants[0]
            own = value(result.rounds, variant.name, metric)
            against = ratio(result.rounds, variant.name, metric) if variant.name != BASE else None
            yield (
                title(metric) if first else "",
                metric.better if first else "",
                variant.name,
                figure(metric, own.median) if own else "not measured",
                *ratio_cells(against),
            )


def title(metric: Metric) -> str:
    return f"{metric.name}, {'MiB' if metric.unit == 'bytes' else metric.unit}"


def figure(metric: Metric, number: float) -> str:
    return f"{number / 2**20:.0f}" if metric.unit == "bytes" else f"{number:.1f}"


def ratio_cells(spread: Spread | None) -> tuple[str, str, str]:
    if spread is None:
        return ("", "", "")
    return (
        f"{spread.median:.3f}",
        f"{spread.lower:.3f} to {spread.upper:.3f}",
        f"{spread.least:.3f} to {spread.greatest:.3f}",
    )


def heading(result: Result) -> str:
    job, count = result.job, len(result.rounds)
    return (
        f"{job.model.name}, {size(job.model.stat().st_size)}: {job.prompt} tokens read, {job.generate} generated,"
        f" {count} round{'s' if count > 1 else ''}"
    )


def notes(report: Report) -> Iterator[str]:
    """What a reader has to know to judge the figures."""
    for result in report.results:
        threads = {v.name: sorted({samples[v.name].threads for samples in result.rounds}) for v in report.variants}
        if len({tuple(counts) for counts in threads.values()}) > 1:
            told = ", ".join(f"{name} {'/'.join(map(str, counts))}" for name, counts in threads.items())
            yield f"{result.job.model.name}: not all ran with as many threads: {told}"
        for variant in report.variants:
            wrong = sum(samples[variant.name].ok is False for samples in result.rounds)
            if wrong:
                yield f"{result.job.model.name}: {variant.name}: not everything was on the node in {wrong} rounds"


def show(report: Report) -> None:
    """Print the tables for people."""
    for result in report.results:
        out.print(f"\n{heading(result)}", style="bold")
        out.print(table(HEADINGS, rows(result, report.variants)))
    out.print(f"\nratio: over {BASE} of the same round; the median of all rounds, the middle half of them, and all.")


def markdown(report: Report) -> str:
    """The section of figures of docs/measurements.md."""
    facts = {**report.machine, "programs": report.identity.version, "features": ", ".join(report.identity.features)}
    parts = [grid(("", ""), facts.items())]
    for result in report.results:
        parts += [f"### {heading(result)}", grid(HEADINGS, rows(result, report.variants))]
    if told := list(notes(report)):
        parts.append("\n".join(f"- {note}" for note in told))
    return "\n\n".join(parts)


def grid(headings: Sequence[str], cells: Any) -> str:
    """A Markdown table; columns whose heading starts with '>' are aligned right."""
    rule = ["--:" if heading.startswith(">") else "---" for heading in headings]
    lines = [[heading.lstrip(">") for heading in headings], rule, *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def as_json(report: Report) -> dict[str, Any]:
    """Everything, in tokens/s, ms and bytes: the samples of each round, and the spread of values and ratios."""
    return {
        "schema": 1,
        "machine": report.machine,
        "programs": asdict(report.identity),
        "variants": [asdict(variant) for variant in report.variants],
        "models": [model_json(result, report.variants) for result in report.results],
        "notes": list(notes(report)),
    }


def model_json(result: Result, variants: Sequence[Variant]) -> dict[str, Any]:
    def spreads(variant: Variant) -> dict[str, Any]:
        return {
            metric.name: {
                "value": optional(value(result.rounds, variant.name, metric)),
                "ratio": optional(ratio(result.rounds, variant.name, metric)),
            }
            for metric in METRICS
        }

    return {
        "file": result.job.model.name,
        "bytes": result.job.model.stat().st_size,
        "prompt_tokens": result.job.prompt,
        "generated_tokens": result.job.generate,
        "rounds": [{name: asdict(one) for name, one in samples.items()} for samples in result.rounds],
        "summary": {variant.name: spreads(variant) for variant in variants},
    }


def optional(spread: Spread | None) -> dict[str, float] | None:
    return asdict(spread) if spread else None
