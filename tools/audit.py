"""Looks into a finished wheel: is it for what its tag says, whole, and free of what does not belong there?"""

from __future__ import annotations

import configparser
import json
import re
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path, PurePosixPath

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from packaging.tags import Tag
from packaging.utils import parse_wheel_filename

from tools import pe
from tools.paths import ROOT, cache_dir

BIN = "llamafile_numa/bin/"
ENTRY_POINT = ("llamafile-numa", "llamafile_numa.__main__:main")
LICENCES = (
    "LICENSE",
    "llama.cpp/LICENSE",
    "llama.cpp/vendor/cpp-httplib/LICENSE",
    "llama.cpp/licenses/LICENSE-jsonhpp",
)

WINDOWS_LICENCES = ("mingw-w64/COPYING",)  # of the C runtime that is a part of each program

# A library for one kind of CPU, and how the name of the one for every CPU of the architecture begins.
VARIANT = re.compile(rf"{BIN}(lib)?ggml-cpu-.+\.(so|dll)")
OLDEST = ("libggml-cpu-x64.", "ggml-cpu-x64.")
ONE_VARIANT_TAG = "1avx2"  # the build tag of a wheel for CPUs with AVX2 (and BMI2, FMA, F16C) only

MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}
GLIBC = re.compile(r"(lib(c|m|dl|pthread|rt)|ld-linux-[\w-]+)\.so\.\d+")
COMPILER = re.compile(r"lib(stdc\+\+|gcc_s)\.so\.\d+")  # allowed where the wheel stays on the machine


def audit(wheel: Path) -> list[str]:
    """What is wrong with a wheel, one line a fault; empty if it is good."""
    name, _, build, tags = parse_wheel_filename(wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        members = {info.filename: info for info in archive.infolist() if not info.is_dir()}
        faults = [*layout(members, name.replace("-", "_"))]
        for tag in tags:
            faults += metadata(archive, members, tag)
            faults += variants(members, tag, "".join(map(str, build)))
            faults += binaries(archive, members, tag)
    for tag in tags:
        if tag.platform.startswith("manylinux"):
            faults += glibc(wheel, tag)
    return faults


def layout(members: dict[str, zipfile.ZipInfo], package: str) -> Iterator[str]:
    """Only our folders at the top, where the names of others (`llama`, `ggml`) could clash; the program can be run."""
    for member in members:
        top = PurePosixPath(member).parts[0]
        if top != package and not re.fullmatch(rf"{package}-[^/]+\.dist-info", top):
            yield f"{member} lies outside of {package}/"
    programs = [info for member, info in members.items() if re.fullmatch(rf"{BIN}llamafile-numa(\.exe)?", member)]
    if len(programs) != 1:
        yield f"there are {len(programs)} programs named llamafile-numa in {BIN}, wanted 1"
    for info in programs:
        if not (info.external_attr >> 16) & stat.S_IXUSR and not info.filename.endswith(".exe"):
            yield f"{info.filename} is not executable"
    if f"{package}/py.typed" not in members:
        yield f"{package}/py.typed is missing"


def metadata(archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], tag: Tag) -> Iterator[str]:
    info = next((member.partition("/")[0] for member in members if ".dist-info/" in member), "")
    for licence in (*LICENCES, *(WINDOWS_LICENCES if tag.platform.startswith("win") else ())):
        if f"{info}/licenses/{licence}" not in members:
            yield f"the licence {licence} is missing"
    entries = configparser.ConfigParser(delimiters="=")
    if f"{info}/entry_points.txt" in members:
        entries.read_string(archive.read(f"{info}/entry_points.txt").decode())
    command, target = ENTRY_POINT
    if entries.get("console_scripts", command, fallback=None) != target:
        yield f"the console script {command} = {target} is missing"


def variants(members: dict[str, zipfile.ZipInfo], tag: Tag, build: str) -> Iterator[str]:
    """A wheel that names neither this machine nor a kind of CPU has a library for each kind, the oldest among them."""
    libraries = {PurePosixPath(member).name for member in members if VARIANT.fullmatch(member)}
    if build == ONE_VARIANT_TAG:
        if libraries:
            yield f"the build tag {build} says one kind of CPU, but there is {min(libraries)}"
    elif build:
        yield f"the build tag {build} is not known; {ONE_VARIANT_TAG} is"
    elif tag.platform.startswith("linux_"):
        return
    elif len(libraries) < 2:
        yield f"the wheel is for every CPU, but has libraries for {len(libraries)} kinds, wanted several"
    elif tag.platform.endswith(("x86_64", "amd64")) and not any(name.startswith(OLDEST) for name in libraries):
        yield f"the wheel is for every CPU, but has no library for the oldest, {OLDEST[0]}*"


def binaries(archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], tag: Tag) -> Iterator[str]:
    """Each file in bin/ is a program or library for the platform of the tag and needs nothing that is not there."""
    ours = {PurePosixPath(member).name for member in members if member.startswith(BIN)}
    for member in sorted(members):
        if not member.startswith(BIN):
            continue
        content = archive.read(member)
        if tag.platform.startswith("win"):
            yield from pe.faults(member, content, ours)
        elif not content.startswith(b"\x7fELF"):
            yield f"{member} is no Linux program, but the tag is {tag}"
        else:
            yield from elf(member, content, ours, tag.platform)
        if not tag.platform.startswith("linux_"):
            yield from (f"{member} holds a path of the machine it was built on, {path}" for path in paths(content))


def paths(content: bytes) -> list[str]:
    """Which of this machine's folders are named in a file, in narrow or wide letters."""
    folders = {str(ROOT), str(cache_dir()), ROOT.as_posix(), cache_dir().as_posix()}
    return [path for path in sorted(folders) if path.encode() in content or path.encode("utf-16-le") in content]


def elf(member: str, content: bytes, ours: set[str], platform: str) -> Iterator[str]:
    """Right machine, and no libraries but ours, found beside the program, and the system's C library."""
    file = ELFFile(BytesIO(content))
    machine = next((elf for name, elf in MACHINES.items() if platform.endswith(name)), None)
    if file["e_machine"] != machine:
        yield f"{member} is for {file['e_machine']}, but the tag is for {platform}"
    dynamic = file.get_section_by_name(".dynamic")
    entries = list(dynamic.iter_tags()) if isinstance(dynamic, DynamicSection) else []

    def named(kind: str) -> list[str]:
        return [getattr(entry, kind) for entry in entries if entry.entry.d_tag == f"DT_{kind.upper()}"]

    needed, paths = named("needed"), named("runpath") + named("rpath")
    for library in needed:
        local = platform.startswith("linux_") and COMPILER.fullmatch(library)
        if library not in ours and not GLIBC.fullmatch(library) and not local:
            yield f"{member} needs {library}, which is neither in the wheel nor part of glibc"
    for path in paths:
        if path != "$ORIGIN":
            yield f"{member} looks for libraries in {path}, wanted $ORIGIN"
    if ours.intersection(needed) and not paths:
        yield f"{member} does not look for libraries beside itself"


def glibc(wheel: Path, tag: Tag) -> list[str]:
    """Whether auditwheel finds no symbol that is newer than the floor of the tag."""
    # The CPU variants use instructions that not every CPU has, and are only loaded where it has them.
    command = [sys.executable, "-m", "auditwheel", "show", "--json", "--disable-isa-ext-check", str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return [f"auditwheel cannot read the wheel: {done.stderr.strip()}"]
    found = json.loads(done.stdout)
    if floor(found["overall_tag"]) <= floor(tag.platform):
        return []
    return [f"auditwheel allows {found['overall_tag']}, not {tag.platform}: {found['versioned_symbols']}"]


def floor(platform: str) -> tuple[float, float]:
    """The glibc version of a manylinux tag; above all others for a tag that promises none."""
    version = re.match(r"manylinux_(\d+)_(\d+)_", platform)
    return (int(version[1]), int(version[2])) if version else (float("inf"), 0)
