"""Wine, which runs Windows programs on Linux, with a Windows drive that holds its libraries and nothing else.

`wineboot` would fill a drive with 700 MB in half a minute, and start services of which nothing of ours makes use.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from tools.fail import Fail

PLACES = (Path("/usr/lib/wine/wine64"),)  # Debian's, which puts it on no PATH without the package wine
# From the folder of the program wine64 to where its own libraries are, as Debian and as others have it.
LIBRARIES = ("../x86_64-linux-gnu/wine", "../lib/wine", "../lib64/wine", "../wine", ".")
# What is not to be started beside the first program: services, a desktop, a debugger, menus, installers of browser and
# .NET. What they say would come out of our program's stderr.
HIDDEN = ("mscoree", "mshtml", "services.exe", "explorer.exe", "winedbg.exe", "winemenubuilder.exe")
QUIET = "-all"
REGISTRY = r"""WINE REGISTRY Version 2
;; All keys relative to \\User\\S-1-5-21-0-0-0-1000

#arch=win64
"""


def program() -> Path:
    """wine64; raises Fail where there is none."""
    on_path = [Path(found) for name in ("wine64", "wine") if (found := shutil.which(name))]
    for place in (*on_path, *PLACES):
        if place.is_file():
            return place
    raise Fail("no wine64: install Wine (Debian: wine64)")


def installed() -> bool:
    try:
        return program().is_file()
    except Fail:
        return False


def libraries() -> Path:
    """The folder with Wine's own libraries for Windows programs."""
    folder = program().resolve().parent
    for way in LIBRARIES:
        place = folder / way / "x86_64-windows"
        if place.is_dir():
            return place.resolve()
    raise Fail(f"the libraries of Wine are at none of the usual places around {folder}")


def make_prefix(folder: Path, *, relay: Iterable[str] = (), programs: Iterable[str] = ()) -> Path:
    """Make a prefix in an empty folder: drive C with what Wine insists on, drive Z with everything there is.

    relay: what WINEDEBUG=+relay is to show, `kernel32.VirtualFree` for one; everything, if nothing is given.
    programs: of Wine's own, which drive C is to have: `conhost.exe`, without which there is no console, for one.
    """
    system = folder / "drive_c" / "windows" / "system32"
    system.mkdir(parents=True)
    for file in (*libraries().glob("*.dll"), *(libraries() / program for program in programs)):
        (system / file.name).symlink_to(file)
    (folder / "dosdevices").mkdir()
    (folder / "dosdevices" / "c:").symlink_to("../drive_c")
    (folder / "dosdevices" / "z:").symlink_to("/")
    (folder / ".update-timestamp").write_text("disable", encoding="ascii")
    if shown := ";".join(relay):
        debug = f'\n[Software\\\\Wine\\\\Debug]\n"RelayInclude"="{shown}"\n'
        (folder / "user.reg").write_text(REGISTRY + debug, encoding="ascii")
    return folder


def environment(prefix: Path, *, debug: str = QUIET, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment (this process's, if none is given) in which Wine uses the prefix; `debug` is WINEDEBUG."""
    own = {
        "WINEPREFIX": str(prefix),
        "WINEDEBUG": debug,
        "WINEDLLOVERRIDES": ";".join(f"{name}=" for name in HIDDEN),
        "LC_ALL": "C.UTF-8",  # Wine reads command lines and names of files in the character set of the locale
    }
    return {**(os.environ if base is None else base), **own}


def path(file: Path) -> str:
    """What Windows programs call a file."""
    return f"Z:{file.absolute()}"
