"""Remove what was built; with --all also .venv and the cache."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

from tools.console import out, size
from tools.paths import BUILD, DIST, VENV, cache_dir


def register(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser("clean", description="Remove build/ and dist/.")
    parser.add_argument("--all", action="store_true", help="also .venv and the cache (downloads, models)")


def run(args: argparse.Namespace) -> int:
    folders = [BUILD, DIST]
    if args.all:
        folders += [VENV, cache_dir()]
    clean(folders)
    return 0


def clean(folders: list[Path]) -> None:
    """Remove folders and say what went; a link to a folder elsewhere goes, the folder does not."""
    there = [folder for folder in folders if folder.is_symlink() or folder.exists()]
    for folder in there:
        freed = 0 if folder.is_symlink() else weight(folder)
        remove(folder)
        out.print(f"removed {folder} ({size(freed)})")
    if not there:
        out.print("nothing to remove")


def weight(folder: Path) -> int:
    """Bytes in the files of a folder, links not followed."""
    return sum(file.lstat().st_size for file in folder.rglob("*") if not file.is_dir())


def remove(folder: Path) -> None:
    if folder.is_symlink():
        folder.unlink()
    else:
        shutil.rmtree(folder)
