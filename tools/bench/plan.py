"""What is measured, and in which order."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

BASE = "upstream"  # the variant that all others are compared with


@dataclass(frozen=True)
class Variant:
    """A program, by its flavour, and the flags it is run with."""

    name: str
    flavour: str
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Job:
    """A model, how many tokens of a prompt it reads, and how many it generates after that."""

    model: Path
    prompt: int
    generate: int


# Tokens that give seconds of work: enough to be timed, and few enough for many rounds.
SMALL_MODEL_TOKENS = (512, 128)
LARGE_MODEL_TOKENS = (128, 32)
LARGE_MODEL = 10**9  # bytes


def variants(node: int, *, control: bool = False) -> list[Variant]:
    """All variants, the base first. `control` adds upstream once more: how its ratios spread is the noise."""

    def on_node(how: str) -> tuple[str, ...]:
        return ("--numa-node", str(node), "--numa-weights", how)

    return [
        Variant(BASE, "upstream"),
        *([Variant("upstream again", "upstream")] if control else []),
        Variant("no flag", "native"),
        Variant("map", "native", on_node("map")),
        Variant("copy", "native", on_node("copy")),
    ]


def job(model: Path, prompt: int | None, generate: int | None) -> Job:
    """A job with the token counts given, or with those that suit the size of the model."""
    tokens = LARGE_MODEL_TOKENS if model.stat().st_size >= LARGE_MODEL else SMALL_MODEL_TOKENS
    return Job(model, prompt or tokens[0], generate or tokens[1])


def order(round_number: int, count: int) -> list[int]:
    """The order of `count` variants in a round: each round starts with the next one. Over `count` rounds of an even
    count each variant comes as often right after every other (a Latin square balanced for carry-over)."""
    zigzag = [(i + 1) // 2 if i % 2 else (count - i // 2) % count for i in range(count)]
    return [(offset + round_number) % count for offset in zigzag]
