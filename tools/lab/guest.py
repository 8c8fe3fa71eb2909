"""The guest's files: one initrd with busybox, numactl, our tools, the programs under test and the script to run."""

from __future__ import annotations

import lzma
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tools.fail import Fail
from tools.lab import needs, windows
from tools.lab.kernel import Kernel
from tools.paths import BUILD

SOURCES = Path(__file__).parent / "guest"
C_TOOLS = ("pages", "evict", "deny")
SYSTEM_TOOLS = ("numactl", "setpriv")
INITRD = "initrd"
PROGRAM_FOLDER = "/opt"

CFLAGS = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-static", "-s")


@dataclass(frozen=True)
class File:
    content: bytes
    executable: bool = False


def initrd(kernel: Kernel, programs: Mapping[str, Path], script: str) -> bytes:
    """An uncompressed initrd (cpio). `programs`: what is under test, by the name that the script uses."""
    files = {
        "/init": File((SOURCES / "init").read_bytes(), executable=True),
        "/lab.sh": File((SOURCES / "lab.sh").read_bytes()),
        "/script": File(script.encode()),
        "/tools/cpuset": File((SOURCES / "cpuset").read_bytes(), executable=True),
        "/bin/busybox": File(Path(needs.path("busybox")).read_bytes(), executable=True),
    }
    for number, module in enumerate(kernel.modules):
        files[f"/modules/{number}-{module.name.partition('.')[0]}"] = File(read_module(module))
    for name in C_TOOLS:
        files[f"/tools/{name}"] = File(compile_tool(name).read_bytes(), executable=True)
    for name in SYSTEM_TOOLS:
        files.update(with_libraries(Path(needs.path(name)), f"/tools/{name}"))
    for name, program in programs.items():
        if windows.is_program(name):
            files["/tools/wine"] = File(windows.starter().encode(), executable=True)
            files.update(wine_libraries())
        files.update(with_libraries(program, program_path(name)))
        for library in program.parent.glob("*.so*"):
            files.update(with_libraries(library, f"{PROGRAM_FOLDER}/{name}/{library.name}"))
    return cpio(files)


def program_path(name: str) -> str:
    """Where a program under test is in the guest."""
    return f"{PROGRAM_FOLDER}/{name}/{name}"


def read_module(module: Path) -> bytes:
    content = module.read_bytes()
    return lzma.decompress(content) if module.suffix == ".xz" else content


def compile_tool(name: str) -> Path:
    """Our C tool as a static program; compiled again when its source is newer."""
    source = SOURCES / f"{name}.c"
    target = BUILD / "lab" / name
    if target.exists() and target.stat().st_mtime >= source.stat().st_mtime:
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [*compiler(), *CFLAGS, "-o", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Fail(f"{source.name} does not compile: {(done.stderr.splitlines() or ['no message'])[0]}")
    return target


def compiler() -> list[str]:
    if system := shutil.which("cc"):
        return [system]
    return [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-musl"]


def with_libraries(program: Path, path: str) -> dict[str, File]:
    """A program as `path`, and each shared library it needs under the path the linker wants it at."""
    files = {path: File(program.read_bytes(), executable=True)}
    for library in libraries(program):
        files[str(library)] = File(library.read_bytes(), executable=True)
    return files


def libraries(program: Path) -> Iterator[Path]:
    """The shared libraries that a program loads from the system (ldd), its dynamic linker among them.

    Libraries beside the program are left out. Raises Fail if one is missing.
    """
    done = subprocess.run([needs.path("ldd"), str(program)], capture_output=True, text=True, check=False)
    if "not found" in done.stdout:
        raise Fail(
            f"{program} needs a library that is not here: {done.stdout.partition(' => not found')[0].split()[-1]}"
        )
    for found in re.findall(r"(/\S+) \(0x", done.stdout):
        if Path(found).parent.resolve() != program.parent.resolve():
            yield Path(found)


def wine_libraries() -> dict[str, File]:
    """What of this system's libraries Wine is linked to, and what the C library loads where a thread ends."""
    found = {library for part in windows.linked() for library in libraries(part)}
    found |= {library.with_name("libgcc_s.so.1") for library in found if library.name == "libc.so.6"}
    return {str(library): File(library.read_bytes(), executable=True) for library in found}


def cpio(files: Mapping[str, File]) -> bytes:
    """An archive in the "newc" form that the kernel unpacks, with the folders that the paths need."""
    folders = {str(parent) for path in files for parent in PurePosixPath(path).parents if str(parent) != "/"}
    entries = [*((path, stat.S_IFDIR | 0o755, b"") for path in sorted(folders))]
    for path, file in sorted(files.items()):
        entries.append((path, stat.S_IFREG | (0o755 if file.executable else 0o644), file.content))
    parts = [cpio_entry(path.lstrip("/"), mode, content, ino) for ino, (path, mode, content) in enumerate(entries, 1)]
    return b"".join([*parts, cpio_entry("TRAILER!!!", 0, b"", 0)])


def cpio_entry(name: str, mode: int, content: bytes, ino: int) -> bytes:
    # ino mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check
    fields = (ino, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
    head = "070701" + "".join(f"{field:08X}" for field in fields) + name + "\0"
    return padded(head.encode()) + padded(content)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
