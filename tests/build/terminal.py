"""A program on a terminal of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
import tty
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.build.programs import SECONDS, clean

ROWS, COLUMNS = 24, 100


class Terminal:
    """Starts a program on a fresh terminal; at the end of the block it is killed if it still runs.

    raw: the terminal hands on what is typed, key by key; the echo, Ctrl-C and hanging up are the program's to deal with.
    """

    def __init__(
        self, command: Sequence[str | Path], *, seconds: float = SECONDS, raw: bool = False, **environment: str
    ) -> None:
        self.screen = ""  # all that was written
        self.seen = 0  # characters of it that until() has passed
        self.seconds = seconds
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        if raw:
            tty.setraw(slave)
        self.process = subprocess.Popen(
            list(map(str, command)),
            env=clean({"TERM": "xterm", **environment}),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            preexec_fn=os.setsid if raw else take_terminal,
        )
        os.close(slave)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)

    def read(self, seconds: float) -> bool:
        """Take in what comes within so many seconds; false where nothing came, or nothing will."""
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.master, 1 << 16)
        except OSError:  # nobody has it open any more
            return False
        self.screen += data.decode(errors="replace")
        return bool(data)

    def until(self, text: str) -> str:
        """Wait for a text; returns all that came before it since the last one."""
        deadline = time.monotonic() + self.seconds
        while (at := self.screen.find(text, self.seen)) < 0:
            if not self.read(0.1) and self.process.poll() is not None and not self.read(0):
                raise AssertionError(f"it ended with {self.process.returncode} before it said {text!r}:\n{self.screen}")
            assert time.monotonic() < deadline, f"it has not said {text!r}:\n{self.screen}"
        before = self.screen[self.seen : at]
        self.seen = at + len(text)
        return before

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, seconds: float | None = None) -> int:
        """Its exit code, once it has ended."""
        deadline = time.monotonic() + (self.seconds if seconds is None else seconds)
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it has not ended:\n{self.screen}"
            self.read(0.02)
        while self.read(0):
            pass
        return self.process.returncode

    def echoes(self) -> bool:
        """Whether the terminal is as terminals are when no program reads single keys."""
        return bool(termios.tcgetattr(self.master)[3] & termios.ECHO)


def take_terminal() -> None:
    """In the child: its stdin is the terminal that Ctrl-C and hanging up are heard from."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
