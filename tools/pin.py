"""The pin: which archive the sources come from, how it is checked, and what of it is used."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path, PurePosixPath
from typing import Any

from tools.fail import Fail
from tools.paths import ROOT

PIN_FILE = ROOT / "vendor" / "llama.cpp.toml"


@dataclass(frozen=True)
class Pin:
    """One upstream source archive. `size` is in bytes; `include` holds paths below `subfolder`."""

    package: str
    version: str
    filename: str
    size: int
    sha256: str
    subfolder: str
    upstream: str
    commit: str
    license: str
    include: tuple[str, ...]


def load(file: Path = PIN_FILE) -> Pin:
    """Read and validate a pin; Fail names the file and the key that is wrong."""
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Fail(f"{file.name}: {error}") from None
    keys = [field.name for field in fields(Pin)]
    if unknown := sorted(content.keys() - set(keys)):
        raise Fail(f"{file.name}: unknown key {unknown[0]!r}; there are: {', '.join(keys)}")
    for key in keys:
        if key not in content:
            raise Fail(f"{file.name}: key {key!r} is missing")
        is_valid, wanted = RULES[key]
        if not is_valid(content[key]):
            raise Fail(f"{file.name}: {key} = {content[key]!r} is not {wanted}")
    return Pin(**{**content, "include": tuple(content["include"])})


def _matches(pattern: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def is_inner_path(value: Any) -> bool:
    """A relative path with forward slashes that stays where it is put."""
    if not isinstance(value, str) or not value or "\\" in value or ":" in value:
        return False
    path = PurePosixPath(value)
    return not path.is_absolute() and ".." not in path.parts and str(path) == value


def _is_include(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(is_inner_path, value)) and len(set(value)) == len(value)


Rule = tuple[Callable[[Any], bool], str]
RULES: dict[str, Rule] = {
    "package": (_matches(r"[A-Za-z0-9][A-Za-z0-9._-]*"), "the name of a package"),
    "version": (_matches(r"[0-9][0-9A-Za-z.!+_-]*"), "a version"),
    "filename": (_matches(r"[A-Za-z0-9][A-Za-z0-9._+-]*\.tar\.gz"), "the name of a .tar.gz file"),
    "size": (_is_size, "a number of bytes above 0"),
    "sha256": (_matches(r"[0-9a-f]{64}"), "64 lower-case hexadecimal digits"),
    "subfolder": (is_inner_path, "a relative path inside the archive"),
    "upstream": (_matches(r"[\w.-]+/[\w.-]+"), "of the form owner/repository"),
    "commit": (_matches(r"[0-9a-f]{7,40}"), "7 to 40 lower-case hexadecimal digits"),
    "license": (_matches(r"[A-Za-z0-9.+() -]+"), "an SPDX licence expression"),
    "include": (_is_include, "a list of different relative paths"),
}
