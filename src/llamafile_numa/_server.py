"""A server as a context manager."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from llamafile_numa import find_bin
from llamafile_numa._report import Report

EXIT_STRICT = 3  # of the program: --numa-strict, and something is not on the node
STOP_SECONDS = 10  # after which a server that was asked to end is killed
LAST_WORDS = 12  # lines

# Flags that Server gives itself, and what to say instead.
OWN_FLAGS = {"--port": "port=", "--host": "host=", "--numa-node": "node=", "--numa-report": "the attribute report"}
WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class ServerError(Exception):
    """A server did not start, or it ended. `code` is its exit code (None while it runs), `words` the end of its log."""

    def __init__(self, message: str, code: int | None, words: str) -> None:
        super().__init__(f"{message}:\n{words}" if words else message)
        self.code = code
        self.words = words


class NotOnNodeError(ServerError):
    """`strict` was asked for, and something is not on the node. `report` says what; None if it could not be read."""

    report: Report | None = None


class ServerTimeoutError(ServerError):
    """A server was not ready in time; it was ended."""


class Server:
    """The program's server with one model, on one NUMA node.

    Entering starts it and returns once it answers; leaving ends it. It also ends when this process dies.

    model      a GGUF file
    node       the node's number as `nodes()` lists it, "auto", "none", or None for what the program does by itself
    host, port where it listens; port 0 stands for a free one
    weights    "auto", "map" or "copy"
    strict     raise NotOnNodeError instead of serving with something elsewhere
    arguments  further flags of llama.cpp's server
    timeout    seconds until it has to answer
    log        a file to append what it says to; without one it is kept for the message of an error only
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        node: int | str | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        weights: str | None = None,
        strict: bool = False,
        arguments: Sequence[str] = (),
        timeout: float = 600.0,
        log: str | os.PathLike[str] | None = None,
    ) -> None:
        for argument in arguments:
            flag = argument.partition("=")[0].replace("_", "-")
            if flag in OWN_FLAGS:
                raise ValueError(f"{flag} does not belong into arguments: use {OWN_FLAGS[flag]} of Server")
        self.model = os.fspath(model)
        self.node = node
        self.host = host
        self.port = port
        self.weights = weights
        self.strict = strict
        self.arguments = tuple(arguments)
        self.timeout = timeout
        self.log = log
        self._run: _Run | None = None

    @property
    def url(self) -> str:
        """Where it answers, without a slash at the end. The OpenAI-compatible API is below /v1."""
        return self._running().url

    @property
    def report(self) -> Report:
        """What was seen once the model was loaded."""
        return self._running().report

    @property
    def pid(self) -> int:
        return self._running().process.pid

    def start(self) -> Server:
        """Start it and wait until it answers. Raises ServerError, and leaves nothing behind, if it does not."""
        if self._run:
            raise RuntimeError("this server runs already")
        try:
            run = _Run(self)
        except OSError as error:
            raise ServerError(f"the server cannot be started: {error}", None, "") from error
        try:
            run.wait_until_ready(self.timeout)
        except BaseException:
            run.stop()
            raise
        self._run = run
        return self

    def stop(self) -> None:
        """End it, and wait for that. Does nothing if it does not run."""
        run, self._run = self._run, None
        if run:
            run.stop()

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _running(self) -> _Run:
        if not self._run:
            raise RuntimeError("this server does not run; use it in a with statement, or call start()")
        return self._run

    def _command(self, port: int, report: Path) -> list[str]:
        command = [find_bin(), "--server", "-m", self.model, "--host", self.host, "--port", str(port)]
        command += ["--numa-report", str(report)]
        command += ["--numa-node", str(self.node)] if self.node is not None else []
        command += ["--numa-weights", self.weights] if self.weights is not None else []
        command += ["--numa-strict"] if self.strict else []
        return [*command, *self.arguments]


class _Run:
    """One process of a server, with its temporary files."""

    def __init__(self, server: Server) -> None:
        self.strict = server.strict
        self.host = WILDCARDS.get(server.host, server.host)
        self.port = server.port or free_port(server.host)
        self.report: Report  # once it is ready
        self.folder = tempfile.TemporaryDirectory(prefix="llamafile-numa-")
        self.report_file = Path(self.folder.name, "report.json")
        self.log_file = Path(server.log) if server.log is not None else Path(self.folder.name, "log")
        try:
            with self.log_file.open("ab") as log:
                self.log_start = log.tell()
                self.process = subprocess.Popen(
                    server._command(self.port, self.report_file),
                    env={**os.environ, "LLAMAFILE_NUMA_EXIT_WITH_PARENT": str(os.getpid())},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    # Ctrl-C is for this process, which then ends the server.
                    start_new_session=True,
                    creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
                )
        except BaseException:
            self.folder.cleanup()
            raise

    @property
    def url(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def wait_until_ready(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        pause = 0.02
        while not self.ready():
            if self.process.poll() is not None:
                raise self.death(self.process.returncode)
            if time.monotonic() >= deadline:
                raise ServerTimeoutError(f"the server was not ready after {timeout:g} s", None, self.last_words())
            time.sleep(pause)
            pause = min(2 * pause, 0.5)

    def ready(self) -> bool:
        """Whether it has written its report, which tells it from a stranger on the same port, and answers."""
        report = self.read_report()
        if not report or not self.answers():
            return False
        self.report = report
        return True

    def read_report(self) -> Report | None:
        try:
            return Report.from_json(self.report_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):  # not there yet, or half written
            return None

    def answers(self) -> bool:
        # Not urllib, which would ask a proxy.
        connection = http.client.HTTPConnection(self.host, self.port, timeout=5)
        try:
            connection.request("GET", "/health")
            # Any answer but "loading": with --api-prefix in the arguments there is no /health here.
            return connection.getresponse().status != http.client.SERVICE_UNAVAILABLE
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def death(self, code: int) -> ServerError:
        if code == EXIT_STRICT and self.strict:
            error = NotOnNodeError("not everything is on the NUMA node", code, self.last_words())
            error.report = self.read_report()
            return error
        return ServerError(f"the server ended with exit code {code}", code, self.last_words())

    def last_words(self) -> str:
        try:
            with self.log_file.open("rb") as log:
                log.seek(self.log_start)
                lines = log.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        return "\n".join([line for line in lines if line.strip()][-LAST_WORDS:])

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.folder.cleanup()


def free_port(host: str) -> int:
    """A port of this host that nobody listens on now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
