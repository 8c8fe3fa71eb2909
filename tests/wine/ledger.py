"""What a program has asked of memory, from a relay trace: what it was given on which node, and what it gave back."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.wine.relay import Call, Trace

MEM_COMMIT = 0x1000
MEM_RESERVE = 0x2000
MEM_RELEASE = 0x8000

# Which argument is the size, in bytes. What a heap is asked for, by any C library, ntdll is.
ANYWHERE = {"VirtualAlloc": 1, "VirtualAllocEx": 2, "RtlAllocateHeap": 2, "RtlReAllocateHeap": 3}
# Which argument is the address of what is freed, or moves.
FREED = {"VirtualFree": 0, "RtlReAllocateHeap": 2, "RtlFreeHeap": 2}
# Which argument is the node.
ON_A_NODE = {"VirtualAllocExNuma": 5, "MapViewOfFileExNuma": 6, "CreateFileMappingNumaW": 6}
RELEASING = ("VirtualFree", "UnmapViewOfFile", "CloseHandle")
MAPPING_ANYWHERE = ("CreateFileMappingA", "CreateFileMappingW", "MapViewOfFile", "MapViewOfFileEx")

# For RelayInclude.
SHOWN = (
    *(f"kernel32.{name}" for name in (*ON_A_NODE, *RELEASING, *MAPPING_ANYWHERE, "VirtualAlloc", "VirtualAllocEx")),
    *(f"ntdll.{name}" for name in ("RtlAllocateHeap", "RtlReAllocateHeap", "RtlFreeHeap")),
)


@dataclass
class Held:
    """Memory, a view or a section of a file. nodes: all that were named for it. size, committed: bytes of memory."""

    kind: str
    name: int  # its address or handle
    nodes: set[int]
    size: int = 0
    committed: int = 0
    released: bool = False


@dataclass
class Ledger:
    """All that was held, in the order of taking; refused: calls that failed, or named what is not held."""

    held: list[Held] = field(default_factory=list)
    refused: list[Call] = field(default_factory=list)

    def of(self, function: str) -> list[Held]:
        return [one for one in self.held if one.kind == function]

    def find(self, function: str, name: int) -> Held | None:
        """What is held now under this handle, or the memory at this address."""
        for one in self.of(function):
            if not one.released and one.name <= name < one.name + max(one.size, 1):
                return one
        return None


def ledger(trace: Trace) -> Ledger:
    """Follow all that one process has held. Addresses and handles come again once they are released."""
    result = Ledger()
    # What is taken is there when the call returns; what is given back may be another thread's once the call is made.
    calls = trace.of(*ON_A_NODE, *RELEASING)
    for call in sorted(calls, key=lambda one: one.began if one.function in RELEASING else one.ended or one.began):
        if not succeeded(call) or not enter(result, call):
            result.refused.append(call)
    return result


def succeeded(call: Call) -> bool:
    """A BOOL has 32 bits, and rests above."""
    mask = 0xFFFFFFFF if call.function in RELEASING else ~0
    return bool(call.returned is not None and call.returned & mask)


def enter(result: Ledger, call: Call) -> bool:
    """False where it names memory that is not held."""
    match call.function:
        case "VirtualAllocExNuma":
            return enter_memory(result, call)
        case "VirtualFree":
            release(result.find("VirtualAllocExNuma", call.arguments[0]) if call.low(2) == MEM_RELEASE else None)
        case "UnmapViewOfFile":
            release(result.find("MapViewOfFileExNuma", call.arguments[0]))
        case "CloseHandle":
            release(result.find("CreateFileMappingNumaW", call.arguments[0]))
        case function:
            result.held.append(Held(function, call.returned or 0, {call.low(ON_A_NODE[function])}))
    return True


def enter_memory(result: Ledger, call: Call) -> bool:
    node, size, kind = call.low(5), call.arguments[2], call.low(3)
    if kind & MEM_RESERVE:
        result.held.append(Held(call.function, call.returned or 0, {node}, size))
    held = result.find(call.function, call.returned or 0)
    if held and kind & MEM_COMMIT:
        held.nodes.add(node)
        held.committed += size
    return held is not None


def release(held: Held | None) -> None:
    """What was not taken on a node is not followed."""
    if held:
        held.released = True


@dataclass
class Block:
    """Memory that was asked of no node, and the lines of the trace between which it was there (None: to the end)."""

    function: str
    thread: int
    size: int
    began: int
    ended: int | None = None


def blocks(trace: Trace, least: int) -> list[Block]:
    """All blocks of at least so many bytes."""
    result: list[Block] = []
    held: dict[int, Block] = {}
    for call in trace.of(*ANYWHERE, "VirtualFree", "RtlFreeHeap"):
        if call.function in FREED and (gone := held.pop(call.arguments[FREED[call.function]], None)):
            gone.ended = call.began
        if call.function in ANYWHERE and not call.within("VirtualAllocExNuma") and call.returned:
            size = call.arguments[ANYWHERE[call.function]]
            if size >= least:
                held[call.returned] = Block(call.function, call.thread, size, call.began)
                result.append(held[call.returned])
    return result
