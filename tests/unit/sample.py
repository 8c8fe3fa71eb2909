"""A sample project: the real tools, a tiny upstream, and a package index to fetch it from.

The tools take everything from the folder they lie in, so a copy of them is a project of its own.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tools.paths import ROOT

SAMPLES = Path(__file__).parent / "samples"
PACKAGE, VERSION, FILENAME = "sample-llama", "1.2.3", "sample_llama-1.2.3.tar.gz"
TOP = "sample_llama-1.2.3"
SUBFOLDER = "vendor/sample"
INCLUDE = ("CMakeLists.txt", "LICENSE", "src")

UPSTREAM = sorted(file.relative_to(SAMPLES / "upstream").as_posix() for file in (SAMPLES / "upstream").rglob("*.*"))
# What is unpacked of it, with the stamp.
TREE = [".prepared.json", "CMakeLists.txt", "LICENSE", "src/buffer.c", "src/buffer.h", "src/main.c"]


def listing(folder: Path) -> list[str]:
    """All files below a folder, sorted; locks and folders are left out."""
    files = (
        file for file in folder.rglob("*") if not file.is_dir() and file.suffix != ".lock" and file.name != ".lock"
    )
    return sorted(file.relative_to(folder).as_posix() for file in files)


def contents(folder: Path) -> dict[str, bytes]:
    return {path: (folder / path).read_bytes() for path in listing(folder)}


def member(name: str, data: bytes = b"", *, mode: int = 0o644, **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    """One member of an archive; `fields` are those of TarInfo, such as type and linkname."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    info.mode = mode
    info.mtime = 1_600_000_000
    for key, value in fields.items():
        setattr(info, key, value)
    return info, data


def pack(members: Iterable[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    """A .tar.gz that is the same each time."""
    stream = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=stream, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def upstream_members(extra: dict[str, bytes] | None = None) -> list[tuple[tarfile.TarInfo, bytes]]:
    """The sample upstream as it lies in its archive; `extra` adds or replaces files."""
    folder = SAMPLES / "upstream"
    files = {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    files |= extra or {}
    return [
        member(f"{TOP}/setup.py", b"# the package's own\n"),
        *(member(f"{TOP}/{SUBFOLDER}/{path}", data) for path, data in sorted(files.items())),
    ]


@dataclass
class Project:
    """A copy of the tools with a sample upstream pinned in it."""

    root: Path
    archive: bytes
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def tree(self) -> Path:
        return self.root / "build" / "native" / "tree"

    @property
    def patches(self) -> Path:
        return self.root / "patches" / "llama.cpp"

    @property
    def cache(self) -> Path:
        return self.root.parent / "cache"

    @property
    def downloads(self) -> Path:
        return self.cache / "downloads"

    def pin(self, **changes: object) -> None:
        """Write the pin, of the archive or with some keys changed."""
        values: dict[str, object] = {
            "package": PACKAGE,
            "version": VERSION,
            "filename": FILENAME,
            "size": len(self.archive),
            "sha256": hashlib.sha256(self.archive).hexdigest(),
            "subfolder": SUBFOLDER,
            "upstream": "sample/llama",
            "commit": "0123abc",
            "license": "MIT",
            "include": list(INCLUDE),
        }
        lines = [f"{key} = {json.dumps(value)}\n" for key, value in (values | changes).items()]
        (self.root / "vendor").mkdir(exist_ok=True)
        (self.root / "vendor" / "llama.cpp.toml").write_text("".join(lines), encoding="utf-8")

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "tools", *arguments]

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*arguments),
            cwd=self.root,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = self.command(*arguments)
        return subprocess.run(
            command, cwd=self.root, env=self.environment, capture_output=True, text=True, check=False, timeout=60
        )

    def ok(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a verb that has to succeed."""
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr
        return done

    def fails(self, *arguments: str, code: int = 1) -> str:
        """Run a verb that has to fail; returns its last line, which is the error."""
        done = self.run(*arguments)
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr.splitlines()[-1]


def plain_environment(cache: Path) -> dict[str, str]:
    """The environment without anything that says where packages come from or how output looks."""
    dropped = ("PIP_", "LLAMAFILE_NUMA_", "FORCE_COLOR", "NO_COLOR", "COLUMNS", "PYTHONPATH")
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(dropped) and "proxy" not in key.lower()
    }
    return kept | {
        "LLAMAFILE_NUMA_CACHE": str(cache),
        "LLAMAFILE_NUMA_NO_BOOTSTRAP": "1",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PYTHONDONTWRITEBYTECODE": "1",  # listings are compared
    }


def copy_tools(root: Path) -> None:
    shutil.copytree(ROOT / "tools", root / "tools", ignore=shutil.ignore_patterns("__pycache__"))


def make_project(folder: Path, *, patched: bool = True, extra: dict[str, bytes] | None = None) -> Project:
    """A project below `folder` that finds its upstream in the folder `links` beside it."""
    root, links = folder / "project", folder / "links"
    root.mkdir()
    links.mkdir()
    copy_tools(root)
    project = Project(root, pack(upstream_members(extra)))
    project.environment = plain_environment(project.cache) | {"PIP_FIND_LINKS": str(links)}
    (links / FILENAME).write_bytes(project.archive)
    project.pin()
    if patched:
        shutil.copytree(SAMPLES / "patches", project.patches)
    else:
        project.patches.mkdir(parents=True)
        (project.patches / "series").write_text("# none yet\n")
    return project
