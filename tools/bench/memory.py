"""The memory of a running program as the system tells it."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

KIB_LINE = re.compile(r"^(\w+):\s+(\d+) kB$", re.MULTILINE)

# A copy may have a peak while it is loaded. Later on memory only grows, and looking often would disturb the timing.
LOADING_POLL_SECONDS = 0.02
LOADED_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Memory:
    """Peaks in bytes; None where the system does not tell.

    total: all resident pages, those of mapped files included, which are page cache and shared with others.
    private: the anonymous ones among them: buffers and copies.
    file: those of mapped files.
    huge: what of the anonymous pages was in transparent huge pages once the model was loaded.
    """

    total: int | None = None
    private: int | None = None
    file: int | None = None
    huge: int | None = None


def parse(text: str) -> dict[str, int]:
    """The lines `Name: N kB` of a file of /proc/PID, in bytes."""
    return {name: int(kib) * 1024 for name, kib in KIB_LINE.findall(text)}


def read(pid: int, name: str) -> dict[str, int]:
    """What parse() finds in /proc/PID/name; nothing where there is no such file or the process has ended."""
    try:
        return parse(Path(f"/proc/{pid}/{name}").read_text(encoding="ascii", errors="replace"))
    except OSError:
        return {}


class MemoryWatch:
    """Looks at a process from time to time, from __enter__ to __exit__, and keeps its peaks."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._seen: dict[str, int] = {}
        self._huge: int | None = None
        self._interval = LOADING_POLL_SECONDS
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def loaded(self) -> None:
        """To be called once the model is loaded."""
        self._interval = LOADED_POLL_SECONDS
        self._huge = read(self._pid, "smaps_rollup").get("AnonHugePages")

    def peaks(self) -> Memory:
        return Memory(self._seen.get("VmHWM"), self._seen.get("RssAnon"), self._seen.get("RssFile"), self._huge)

    def _poll(self) -> None:
        while not self._stop.wait(self._interval):
            for name, count in read(self._pid, "status").items():
                self._seen[name] = max(count, self._seen.get(name, 0))
