"""The pin is read strictly: each error names the file and the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.sample import Project, make_project
from tools import pin
from tools.fail import Fail


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path)


def load(project: Project) -> pin.Pin:
    return pin.load(project.root / "vendor" / "llama.cpp.toml")


def test_valid_pin(project: Project) -> None:
    loaded = load(project)
    assert (loaded.package, loaded.size, loaded.include) == (
        "sample-llama",
        len(project.archive),
        ("CMakeLists.txt", "LICENSE", "src"),
    )


def test_our_own_pin_is_valid() -> None:
    assert pin.load().upstream == "ggml-org/llama.cpp"


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("package", "no name", "the name of a package"),
        ("version", "latest", "a version"),
        ("filename", "../up.tar.gz", "the name of a .tar.gz file"),
        ("filename", "a.zip", "the name of a .tar.gz file"),
        ("size", 0, "a number of bytes above 0"),
        ("size", "12", "a number of bytes above 0"),
        ("sha256", "A" * 64, "64 lower-case hexadecimal digits"),
        ("sha256", "a" * 63, "64 lower-case hexadecimal digits"),
        ("subfolder", "/abs", "a relative path inside the archive"),
        ("subfolder", "a/../b", "a relative path inside the archive"),
        ("subfolder", "a\\b", "a relative path inside the archive"),
        ("upstream", "llama.cpp", "of the form owner/repository"),
        ("commit", "main", "7 to 40 lower-case hexadecimal digits"),
        ("license", "", "an SPDX licence expression"),
        ("include", [], "a list of different relative paths"),
        ("include", ["src", "src"], "a list of different relative paths"),
        ("include", ["../src"], "a list of different relative paths"),
    ],
)
def test_invalid_value(project: Project, key: str, value: object, wanted: str) -> None:
    project.pin(**{key: value})
    with pytest.raises(Fail) as failure:
        load(project)
    assert str(failure.value) == f"llama.cpp.toml: {key} = {value!r} is not {wanted}"


def test_missing_key(project: Project) -> None:
    file = project.root / "vendor" / "llama.cpp.toml"
    lines = [line for line in file.read_text().splitlines() if not line.startswith("sha256")]
    file.write_text("\n".join(lines))
    with pytest.raises(Fail, match=r"^llama\.cpp\.toml: key 'sha256' is missing$"):
        load(project)


def test_unknown_key(project: Project) -> None:
    project.pin(checksum="x")
    with pytest.raises(Fail, match=r"^llama\.cpp\.toml: unknown key 'checksum'; there are: package, version, "):
        load(project)


def test_no_toml(project: Project) -> None:
    (project.root / "vendor" / "llama.cpp.toml").write_text("size = = 1")
    assert project.fails("fetch").startswith("error: llama.cpp.toml: ")


def test_no_pin(project: Project) -> None:
    (project.root / "vendor" / "llama.cpp.toml").unlink()
    assert "llama.cpp.toml" in project.fails("patch")
