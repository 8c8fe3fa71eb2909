"""Which wheel is asked for, and what it is called."""

from __future__ import annotations

import platform
import sys

import pytest

from tools import wheel
from tools.fail import Fail

CASES = {
    "linux": {(): "portable", ("native",): "native", ("target",): "win_amd64_portable", ("target", "one"): "win_amd64"},
    "win32": {(): "win_amd64_portable", ("native",): "native", ("one",): "win_amd64", ("target", "one"): "win_amd64"},
}


@pytest.mark.parametrize(("system", "words"), [(system, words) for system in CASES for words in CASES[system]])
def test_flavour_is_the_one_that_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, system: str, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    target = "win_amd64" if "target" in words else None
    flavour = wheel.flavour(target, native="native" in words, one_variant="one" in words)
    assert flavour == CASES[system][words]


@pytest.mark.parametrize(("system", "native"), [("linux", False), ("linux", True), ("win32", True)])
def test_one_variant_is_for_windows(monkeypatch: pytest.MonkeyPatch, system: str, native: bool) -> None:
    monkeypatch.setattr(sys, "platform", system)
    with pytest.raises(Fail, match=r"^--one-variant needs --target win_amd64; "):
        wheel.flavour(None, native=native, one_variant=True)


@pytest.mark.parametrize(
    ("system", "machine", "flavour", "tag"),
    [
        ("linux", "x86_64", "native", "py3-none-linux_x86_64"),
        ("linux", "aarch64", "portable", "py3-none-manylinux_2_28_aarch64"),
        ("linux", "x86_64", "win_amd64", "py3-none-win_amd64"),
        ("linux", "aarch64", "win_amd64_portable", "py3-none-win_amd64"),
        ("win32", "AMD64", "win_amd64_portable", "py3-none-win_amd64"),
        ("win32", "AMD64", "native", "py3-none-win_amd64"),
        ("win32", "ARM64", "native", "py3-none-win_arm64"),
    ],
)
def test_tag_says_where_it_runs(
    monkeypatch: pytest.MonkeyPatch, system: str, machine: str, flavour: str, tag: str
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert wheel.tag(flavour) == tag
