"""Boot machines with several NUMA nodes under QEMU and show where the pages of a model really are."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tools import models
from tools.console import err, out, say, table, warn
from tools.fail import Fail
from tools.lab import disk, guest, kernel, needs, programs, qemu, rows, scenario, script
from tools.lab.qemu import Event, LostError
from tools.lab.scenario import Machine, Scenario
from tools.lab.verdict import Outcome, outcome

MODEL_MEGABYTES = 250


def register(subparsers: Any) -> None:
    listed = "\n".join(f"  {name:20} {scenario.load(name).title}" for name in scenario.names())
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "lab",
        description="Boot Linux with several NUMA nodes under QEMU and run the program there on a model. Shows where"
        " the pages are as seen from outside (numa_maps, move_pages) beside the program's own report.\n\n"
        f"Scenarios:\n{listed}\n\nExit code 1 if one is not as its file expects.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--scenario", action="append", metavar="NAME", help="run this one (again: and that); else all")
    parser.add_argument("--list", action="store_true", help="list the scenarios, then exit")
    parser.add_argument("--model", type=Path, metavar="GGUF", help="another model than gemma-3-270m (250 MB)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was seen")
    parser.add_argument("--markdown", action="store_true", help="print the table in Markdown")
    parser.add_argument("--keep", action="store_true", help="keep each machine's files (console, disk, events)")
    for name, flavour in programs.FLAVOURS.items():
        parser.add_argument(f"--{flavour}", type=Path, metavar="FILE", help=f"a ready {name} instead of building one")


def run(args: argparse.Namespace) -> int:
    chosen = [scenario.load(name) for name in dict.fromkeys(args.scenario or scenario.names())]
    if args.list:
        out.print(table(("scenario", "machine", "title"), [(one.name, one.machine.name, one.title) for one in chosen]))
        return 0
    ready = {name: getattr(args, flavour) for name, flavour in programs.FLAVOURS.items() if getattr(args, flavour)}
    for file in [*ready.values(), *filter(None, [args.model])]:
        if not file.is_file():
            raise Fail(f"there is no file {file}", code=2)
    accelerator, outcomes = measure(chosen, model=args.model, ready=ready, keep=args.keep)
    show(outcomes, markdown=args.markdown)
    if args.json:
        args.json.write_text(rows.to_json(outcomes, accelerator), encoding="utf-8")
    return 1 if any(one.failures for one in outcomes) else 0


def measure(
    scenarios: Iterable[Scenario],
    *,
    model: Path | None = None,
    ready: Mapping[str, Path] | None = None,
    keep: bool = False,
) -> tuple[str, list[Outcome]]:
    """Run scenarios, those of one machine in one boot; returns the accelerator and an outcome per run.

    `model`: a GGUF file, default the real model. `ready`: programs that need not be built. Raises Fail where the lab
    cannot run at all; a machine that dies makes outcomes with failures.
    """
    if reason := needs.missing():
        raise Fail(reason)
    lab = Lab(model or default_model(), dict(ready or {}))
    by_machine: dict[Machine, list[Scenario]] = {}
    for one in scenarios:
        by_machine.setdefault(one.machine, []).append(one)
    outcomes: list[Outcome] = []
    for machine, group in by_machine.items():
        with folder_for(machine, keep=keep) as folder:
            outcomes += lab.run(machine, group, folder)
    return lab.accelerator, outcomes


def default_model() -> Path:
    """The real model or, where the index has none of it, a synthetic one of its size: machines are made to fit that."""
    try:
        return models.real_model()
    except Fail as failure:
        warn(f"{failure}; taking a synthetic model")
        return models.synthetic_model(MODEL_MEGABYTES)


class Lab:
    """What all boots share: kernel, programs, model, and the accelerator that turned out to work."""

    def __init__(self, model: Path, ready: dict[str, Path]) -> None:
        self.kernel = kernel.kernel()
        self.model = model
        self.ready = ready
        self.untried = qemu.accelerators()
        self.accelerator = self.untried.pop(0)

    def run(self, machine: Machine, scenarios: list[Scenario], folder: Path) -> list[Outcome]:
        """Boot a machine once for all these scenarios."""
        say(f"machine {machine.name} ({self.accelerator}): {', '.join(one.name for one in scenarios)}")
        disk.build(self.model, folder / "disk.img")
        events: list[Event] = []
        try:
            for event in self.boot(machine, scenarios, folder):
                events.append(event)
                tell(event)
        except (LostError, Fail) as failure:
            if not events and self.untried:
                say(f"{self.accelerator} does not boot it: {str(failure).splitlines()[0]}")
                self.accelerator = self.untried.pop(0)
                return self.run(machine, scenarios, folder)
            err.print(str(failure), style="red")
        return [outcome(one, each, events) for one in scenarios for each in one.runs.values()]

    def boot(self, machine: Machine, scenarios: list[Scenario], folder: Path) -> Iterator[Event]:
        wanted = {each.program for one in scenarios for each in one.runs.values()}
        files = {name: self.program(name) for name in sorted(wanted)}
        content = guest.initrd(self.kernel, files, script.script(scenarios))
        (folder / "initrd").write_bytes(content)
        return qemu.boot(qemu.command(machine, self.accelerator, self.kernel.image, folder), folder)

    def program(self, name: str) -> Path:
        return self.ready.get(name) or programs.program(name, self.accelerator)


def tell(event: Event) -> None:
    """A line of log for events that say how far it is."""
    match event.kind:
        case "booted":
            say(f"  {event.seconds:5.1f} s  booted")
        case "ready":
            say(f"  {event.seconds:5.1f} s  {event.scenario}, {event.run}: serves")
        case "exit":
            say(f"  {event.seconds:5.1f} s  {event.scenario}, {event.run}: {event.text.strip()}")


@contextmanager
def folder_for(machine: Machine, *, keep: bool) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=f"llamafile-numa-lab-{machine.name}-"))
    try:
        yield folder
    finally:
        if keep:
            say(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def show(outcomes: list[Outcome], *, markdown: bool) -> None:
    lines = [rows.row(one) for one in outcomes]
    out.print(rows.markdown(lines) if markdown else table(rows.HEADINGS, lines))
    for one in outcomes:
        for failure in one.failures:
            err.print(f"{one.scenario.name}, {one.run.name}: {failure}", style="red")
    failed = sum(bool(one.failures) for one in outcomes)
    say(f"{len(outcomes) - failed} of {len(outcomes)} runs as expected")
