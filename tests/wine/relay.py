"""What WINEDEBUG=+relay,+pid says, as a table of calls.

    0020:0024:Call KERNEL32.VirtualFree(01ea0000,00000000,00008000) ret=140001089
    0020:0024:Ret  KERNEL32.VirtualFree() retval=00000001 ret=140001089

Process and thread come first, numbers are hexadecimal, and a string stands behind its address. An argument is shown as
the 64 bits of its register: of a 32-bit one the upper half is what was left there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

LINE = re.compile(r"([0-9a-f]+):([0-9a-f]+):(.*)", re.DOTALL)
CALL = re.compile(r"Call ([\w.-]+)\.(\w+)\((.*)\) ret=([0-9a-f]+)", re.DOTALL)
RETURN = re.compile(r"Ret  ([\w.-]+)\.(\w+)\(\) retval=([0-9a-f]+) ret=([0-9a-f]+)")
START = re.compile(r"Starting thread proc ([0-9A-Fa-f]+) ")
ARGUMENT = re.compile(r'([0-9a-f]+)(?: (L?"(?:[^"\\]|\\.)*"(?:\.\.\.)?))?(?:,|$)', re.DOTALL)
ESCAPE = re.compile(r"\\(?:([0-9a-f]{4})|(.))")
CONTROL = {"n": "\n", "r": "\r", "t": "\t"}


@dataclass
class Call:
    """A call, in the order in which they were begun.

    module: in lower case. ret: where it goes on, so whose call it is. inside: the call of the same thread within which
    it was made. returned: None where it never did. began, ended: numbers of the lines.
    """

    process: int
    thread: int
    module: str
    function: str
    arguments: tuple[int, ...]
    strings: tuple[str | None, ...]
    ret: int
    began: int
    inside: Call | None = field(default=None, repr=False)
    returned: int | None = None
    ended: int | None = None

    def low(self, index: int) -> int:
        """An argument of 32 bits."""
        return self.arguments[index] & 0xFFFFFFFF

    def within(self, *functions: str) -> bool:
        """Whether it was made by one of these functions, directly or not."""
        return self.inside is not None and (self.inside.function in functions or self.inside.within(*functions))


@dataclass
class Trace:
    """`starts`: process, thread and address of the function that each thread begins with."""

    calls: list[Call] = field(default_factory=list)
    starts: list[tuple[int, int, int]] = field(default_factory=list)

    def of(self, *functions: str) -> list[Call]:
        """The calls of these functions, once where one of a name calls the other (kernel32 calls kernelbase)."""
        return [
            call
            for call in self.calls
            if call.function in functions and not (call.inside and call.inside.function == call.function)
        ]


def parse(lines: Iterable[str]) -> Trace:
    """Read what one or several processes have said; lines of other kinds are left out.

    Raises ValueError at a call or a return that makes no sense, such as one whose line another has broken into.
    """
    trace = Trace()
    open_calls: dict[tuple[int, int], list[Call]] = {}
    for number, line in enumerate(lines):
        if not (said := LINE.fullmatch(line.rstrip("\r\n"))):
            continue
        process, thread, text = int(said[1], 16), int(said[2], 16), said[3]
        stack = open_calls.setdefault((process, thread), [])
        if started := START.match(text):
            trace.starts.append((process, thread, int(started[1], 16)))
        elif text.startswith("Call ") and (called := CALL.fullmatch(text)):
            arguments = list(read_arguments(called[3]))
            call = Call(
                process,
                thread,
                called[1].lower().removesuffix(".dll"),
                called[2],
                tuple(value for value, _ in arguments),
                tuple(string for _, string in arguments),
                int(called[4], 16),
                number,
                stack[-1] if stack else None,
            )
            trace.calls.append(call)
            stack.append(call)
        elif text.startswith("Ret  ") and (returned := RETURN.fullmatch(text)):
            close(stack, returned[2], int(returned[4], 16), int(returned[3], 16), number)
        elif is_of_a_function(text):
            raise ValueError(f"line {number + 1} makes no sense: {line!r}")
    return trace


def read_arguments(text: str) -> Iterator[tuple[int, str | None]]:
    """Each argument with the string it points to."""
    at = 0
    while at < len(text):
        if not (found := ARGUMENT.match(text, at)):
            raise ValueError(f"no list of arguments: {text!r}")
        yield int(found[1], 16), unquoted(found[2]) if found[2] else None
        at = found.end()


def unquoted(text: str) -> str:
    r"""The string that Wine shows as L"Z:\\model-\3b1.gguf": other than ASCII in four digits, cut short if long."""
    inner = text.removeprefix("L").removesuffix("...")[1:-1]
    return ESCAPE.sub(lambda one: chr(int(one[1], 16)) if one[1] else CONTROL.get(one[2], one[2]), inner)


def close(stack: list[Call], function: str, ret: int, value: int, number: int) -> None:
    """The innermost open call of that function has returned; those inside it were left by an exception."""
    for depth in range(len(stack) - 1, -1, -1):
        if (stack[depth].function, stack[depth].ret) == (function, ret):
            stack[depth].returned, stack[depth].ended = value, number
            del stack[depth:]
            return
    # Its call was made before the trace began, or a function that has replaced itself by another (a tail call) returns.


def is_of_a_function(text: str) -> bool:
    """Whether it begins like the call of a function, not like the other things of relay (DLLs, window procedures)."""
    return bool(re.match(r"(Call|Ret ) [\w-]+\.\w+\(", text))
