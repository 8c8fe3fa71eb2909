"""A program that serves, while a test talks to it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.build.programs import SECONDS, Program

PORTS = range(18400, 18500)


def free_port() -> int:
    for port in PORTS:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")


@contextmanager
def taken(port: int) -> Iterator[None]:
    """Somebody listens on this port, be it we."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
            listener.listen()
        except OSError:
            pass  # somebody does
        yield


class Running:
    """A program whose words on stderr and stdout are kept; it is killed if it runs at the end of the block."""

    def __init__(self, program: Program, *arguments: str | Path, **environment: str) -> None:
        self.said = ""
        self.silent = False  # from here on
        self.news = threading.Condition()
        self.process = subprocess.Popen(
            program.command(*arguments),
            env=program.environment(**environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.reader = threading.Thread(target=self.listen)
        self.reader.start()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.reader.join()

    def listen(self) -> None:
        assert self.process.stdout
        while data := os.read(self.process.stdout.fileno(), 1 << 16):
            with self.news:
                self.said += data.decode(errors="replace")
                self.news.notify_all()
        self.process.stdout.close()
        with self.news:
            self.silent = True
            self.news.notify_all()

    def until(self, text: str) -> None:
        """Wait until it has said this."""
        with self.news:
            while text not in self.said and not self.silent:
                assert self.news.wait(SECONDS), f"it has not said {text!r}:\n{self.said}"
        assert text in self.said, f"it ended before it said {text!r}:\n{self.said}"

    def end(self, seconds: float = SECONDS) -> int:
        code = self.process.wait(seconds)
        self.reader.join()
        return code


@contextmanager
def serving(program: Program, *arguments: str | Path, health: str = "/health", **environment: str) -> Iterator[str]:
    """The address of a server that is up; it is ended, and has to end by itself, at the end of the block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    with subprocess.Popen(
        program.command(*arguments, "--host", "127.0.0.1", "--port", port),
        env=program.environment(**environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            wait_until_up(f"http://127.0.0.1:{port}{health}", process)
            yield f"http://127.0.0.1:{port}"
            process.terminate()
            process.wait(SECONDS)
        finally:
            process.kill()


def wait_until_up(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the server ended with {process.returncode}"
        try:
            with urllib.request.urlopen(url):
                return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("the server did not come up")


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=SECONDS) as response:
        text: str = response.read().decode()
    return text


def post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=SECONDS) as response:
        answer: dict[str, Any] = json.load(response)
    return answer
