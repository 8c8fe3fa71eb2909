"""Build the program and run it once on a NUMA node: a generated sentence, and the verdict of what was seen."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from tools import build, models
from tools.console import say, warn
from tools.fail import Fail

PROMPT = "The capital of France is"
TOKENS = 32
CONTEXT = 2048  # tokens; the model's own maximum would only cost memory here


def register(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "run",
        help="build and run the program",
        description="Build the patched program for this machine and let it go on with a prompt, bound to a NUMA node."
        " The text goes to stdout; what is done and the NUMA verdict go to stderr.",
    )
    parser.add_argument("--numa-node", default="0", metavar="N", help="N, auto or none (default: %(default)s)")
    parser.add_argument("--model", type=Path, metavar="FILE", help="a GGUF file (default: a small real model)")
    parser.add_argument("--prompt", default=PROMPT, metavar="TEXT", help="what to go on with (default: %(default)r)")
    parser.add_argument("extra", nargs="*", metavar="-- FLAGS", help="more flags for the program, after --")


def run(args: argparse.Namespace) -> int:
    if args.model and not args.model.is_file():
        raise Fail(
            f"there is no file {args.model}; give --model a GGUF file, or leave it out for a small real model", 2
        )
    program = build.build("native")
    command = [
        str(program),
        *("--numa-node", args.numa_node),
        *("-m", str(args.model or default_model())),
        *("-p", args.prompt, "--display-prompt", "-n", str(TOKENS), "-c", str(CONTEXT), "--temp", "0"),
        *args.extra,
    ]
    say(f"running: {subprocess.list2cmdline(command) if sys.platform == 'win32' else shlex.join(command)}\n")
    return subprocess.run(command, check=False).returncode


def default_model() -> Path:
    """The real model, or a synthetic one where the package index has no real one."""
    try:
        return models.real_model()
    except Fail as failure:
        warn(str(failure))
        warn("so the model is a synthetic one: it is made of random numbers and talks nonsense")
        return models.synthetic_model()
