"""Run topology_dump: what the core reads below a root folder."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.core import cc


@dataclass(frozen=True)
class Dump:
    """The program topology_dump."""

    program: Path

    def read(self, root: Path | str, *find: int, within: Sequence[str] = ()) -> dict[str, Any]:
        """The machine below root ("" = this one) as topology_dump.c writes it; `within`: the command that runs it."""
        done = self._run(root, *find, within=within)
        assert (done.returncode, done.stderr) == (0, "")
        read: dict[str, Any] = json.loads(done.stdout)
        return read

    def error(self, root: Path | str) -> str | None:
        """The reason why root cannot be read, without the root; None where it can be."""
        done = self._run(root)
        if done.returncode == 0:
            assert done.stderr == ""
            return None
        assert done.returncode == 1, done.stderr
        assert done.stdout == ""
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
        return done.stderr.removeprefix("error: ").removesuffix("\n").replace(f"{root}/", "")

    def _run(self, root: Path | str, *find: int, within: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        command = [*within, str(self.program), str(root), *map(str, find)]
        return subprocess.run(command, capture_output=True, text=True, errors="replace")


def build(into: Path) -> Dump:
    sources = [cc.HERE / "topology_dump.c", *cc.core("topology.c", "topology_linux.c", "node_set.c")]
    return Dump(cc.compile(sources, into=into))
