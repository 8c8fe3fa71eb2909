"""Brings one file from the index, over as many connections as it takes.

Kept apart from `fetch`, which most often finds the file in the cache: what is imported here takes its time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import httpx2
from unearth import Link
from unearth.fetchers import PyPIClient

from tools import index
from tools.console import progress, size, warn
from tools.fail import Fail
from tools.fetch import Wanted

# How often a connection may break without a single byte won before we give up.
BARREN_TRIES = 3
RETRY_SECONDS = 1.0


def bring(package: str, version: str, wanted: Wanted, part: Path) -> None:
    """Complete `part`, which may be missing or the remainder of an earlier run, until it is what is wanted.

    Raises Fail when the index does not have the file, the connection keeps breaking (`part` stays) or the file is
    another one (`part` is removed).
    """
    settings = index.pip_settings()
    with index.client(settings) as session:
        links = index.find(session, settings, package, version, wanted.filename)
        fetch_into(part, wanted, session, pick(links, wanted))


def pick(links: list[Link], wanted: Wanted) -> Link:
    """The first link that does not announce other contents."""
    for link in links:
        announced = (link.hash_option or {}).get("sha256", [wanted.sha256])
        if wanted.sha256 in announced:
            return link
    raise Fail(f"{wanted.filename}: wanted sha256 {wanted.sha256}, the index has {announced[0]}")


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
        except httpx2.RequestError as error:
            reason = str(error) or type(error).__name__
        barren = barren + 1 if length(part) <= have else 0
        if barren == BARREN_TRIES:
            so_far = f"{size(length(part))} of {size(wanted.size)} are kept; run again to go on"
            raise Fail(f"{wanted.filename}: the connection broke ({reason}); {so_far}")
        if barren:
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
