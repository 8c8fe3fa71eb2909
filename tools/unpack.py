"""Unpacks a part of an archive and nothing else: plain files and folders that stay below one folder."""

from __future__ import annotations

import os
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from tools.fail import Fail
from tools.pin import Pin, is_inner_path


def unpack(archive: Path, pin: Pin, target: Path) -> None:
    """Unpack what the pin includes of its subfolder so that it becomes the folder `target`, which must not exist.

    Everything is put into a sibling first and renamed last. Raises Fail, and leaves nothing, if a wanted member is
    anything but a plain file or folder, would land outside, or if an included path is not in the archive.
    """
    fresh = target.with_name(f"{target.name}.unpacking")
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        fresh.mkdir(parents=True)
        seen: set[str] = set()
        with tarfile.open(archive, "r:gz") as tar:
            for member, path in wanted_members(tar, pin):
                if (fresh / path).exists():
                    raise Fail(f"{archive.name} holds {member.name!r} twice; nothing was unpacked")
                extract(tar, member, fresh / path)
                seen.add(included_by(path, pin.include))
        if missing := [path for path in pin.include if path not in seen]:
            raise Fail(f"{archive.name} has no {pin.subfolder}/{missing[0]}, which the pin includes")
        fresh.replace(target)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise Fail(f"{archive.name} cannot be unpacked: {error}") from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def wanted_members(tar: tarfile.TarFile, pin: Pin) -> Iterator[tuple[tarfile.TarInfo, str]]:
    """Members of the subfolder that the pin includes, each with its path below it. Fail on one that is not harmless."""
    prefix = PurePosixPath(pin.subfolder).parts
    for member in tar:
        if not is_inner_path(member.name.rstrip("/")):
            raise Fail(f"{tar_name(tar)} holds the path {member.name!r}, which leads out of it; nothing was unpacked")
        parts = PurePosixPath(member.name).parts[1:]  # below the one top folder
        if parts[: len(prefix)] != prefix:
            continue
        path = "/".join(parts[len(prefix) :])
        if not included_by(path, pin.include) or member.isdir():
            continue
        if not member.isreg():
            raise Fail(f"{tar_name(tar)} holds {member.name!r}, which is a {kind(member)}; nothing was unpacked")
        yield member, path


def included_by(path: str, include: tuple[str, ...]) -> str:
    """The entry of `include` that a path falls under; empty if none."""
    return next((entry for entry in include if path == entry or path.startswith(f"{entry}/")), "")


def extract(tar: tarfile.TarFile, member: tarfile.TarInfo, file: Path) -> None:
    """Write one plain file with its time; of its mode only whether it can be run is kept."""
    source = tar.extractfile(member)
    assert source is not None  # only links and folders have no contents
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("xb") as sink:
        shutil.copyfileobj(source, sink)
    file.chmod(0o755 if member.mode & 0o100 else 0o644)
    os.utime(file, (member.mtime, member.mtime))


def kind(member: tarfile.TarInfo) -> str:
    names = {
        tarfile.SYMTYPE: "symbolic link",
        tarfile.LNKTYPE: "hard link",
        tarfile.CHRTYPE: "device",
        tarfile.BLKTYPE: "device",
        tarfile.FIFOTYPE: "pipe",
    }
    return names.get(member.type, f"member of the type {member.type!r}")


def tar_name(tar: tarfile.TarFile) -> str:
    return Path(str(tar.name)).name
