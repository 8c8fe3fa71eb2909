"""`fetch` against a real index: found, checked, resumed, locked; and nothing half left behind."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.index_server import Answer, Index, serve
from tests.unit.sample import FILENAME, PACKAGE, TREE, Project, listing, make_project
from tools import index as index_settings
from tools.index import Settings, parse_settings

PART = f"{FILENAME}.part"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project whose archive is large enough to be on its way for a while."""
    noise = random.Random(0).randbytes(400_000)
    project = make_project(tmp_path, extra={"src/noise.bin": noise})
    project.environment["PIP_FIND_LINKS"] = ""
    del project.environment["PIP_NO_INDEX"]
    return project


@pytest.fixture
def index(project: Project) -> Iterator[Index]:
    with serve(Index(PACKAGE, FILENAME, project.archive)) as served:
        project.environment["PIP_INDEX_URL"] = served.url
        yield served


def downloaded(project: Project) -> list[str]:
    """Exactly what lies in the download folder."""
    return listing(project.downloads)


def assert_complete(project: Project) -> None:
    assert downloaded(project) == [FILENAME]
    assert (project.downloads / FILENAME).read_bytes() == project.archive


# --- the usual ways --------------------------------------------------------------------------------------------------


def test_file_is_fetched_checked_and_its_path_printed(project: Project, index: Index) -> None:
    done = project.ok("fetch")
    assert done.stdout == f"{project.downloads / FILENAME}\n"
    assert_complete(project)


def test_second_run_asks_nobody(project: Project, index: Index) -> None:
    project.ok("fetch")
    done = project.ok("fetch")
    assert (index.asked, done.stderr) == ([""], "")


def test_damaged_file_in_the_cache_is_fetched_again(project: Project, index: Index) -> None:
    project.ok("fetch")
    damaged = bytearray(project.archive)
    damaged[1000] ^= 1
    (project.downloads / FILENAME).write_bytes(damaged)
    done = project.ok("fetch")
    assert "is damaged and will be fetched again" in done.stderr
    assert_complete(project)


def test_find_links_folder_is_enough(project: Project) -> None:
    project.environment |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(project.root.parent / "links")}
    project.ok("fetch")
    assert_complete(project)


def test_find_links_as_file_url(project: Project) -> None:
    project.environment |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": (project.root.parent / "links").as_uri()}
    project.ok("fetch")
    assert_complete(project)


def test_index_of_pips_configuration_file(project: Project, index: Index, tmp_path: Path) -> None:
    config = tmp_path / "pip.conf"
    config.write_text(f"[global]\nindex-url = {index.url}\n")
    del project.environment["PIP_INDEX_URL"]
    project.environment["PIP_CONFIG_FILE"] = str(config)
    project.ok("fetch")
    assert_complete(project)


def test_index_with_credentials_which_are_never_shown(project: Project, index: Index) -> None:
    index.credentials = "anna:geheim"
    project.environment["PIP_INDEX_URL"] = index.url
    project.ok("fetch")
    assert_complete(project)
    project.pin(filename="sample_llama-9.9.tar.gz", version="9.9")
    error = project.fails("fetch")
    assert "geheim" not in error


# --- another file than wanted ----------------------------------------------------------------------------------------


def test_other_size_is_refused_and_removed(project: Project, index: Index) -> None:
    shorter = project.archive[:-7]
    index.answers = [Answer(body=shorter)]
    error = project.fails("fetch")
    assert error == (f"error: {FILENAME}: wanted {len(project.archive)} bytes, got {len(shorter)}; it was removed")
    assert downloaded(project) == []


def test_longer_file_is_refused_and_removed(project: Project, index: Index) -> None:
    index.answers = [Answer(body=project.archive + b"more")]
    error = project.fails("fetch")
    assert f"wanted {len(project.archive)} bytes, got " in error
    assert downloaded(project) == []


def test_other_contents_are_refused_and_removed(project: Project, index: Index) -> None:
    other = project.archive[:-1] + bytes([project.archive[-1] ^ 1])
    index.answers = [Answer(body=other)]
    error = project.fails("fetch")
    wanted, got = (hashlib.sha256(data).hexdigest() for data in (project.archive, other))
    assert error == f"error: {FILENAME}: wanted sha256 {wanted}, got {got}; it was removed"
    assert downloaded(project) == []


def test_other_announced_sha256_is_refused_before_the_download(project: Project, index: Index) -> None:
    index.announced_sha256 = "0" * 64
    error = project.fails("fetch")
    assert error.endswith(f"the index has {'0' * 64}")
    assert index.asked == []


def test_missing_version_names_those_there_are(project: Project, index: Index) -> None:
    project.pin(filename="sample_llama-9.9.tar.gz", version="9.9")
    error = project.fails("fetch")
    assert error == (
        "error: sample_llama-9.9.tar.gz (sample-llama 9.9) is not in the index:"
        f" there are versions 1.2.3 in {index.url}"
    )


def test_missing_package(project: Project, index: Index) -> None:
    project.pin(package="nothing-like-it")
    assert "there is no nothing-like-it at all" in project.fails("fetch")


def test_nowhere_to_look(project: Project) -> None:
    project.environment["PIP_NO_INDEX"] = "1"
    assert "there is nowhere to fetch from" in project.fails("fetch")


def closed_port() -> str:
    """The URL of an index that has just gone: nobody listens there."""
    with serve(Index(PACKAGE, FILENAME, b"")) as gone:
        return gone.url


def test_index_that_does_not_answer(project: Project) -> None:
    url = closed_port()
    project.environment["PIP_INDEX_URL"] = url
    error = project.fails("fetch")
    assert error.endswith(f"there is no {PACKAGE} at all in none; no answer from {url}")


def test_one_of_two_indexes_does_not_answer(project: Project, index: Index) -> None:
    project.environment |= {"PIP_INDEX_URL": closed_port(), "PIP_EXTRA_INDEX_URL": index.url}
    done = project.ok("fetch")
    assert "does not answer" in done.stderr
    assert_complete(project)


# --- interrupted -----------------------------------------------------------------------------------------------------


def test_broken_connection_goes_on_where_it_broke(project: Project, index: Index) -> None:
    index.answers = [Answer(die_after=100_000), Answer(die_after=50_000)]
    project.ok("fetch")
    assert index.asked == ["", "bytes=100000-", "bytes=150000-"]
    assert_complete(project)


def test_dead_server_leaves_a_part_that_the_next_run_completes(project: Project, index: Index) -> None:
    index.answers = [Answer(die_after=100_000), *[Answer(die_after=0)] * 3]
    error = project.fails("fetch")
    assert "; 100.0 kB of " in error
    assert error.endswith(" are kept; run again to go on")
    assert downloaded(project) == [PART]
    project.ok("fetch")
    assert index.asked[-1] == "bytes=100000-"
    assert_complete(project)


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_run_is_resumed(project: Project, index: Index, signal_number: int) -> None:
    index.answers = [Answer(hold_after=100_000)]
    process = project.start("fetch")
    wait_for_part(project, 100_000)
    process.send_signal(signal_number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "Traceback" not in stderr
    assert downloaded(project) == [PART]
    project.ok("fetch")
    assert index.asked == ["", "bytes=100000-"]
    assert_complete(project)


def wait_for_part(project: Project, size: int) -> None:
    part = project.downloads / PART
    deadline = time.monotonic() + 60
    while not part.exists() or part.stat().st_size < size:
        assert time.monotonic() < deadline, "the download does not start"
        time.sleep(0.02)


def leave_part(project: Project, data: bytes) -> None:
    project.downloads.mkdir(parents=True)
    (project.downloads / PART).write_bytes(data)


def test_server_without_ranges_starts_over(project: Project, index: Index) -> None:
    leave_part(project, project.archive[:1000])
    index.answers = [Answer(ranges=False)]
    project.ok("fetch")
    assert index.asked == ["bytes=1000-"]
    assert_complete(project)


def test_part_of_another_file_starts_over_once(project: Project, index: Index) -> None:
    leave_part(project, b"x" * 1000)
    done = project.ok("fetch")
    assert "does not fit" in done.stderr
    assert index.asked == ["bytes=1000-", ""]
    assert_complete(project)


def test_part_that_is_whole_but_wrong_starts_over_once(project: Project, index: Index) -> None:
    leave_part(project, b"x" * len(project.archive))
    project.ok("fetch")
    assert index.asked == [""]
    assert_complete(project)


def test_part_that_is_whole_needs_no_request(project: Project, index: Index) -> None:
    leave_part(project, project.archive)
    project.ok("fetch")
    assert index.asked == []
    assert_complete(project)


def test_part_that_is_too_long_starts_over(project: Project, index: Index) -> None:
    leave_part(project, project.archive + b"more")
    project.ok("fetch")
    assert index.asked == [""]
    assert_complete(project)


def test_resumed_from_a_server_with_a_shorter_file(project: Project, index: Index) -> None:
    leave_part(project, project.archive[:5000])
    index.answers = [Answer(body=project.archive[:4000]), Answer(body=project.archive[:4000])]
    error = project.fails("fetch")
    assert f"wanted {len(project.archive)} bytes, got 4000" in error
    assert downloaded(project) == []


# --- two at once -----------------------------------------------------------------------------------------------------


def test_two_at_once_fetch_once(project: Project, index: Index) -> None:
    index.answers = [Answer(hold_after=100_000)]
    first = project.start("fetch")
    assert index.held.wait(timeout=60)
    second = project.start("fetch")
    assert second.stderr is not None
    assert second.stderr.readline() == f"waiting for another run that fetches {FILENAME}\n"
    index.release.set()
    for process in (first, second):
        stdout, _ = process.communicate(timeout=60)
        assert (process.returncode, stdout) == (0, f"{project.downloads / FILENAME}\n")
    assert index.asked == [""]
    assert_complete(project)


def test_two_at_once_prepare_once(project: Project, index: Index) -> None:
    index.answers = [Answer(hold_after=100_000)]
    first = project.start("patch")
    assert index.held.wait(timeout=60)
    second = project.start("patch")
    assert second.stderr is not None
    assert second.stderr.readline() == "waiting for another run that prepares native\n"
    index.release.set()
    assert [process.wait(timeout=60) for process in (first, second)] == [0, 0]
    assert second.stderr.read() == ""
    assert listing(project.root / "build") == [f"native/tree/{path}" for path in sorted([*TREE, "src/noise.bin"])]


# --- how pip is configured -------------------------------------------------------------------------------------------


def test_settings_as_pip_would_use_them() -> None:
    listing = (
        ":env:.find-links='/links /more'\n"
        ":env:.timeout='60'\n"
        "download.index-url='https://special.example/simple'\n"
        "global.cert='/etc/ca.pem'\n"
        "global.extra-index-url='file:///one\\nfile:///two'\n"
        "global.index-url='https://usual.example/simple'\n"
        "global.timeout='5'\n"
        "global.trusted-host='a.example b.example'\n"
        "install.index-url='https://other.example/simple'\n"
    )
    assert parse_settings(listing) == Settings(
        index_urls=("https://special.example/simple", "file:///one", "file:///two"),
        find_links=("/links", "/more"),
        trusted_hosts=("a.example", "b.example"),
        cert="/etc/ca.pem",
        timeout=60.0,
    )


def test_no_index_leaves_no_index() -> None:
    listing = ":env:.no-index='on'\nglobal.index-url='https://usual.example'\nglobal.extra-index-url='file:///one'\n"
    assert parse_settings(listing).index_urls == ()


def test_settings_come_from_pip_itself(tmp_path: Path) -> None:
    """The environment goes before the file, as with pip."""
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nindex-url = https://file.example/simple\nfind-links =\n    /a\n    /b\n")
    code = "from tools.index import pip_settings as p; s = p(); print(s.index_urls, s.find_links, s.timeout)"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PIP_")}
    environment |= {"PIP_CONFIG_FILE": str(config), "PIP_INDEX_URL": "https://env.example/simple", "PIP_TIMEOUT": "7"}
    root = Path(index_settings.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, env=environment, capture_output=True, text=True, check=True
    )
    assert "'https://env.example/simple'" in done.stdout
    assert "'https://file.example/simple'" not in done.stdout
    assert done.stdout.endswith("('/a', '/b') 7.0\n")
