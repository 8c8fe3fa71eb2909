"""What `llamafile_numa.Server` makes of a program: here a script is in its place, in tests/build it is the real one."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

import llamafile_numa
from llamafile_numa import NotOnNodeError, Region, Report, Server, ServerError, ServerTimeoutError
from llamafile_numa import _server as module

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the programs here are scripts")

REPORT: dict[str, Any] = {
    "schema": 1,
    "requested": "1",
    "node": 1,
    "how": "flag",
    "policy": "bind",
    "policy_note": "",
    "weights_mode": "map",
    "threads": {"workers": 2, "bound": 1},
    "regions": [{"name": "kv", "bytes": 8192, "checked": 2, "on_node": 1, "elsewhere": 1, "not_resident": 0}],
    "look_ms": 1.5,
    "ok": False,
}

# The program's stand-in: {body} has the arguments as `flags`, a dictionary.
PROGRAM = """\
#!{python}
import http.server, os, signal, sys, time
flags = dict(zip(sys.argv[2::2], sys.argv[3::2]))
report = flags["--numa-report"]
def write(text):
    with open(report, "w") as file:
        file.write(text)
class Handler(http.server.BaseHTTPRequestHandler):
    status = 200
    def do_GET(self):
        self.send_response(Handler.status)
        self.end_headers()
    def log_message(self, *_):
        pass
def serve():
    http.server.HTTPServer((flags["--host"], int(flags["--port"])), Handler).serve_forever()
{body}
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """program(body): from now on the package has this program. Its temporary files are in tmp_path / "temp"."""
    (tmp_path / "temp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temp"))
    monkeypatch.setattr(llamafile_numa, "__path__", [str(tmp_path)])

    def put(body: str) -> None:
        file = tmp_path / "bin" / "llamafile-numa"
        file.parent.mkdir(exist_ok=True)
        file.write_text(PROGRAM.format(python=sys.executable, body=body), encoding="utf-8")
        file.chmod(0o755)

    yield put
    assert list((tmp_path / "temp").iterdir()) == []


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# --- the way it should go --------------------------------------------------------------------------------------------


def test_arguments_and_environment(program: Any, tmp_path: Path) -> None:
    program(f"""
import json
with open({str(tmp_path / "seen")!r}, "w") as file:
    json.dump([sys.argv[1:], os.environ["LLAMAFILE_NUMA_EXIT_WITH_PARENT"], os.getsid(0) == os.getpid()], file)
write({json.dumps(REPORT)!r})
serve()
""")
    with Server(Path("a model"), 1, weights="copy", arguments=["-c", "256"], strict=True) as server:
        arguments, with_parent, own_session = json.loads((tmp_path / "seen").read_text())
    port = arguments[arguments.index("--port") + 1]
    assert server.port == 0
    report = arguments[arguments.index("--numa-report") + 1]
    assert arguments == [
        *("--server", "-m", "a model", "--host", "127.0.0.1", "--port", port, "--numa-report", report),
        *("--numa-node", "1", "--numa-weights", "copy", "--numa-strict", "-c", "256"),
    ]
    assert with_parent == str(os.getpid())
    assert own_session


def test_report_is_typed(program: Any) -> None:
    program(f"write({json.dumps(REPORT)!r})\nserve()")
    with Server("m", 1) as server:
        report = server.report
    assert report["kv"] == Region("kv", 8192, 2, 1, 1, 0)
    assert (report.node, report.threads.bound, report.ok, report.look_ms) == (1, 1, False, 1.5)
    with pytest.raises(KeyError):
        report["weights"]
    assert hash(report)


def test_ready_is_both_a_whole_report_and_an_answer(program: Any) -> None:
    """A report half written, an answer that says "loading": neither is enough."""
    program(f"""
import threading
Handler.status = 503
write({json.dumps(REPORT)[:40]!r})
def later():
    time.sleep(0.3)
    write({json.dumps(REPORT)!r})
    time.sleep(0.3)
    Handler.status = 200
threading.Thread(target=later).start()
serve()
""")
    began = time.monotonic()
    with Server("m", 1) as server:
        assert time.monotonic() - began >= 0.6
        assert server.report.node == 1


def test_can_be_started_again(program: Any) -> None:
    program(f"write({json.dumps(REPORT)!r})\nserve()")
    server = Server("m", 1)
    for _ in range(2):
        with server:
            assert server.url.startswith("http://127.0.0.1:")
            with pytest.raises(RuntimeError, match="runs already"):
                server.start()
        with pytest.raises(RuntimeError, match="does not run"):
            _ = server.url
    server.stop()


def test_log_is_appended(program: Any, tmp_path: Path) -> None:
    program(f"print('loading', flush=True)\nwrite({json.dumps(REPORT)!r})\nserve()")
    log = tmp_path / "log"
    for _ in range(2):
        with Server("m", log=log):
            pass
    assert log.read_text() == "loading\nloading\n"


# --- and how it can go wrong -----------------------------------------------------------------------------------------


def test_death_is_one_exception_with_its_last_words(program: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("of another run\n")
    program(
        "print('\\n'.join(f'line {i}\\n' for i in range(40)))\nprint('no such model', file=sys.stderr)\nsys.exit(1)"
    )
    with pytest.raises(ServerError) as caught:
        Server("m", log=log).start()
    assert caught.value.code == 1
    assert caught.value.words.splitlines()[-2:] == ["line 39", "no such model"]
    assert len(caught.value.words.splitlines()) == module.LAST_WORDS
    assert str(caught.value) == f"the server ended with exit code 1:\n{caught.value.words}"
    assert not isinstance(caught.value, NotOnNodeError)


def test_death_without_words(program: Any) -> None:
    program("os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(ServerError, match=r"^the server ended with exit code -9$"):
        Server("m").start()


def test_strict_has_an_exception_of_its_own_with_the_report(program: Any) -> None:
    program(f"write({json.dumps(REPORT)!r})\nprint('error: --numa-strict: ...')\nsys.exit(3)")
    with pytest.raises(NotOnNodeError, match="--numa-strict") as caught:
        Server("m", 1, strict=True).start()
    assert caught.value.report == Report.from_json(json.dumps(REPORT))


@pytest.mark.parametrize("given", [{"log": "no/such/folder/log"}, {"host": "no such host"}], ids=str)
def test_what_cannot_even_be_tried_is_the_same_exception(program: Any, given: dict[str, Any]) -> None:
    program("serve()")
    with pytest.raises(ServerError, match="cannot be started"):
        Server("m", **given).start()


def test_code_of_strict_means_nothing_else_without_it(program: Any) -> None:
    program("sys.exit(3)")
    with pytest.raises(ServerError, match="exit code 3") as caught:
        Server("m", 1).start()
    assert not isinstance(caught.value, NotOnNodeError)


def test_time_is_limited(program: Any, tmp_path: Path) -> None:
    program(
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\nprint('loading', flush=True)\ntime.sleep(99)"
    )
    with pytest.raises(ServerTimeoutError, match="not ready after 1 s:\nloading"):
        Server("m", timeout=1).start()
    assert not is_running(int((tmp_path / "pid").read_text()))


def test_stranger_on_the_port_is_not_taken_for_it(program: Any) -> None:
    program("serve()")  # answers, but writes no report
    with pytest.raises(ServerTimeoutError):
        Server("m", timeout=1).start()


def test_one_that_does_not_end_is_killed(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STOP_SECONDS", 0.2)
    program(f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwrite({json.dumps(REPORT)!r})\nserve()")
    with Server("m") as server:
        pid = server.pid
    assert not is_running(pid)


@pytest.mark.parametrize("flag", ["--port", "--host", "--numa-node=1", "--numa_report"])
def test_flags_that_it_gives_itself_are_refused(flag: str) -> None:
    with pytest.raises(ValueError, match="does not belong into arguments"):
        Server("m", arguments=[flag, "1"])


def test_without_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(llamafile_numa, "__path__", [str(tmp_path)])
    with pytest.raises(ServerError, match="looked at"):
        Server("m").start()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "[]", '{"schema":2}', "{"])
def test_no_report(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Report.from_json(text)


def test_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Serve'"):
        _ = llamafile_numa.Serve  # type: ignore[attr-defined]


def test_all_names_are_there() -> None:
    assert all(getattr(llamafile_numa, name) for name in llamafile_numa.__all__)
