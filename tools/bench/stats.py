"""From the samples of all rounds to medians and spreads."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tools.bench.measure import Sample
from tools.bench.plan import BASE

# The samples of one round by the name of their variant.
Round = dict[str, Sample]


@dataclass(frozen=True)
class Metric:
    """Something measured; `of` returns None where it was not. `better` is empty where neither more nor less is better.
    Counts of bytes are shown as MiB."""

    name: str
    unit: str
    better: str
    of: Callable[[Sample], float | None]


METRICS = (
    Metric("prompt", "tokens/s", "higher", lambda sample: sample.prompt),
    Metric("generation", "tokens/s", "higher", lambda sample: sample.generation),
    Metric("load time", "ms", "lower", lambda sample: sample.load),
    Metric("peak memory", "bytes", "lower", lambda sample: sample.memory.total),
    Metric("of it private", "bytes", "", lambda sample: sample.memory.private),
    Metric("of it mapped files", "bytes", "", lambda sample: sample.memory.file),
    Metric("in huge pages", "bytes", "", lambda sample: sample.memory.huge),
)


@dataclass(frozen=True)
class Spread:
    """Of some numbers: median, quartiles, least and greatest."""

    median: float
    lower: float
    upper: float
    least: float
    greatest: float


def spread(values: Sequence[float]) -> Spread:
    """The spread of at least one number; quartiles are interpolated between the numbers there are."""
    # Of one number alone no quantiles are to be had; twice the same number has the spread of the one.
    lower, median, upper = statistics.quantiles([*values] * (2 if len(values) == 1 else 1), n=4, method="inclusive")
    return Spread(median, lower, upper, min(values), max(values))


def value(rounds: Sequence[Round], variant: str, metric: Metric) -> Spread | None:
    """Of a variant's own figures; None where they were not measured."""
    values = [figure for samples in rounds if (figure := metric.of(samples[variant])) is not None]
    return spread(values) if values else None


def ratio(rounds: Sequence[Round], variant: str, metric: Metric) -> Spread | None:
    """Of a variant's figures, each over that of the base in the same round, so that what slows down a whole round
    cancels out; None where there is nothing to divide by."""
    ratios = []
    for samples in rounds:
        own, base = metric.of(samples[variant]), metric.of(samples[BASE])
        if own is not None and base:
            ratios.append(own / base)
    return spread(ratios) if ratios else None
