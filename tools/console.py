"""What people see: text and tables on two consoles, progress, and one-line errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from rich import filesize
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from tools.fail import Fail

__all__ = ["Fail", "err", "out", "progress", "say", "size", "table", "warn"]

# A file or a pipe is as wide as its longest line.
UNLIMITED_COLUMNS = 1000


def _console(stderr: bool) -> Console:
    """A console that prints text as it is: no markup, no wrapped paths."""
    console = Console(markup=False, highlight=False, soft_wrap=True, stderr=stderr)
    if not console.is_terminal:
        console.width = UNLIMITED_COLUMNS
    return console


# Results go to `out`, everything about how they came to be to `err`.
out = _console(stderr=False)
err = _console(stderr=True)

# Without a terminal a long job still says now and then that it lives.
PLAIN_INTERVAL_SECONDS = 10.0


def say(message: str) -> None:
    """One line of log."""
    err.print(message)


def warn(message: str) -> None:
    err.print(f"warning: {message}", style="yellow")


def size(count: int) -> str:
    """A count of bytes for people: 76589250 -> '76.6 MB'."""
    return filesize.decimal(count)


def table(headings: Iterable[str], rows: Iterable[Iterable[object]]) -> Table:
    """A plain aligned table for `out.print`; columns whose heading starts with '>' are aligned right."""
    result = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        result.add_column(heading.lstrip(">"), justify="right" if heading.startswith(">") else "left", overflow="fold")
    for row in rows:
        result.add_row(*(str(cell) for cell in row))
    return result


@contextmanager
def progress(what: str, total: int, *, done: int = 0, unit: str = "bytes") -> Iterator[Callable[[int], None]]:
    """Show how far a job is; yields advance(count). `total`, `done` and `count` are bytes, or items of another unit."""
    if not err.is_terminal:
        yield _plain_progress(what, total, done, unit)
        return
    columns = (
        [DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()]
        if unit == "bytes"
        else [MofNCompleteColumn(), TimeRemainingColumn()]
    )
    with Progress(TextColumn("{task.description}"), BarColumn(), *columns, console=err, transient=True) as bar:
        task = bar.add_task(what, total=total, completed=done)
        yield lambda count: bar.update(task, advance=count)


def _plain_progress(what: str, total: int, done: int, unit: str) -> Callable[[int], None]:
    def amount(count: int) -> str:
        return size(count) if unit == "bytes" else str(count)

    say(f"{what}: {amount(total)}" + ("" if unit == "bytes" else f" {unit}"))
    last = time.monotonic()

    def advance(count: int) -> None:
        nonlocal done, last
        done += count
        if time.monotonic() - last >= PLAIN_INTERVAL_SECONDS:
            last = time.monotonic()
            say(f"{what}: {amount(done)} of {amount(total)}")

    return advance
