"""The set of CPUs or nodes: its operations and the kernel's two text forms."""

import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.core import cc

ZEROS = b"00000000,"
MASK_WORDS = 8192 // 32

Parse = Callable[..., str | None]


@pytest.fixture(scope="module")
def parse(tmp_path_factory: pytest.TempPathFactory) -> Parse:
    """parse("list" | "mask", text) -> the list form of what was parsed, None where it was refused."""
    into = tmp_path_factory.mktemp("node_set")
    program = cc.compile([cc.HERE / "node_set_dump.c", *cc.core("node_set.c")], into=into)

    def run(form: str, text: bytes, *, size: int | None = None) -> str | None:
        command = [str(program), form] if size is None else [str(program), form, str(size)]
        done = subprocess.run(command, input=text, capture_output=True)
        assert done.returncode in (0, 1), done.stderr.decode()
        assert done.stderr == b""
        return done.stdout.decode().removesuffix("\n") if done.returncode == 0 else None

    return run


def test_operations(tmp_path: Path) -> None:
    program = cc.compile([cc.HERE / "node_set_check.c", *cc.core("node_set.c")], into=tmp_path)
    done = subprocess.run([program], capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", ""),
        (b"\n", ""),
        (b"\n\0", ""),
        (b"0", "0"),
        (b"0\n", "0"),
        (b"0-3\n\0", "0-3"),
        (b"0-3\0\0\0\0", "0-3"),
        (b"0-3 \t\n", "0-3"),
        (b"0-3,8,10-15\n", "0-3,8,10-15"),
        (b"0,2,10\n", "0,2,10"),
        (b"3,1,2", "1-3"),
        (b"1-5,3-7,3", "1-7"),
        (b"5-5", "5"),
        (b"63,64,65", "63-65"),
        (b"0000000000000000000007", "7"),
        (b"1023,1024,1100-1200", "1023-1024,1100-1200"),
        (b"8191", "8191"),
        (b"0-8191", "0-8191"),
    ],
)
def test_list(parse: Parse, text: bytes, expected: str) -> None:
    assert parse("list", text) == expected


@pytest.mark.parametrize(
    "text",
    [
        b",",
        b",1",
        b"1,",
        b"1,\n",
        b"1,,2",
        b"-",
        b"-1",
        b"1-",
        b"1-2-3",
        b"3-1",
        b"1-,2",
        b"+1",
        b"0x1",
        b"1x",
        b"a",
        b" 1",
        b"\n1",
        b"1 2",
        b"1, 2",
        b"1\n\n",
        b"1\n2",
        b"1\0002",
        b"\0001",
        b"0-31:2/4",
        b"all",
        b"8192",
        b"0-8192",
        b"8192-8193",
        b"4294967296",
        b"4294967297",
        b"18446744073709551617",
        b"99999999999999999999999999999999",
        b"1-99999999999999999999999999999999",
        b"\xff",
        b"1\xff",
    ],
)
def test_not_a_list(parse: Parse, text: bytes) -> None:
    assert parse("list", text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", ""),
        (b"\n", ""),
        (b"0", ""),
        (b"00000000,00000000\n", ""),
        (b"1", "0"),
        (b"2\n", "1"),
        (b"fffff\n", "0-19"),
        (b"FfFfF", "0-19"),
        (b"ff,ffffffff\n", "0-39"),
        (b"00000000,0000000a\n\0", "1,3"),
        (b"80000000", "31"),
        (b"1,00000000", "32"),
        (b"0000,00000022,22222222\n", "1,5,9,13,17,21,25,29,33,37"),
        (b"1," + ZEROS * 31 + b"00000000", "1024"),
        (b"80000000" + b",00000000" * (MASK_WORDS - 1), "8191"),
        (b"ffffffff" + b",ffffffff" * (MASK_WORDS - 1), "0-8191"),
        (ZEROS * MASK_WORDS + b"00000001", "0"),
    ],
)
def test_mask(parse: Parse, text: bytes, expected: str) -> None:
    assert parse("mask", text) == expected


@pytest.mark.parametrize(
    "text",
    [
        b",",
        b",1",
        b",00000001",
        b"1,",
        b"1,\n",
        b"1,,00000000",
        b"1,0000000",
        b"1,000000000",
        b"100000000",
        b"ffffffffffffffff",
        b"0x1",
        b"g",
        b"-1",
        b" 1",
        b"1 2",
        b"1\n\n",
        b"1\0002",
        b"0-3",
        b"1.00000000",
        b"1," + ZEROS * (MASK_WORDS - 1) + b"00000000",
        b"\xff",
    ],
)
def test_not_a_mask(parse: Parse, text: bytes) -> None:
    assert parse("mask", text) is None


def _ranges(numbers: Iterable[int]) -> str:
    return ",".join(str(number) for number in numbers)


@pytest.mark.parametrize("step", [2, 3, 31, 64])
def test_long_lists_come_back(parse: Parse, step: int) -> None:
    text = _ranges(range(0, 8192, step))
    assert parse("list", text.encode()) == text


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, ""),
        (1, ""),
        (2, "."),
        (3, ".."),
        (4, "..."),
        (5, "..."),
        (6, "..."),
        (7, "..."),
        (8, "0-3,..."),
        (9, "0-3,..."),
        (10, "0-3,8,..."),
        (13, "0-3,8,..."),
        (14, "0-3,8,100-120"),
        (15, "0-3,8,100-120"),
    ],
)
def test_cut_to_size(parse: Parse, size: int, expected: str) -> None:
    assert parse("list", b"0-3,8,100-120", size=size) == expected


SEEDS = [
    b"",
    b"0",
    b"0-3,8,10-15\n",
    b"0-8191",
    b"3-1",
    b"8192",
    b"1\n\0",
    b"ff,ffffffff\n",
    b"0000,00000022,22222222",
    b"1,0000000",
]
LONG_SEEDS = [
    b"80000000" + b",00000000" * (MASK_WORDS - 1),
    b"1," + ZEROS * (MASK_WORDS - 1) + b"00000000",
    _ranges(range(0, 2000, 2)).encode(),
]


@pytest.mark.parametrize(
    ("seeds", "runs", "max_len"), [(SEEDS, 200_000, 64), (LONG_SEEDS, 3_000, 4096)], ids=["short", "long"]
)
def test_fuzz(tmp_path: Path, seeds: list[bytes], runs: int, max_len: int) -> None:
    program = cc.compile_fuzzer([cc.HERE / "fuzz_node_set.c", *cc.core("node_set.c")], into=tmp_path)
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(seeds):
        (corpus / str(number)).write_bytes(seed)
    command = [str(program), f"-runs={runs}", f"-max_len={max_len}", f"-artifact_prefix={tmp_path}/", str(corpus)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stderr[-4000:]
    assert f"Done {runs} runs" in done.stderr
