"""Running the Windows program as a user would."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from tests.build.programs import Program, clean
from tests.wine import sysfs
from tools import wine


@dataclass(frozen=True)
class WindowsProgram(Program):
    """Like Program. prefix: of Wine. under: what Wine is started through. debug: WINEDEBUG.

    Arguments that are Paths are told as Windows has them.
    """

    prefix: Path = Path()
    under: tuple[str, ...] = ()
    debug: str = wine.QUIET

    def on(self, machine: Path, *cpus: int) -> WindowsProgram:
        """The same on the made-up machine below this folder; with `cpus` it may use these only."""
        confined = ("taskset", "--cpu-list", ",".join(map(str, cpus))) if cpus else ()
        return replace(self, under=(*sysfs.inside(machine), *confined))

    def command(self, *arguments: str | Path) -> list[str]:
        told = (wine.path(word) if isinstance(word, Path) else word for word in (*self.arguments, *arguments))
        return [*self.under, str(wine.program()), str(self.path), *told]

    def environment(self, **more: str) -> dict[str, str]:
        return wine.environment(self.prefix, debug=self.debug, base=clean(more))
