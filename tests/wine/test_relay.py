"""The reader of Wine's relay trace, on lines as Wine 8 writes them."""

from __future__ import annotations

import pytest

from tests.wine import relay

# A thread allocates on a node, another one within the same lines; kernel32 hands on to kernelbase, which asks ntdll.
NESTED = r"""
0020:0024:Call KERNEL32.VirtualAllocExNuma(ffffffff,00000000,00200000,00002000,100000004,200000001) ret=14000104b
0020:0024:Call kernelbase.VirtualAllocExNuma(ffffffffffffffff,00000000,00200000,00002000,4,1) ret=1700484ff
0020:0024:fixme:heap:VirtualAllocExNuma Ignoring preferred node 1
0020:0040:Call KERNEL32.SetThreadGroupAffinity(fffffffffffffffe,02e9fe20,00000000) ret=1400011eb
0020:0024:Call ntdll.NtAllocateVirtualMemory(ffffffff,0101fc18,00000000,0101fc10,100002000,100000004) ret=7b0419bf
0020:0040:Ret  KERNEL32.SetThreadGroupAffinity() retval=00000001 ret=1400011eb
0020:0024:Ret  ntdll.NtAllocateVirtualMemory() retval=00000000 ret=7b0419bf
0020:0024:Ret  kernelbase.VirtualAllocExNuma() retval=01ea0000 ret=1700484ff
0020:0024:Ret  KERNEL32.VirtualAllocExNuma() retval=01ea0000 ret=14000104b
"""


def parse(text: str) -> relay.Trace:
    return relay.parse(text.splitlines(keepends=True))


def one(text: str) -> relay.Call:
    (call,) = parse(text).calls
    return call


def test_calls_of_several_threads_inside_each_other() -> None:
    calls = parse(NESTED).calls
    assert [(call.thread, call.module, call.function) for call in calls] == [
        (0x24, "kernel32", "VirtualAllocExNuma"),
        (0x24, "kernelbase", "VirtualAllocExNuma"),
        (0x40, "kernel32", "SetThreadGroupAffinity"),
        (0x24, "ntdll", "NtAllocateVirtualMemory"),
    ]
    assert [call.inside and call.inside.module for call in calls] == [None, "kernel32", None, "kernelbase"]
    assert [call.returned for call in calls] == [0x1EA0000, 0x1EA0000, 1, 0]
    assert [(call.began, call.ended) for call in calls] == [(1, 9), (2, 8), (4, 6), (5, 7)]
    assert {call.process for call in calls} == {0x20}


def test_a_call_that_another_of_its_name_hands_on_counts_once() -> None:
    trace = parse(NESTED)
    assert [call.module for call in trace.of("VirtualAllocExNuma")] == ["kernel32"]
    (inner,) = trace.of("NtAllocateVirtualMemory")
    assert inner.within("VirtualAllocExNuma")
    assert not inner.within("VirtualAlloc", "NtAllocateVirtualMemory")


def test_arguments_of_32_bits_come_with_rests_above() -> None:
    first = parse(NESTED).calls[0]
    assert first.arguments[4:] == (0x100000004, 0x200000001)
    assert (first.low(4), first.low(5)) == (4, 1)


@pytest.mark.parametrize(
    ("shown", "string"),
    [
        (r'0021fb00 L"Z:\\m.gguf"', "Z:\\m.gguf"),
        (r'0021fb00 "rb"', "rb"),
        (r'0021fb00 L"a,b) ret=1"', "a,b) ret=1"),
        (r'0021fb00 L"say \"x\"\n"', 'say "x"\n'),
        (r'0021fb00 L"\96ea\00e4.gguf"', "雪ä.gguf"),
        (r'0021fb00 L"\\96ea"', "\\96ea"),
        (r'0021fb00 L"cut short"...', "cut short"),
        ("0021fb00", None),
    ],
)
def test_a_string_stands_behind_its_address(shown: str, string: str | None) -> None:
    call = one(f"0020:0024:Call KERNEL32.CreateFileW({shown},80000000,00000003) ret=140001000\n")
    assert call.strings == (string, None, None)
    assert call.arguments == (0x21FB00, 0x80000000, 3)


def test_no_arguments() -> None:
    assert one("0020:0024:Call KERNEL32.GetCurrentThreadId() ret=140001000\n").arguments == ()


def test_a_call_that_does_not_return() -> None:
    call = one("0020:0024:Call KERNEL32.TerminateProcess(ffffffff,00000001) ret=140001000\n")
    assert (call.returned, call.ended) == (None, None)


def test_calls_that_were_left_by_an_exception_do_not_return() -> None:
    calls = parse(
        "0020:0024:Call a.outer() ret=1\n"
        "0020:0024:Call a.left() ret=2\n"
        "0020:0024:Ret  a.outer() retval=7 ret=1\n"
        "0020:0024:Call a.next() ret=3\n"
    ).calls
    assert [call.returned for call in calls] == [7, None, None]
    assert calls[2].inside is None


def test_a_return_without_its_call_is_left_out() -> None:
    assert parse("0020:0024:Ret  KERNEL32.CloseHandle() retval=00000001 ret=140001000\n").calls == []


def test_starts_of_threads() -> None:
    trace = parse("0020:0040:Starting thread proc 00000001400011C0 (arg=0000000000000000)\n")
    assert trace.starts == [(0x20, 0x40, 0x1400011C0)]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "The capital of France is Paris.",
        "0020:0024:fixme:heap:VirtualAllocExNuma Ignoring preferred node 1",
        '0020:0024:trace:relay:load_list L"RelayInclude" = L"kernel32.VirtualFree"',
        '002c:0030:Call PE DLL (proc=000000017006,module=000000017000 L"ntdll.dll",reason=PROCESS_ATTACH,res=0)',
        "002c:0030:Ret  PE DLL (proc=000000017006,module=000000017000,reason=PROCESS_ATTACH,res=0) retval=1",
        "0020:0024:Call TLS callback (proc=0000000140001650,module=0000000140000000,reason=THREAD_ATTACH,reserved=0)",
    ],
)
def test_other_lines_are_left_out(line: str) -> None:
    assert parse(f"{line}\n") == relay.Trace()


@pytest.mark.parametrize(
    "line",
    [
        "0020:0024:Call KERNEL32.VirtualFree(01ea0000,00000000,0000",
        "0020:0024:Call KERNEL32.VirtualFree(01ea0000,oops,00008000) ret=140001089",
        "0020:0024:Call KERNEL32.VirtualFree(01ea0000,0020:0040:Ret  KERNEL32.CloseHandle() retval=1 ret=1",
        "0020:0024:Ret  KERNEL32.VirtualFree() retval= ret=140001089",
    ],
)
def test_a_line_that_was_broken_is_an_error(line: str) -> None:
    with pytest.raises(ValueError, match=r"no list|no sense"):
        parse(f"{line}\n")
