"""Only the wanted part of an archive is unpacked, and an archive that means harm leaves nothing behind."""

from __future__ import annotations

import stat
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.sample import FILENAME, SUBFOLDER, TOP, listing, make_project, member, pack, upstream_members
from tools import pin
from tools.fail import Fail
from tools.unpack import unpack

INNER = f"{TOP}/{SUBFOLDER}"
Unpack = Callable[[bytes], Path]


@pytest.fixture
def sample_pin(tmp_path: Path) -> pin.Pin:
    return pin.load(make_project(tmp_path).root / "vendor" / "llama.cpp.toml")


@pytest.fixture
def unpacked(tmp_path: Path, sample_pin: pin.Pin) -> Unpack:
    """Unpacks archives to a folder of their own and gives its path."""

    def unpack_bytes(data: bytes) -> Path:
        archive = tmp_path / FILENAME
        archive.write_bytes(data)
        unpack(archive, sample_pin, tmp_path / "out" / "tree")
        return tmp_path / "out"

    return unpack_bytes


def test_exactly_the_included_part(unpacked: Unpack) -> None:
    out = unpacked(pack(upstream_members()))
    assert listing(out) == [
        "tree/CMakeLists.txt",
        "tree/LICENSE",
        "tree/src/buffer.c",
        "tree/src/buffer.h",
        "tree/src/main.c",
    ]


def test_names_that_only_begin_like_an_included_one_are_left_out(unpacked: Unpack) -> None:
    out = unpacked(pack(upstream_members({"src2/x.c": b"", "LICENSE.old": b"", "srcfile": b""})))
    assert len(listing(out)) == 5


def test_time_is_kept_and_of_the_mode_only_whether_it_can_be_run(unpacked: Unpack) -> None:
    members = [*upstream_members(), member(f"{INNER}/src/run.sh", b"#!/bin/sh\n", mode=0o6777)]
    out = unpacked(pack(members))
    modes = {name: stat.S_IMODE((out / "tree/src" / name).stat().st_mode) for name in ("run.sh", "main.c")}
    assert modes == {"run.sh": 0o755, "main.c": 0o644}
    assert (out / "tree/src/main.c").stat().st_mtime == 1_600_000_000


@pytest.mark.parametrize(
    ("harm", "complaint"),
    [
        (member(f"{INNER}/src/../../../../evil", b"x"), "leads out of it"),
        (member("../evil", b"x"), "leads out of it"),
        (member("/tmp/evil", b"x"), "leads out of it"),
        (member(f"{INNER}/src/..\\evil", b"x"), "leads out of it"),
        (member("C:/evil", b"x"), "leads out of it"),
        (member(f"{INNER}/src/link", type=tarfile.SYMTYPE, linkname="/etc/passwd"), "symbolic link"),
        (member(f"{INNER}/src/link", type=tarfile.SYMTYPE, linkname="main.c"), "symbolic link"),
        (member(f"{INNER}/src/link", type=tarfile.LNKTYPE, linkname=f"{TOP}/setup.py"), "hard link"),
        (member(f"{INNER}/src/tty", type=tarfile.CHRTYPE), "device"),
        (member(f"{INNER}/src/disk", type=tarfile.BLKTYPE), "device"),
        (member(f"{INNER}/src/pipe", type=tarfile.FIFOTYPE), "pipe"),
        (member(f"{INNER}/src/main.c", b"again"), "twice"),
        (member(f"{INNER}/src", b"a file where a folder is"), "twice"),
    ],
)
def test_harm_leaves_nothing(
    unpacked: Unpack, tmp_path: Path, harm: tuple[tarfile.TarInfo, bytes], complaint: str
) -> None:
    before = listing(tmp_path)
    with pytest.raises(Fail, match=complaint) as failure:
        unpacked(pack([*upstream_members(), harm]))
    assert str(failure.value).startswith(f"{FILENAME} holds ")
    assert listing(tmp_path) == sorted([*before, FILENAME])


def test_links_elsewhere_do_not_matter(unpacked: Unpack) -> None:
    link = member(f"{INNER}/docs/link", type=tarfile.SYMTYPE, linkname="/etc/passwd")
    assert len(listing(unpacked(pack([*upstream_members(), link])))) == 5


def test_included_path_that_is_not_there(unpacked: Unpack, tmp_path: Path) -> None:
    members = [(info, data) for info, data in upstream_members() if not info.name.endswith("/LICENSE")]
    with pytest.raises(Fail, match=f"^{FILENAME} has no {SUBFOLDER}/LICENSE, which the pin includes$"):
        unpacked(pack(members))
    assert listing(tmp_path / "out") == []


@pytest.mark.parametrize("cut", [0, 1, 40, 400])
def test_no_archive_or_a_part_of_one(unpacked: Unpack, tmp_path: Path, cut: int) -> None:
    with pytest.raises(Fail, match=f"^{FILENAME} cannot be unpacked: "):
        unpacked(pack(upstream_members())[:cut])
    assert listing(tmp_path / "out") == []


def test_no_gzip(unpacked: Unpack) -> None:
    with pytest.raises(Fail, match="cannot be unpacked"):
        unpacked(b"plain text, long enough to be looked at" * 100)
