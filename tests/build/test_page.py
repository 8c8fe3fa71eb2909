"""The server's web page in a real browser, and the verdict in what the server says of itself."""

from __future__ import annotations

import json
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.build.programs import SECONDS, Program
from tests.build.servers import serving
from tools import models
from tools.paths import BUILD

SCREENSHOT = BUILD / "page.png"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
# As root and without a display, and never a word to anyone but the server.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
MILLISECONDS = 1000 * SECONDS

# The real model completes texts and was not taught to chat: what is typed is the text it goes on with.
PLAIN = "{% for message in messages %}{{ message.content }}{% endfor %}"
PROMPT = "Paris is the capital and most populous city of"
ANSWER = '[aria-label="Assistant message with actions"]'

# Keeps each text that the answer has had.
WATCH = """
selector => {
    window.seen = [];
    const look = () => {
        const text = document.querySelector(selector)?.innerText ?? "";
        if (text !== window.seen.at(-1)) window.seen.push(text);
    };
    new MutationObserver(look).observe(document.body, {subtree: true, childList: true, characterData: true});
}
"""


def get(url: str) -> tuple[int, Any, str]:
    """Status, headers and text of an answer."""
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as response:
            return response.status, response.headers, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


# --- the verdict -----------------------------------------------------------------------------------------------------


def test_numa_metrics_and_props_say_what_the_report_says(ours: Program, node: str, model: Path, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    flags = ("--server", "--numa-node", node, "--numa-report", file, "-m", model, "-c", "256", "--metrics")
    with serving(ours, *flags) as url:
        report = json.loads(file.read_text(encoding="utf-8"))
        status, headers, text = get(f"{url}/numa")
        _, _, props = get(f"{url}/props")
        _, kind, metrics = get(f"{url}/metrics")
    assert (status, headers.get_content_type(), json.loads(text)) == (200, "application/json", report)
    assert json.loads(props)["numa"] == report
    assert json.loads(props)["total_slots"] > 0
    assert kind.get_content_type() == "text/plain"
    assert "llamacpp:prompt_tokens_total" in metrics
    for region in report["regions"]:
        for place in ("on_node", "elsewhere", "not_resident"):
            sample = f'llamafile_numa_pages{{region="{region["name"]}",place="{place}"}} {region[place]}'
            assert metrics.splitlines().count(sample) == 1
    assert f'llamafile_numa_ok{{node="{node}"}} 1' in metrics.splitlines()


def test_numa_without_a_node(ours: Program, model: Path) -> None:
    with serving(ours, "--server", "--numa-node", "none", "-m", model, "-c", "256", "--metrics") as url:
        status, _, text = get(f"{url}/numa")
        _, _, metrics = get(f"{url}/metrics")
    report = json.loads(text)
    assert (status, report["node"], report["ok"], report["regions"]) == (200, None, None, [])
    assert "no node was asked for" in report["policy_note"]
    assert "llamacpp:prompt_tokens_total" in metrics
    assert "llamafile_numa" not in metrics


def test_key_is_asked_for(ours: Program, node: str, model: Path) -> None:
    with serving(ours, "--server", "--numa-node", node, "-m", model, "-c", "256", "--api-key", "secret") as url:
        assert get(f"{url}/numa")[0] == 401
        request = urllib.request.Request(f"{url}/numa", headers={"Authorization": "Bearer secret"})
        with urllib.request.urlopen(request) as response:
            assert json.load(response)["node"] == int(node)


def test_prefix_goes_before_it_and_metrics_have_to_be_asked_for(ours: Program, node: str, model: Path) -> None:
    flags = ("--server", "--numa-node", node, "-m", model, "-c", "256", "--api-prefix", "/llm")
    with serving(ours, *flags, health="/llm/health") as url:
        assert json.loads(get(f"{url}/llm/numa")[2])["node"] == int(node)
        status, _, text = get(f"{url}/llm/metrics")
    assert status == 501
    assert "llamafile_numa" not in text


def test_router_passes_the_question_on(ours: Program, node: str, model: Path, tmp_path: Path) -> None:
    """Without a model the server is a router, whose children load models; each has a verdict of its own."""
    (tmp_path / "tiny.gguf").symlink_to(model)
    flags = ("--server", "--numa-node", node, "--models-dir", tmp_path, "-c", "256", "--metrics")
    with serving(ours, *flags, LLAMA_APP_CMD="server") as url:
        report = json.loads(get(f"{url}/numa?model=tiny")[2])
        assert json.loads(get(f"{url}/props?model=tiny")[2])["numa"] == report
        assert get(f"{url}/metrics?model=tiny")[2].count("llamafile_numa_ok{") == 1
        assert get(f"{url}/numa")[0] == 400  # which model?
    assert (report["node"], report["ok"]) == (int(node), True)


def test_server_ends_while_a_stream_has_lost_its_reader(ours: Program, node: str, model: Path) -> None:
    """As a page that is closed leaves it: the stream goes on, for a reader who comes back."""
    with serving(ours, "--server", "--numa-node", node, "-m", model, "-c", "8192", "-np", "1") as url:
        body = {"prompt": "one", "n_predict": -1, "ignore_eos": True, "stream": True}
        headers = {"Content-Type": "application/json", "X-Conversation-Id": "closed"}
        request = urllib.request.Request(f"{url}/v1/completions", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request) as response:
            assert response.readline().startswith(b"data: ")
        asked = time.monotonic()
    assert time.monotonic() - asked < 10


# --- the page --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = next((path for name in CHROMIUM if (path := shutil.which(name))), None)
    if program is None:
        pytest.skip("no Chromium: python3 -m tools setup --system")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1000, "height": 640})
    page.set_default_timeout(MILLISECONDS)
    yield page
    page.close()


@pytest.mark.real_model
def test_page_streams_an_answer(ours: Program, node: str, page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    flags = ("--server", "--numa-node", node, "-m", models.real_model(), "-c", "2048", "-t", "1", "--temp", "0", "-n", "40")
    with serving(ours, *flags, "--alias", "gemma-3-270m", "--jinja", "--chat-template", PLAIN) as url:
        page.goto(url)
        page.evaluate(WATCH, ANSWER)
        box = page.get_by_role("textbox").first
        box.fill(PROMPT)
        box.press("Enter")
        answer = page.locator(ANSWER)
        expect(answer).to_contain_text("France", timeout=MILLISECONDS)
        expect(page.get_by_role("button", name="Stop")).to_have_count(0, timeout=MILLISECONDS)
        page.screenshot(path=SCREENSHOT)
        seen = page.evaluate("window.seen")

        # The page has a service worker by now, which must leave the server's own addresses alone.
        page.goto(f"{url}/numa")
        assert json.loads(page.inner_text("body"))["node"] == int(node)
    assert len(seen) > 10  # word by word, not all at once
    assert [one for one in asked if not one.startswith((url, "data:", "blob:"))] == []
