"""The bench verb with the real programs and a small model: what runs, not how fast."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tools import bench, build
from tools.__main__ import Parser
from tools.bench import identity, measure, plan
from tools.bench.plan import Job, Variant
from tools.fail import Fail


def test_both_programs_have_the_same_features(program: Path, upstream: Path, model: Path) -> None:
    ours, theirs = identity.identify(program, model), identity.identify(upstream, model)
    assert "LLAMAFILE = 1" in ours.features
    identity.compare(theirs, ours)


@pytest.mark.parametrize(
    ("name", "mode"), [("upstream", {None}), ("no flag", {None}), ("map", {"map", "moved"}), ("copy", {"copy"})]
)
def test_sample(name: str, mode: set[str | None], program: Path, upstream: Path, model: Path) -> None:
    (variant,) = (one for one in plan.variants(0) if one.name == name)
    seen = measure.sample(upstream if variant.flavour == "upstream" else program, variant, Job(model, 16, 4))
    assert min(seen.prompt, seen.generation, seen.load) > 0
    assert seen.threads > 0
    assert seen.weights_mode in mode
    if sys.platform == "linux":
        assert seen.memory.total is not None
        assert seen.memory.total > model.stat().st_size


def test_program_that_refuses(program: Path, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    variant = Variant("map", "native", ("--numa-node", "4095"))
    with pytest.raises(Fail, match=r"^map: bench ended with exit code 2"):
        measure.sample(program, variant, Job(model, 16, 4))
    assert "4095" in capsys.readouterr().err


@pytest.mark.usefixtures("program", "upstream")
def test_verb(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser = Parser()
    bench.register(parser.add_subparsers())
    figures = tmp_path / "figures.json"
    words = ["bench", "--rounds", "2", "--model", str(model), "--prompt", "16", "--generate", "4", "--markdown"]
    assert bench.run(parser.parse_args([*words, "--json", str(figures)])) == 0

    content = json.loads(figures.read_text(encoding="utf-8"))
    (measured,) = content["models"]
    assert measured["file"] == model.name
    assert [sorted(samples) for samples in measured["rounds"]] == [["copy", "map", "no flag", "upstream"]] * 2
    assert measured["summary"]["upstream"]["prompt"]["ratio"]["median"] == 1
    told = capsys.readouterr().out
    assert f"### {model.name}" in told
    for name in build.FLAVOURS["native"][1], str(tmp_path), str(model.parent):
        assert name not in told
