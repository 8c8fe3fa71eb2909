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
from tools.lab import disk, evidence, guest, kernel, needs, programs, qemu, rows, scenario, script, windows
from tools.lab.qemu import Event, LostError
from tools.lab.scenario import Machine, Run, Scenario
from tools.lab.verdict import Outcome, outcome

MODEL_MEGABYTES = 250
SYNTHETIC_MEGABYTES = 120


def register(subparsers: Any) -> None:
    listed = "\n".join(f"  {name:20} {scenario.load(name).title}" for name in scenario.names())
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "lab",
        description="Boot Linux with several NUMA nodes under QEMU and run the program there on a model. Shows where"
        " the pages are as seen from outside (numa_maps, move_pages) beside the program's own report.\n\n"
        f"Scenarios:\n{listed}\n\nExit code 1 if one is not as its file expects.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--scenario", action="extend", nargs="+", metavar="NAME", help="run these only")
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
    by_machine: dict[Machine, list[Scenario]] = {}
    for one in scenarios:
        by_machine.setdefault(one.machine, []).append(one)
    programs_run = {name for group in by_machine.values() for name in programs_of(group)}
    if reason := needs.missing(programs_run):
        raise Fail(reason)
    with temporary_folder(keep=keep) as folder:
        lab = Lab(folder, model, dict(ready or {}), programs_run)
        outcomes = [each for machine, group in by_machine.items() for each in lab.run(machine, group)]
    return lab.accelerator, outcomes


def programs_of(scenarios: Iterable[Scenario]) -> set[str]:
    return {each.program for one in scenarios for each in one.runs.values()}


def models_for(model: Path | None) -> dict[str, Path]:
    """The models on the disk. A synthetic one is all Q4_0, which ggml repacks; the real one has little of it."""
    return {"model": model or default_model(), "synthetic": models.synthetic_model(SYNTHETIC_MEGABYTES)}


def default_model() -> Path:
    """The real model or, where the index has none of it, a synthetic one of its size: machines are made to fit that."""
    try:
        return models.real_model()
    except Fail as failure:
        warn(f"{failure}; taking a synthetic model")
        return models.synthetic_model(MODEL_MEGABYTES)


class Lab:
    """What all boots share: kernel, disk, programs, and the accelerator that turned out to work."""

    def __init__(self, folder: Path, model: Path | None, ready: dict[str, Path], programs_run: set[str]) -> None:
        self.folder = folder
        self.kernel = kernel.kernel()
        self.ready = ready
        self.built: dict[tuple[str, str], Path] = {}
        self.untried = qemu.accelerators()
        self.accelerator = self.untried.pop(0)
        self.windows = {name: self.program(name) for name in programs_run if windows.is_program(name)}
        beside = {file for program in self.windows.values() for file in windows.files(program)}
        disk.build(models_for(model), folder / disk.IMAGE, windows.FOLDER, beside)

    def run(self, machine: Machine, scenarios: list[Scenario]) -> list[Outcome]:
        """Boot a machine once for all these scenarios, and once more for those it did not live to finish.

        An emulated machine that dies says nothing about the program; one that dies twice is a failure.
        """
        events, lost = self.boot(machine, scenarios)
        if left := [one for one in scenarios if not any(e.kind == "done" and e.scenario == one.name for e in events)]:
            warn(f"machine {machine.name} is lost and booted once more: {lost}")
            again, lost = self.boot(machine, left)
            events = [event for event in events if event.scenario not in {one.name for one in left}] + again
        return [outcome(one, each, events, lost, self.image(each)) for one in scenarios for each in one.runs.values()]

    def image(self, run: Run) -> range:
        return windows.image(self.windows[run.program]) if run.program in self.windows else evidence.NO_IMAGE

    def boot(self, machine: Machine, scenarios: list[Scenario]) -> tuple[list[Event], str]:
        """What a machine tells, and why it stopped telling if it did before its end."""
        folder = self.folder / machine.name
        folder.mkdir(exist_ok=True)
        self.pack(scenarios, folder / guest.INITRD)
        say(f"machine {machine.name} ({self.accelerator}): {', '.join(one.name for one in scenarios)}")
        command = qemu.command(machine, self.accelerator, self.kernel.image, self.folder / disk.IMAGE, folder)
        events: list[Event] = []
        try:
            for event in qemu.boot(command, folder):
                events.append(event)
                tell(event)
        except LostError as failure:
            if not events and self.untried:
                say(f"{self.accelerator} does not boot it: {str(failure).splitlines()[0]}")
                self.accelerator = self.untried.pop(0)
                return self.boot(machine, scenarios)
            return events, str(failure)
        return events, "it switched itself off"

    def pack(self, scenarios: list[Scenario], initrd: Path) -> None:
        files = {name: self.program(name) for name in sorted(programs_of(scenarios))}
        initrd.write_bytes(guest.initrd(self.kernel, files, script.script(scenarios)))

    def program(self, name: str) -> Path:
        """Built once for each accelerator, unless it is given."""
        key = (name, self.accelerator)
        if name not in self.ready and key not in self.built:
            self.built[key] = programs.program(name, self.accelerator)
        return self.ready.get(name) or self.built[key]


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
def temporary_folder(*, keep: bool) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="llamafile-numa-lab-"))
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
