"""The build step of the web page, with scripts in the place of node and npm; tests/build has the real page."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tools import bootstrap, patch, ui
from tools.fail import Fail

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the programs here are shell scripts")

NPM = """\
echo "$*" >> {log}
case "$1" in
ci) test -f package.json && mkdir node_modules ;;
run) mkdir -p "$LLAMA_UI_OUT_DIR/_app" && cp src/page.html "$LLAMA_UI_OUT_DIR/index.html" \
    && echo "$LLAMA_BUILD_NUMBER" > "$LLAMA_UI_OUT_DIR/_app/version.json" ;;
esac
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LLAMAFILE_NUMA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(bootstrap.NO_BOOTSTRAP, "1")
    return tmp_path / "cache"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "native" / "tree"
    for name, text in {"package.json": "{}", "src/page.html": "<html>", "dist/index.html": "stale"}.items():
        file = folder / ui.SOURCES / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, *, node: str = "v20.19.0", npm: str | None = None) -> Path:
    """A search path with a node that says this version, and an npm; the file where each call of npm is noted."""
    log = folder / "npm.log"
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    for name, text in {"node": f"echo {node}", "npm": npm or NPM.format(log=log)}.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return log


def test_page_is_laid_into_the_tree(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = install(tmp_path, monkeypatch)
    ui.put(tree)
    made = patch.made(tree)
    assert sorted(file.relative_to(made).as_posix() for file in made.rglob("*.*")) == [
        "_app/version.json",
        "index.html",
    ]
    assert (made / "index.html").read_text() == "<html>"
    assert log.read_text() == "ci --no-audit --no-fund\nrun build\n"


def test_page_is_built_once_for_all_trees(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = install(tmp_path, monkeypatch)
    first = ui.page(tree)
    ui.put(tree)
    before = (patch.made(tree) / "index.html").stat().st_mtime_ns
    ui.put(tree)
    assert ui.page(tree) == first
    assert log.read_text().count("run build") == 1
    assert (patch.made(tree) / "index.html").stat().st_mtime_ns == before

    (tree / ui.SOURCES / "src" / "page.html").write_text("<html>2", encoding="utf-8")
    assert ui.page(tree) != first
    ui.put(tree)
    assert (patch.made(tree) / "index.html").read_text() == "<html>2"


def test_page_is_no_part_of_the_sources(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch)
    patch.Stamp("", patch.listing(tree)).write(tree)
    ui.put(tree)
    stamp = patch.read_stamp(tree)
    assert stamp
    assert patch.edits(tree, stamp) == []
    assert sorted(stamp.files) == ["tools/ui/package.json", "tools/ui/src/page.html"]


def test_sources_stay_as_they_are(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    install(tmp_path, monkeypatch)
    built = ui.page(tree)
    assert not (tree / ui.SOURCES / "node_modules").exists()
    assert [entry.name for entry in (cache / "ui").iterdir()] == [built.name]


@pytest.mark.parametrize(
    ("node", "says"),
    [("v18.20.4", "this is 18.20.4"), ("v20.18.9", "this is 20.18.9"), ("nonsense", "there is none"), ("", "none")],
)
def test_without_a_node_that_is_new_enough_it_goes_on(
    tree: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    node: str,
    says: str,
) -> None:
    install(tmp_path, monkeypatch, node=node)
    ui.put(tree)
    said = capsys.readouterr().err
    assert "needs Node.js 20.19 or newer" in said
    assert says in said
    assert "the server will have no web page" in said
    assert len(said.splitlines()) == 1
    assert not patch.made(tree).exists()  # one of other sources would be embedded


def test_node_without_npm_is_none(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch)
    (tmp_path / "programs" / "npm").unlink()
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))
    with pytest.raises(Fail, match="there is none"):
        ui.page(tree)


def test_node_of_the_package_index_is_taken(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch)
    programs = tmp_path / "programs"
    asked: list[list[str]] = []
    monkeypatch.delenv(bootstrap.NO_BOOTSTRAP)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(bootstrap, "ensure", asked.append)
    monkeypatch.setattr(bootstrap, "python", lambda: programs / "python")
    assert ui.node() == os.pathsep.join([str(programs), "/nowhere"])
    assert asked == [["node"]]


def test_index_without_node_is_told(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: list[str]) -> None:
        raise Fail("the index does not answer")

    monkeypatch.delenv(bootstrap.NO_BOOTSTRAP)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(bootstrap, "ensure", fail)
    with pytest.raises(Fail, match=r"needs Node\.js 20\.19 .*: the index does not answer"):
        ui.page(tree)


@pytest.mark.parametrize(
    ("npm", "says"),
    [
        ("echo 'the registry is away'; exit 7", r"npm ci failed \(exit 7\)"),
        ('test "$1" = ci || { echo "error TS2304"; exit 1; }', r"npm run failed \(exit 1\)"),
        ("true", "without an index.html"),
    ],
)
def test_npm_that_fails_leaves_nothing(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path, npm: str, says: str
) -> None:
    install(tmp_path, monkeypatch, npm=npm)
    with pytest.raises(Fail, match=says):
        ui.page(tree)
    assert list((cache / "ui").iterdir()) == []


def test_npm_has_its_say(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path, monkeypatch, npm="echo 'the registry is away'; exit 7")
    ui.put(tree)
    assert "the registry is away" in capsys.readouterr().err
