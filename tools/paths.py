"""Where things are: the repository, what is made in it, and the user's cache."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BUILD = ROOT / "build"
DIST = ROOT / "dist"


def cache_dir() -> Path:
    """LLAMAFILE_NUMA_CACHE, else the user's cache folder / llamafile-numa. It need not exist."""
    if chosen := os.environ.get("LLAMAFILE_NUMA_CACHE"):
        return Path(chosen).expanduser().absolute()
    return user_cache_dir() / "llamafile-numa"


def user_cache_dir() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def flavour_dir(name: str) -> Path:
    """Folder of one flavour: its prepared sources are in `tree`, its CMake binary folder is `out`."""
    return BUILD / name
