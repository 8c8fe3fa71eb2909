"""llama.cpp on the NUMA node you choose. This package holds the program and finds it: `find_bin()`."""

import os
import sys
from pathlib import Path

__all__ = ["find_bin"]


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
