"""llama.cpp on the NUMA node you choose: find the program, list the nodes, run a server on one of them.

with Server("model.gguf", node=1) as server:
    print(server.url, server.report.ok)
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llamafile_numa._machine import Node, nodes
    from llamafile_numa._report import Region, Report, Threads
    from llamafile_numa._server import NotOnNodeError, Server, ServerError, ServerTimeoutError

__all__ = [
    "Node",
    "NotOnNodeError",
    "Region",
    "Report",
    "Server",
    "ServerError",
    "ServerTimeoutError",
    "Threads",
    "find_bin",
    "nodes",
]

_MODULES = ("_machine", "_report", "_server")


def find_bin() -> str:
    """The path of the program `llamafile-numa`.

    Raises FileNotFoundError, which lists where it was looked for, if this installation does not have it.
    """
    name = "llamafile-numa.exe" if sys.platform == "win32" else "llamafile-numa"
    candidates = [Path(folder, "bin", name) for folder in __path__]
    for candidate in candidates:
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return str(candidate)
    looked = ", ".join(map(str, candidates))
    raise FileNotFoundError(f"the program {name} is not in this installation; looked at: {looked}")


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Everything but find_bin() is imported when it is first used: the command of this package needs none of it."""
        if name in __all__:
            for module in _MODULES:
                found = vars(import_module(f"{__name__}.{module}"))
                if name in found:
                    globals()[name] = found[name]
                    return found[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
