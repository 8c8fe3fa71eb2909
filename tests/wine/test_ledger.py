"""What is made of a relay trace: faults that the tests of the real program look for are seen here."""

from __future__ import annotations

from tests.wine import ledger, relay

RESERVE = "Call KERNEL32.VirtualAllocExNuma(ffffffff,00000000,00300000,100002000,00000004,00000001) ret=140001000"
COMMIT = "Call KERNEL32.VirtualAllocExNuma(ffffffff,01000000,00200000,00001000,00000004,200000001) ret=140001000"
ELSEWHERE = "Call KERNEL32.VirtualAllocExNuma(ffffffff,01000000,00200000,00001000,00000004,ffffffff) ret=140001000"
AT_16M = "Ret  KERNEL32.VirtualAllocExNuma() retval=01000000 ret=140001000"
FREE = "Call KERNEL32.VirtualFree(01000000,00000000,00008000) ret=140001000"
FREED = "Ret  KERNEL32.VirtualFree() retval=00000001 ret=140001000"
SECTION = "Call KERNEL32.CreateFileMappingNumaW(00000030,00000000,2,0,0,0,00000001) ret=140001000"
HANDLE_34 = "Ret  KERNEL32.CreateFileMappingNumaW() retval=00000034 ret=140001000"
CLOSE_34 = "Call KERNEL32.CloseHandle(00000034) ret=140001000"
CLOSED = "Ret  KERNEL32.CloseHandle() retval=500000001 ret=140001000"
VIEW = "Call KERNEL32.MapViewOfFileExNuma(00000034,4,0,0,0,0,00000001) ret=140001000"
AT_32M = "Ret  KERNEL32.MapViewOfFileExNuma() retval=02000000 ret=140001000"
UNMAP = "Call KERNEL32.UnmapViewOfFile(02000000) ret=140001000"
UNMAPPED = "Ret  KERNEL32.UnmapViewOfFile() retval=00000001 ret=140001000"


def trace(*lines: str) -> relay.Trace:
    return relay.parse(f"0020:0024:{line}\n" for line in lines)


def read(*lines: str) -> ledger.Ledger:
    return ledger.ledger(trace(*lines))


def test_memory_that_is_given_back() -> None:
    found = read(RESERVE, AT_16M, COMMIT, AT_16M, FREE, FREED)
    (held,) = found.held
    assert (held.name, held.size, held.committed) == (16 << 20, 3 << 20, 2 << 20)
    assert (held.nodes, held.released, found.refused) == ({1}, True, [])


def test_memory_that_is_kept() -> None:
    (held,) = read(RESERVE, AT_16M, COMMIT, AT_16M).held
    assert not held.released


def test_memory_that_is_committed_elsewhere() -> None:
    (held,) = read(RESERVE, AT_16M, ELSEWHERE, AT_16M).held
    assert held.nodes == {1, 0xFFFFFFFF}


def test_an_address_comes_again() -> None:
    first, second = read(RESERVE, AT_16M, FREE, FREED, RESERVE, AT_16M, FREE, FREED).held
    assert (first.released, second.released) == (True, True)


def test_memory_is_the_next_thread_s_as_soon_as_it_is_being_freed() -> None:
    """The call that frees returns after another thread was given the same address."""
    lines = [(0x24, RESERVE), (0x24, AT_16M), (0x24, FREE), (0x40, RESERVE), (0x40, AT_16M), (0x24, FREED)]
    found = ledger.ledger(relay.parse(f"0020:{thread:04x}:{line}\n" for thread, line in lines))
    assert [one.released for one in found.held] == [True, False]


def test_decommitting_is_no_release() -> None:
    (held,) = read(RESERVE, AT_16M, FREE.replace("00008000", "00004000"), FREED).held
    assert not held.released


def test_failed_calls_are_told() -> None:
    failed = read(RESERVE, AT_16M.replace("01000000", "00000000"))
    assert (len(failed.refused), failed.held) == (1, [])
    twice = read(FREE, FREED.replace("00000001", "00000000"))
    assert len(twice.refused) == 1


def test_memory_that_was_not_reserved_cannot_be_committed() -> None:
    assert len(read(COMMIT, AT_16M).refused) == 1


def test_views_and_sections() -> None:
    found = read(SECTION, HANDLE_34, VIEW, AT_32M, UNMAP, UNMAPPED, CLOSE_34, CLOSED)
    assert [(one.kind, one.name, one.nodes, one.released) for one in found.held] == [
        ("CreateFileMappingNumaW", 0x34, {1}, True),
        ("MapViewOfFileExNuma", 32 << 20, {1}, True),
    ]
    assert [one.released for one in read(SECTION, HANDLE_34, VIEW, AT_32M).held] == [False, False]


HEAP = "Call ntdll.RtlAllocateHeap(01a80000,00000000,00600048) ret=2c74a301a"
AT_30M = "Ret  ntdll.RtlAllocateHeap() retval=01e00040 ret=2c74a301a"


def test_memory_from_anywhere() -> None:
    lines = [
        "Call KERNEL32.VirtualAlloc(00000000,00300000,00003000,00000004) ret=140001000",
        "Call kernelbase.VirtualAlloc(00000000,00300000,00003000,00000004) ret=1700484ff",
        "Ret  kernelbase.VirtualAlloc() retval=03000000 ret=1700484ff",
        "Ret  KERNEL32.VirtualAlloc() retval=03000000 ret=140001000",
        "Call KERNEL32.VirtualAllocEx(ffffffff,00000000,00100000,00003000,00000004) ret=140001000",
        "Ret  KERNEL32.VirtualAllocEx() retval=04000000 ret=140001000",
        HEAP,
        AT_30M,
        HEAP.replace("00600048", "000fffff"),
        AT_30M.replace("01e00040", "05000000"),
        RESERVE,
        "Call kernelbase.VirtualAllocEx(ffffffff,00000000,00300000,00002000,00000004) ret=1700484ff",
        "Ret  kernelbase.VirtualAllocEx() retval=01000000 ret=1700484ff",
        AT_16M,
    ]
    found = ledger.blocks(trace(*lines), 1 << 20)
    assert [(one.function, one.size, one.ended) for one in found] == [
        ("VirtualAlloc", 3 << 20, None),
        ("VirtualAllocEx", 1 << 20, None),
        ("RtlAllocateHeap", 0x600048, None),
    ]


def test_memory_from_anywhere_that_is_freed() -> None:
    free = "Call ntdll.RtlFreeHeap(01a80000,00000000,01e00040) ret=2c74a301a"
    (block,) = ledger.blocks(trace(HEAP, AT_30M, free, "Ret  ntdll.RtlFreeHeap() retval=1 ret=2c74a301a"), 1 << 20)
    assert (block.began, block.ended) == (0, 2)


def test_memory_from_anywhere_that_grows() -> None:
    grow = "Call ntdll.RtlReAllocateHeap(01a80000,00000000,01e00040,00700048) ret=2c74a301a"
    moved = "Ret  ntdll.RtlReAllocateHeap() retval=06000040 ret=2c74a301a"
    found = ledger.blocks(trace(HEAP, AT_30M, grow, moved), 1 << 20)
    assert [(one.size, one.ended) for one in found] == [(0x600048, 2), (0x700048, None)]
