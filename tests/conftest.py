"""What all tests share: a skip that counts as a failure where nothing may be left out, and the built programs."""

from __future__ import annotations

import signal
from collections.abc import Generator
from pathlib import Path

import pytest

from tools import build, models, pack


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", action="store_true", help="a test that is skipped fails")


def pytest_configure() -> None:
    """Let programs hear signals that nohup or a shell has had ignored: it is inherited, and ours would heed it."""
    for name in ("SIGINT", "SIGHUP"):
        number = getattr(signal, name, None)
        if number and signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL)


def fail_if_skipped(report: pytest.TestReport | pytest.CollectReport, config: pytest.Config) -> None:
    if report.skipped and not hasattr(report, "wasxfail") and config.getoption("--no-skips"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{reason}\nNothing may be skipped here (--no-skips)."


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    fail_if_skipped(report, item.config)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    fail_if_skipped(report, collector.config)
    return report


@pytest.fixture(scope="session")
def program() -> Path:
    """Our program, built for this machine."""
    return build.build("native")


@pytest.fixture(scope="session")
def upstream() -> Path:
    """Unpatched llama.cpp, built with the same options."""
    return build.build("upstream")


@pytest.fixture(scope="session")
def model() -> Path:
    """A synthetic model of a few megabytes."""
    return models.synthetic_model()


@pytest.fixture(scope="session")
def packed(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in an archive that brings no arguments but the model."""
    target = tmp_path_factory.mktemp("packed") / "x.llamafile"
    pack.pack([model], [], target)
    return target
