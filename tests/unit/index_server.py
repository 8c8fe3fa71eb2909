"""A package index on this machine that can fail in all the ways that matter."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote


@dataclass
class Answer:
    """How one request for the file is answered. Without any of these: as HTTP has it, ranges included."""

    body: bytes | None = None  # something else than the file
    die_after: int | None = None  # bytes, then the connection is gone though more was promised
    hold_after: int | None = None  # bytes, then nothing until the index's `release` is set
    ranges: bool = True


@dataclass
class Index:
    """The state of the server: what it has, how it will answer, what it was asked."""

    package: str
    filename: str
    data: bytes
    announced_sha256: str = ""
    credentials: str = ""
    answers: list[Answer] = field(default_factory=list)  # of the next requests for the file, in order
    asked: list[str] = field(default_factory=list)  # the Range header of each request for the file, or ""
    release: threading.Event = field(default_factory=threading.Event)
    held: threading.Event = field(default_factory=threading.Event)
    port: int = 0

    @property
    def url(self) -> str:
        login = f"{self.credentials}@" if self.credentials else ""
        return f"http://{login}127.0.0.1:{self.port}/simple/"


class Handler(BaseHTTPRequestHandler):
    index: Index

    def do_GET(self) -> None:
        path = unquote(self.path)
        wanted = base64.b64encode(self.index.credentials.encode()).decode()
        if self.index.credentials and self.headers.get("Authorization") != f"Basic {wanted}":
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="index"')
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif path == f"/simple/{self.index.package}/":
            self.send_page()
        elif path == f"/files/{self.index.filename}":
            self.send_file()
        else:
            self.send_error(404)

    def send_page(self) -> None:
        fragment = f"#sha256={self.index.announced_sha256}" if self.index.announced_sha256 else ""
        page = f'<!DOCTYPE html><a href="/files/{self.index.filename}{fragment}">{self.index.filename}</a>'.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def send_file(self) -> None:
        asked = self.headers.get("Range", "")
        answer = self.index.answers.pop(0) if self.index.answers else Answer()
        self.index.asked.append(asked)
        body = self.index.data if answer.body is None else answer.body
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and answer.ranges else 0
        if start >= len(body):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        self.send_body(answer, body[start:])

    def send_body(self, answer: Answer, body: bytes) -> None:
        if answer.die_after is not None:
            self.wfile.write(body[: answer.die_after])
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
        elif answer.hold_after is not None:
            self.wfile.write(body[: answer.hold_after])
            self.wfile.flush()
            self.index.held.set()
            self.index.release.wait(timeout=60)
            try:
                self.wfile.write(body[answer.hold_after :])
            except OSError:  # whom it was for has been killed meanwhile
                self.close_connection = True
        else:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serve(index: Index) -> Iterator[Index]:
    """The index, served until the end of the block."""
    handler = type("Handler", (Handler,), {"index": index})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        index.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield index
        finally:
            index.release.set()
            server.shutdown()
            thread.join()
