"""What the audit sees in a Windows program: a small one, and the same with one thing changed."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import pefile
import pytest

from tools import pe, zig

# Names of calls are changed in place, so they are as long as those that they are changed to.
SOURCE = """\
#include <windows.h>
int main(void) { return VirtualFree(0, 0, MEM_RELEASE) && GetTickCount64() > 1; }
"""
LATER = ("GetTickCount64", "MapViewOfFile3")
UNKNOWN = ("GetTickCount64", "GetTickCount65")


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("pe")
    (folder / "sample.c").write_text(SOURCE, encoding="ascii")
    command = [str(zig.toolchain("x86_64-windows-gnu").cc), "-O2", "-s", "sample.c", "-o", "sample.exe"]
    subprocess.run(command, cwd=folder, check=True)
    return (folder / "sample.exe").read_bytes()


def faults(content: bytes, ours: tuple[str, ...] = ()) -> list[str]:
    return list(pe.faults("sample.exe", content, set(ours)))


def changed(sample: bytes, change: Callable[[Any], None]) -> bytes:
    file = pefile.PE(data=sample)
    change(file)
    return bytes(file.write())


def renamed(sample: bytes, old: str, new: str) -> bytes:
    assert len(old) == len(new)
    assert old.encode() in sample
    return sample.replace(old.encode(), new.encode())


def test_good_program_has_no_faults(sample: bytes) -> None:
    assert faults(sample) == []


@pytest.mark.parametrize("flag", pe.HARDENING)
def test_each_hardening_flag_is_needed(sample: bytes, flag: int) -> None:
    def clear(file: Any) -> None:
        file.OPTIONAL_HEADER.DllCharacteristics &= ~flag

    assert faults(changed(sample, clear)) == [f"sample.exe has no {pe.HARDENING[flag]}"]


def test_random_addresses_need_relocations(sample: bytes) -> None:
    def strip(file: Any) -> None:
        file.FILE_HEADER.Characteristics |= pe.RELOCS_STRIPPED

    assert [fault for fault in faults(changed(sample, strip)) if "relocations have been stripped" in fault]


@pytest.mark.parametrize("machine", [0x14C, 0xAA64])
def test_other_machines_are_found(sample: bytes, machine: int) -> None:
    def move(file: Any) -> None:
        file.FILE_HEADER.Machine = machine

    assert faults(changed(sample, move)) == ["sample.exe is no PE32+ program for x86-64"]


def test_program_for_a_later_windows_is_found(sample: bytes) -> None:
    def age(file: Any) -> None:
        file.OPTIONAL_HEADER.MinorSubsystemVersion = 1
        file.OPTIONAL_HEADER.MajorSubsystemVersion = 10

    assert faults(changed(sample, age)) == ["sample.exe is for Windows 10.1 and later, which Windows 10 1607 is not"]


def test_call_that_is_newer_than_the_oldest_windows_is_found(sample: bytes) -> None:
    (fault,) = faults(renamed(sample, *LATER))
    assert fault.startswith("sample.exe imports MapViewOfFile3, which is newer than Windows 10 1607 (since 1803)")


def test_call_that_nobody_looked_up_is_found(sample: bytes) -> None:
    (fault,) = faults(renamed(sample, *UNKNOWN))
    assert fault.startswith("sample.exe imports GetTickCount65 of kernel32.dll; look up since when")


def test_call_by_number_is_found(sample: bytes) -> None:
    def number(file: Any) -> None:
        call = next(
            call for library in file.DIRECTORY_ENTRY_IMPORT for call in library.imports if call.name == b"VirtualFree"
        )
        call.struct_table.AddressOfData = 1 << 63 | 7

    (fault,) = faults(changed(sample, number))
    assert fault.startswith("sample.exe imports a call by number of kernel32.dll")


def test_library_that_is_nowhere_is_found(sample: bytes) -> None:
    other = renamed(sample, "KERNEL32.dll", "ggml-cpu.dll")
    assert set(faults(other)) == {"sample.exe needs ggml-cpu.dll, which is neither in the wheel nor a system library"}
    assert faults(other, ("GGML-CPU.dll",)) == []


@pytest.mark.parametrize("size", [0, 2, 100, 500])
def test_what_is_no_program_is_found(sample: bytes, size: int) -> None:
    (fault,) = faults(sample[:size])
    assert fault.startswith("sample.exe is no Windows program")


def test_what_is_later_is_nowhere_listed_as_old_enough() -> None:
    assert [call for calls in pe.CALLS.values() for call in calls if call in pe.LATER] == []
