"""Finds files in the package index, with the settings that pip would use."""

from __future__ import annotations

import ast
import ssl
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import httpx2
from unearth import Link, Package, PackageFinder
from unearth.auth import MultiDomainBasicAuth
from unearth.fetchers import Fetcher, PyPIClient

from tools.console import warn
from tools.fail import Fail

# As pip: what is set for one command goes before what is set for all, the environment before both.
SECTIONS = ("global", "download", ":env:")

TRUE_WORDS = ("1", "true", "yes", "on", "y", "t")


@dataclass(frozen=True)
class Settings:
    """Where packages come from. Index URLs may hold credentials: print none of them unredacted."""

    index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    trusted_hosts: tuple[str, ...] = ()
    cert: str | None = None
    client_cert: str | None = None
    proxy: str | None = None
    timeout: float = 15.0  # seconds without a byte


def pip_settings() -> Settings:
    """The settings of pip as configured for this user; Fail if pip cannot be asked."""
    command = [sys.executable, "-m", "pip", "config", "--disable-pip-version-check", "list"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise Fail(f"pip does not tell its configuration: {(result.stderr.strip() or 'no output').splitlines()[-1]}")
    return parse_settings(result.stdout)


def parse_settings(listing: str) -> Settings:
    """Settings from what `pip config list` prints."""
    found: dict[str, dict[str, str]] = {section: {} for section in SECTIONS}
    for line in listing.splitlines():
        name, _, value = line.partition("=")
        section, _, key = name.rpartition(".")
        if section in found:
            found[section][key] = str(ast.literal_eval(value))
    values = {key: value for section in SECTIONS for key, value in found[section].items()}

    def words(key: str) -> tuple[str, ...]:
        return tuple(values.get(key, "").split())

    if values.get("no-index", "").lower() in TRUE_WORDS:
        index_urls: tuple[str, ...] = ()
    else:
        index_urls = (values.get("index-url") or default_index(), *words("extra-index-url"))
    return Settings(
        index_urls=index_urls,
        find_links=words("find-links"),
        trusted_hosts=words("trusted-host"),
        cert=values.get("cert"),
        client_cert=values.get("client-cert"),
        proxy=values.get("proxy"),
        timeout=float(values.get("timeout") or values.get("default-timeout") or 15),
    )


def default_index() -> str:
    """The index that is used where none is configured."""
    return PackageFinder().sources[0]["url"]


def client(settings: Settings) -> PyPIClient:
    """An HTTP client that also reads file: URLs; credentials come from the URLs, netrc or the keyring."""
    try:
        verify = ssl.create_default_context(cafile=settings.cert) if settings.cert else True
    except OSError as error:
        raise Fail(f"the certificates that pip is configured with cannot be read: {settings.cert}: {error}") from None
    session = PyPIClient(
        trusted_hosts=settings.trusted_hosts,
        verify=verify,
        cert=settings.client_cert,
        proxy=settings.proxy,
        timeout=settings.timeout,
        follow_redirects=True,
    )
    session.auth = MultiDomainBasicAuth(index_urls=settings.index_urls)
    return session


def find(session: PyPIClient, settings: Settings, package: str, version: str, filename: str) -> list[Link]:
    """Links to exactly this file, in the order of the places that have it; Fail tells what there is instead."""
    if not settings.index_urls and not settings.find_links:
        raise Fail("pip is configured with no-index and without find-links: there is nowhere to fetch from")
    one = partial(PackageFinder, cast(Fetcher, session), ignore_compatibility=True)
    finders = [one(index_urls=[url]) for url in settings.index_urls]
    finders += [one(find_links=[place]) for place in settings.find_links if is_there(place)]
    found: list[Package] = []
    asked: list[str] = []
    silent: list[str] = []
    for finder in finders:
        place = Link(finder.sources[0]["url"]).redacted
        try:
            found += finder.find_all_packages(package, allow_yanked=True)
            asked.append(place)
        except httpx2.HTTPError as error:
            # As pip does: another place may have it.
            warn(f"{place} does not answer: {error}")
            silent.append(place)
    if links := [candidate.link for candidate in found if candidate.link.filename == filename]:
        return links
    versions = list(dict.fromkeys(str(candidate.version) for candidate in found))
    there = f"there are versions {', '.join(versions[:5])}" if versions else f"there is no {package} at all"
    unanswered = f"; no answer from {', '.join(silent)}" if silent else ""
    raise Fail(
        f"{filename} ({package} {version}) is not in the index: {there} in {', '.join(asked) or 'none'}{unanswered}"
    )


def is_there(place: str) -> bool:
    """False, with a warning as pip gives it, for a find-links folder that does not exist."""
    parts = urlsplit(place)
    if parts.scheme in ("http", "https") or (Link(place).file_path if parts.scheme == "file" else Path(place)).exists():
        return True
    warn(f"find-links names {place}, which does not exist")
    return False
