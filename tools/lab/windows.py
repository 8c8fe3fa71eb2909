"""Windows programs in the guest: what of Wine goes with them, and where their image will be in memory.

Wine finds its parts from where its program is, so they lie below a folder of the disk as they do below / here.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pefile

from tools import wine
from tools.fail import Fail
from tools.lab import disk

FOLDER = "wine"
WINE = f"{disk.MOUNTED_AT}/{FOLDER}"
# From the folder of wine64 to that of the code pages.
CODE_PAGES = ("../../share/wine/nls", "../share/wine/nls")
# What Wine loads before it looks at the program, and what stands for the names of Windows' API sets.
ALWAYS = ("ntdll.dll", "kernelbase.dll", "kernel32.dll", "apisetschema.dll", "ucrtbase.dll")
IMPORTS = pefile.DIRECTORY_ENTRY["IMAGE_DIRECTORY_ENTRY_IMPORT"]
EXPORTS = pefile.DIRECTORY_ENTRY["IMAGE_DIRECTORY_ENTRY_EXPORT"]


def is_program(name: str) -> bool:
    return name.endswith(".exe")


def image(program: Path) -> range:
    """The addresses that a program asks for, and is given by Wine."""
    with pefile.PE(str(program), fast_load=True) as parsed:
        base = parsed.OPTIONAL_HEADER.ImageBase
        return range(base, base + parsed.OPTIONAL_HEADER.SizeOfImage)


def files(program: Path) -> list[Path]:
    """What of Wine is needed to run a program: Wine's programs, code pages, and all libraries that are loaded."""
    libraries = [folder / name for folder, name in halves(program)]
    return [wine.program().resolve(), server(), *code_pages().glob("*.nls"), *libraries]


def linked() -> list[Path]:
    """Those parts of Wine that are linked to libraries of the system."""
    return [wine.program().resolve(), server(), wine.libraries().with_name("x86_64-unix") / "ntdll.so"]


def server() -> Path:
    return wine.program().resolve().with_name("wineserver64")


def code_pages() -> Path:
    for way in CODE_PAGES:
        place = wine.program().resolve().parent / way
        if place.is_dir():
            return place.resolve()
    raise Fail(f"the code pages of Wine are at none of the usual places around {wine.program()}")


def halves(program: Path) -> Iterator[tuple[Path, str]]:
    """Folder and name of each library; some have a half that is a library of Linux."""
    windows = wine.libraries()
    unix = windows.with_name("x86_64-unix")
    for library in loaded(program, windows):
        yield windows, library
        half = f"{library.removesuffix('.dll')}.so"
        if (unix / half).is_file():
            yield unix, half


def loaded(program: Path, folder: Path) -> list[str]:
    """The libraries in a folder that come with a program: those it names, those that these name, and so on."""
    found: list[str] = []
    left = [name for name in ALWAYS if (folder / name).is_file()]
    left += named(program)
    while left:
        name = left.pop()
        if name not in found and (folder / name).is_file():
            found.append(name)
            left += named(folder / name)
    return found


def named(file: Path) -> set[str]:
    """The libraries from which a program or library imports, or to which it hands its own exports on."""
    with pefile.PE(str(file), fast_load=True) as parsed:
        parsed.parse_data_directories([IMPORTS, EXPORTS])
        imported = [library.dll for library in getattr(parsed, "DIRECTORY_ENTRY_IMPORT", [])]
        exports = getattr(parsed, "DIRECTORY_ENTRY_EXPORT", None)
        handed = [
            symbol.forwarder.rpartition(b".")[0] for symbol in (exports.symbols if exports else []) if symbol.forwarder
        ]
    names = {name.decode("ascii").lower() for name in (*imported, *handed)}
    return {name if name.endswith((".dll", ".drv")) else f"{name}.dll" for name in names}


def starter() -> str:
    """The guest's command `wine`: makes a prefix for whoever calls it, and is then Wine."""
    program, libraries = wine.program().resolve(), wine.libraries()
    variables = wine.environment(Path("/tmp/wine"), base={"WINESERVER": f"{WINE}{server()}"})
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    return f"""#!/bin/busybox sh
# A prefix as tools/wine.py makes it.
{exports}system=$WINEPREFIX/drive_c/windows/system32
mkdir -p "$system" "$WINEPREFIX/dosdevices"
ln -s {WINE}{libraries}/*.dll "$system"
ln -s ../drive_c "$WINEPREFIX/dosdevices/c:"
ln -s / "$WINEPREFIX/dosdevices/z:"
printf disable >"$WINEPREFIX/.update-timestamp"
exec {WINE}{program} "$@"
"""
