"""One run of a program's bench command, timed and watched from outside."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.bench.memory import Memory, MemoryWatch
from tools.bench.plan import Job, Variant
from tools.console import err
from tools.fail import Fail

# The first thing that is said once the model is loaded and its context made; both programs say it with --progress.
LOADED = re.compile(r"llama-bench: benchmark 1/\d+: warmup ")
TAIL_LINES = 15


@dataclass(frozen=True)
class Sample:
    """What one run gave: speeds in tokens/s, load time in ms from the start of the process.

    weights_mode and ok are what the program reports of its placement; None where no node was asked for.
    """

    prompt: float
    generation: float
    load: float
    memory: Memory
    threads: int
    weights_mode: str | None = None
    ok: bool | None = None


def sample(program: Path, variant: Variant, job: Job) -> Sample:
    """Run a variant on a job once. Raises Fail, below the last words of the program, if it does not end well."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        output, report = Path(folder) / "output.json", Path(folder) / "report.json"
        words = command(program, variant, job, report)
        load, memory = watch(words, output, variant.name)
        prompt, generation, threads = speeds(output.read_text(encoding="utf-8"))
        placed = placement(report.read_text(encoding="utf-8")) if variant.flags else (None, None)
    return Sample(prompt, generation, load, memory, threads, *placed)


def command(program: Path, variant: Variant, job: Job, report: Path) -> list[str]:
    words = [str(program), "bench", "-m", str(job.model), "-p", str(job.prompt), "-n", str(job.generate)]
    words += ["-r", "1", "-o", "json", "--progress", *variant.flags]
    return words + (["--numa-report", str(report)] if variant.flags else [])


def environment() -> dict[str, str]:
    """This environment without what would act like a flag of the programs."""
    return {name: value for name, value in os.environ.items() if not name.startswith("LLAMA_ARG_")}


def watch(words: list[str], output: Path, name: str) -> tuple[float, Memory]:
    """Run a command with its standard output to a file; returns its load time in ms and its peaks of memory."""
    load: float | None = None
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    with output.open("wb") as stdout:
        start = time.perf_counter()
        process = subprocess.Popen(
            words,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
    with process, MemoryWatch(process.pid) as watched:
        assert process.stderr
        try:
            for line in process.stderr:
                if load is None and LOADED.match(line):
                    load = (time.perf_counter() - start) * 1000
                    watched.loaded()
                tail.append(line)
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        err.print("".join(tail).rstrip())
        raise Fail(f"{name}: bench {ending(process.returncode)}; its last words are above")
    if load is None:
        err.print("".join(tail).rstrip())
        raise Fail(f"{name}: bench did not say when the model was loaded; its last words are above")
    return load, watched.peaks()


def ending(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


def speeds(text: str) -> tuple[float, float, int]:
    """Prompt and generation tokens/s and the number of threads from what `bench -o json` prints."""
    try:
        tests: list[dict[str, Any]] = json.loads(text)
        (prompt,) = (test for test in tests if test["n_prompt"] and not test["n_gen"])
        (generation,) = (test for test in tests if test["n_gen"] and not test["n_prompt"])
        return float(prompt["avg_ts"]), float(generation["avg_ts"]), int(generation["n_threads"])
    except (ValueError, KeyError, TypeError) as error:
        raise Fail(f"bench printed something else than one prompt and one generation test: {error}") from None


def placement(text: str) -> tuple[str, bool]:
    """weights_mode and ok of a --numa-report."""
    try:
        report = json.loads(text)
        return str(report["weights_mode"]), bool(report["ok"])
    except (ValueError, KeyError, TypeError) as error:
        raise Fail(f"--numa-report wrote something else than a report: {error}") from None
