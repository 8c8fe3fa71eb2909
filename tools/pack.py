"""Put a model and its arguments into one .llamafile."""

from __future__ import annotations

import argparse
import re
import shlex
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tools.console import out, progress, say, size, warn
from tools.fail import Fail

ALIGN = 65536  # bytes: weights can be mapped from there on every system
CHUNK = 8 << 20  # bytes
ARGS = ".args"
HERE = "..."  # the line that stands for the user's own arguments
PART = re.compile(r"(?P<name>.+)-(?P<part>\d{5})-of-(?P<parts>\d{5})\.gguf", re.IGNORECASE)

DESCRIPTION = """\
Write a .llamafile: GGUF files, stored as they are at multiples of 65536 bytes, and arguments to start with. It can be
given as -m to this program, which then uses the arguments as well, and to llamafile. Of a split model the first part is
enough. A file with "mmproj" in its name is a multimodal projector and becomes --mmproj.
"""


def register(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser("pack", description=DESCRIPTION)
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL", help="a GGUF file")
    parser.add_argument(
        "--args",
        default="",
        metavar="TEXT",
        help=f"arguments, written as for a shell: --args='-c 4096 --temp 0.7'; {HERE} among them stands for what the"
        " user gives (default: at the end)",
    )
    parser.add_argument("-o", "--output", required=True, type=Path, metavar="FILE", help="the file to write")


def run(args: argparse.Namespace) -> int:
    pack(args.models, split(args.args), args.output)
    out.print(str(args.output))
    return 0


def split(text: str) -> list[str]:
    """Words of a text that is written as for a shell."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise Fail(f"--args: {error} in {text!r}; quote it as for a shell", 2) from None


def pack(models: Iterable[Path], arguments: list[str], target: Path) -> None:
    """Write the archive, all at once. Raises Fail, and leaves what was there, where a file is not as it has to be."""
    files = list(with_parts(models))
    check_models(files, target)
    lines = args_lines([file.name for file in files], arguments)
    fresh = target.with_name(f"{target.name}.fresh")
    total = sum(file.stat().st_size for file in files)
    try:
        with zipfile.ZipFile(fresh, "w", zipfile.ZIP_STORED) as archive, progress("packing", total) as advance:
            for file in files:
                store(archive, file, advance)
            archive.writestr(zipfile.ZipInfo(ARGS), "".join(f"{line}\n" for line in lines))
        fresh.replace(target)
    finally:
        fresh.unlink(missing_ok=True)
    say(f"{target.name}: {len(files)} GGUF file{'s' if len(files) > 1 else ''}, {size(target.stat().st_size)}")


def with_parts(models: Iterable[Path]) -> Iterator[Path]:
    """The files, and behind the first part of a split model the parts beside it."""
    for model in models:
        yield model
        found = PART.fullmatch(model.name)
        if found and int(found["part"]) == 1:
            for part in range(2, int(found["parts"]) + 1):
                yield model.with_name(f"{found['name']}-{part:05}-of-{found['parts']}.gguf")


def check_models(files: list[Path], target: Path) -> None:
    if target.exists() and not target.is_file():
        raise Fail(f"{target} is there and no file; -o has to be a new file, or one to replace", 2)
    if not target.parent.is_dir():
        raise Fail(f"there is no folder {target.parent} for {target.name}", 2)
    for file in files:
        if not file.is_file():
            raise Fail(f"there is no file {file}; GGUF files can be packed, split ones with all their parts", 2)
        with file.open("rb") as content:
            if content.read(4) != b"GGUF":
                raise Fail(f"{file} is no GGUF file; GGUF files can be packed", 2)
        if not file.name.lower().endswith(".gguf"):
            raise Fail(f"{file}: in an archive a model is known by its name; call it {file.name}.gguf", 2)
        if file.resolve() == target.resolve():
            raise Fail(f"{target} is one of the files to pack; -o has to be another", 2)
    names = [file.name for file in files]
    for name in names:
        if names.count(name) > 1:
            raise Fail(f"{name} is there twice; in an archive each needs a name of its own", 2)


def args_lines(names: list[str], arguments: list[str]) -> list[str]:
    """The lines of .args: the model, its projector, the arguments, and the place for the user's own."""
    for argument in arguments:
        check_argument(argument)
    lines = []
    model = only([name for name in names if "mmproj" not in name.lower() and not is_later_part(name)], "model")
    if model and not {"-m", "--model"} & set(arguments):
        lines += ["-m", model]
    mmproj = only([name for name in names if "mmproj" in name.lower()], "multimodal projector")
    if mmproj and not {"-mm", "--mmproj"} & set(arguments):
        lines += ["--mmproj", mmproj]
    return [*lines, *arguments, *([] if HERE in arguments else [HERE])]


def check_argument(argument: str) -> None:
    if not argument or "\n" in argument or "\r" in argument:
        raise Fail(f"--args: {argument!r} cannot be stored; an argument takes one line and is not empty", 2)
    if re.search(r"[\s'\"\\$]|^#", argument):
        warn(f"llamafile 0.9 and later read {argument!r} as a shell would: to them it is something else")


def only(names: list[str], what: str) -> str | None:
    if len(names) > 1:
        warn(f"there is more than one {what}, so the user has to name one: ARCHIVE@{names[0]}")
    return names[0] if len(names) == 1 else None


def is_later_part(name: str) -> bool:
    found = PART.fullmatch(name)
    return bool(found and int(found["part"]) != 1)


def store(archive: zipfile.ZipFile, file: Path, advance: Any) -> None:
    """Add a file as it is, its first byte at a multiple of ALIGN."""
    info = zipfile.ZipInfo.from_file(file, file.name, strict_timestamps=False)
    info.CRC = info.compress_size = 0  # not known yet
    archive.start_dir += -(archive.start_dir + len(info.FileHeader(zip64=True))) % ALIGN
    with file.open("rb") as source, archive.open(info, "w", force_zip64=True) as target:
        while chunk := source.read(CHUNK):
            target.write(chunk)
            advance(len(chunk))
