"""Compare the speed and the memory of the patched program with unpatched llama.cpp."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from tools import build, models
from tools.bench import identity, machine, measure, plan, report
from tools.bench.plan import Job, Variant
from tools.bench.report import Report, Result
from tools.bench.stats import Round
from tools.console import out, progress, warn
from tools.fail import Fail

IDENTITY_MODEL_MEGABYTES = 8
SYNTHETIC_GB = 2.0
QUIET = 0.5  # a load average above this would be seen in the figures


def register(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "bench",
        help="compare with unpatched llama.cpp",
        description="Run llama.cpp's bench by turns in the unpatched program and in ours: without a flag, with mapped"
        " and with copied weights on a node. Prints tokens/s, load time and peak memory as ratios to the unpatched"
        " program of the same round. Takes minutes, and wants a machine that does nothing else.",
    )
    parser.add_argument(
        "--rounds", type=count, default=9, help="rounds that count, after one that does not (default: 9)"
    )
    parser.add_argument(
        "--model",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="GGUF file to measure; may be repeated (default: the real small model and a synthetic one)",
    )
    parser.add_argument(
        "--synthetic-gb",
        type=gigabytes,
        metavar="GB",
        help=f"size of the synthetic model (default: {SYNTHETIC_GB:g} without --model, else none), 0: none",
    )
    parser.add_argument("--prompt", type=count, metavar="TOKENS", help="prompt to read (default: by size of the model)")
    parser.add_argument(
        "--generate", type=count, metavar="TOKENS", help="tokens to generate (default: by size as well)"
    )
    parser.add_argument("--node", type=int, default=0, help="the node that ours is bound to (default: %(default)s)")
    parser.add_argument("--control", action="store_true", help="also compare upstream with itself: shows the noise")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all samples and figures to FILE")
    parser.add_argument("--markdown", action="store_true", help="print Markdown, as in docs/measurements.md")


def count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


def gigabytes(text: str) -> float:
    number = float(text)
    if not 0 <= number < 1000:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1000")
    return number


def run(args: argparse.Namespace) -> int:
    check_writable(args.json)
    busy = machine.busy()
    if busy is not None and busy > QUIET:
        warn(f"this machine is busy with other work (load average {busy:.1f}); figures will spread")
    jobs = [plan.job(model, args.prompt, args.generate) for model in chosen_models(args.model, args.synthetic_gb)]
    programs = {flavour: build.build(flavour) for flavour in ("upstream", "native")}
    small = models.synthetic_model(IDENTITY_MODEL_MEGABYTES)
    upstream, ours = (identity.identify(programs[flavour], small) for flavour in ("upstream", "native"))
    identity.compare(upstream, ours)

    variants = plan.variants(args.node, control=args.control)
    results = tuple(Result(job, measured(programs, variants, job, args.rounds)) for job in jobs)
    facts = machine.describe() | ({} if busy is None else {"load average at start": f"{busy:.1f}"})
    full = Report(facts, ours, tuple(variants), results)
    if args.json:
        write_json(args.json, report.as_json(full))
    if args.markdown:
        out.print(report.markdown(full))
    else:
        report.show(full)
    for note in report.notes(full):
        warn(note)
    return 0


def check_writable(file: Path | None) -> None:
    """Fail now rather than after minutes of measuring."""
    if file and (file.is_dir() or not os.access(file.absolute().parent, os.W_OK)):
        raise Fail(f"--json: {file} cannot be written; name a file in a folder that exists", code=2)


def chosen_models(given: list[Path], synthetic_gb: float | None) -> list[Path]:
    for model in given:
        if not model.is_file():
            raise Fail(f"--model: there is no file {model}; give the path of a GGUF file", code=2)
    if synthetic_gb is None:
        synthetic_gb = 0 if given else SYNTHETIC_GB
    chosen = given or [models.real_model()]
    return chosen + ([models.synthetic_model(round(synthetic_gb * 1024))] if synthetic_gb else [])


def measured(programs: dict[str, Path], variants: list[Variant], job: Job, rounds: int) -> tuple[Round, ...]:
    """The samples of each round. One round before them warms up caches and clocks, and is thrown away."""
    with progress(f"measuring {job.model.name}", (rounds + 1) * len(variants), unit="runs") as advance:

        def one_round(number: int) -> Round:
            samples = {}
            for i in plan.order(number, len(variants)):
                samples[variants[i].name] = measure.sample(programs[variants[i].flavour], variants[i], job)
                advance(1)
            return samples

        return tuple(one_round(number) for number in range(rounds + 1))[1:]


def write_json(file: Path, content: dict[str, Any]) -> None:
    """Write a file all at once."""
    fresh = file.with_name(f"{file.name}.fresh")
    try:
        fresh.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        fresh.replace(file)
    finally:
        fresh.unlink(missing_ok=True)
