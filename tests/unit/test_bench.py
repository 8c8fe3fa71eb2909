"""The bench verb: what it reads from programs and the system, in which order it measures, what it makes of it."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from pathlib import Path

import pytest

from tools import bench
from tools.bench import identity, machine, measure, memory, plan, report, stats
from tools.bench.identity import Identity
from tools.bench.measure import Sample
from tools.bench.memory import Memory
from tools.bench.plan import Job, Variant
from tools.bench.report import Report, Result
from tools.fail import Fail

# As `bench -p 64 -n 8 -r 1 -o json` prints it, less most of the fields that are not read.
BENCH_OUTPUT = """[
  {
    "build_commit": "0c1e57098",
    "model_type": "gemma3 270M Q4_K - Medium",
    "model_size": 246587904,
    "n_batch": 2048,
    "n_threads": 2,
    "n_prompt": 64,
    "n_gen": 0,
    "avg_ns": 1188471023,
    "stddev_ns": 0,
    "avg_ts": 53.850703,
    "stddev_ts": 0.000000,
    "samples_ns": [ 1188471023 ],
    "samples_ts": [ 53.8507 ]
  },
  {
    "build_commit": "0c1e57098",
    "model_type": "gemma3 270M Q4_K - Medium",
    "model_size": 246587904,
    "n_batch": 2048,
    "n_threads": 2,
    "n_prompt": 0,
    "n_gen": 8,
    "avg_ns": 3082327369,
    "stddev_ns": 0,
    "avg_ts": 2.595441,
    "stddev_ts": 0.000000,
    "samples_ns": [ 3082327369 ],
    "samples_ts": [ 2.59544 ]
  }
]
"""

# As `completion` says it, between other lines.
COMPLETION_OUTPUT = (
    "0.01.444.801 I main: llama threadpool init, n_threads = 2\n"
    "0.01.444.873 I system_info: n_threads = 2 (n_threads_batch = 2) / 2"
    " | CPU : SSE3 = 1 | AVX512 = 1 | LLAMAFILE = 1 | REPACK = 1 | \n"
    "0.01.503.066 I common_perf_print:        load time =     713.57 ms\n"
)

VERSION_OUTPUT = """version: 0.5.0-dev (build 0, commit 0c1e57098)
built with GNU 12.2.0 for Linux x86_64
CPU : SSE3 = 1 | LLAMAFILE = 1 | REPACK = 1 |
"""

NUMA_REPORT = (
    '{"schema":1,"requested":"0","node":0,"how":"flag","policy":"bind","policy_note":"","weights_mode":"copy",'
    '"threads":{"workers":2,"bound":2},"regions":[{"name":"weights","bytes":233316864,"checked":56963,'
    '"on_node":56963,"elsewhere":0,"not_resident":0}],"look_ms":23.465,"ok":true}\n'
)

PROC_STATUS = """Name:\tllamafile-numa
State:\tR (running)
VmPeak:\t  620636 kB
VmHWM:\t  318900 kB
VmRSS:\t  301264 kB
RssAnon:\t   53136 kB
RssFile:\t  248128 kB
RssShmem:\t       0 kB
Threads:\t3
"""


def sample(prompt: float, generation: float = 10.0, load: float = 500.0, huge: int | None = 0) -> Sample:
    return Sample(prompt, generation, load, Memory(300 << 20, 50 << 20, 250 << 20, huge), threads=2)


def rounds(*pairs: tuple[float, float]) -> tuple[stats.Round, ...]:
    """Rounds of the base and of one other variant, by their prompt speed."""
    return tuple({plan.BASE: sample(base), "copy": sample(other)} for base, other in pairs)


PROMPT, HUGE = stats.METRICS[0], stats.METRICS[-1]


class TestReading:
    def test_speeds(self) -> None:
        assert measure.speeds(BENCH_OUTPUT) == (53.850703, 2.595441, 2)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "[\n",
            "[]",
            "{}",
            "[1]",
            json.dumps(json.loads(BENCH_OUTPUT)[:1]),
            json.dumps(json.loads(BENCH_OUTPUT) * 2),
        ],
    )
    def test_other_output_is_one_line(self, text: str) -> None:
        with pytest.raises(Fail, match="something else than one prompt and one generation test"):
            measure.speeds(text)

    def test_placement(self) -> None:
        assert measure.placement(NUMA_REPORT) == ("copy", True)
        assert measure.placement(NUMA_REPORT.replace('"ok":true', '"ok":false')) == ("copy", False)

    @pytest.mark.parametrize("text", ["", "{}", "[]"])
    def test_no_placement(self, text: str) -> None:
        with pytest.raises(Fail, match="--numa-report"):
            measure.placement(text)

    def test_features(self) -> None:
        assert identity.features(COMPLETION_OUTPUT) == ("CPU : SSE3 = 1", "AVX512 = 1", "LLAMAFILE = 1", "REPACK = 1")

    def test_no_features(self) -> None:
        with pytest.raises(Fail, match="system_info"):
            identity.features(VERSION_OUTPUT)

    def test_version(self) -> None:
        wanted = "version: 0.5.0-dev (build 0, commit 0c1e57098), built with GNU 12.2.0 for Linux x86_64"
        assert identity.version(VERSION_OUTPUT) == wanted

    def test_memory_in_bytes(self) -> None:
        seen = memory.parse(PROC_STATUS)
        assert (seen["VmHWM"], seen["RssAnon"], seen["RssFile"]) == (318900 * 1024, 53136 * 1024, 248128 * 1024)
        assert "Name" not in seen
        assert "Threads" not in seen


class TestFeatures:
    UPSTREAM = Identity("version: 1", ("AVX512 = 1", "LLAMAFILE = 1"))

    def test_alike(self, capsys: pytest.CaptureFixture[str]) -> None:
        identity.compare(self.UPSTREAM, self.UPSTREAM)
        assert "AVX512 = 1 | LLAMAFILE = 1" in capsys.readouterr().err

    def test_lost_feature(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(Fail, match=r"only upstream has LLAMAFILE = 1$"):
            identity.compare(self.UPSTREAM, Identity("version: 1", ("AVX512 = 1",)))
        told = capsys.readouterr().err.splitlines()
        assert told == ["upstream: version: 1 | AVX512 = 1 | LLAMAFILE = 1", "ours:     version: 1 | AVX512 = 1"]

    def test_other_compiler(self) -> None:
        with pytest.raises(Fail, match="only upstream has version: 1; only ours has version: 2"):
            identity.compare(self.UPSTREAM, Identity("version: 2", self.UPSTREAM.features))


class TestPlan:
    @pytest.mark.parametrize("control", [False, True])
    def test_base_first_and_names_differ(self, control: bool) -> None:
        variants = plan.variants(0, control=control)
        assert variants[0] == Variant(plan.BASE, "upstream")
        assert len({variant.name for variant in variants}) == len(variants) == 4 + control

    def test_flags(self) -> None:
        flags = {variant.name: variant.flags for variant in plan.variants(3)}
        assert flags == {
            "upstream": (),
            "no flag": (),
            "map": ("--numa-node", "3", "--numa-weights", "map"),
            "copy": ("--numa-node", "3", "--numa-weights", "copy"),
        }

    @pytest.mark.parametrize("count", [1, 2, 4, 5])
    def test_each_once_a_round_and_each_first_in_turn(self, count: int) -> None:
        orders = [plan.order(number, count) for number in range(count)]
        assert all(sorted(order) == list(range(count)) for order in orders)
        assert [order[0] for order in orders] == list(range(count))

    def test_each_follows_every_other_as_often(self) -> None:
        orders = [plan.order(number, 4) for number in range(4)]
        pairs = [pair for order in orders for pair in itertools.pairwise(order)]
        assert len(set(pairs)) == len(pairs) == 12

    def test_tokens_by_size(self, tmp_path: Path) -> None:
        small, large = tmp_path / "small.gguf", tmp_path / "large.gguf"
        small.write_bytes(b"GGUF")
        with large.open("wb") as file:
            file.truncate(plan.LARGE_MODEL)
        assert plan.job(small, None, None) == Job(small, *plan.SMALL_MODEL_TOKENS)
        assert plan.job(large, None, None) == Job(large, *plan.LARGE_MODEL_TOKENS)
        assert plan.job(large, 7, 5) == Job(large, 7, 5)


class TestStatistics:
    def test_spread(self) -> None:
        assert stats.spread([5, 1, 4, 2, 3]) == stats.Spread(3, 2, 4, 1, 5)

    def test_spread_between_two(self) -> None:
        assert stats.spread([1.0, 2.0]) == stats.Spread(1.5, 1.25, 1.75, 1.0, 2.0)

    def test_spread_of_one(self) -> None:
        assert stats.spread([2.0]) == stats.Spread(2.0, 2.0, 2.0, 2.0, 2.0)

    def test_ratio_is_of_the_same_round(self) -> None:
        # A machine that becomes ten times slower: the ratio of the medians would be 1, that of each round is 2.
        seen = stats.ratio(rounds((100, 200), (10, 20), (1, 2)), "copy", PROMPT)
        assert seen == stats.Spread(2.0, 2.0, 2.0, 2.0, 2.0)

    def test_value(self) -> None:
        seen = stats.value(rounds((1, 30), (1, 10), (1, 20)), "copy", PROMPT)
        assert seen is not None
        assert seen.median == 20

    def test_not_measured(self) -> None:
        nothing = ({plan.BASE: sample(1, huge=None), "copy": sample(1, huge=None)},)
        assert stats.value(nothing, "copy", HUGE) is None
        assert stats.ratio(nothing, "copy", HUGE) is None

    def test_nothing_to_divide_by(self) -> None:
        only_ours = ({plan.BASE: sample(1, huge=0), "copy": sample(1, huge=2 << 20)},)
        assert stats.value(only_ours, "copy", HUGE) == stats.spread([2 << 20])
        assert stats.ratio(only_ours, "copy", HUGE) is None

    def test_byte_metrics_are_of_their_own_field(self) -> None:
        one = Sample(1, 2, 3, Memory(total=4, private=5, file=6, huge=7), threads=1)
        assert [metric.of(one) for metric in stats.METRICS] == [1, 2, 3, 4, 5, 6, 7]


class TestReport:
    @pytest.fixture
    def full(self, tmp_path: Path) -> Report:
        model = tmp_path / "some.gguf"
        model.write_bytes(bytes(2_000_000))
        variants = (Variant(plan.BASE, "upstream"), Variant("copy", "native", ("--numa-node", "0")))
        result = Result(Job(model, 512, 128), rounds((100, 110), (100, 130), (100, 120)))
        return Report({"CPU": "Some CPU"}, Identity("version: 1", ("AVX2 = 1",)), variants, (result,))

    def test_table(self, full: Report, capsys: pytest.CaptureFixture[str]) -> None:
        report.show(full)
        lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
        assert lines[1] == "some.gguf, 2.0 MB: 512 tokens read, 128 generated, 3 rounds"
        assert lines[3] == "prompt, tokens/s higher upstream 100.0"
        assert lines[4] == "copy 120.0 1.200 1.150 to 1.250 1.100 to 1.300"
        assert "peak memory, MiB lower upstream 300" in lines

    def test_markdown(self, full: Report) -> None:
        text = report.markdown(full)
        assert "| CPU | Some CPU |\n| programs | version: 1 |\n| features | AVX2 = 1 |\n" in text
        assert "| prompt, tokens/s | higher | upstream | 100.0 |  |  |  |\n" in text
        assert "|  |  | copy | 120.0 | 1.200 | 1.150 to 1.250 | 1.100 to 1.300 |\n" in text
        tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
        assert all(len({line.count("|") for line in lines}) == 1 for lines in tables)

    def test_json(self, full: Report) -> None:
        content = json.loads(json.dumps(report.as_json(full)))
        (model,) = content["models"]
        assert (model["file"], model["bytes"], len(model["rounds"])) == ("some.gguf", 2_000_000, 3)
        assert model["summary"]["copy"]["prompt"]["ratio"]["median"] == pytest.approx(1.2)
        assert model["rounds"][1]["copy"]["memory"]["total"] == 300 << 20

    def test_no_notes(self, full: Report) -> None:
        assert list(report.notes(full)) == []

    def test_notes(self, full: Report) -> None:
        odd = Sample(1, 1, 1, Memory(), threads=4, weights_mode="copy", ok=False)
        result = Result(full.results[0].job, ({plan.BASE: sample(1), "copy": odd},))
        told = list(report.notes(Report(full.machine, full.identity, full.variants, (result,))))
        assert told == [
            "some.gguf: not all ran with as many threads: upstream 2, copy 4",
            "some.gguf: copy: not everything was on the node in 1 rounds",
        ]


class TestMachine:
    def test_facts(self, tmp_path: Path) -> None:
        for name, text in {
            "proc/cpuinfo": "processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: fpu hypervisor lahf_lm\n",
            "proc/meminfo": "MemTotal:       24684396 kB\nMemFree: 1 kB\n",
            "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
            "sys/kernel/mm/transparent_hugepage/defrag": "always defer [defer+madvise] madvise never\n",
            "sys/devices/system/node/node0/cpulist": "0\n",
            "sys/devices/system/node/node12/cpulist": "1\n",
            "sys/devices/system/node/online": "0,12\n",
        }.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        facts = machine.describe(tmp_path)
        assert facts["CPU"] == "AMD EPYC (virtual machine)"
        assert facts["memory"] == "23.5 GiB"
        assert facts["NUMA nodes"] == "2"
        assert facts["transparent huge pages"] == "madvise, defrag defer+madvise"

    def test_system_that_tells_nothing(self, tmp_path: Path) -> None:
        facts = machine.describe(tmp_path)
        assert not {"memory", "NUMA nodes", "transparent huge pages"} & set(facts)
        assert facts["page size"]


# Stands in for a program: `python -c PROGRAM HOW bench ...`, all real but the model.
PROGRAM = """
import sys, time
how = sys.argv[1]
print("llama-bench: benchmark 1/2: starting", file=sys.stderr, flush=True)
if how == "fails":
    sys.exit("main: error: failed to load model")
held = bytearray(b"x") * (96 << 20)
time.sleep(0.3)
if how != "silent":
    print("llama-bench: benchmark 1/2: warmup prompt run", file=sys.stderr, flush=True)
time.sleep(0.3)
print("the output")
"""


class TestWatching:
    def watch(self, tmp_path: Path, how: str) -> tuple[float, Memory]:
        return measure.watch([sys.executable, "-c", PROGRAM, how], tmp_path / "output", "copy")

    def test_load_time_and_memory(self, tmp_path: Path) -> None:
        load, seen = self.watch(tmp_path, "works")
        assert load >= 300
        assert (tmp_path / "output").read_text().strip() == "the output"
        if sys.platform == "linux":
            assert seen.total is not None
            assert seen.private is not None
            assert seen.file is not None
            assert 96 << 20 <= seen.private <= seen.total < 256 << 20
            assert 0 < seen.file < 96 << 20
        else:
            assert seen == Memory()

    def test_failure_is_one_line_below_its_last_words(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(Fail, match=r"^copy: bench ended with exit code 1; its last words are above$"):
            self.watch(tmp_path, "fails")
        assert "failed to load model" in capsys.readouterr().err

    def test_never_loaded(self, tmp_path: Path) -> None:
        with pytest.raises(Fail, match="did not say when the model was loaded"):
            self.watch(tmp_path, "silent")

    def test_signal(self) -> None:
        assert measure.ending(-9) == "was ended by signal 9"

    def test_settings_of_the_user_do_not_reach_the_programs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LLAMA_ARG_NUMA_NODE", "1")
        monkeypatch.setenv("SOMETHING_ELSE", "1")
        assert "LLAMA_ARG_NUMA_NODE" not in measure.environment()
        assert "SOMETHING_ELSE" in measure.environment()


class TestAsking:
    @pytest.mark.parametrize("arguments", [["--rounds", "0"], ["--rounds", "x"], ["--synthetic-gb", "-1"]])
    def test_bad_numbers(self, arguments: list[str]) -> None:
        parser = argparse.ArgumentParser()
        bench.register(parser.add_subparsers())
        with pytest.raises(SystemExit) as ended:
            parser.parse_args(["bench", *arguments])
        assert ended.value.code == 2

    def test_missing_model(self, tmp_path: Path) -> None:
        with pytest.raises(Fail, match="there is no file") as failure:
            bench.chosen_models([tmp_path / "none.gguf"], None)
        assert failure.value.code == 2

    def test_given_models_replace_the_others(self, tmp_path: Path) -> None:
        model = tmp_path / "one.gguf"
        model.write_bytes(b"GGUF")
        assert bench.chosen_models([model], None) == [model]

    def test_json_file_is_looked_at_before_measuring(self, tmp_path: Path) -> None:
        with pytest.raises(Fail, match="cannot be written"):
            bench.check_writable(tmp_path / "missing" / "figures.json")
        with pytest.raises(Fail, match="cannot be written"):
            bench.check_writable(tmp_path)
        bench.check_writable(tmp_path / "figures.json")
        assert list(tmp_path.iterdir()) == []

    def test_json_is_written_at_once(self, tmp_path: Path) -> None:
        file = tmp_path / "figures.json"
        bench.write_json(file, {"schema": 1})
        assert json.loads(file.read_text()) == {"schema": 1}
        assert [one.name for one in tmp_path.iterdir()] == ["figures.json"]
