"""The reader of archives: what is found in a good one, and that a bad one is refused with one line."""

from __future__ import annotations

import io
import struct
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.core import cc
from tests.core.archives import ALIGN, FULL, MODEL, Edit, archive, with_end64, zipaligned
from tests.wine import host
from tools import pack, wine

SOURCES = ("archive.c", "open.c")

Ask = Callable[..., list[str]]


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """dump(command, names...) -> what archive_dump says of each."""
    sources = [cc.HERE / "archive_dump.c", *cc.llamafile(*SOURCES, "os_linux.c")]
    program = cc.compile(sources, into=tmp_path_factory.mktemp("archive_dump"))

    def run(command: str, *names: str | Path) -> list[str]:
        done = subprocess.run([program, command, *names], capture_output=True, text=True, errors="replace")
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert len(lines) == len(names)
        return lines

    return run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "x.llamafile"


def written(file: Path, content: bytes | Edit) -> Path:
    file.write_bytes(content.data if isinstance(content, Edit) else content)
    return file


# --- good ------------------------------------------------------------------------------------------------------------

GOOD = {
    "plain": archive({"a.gguf": MODEL}),
    "no executable before it": archive({"a.gguf": MODEL}, prefix=b""),
    "a comment": archive({"a.gguf": MODEL}, comment=b"made by hand" * 100),
    "the longest comment": archive({"a.gguf": MODEL}, comment=b"c" * 65535),
    "sizes of 64 bits": archive({"a.gguf": MODEL}, zip64=True),
    "an end of 64 bits": with_end64(archive({"a.gguf": MODEL})),
    "all of 64 bits": with_end64(archive({"a.gguf": MODEL}, zip64=True, comment=b"with a comment")),
    "as zipalign writes it": zipaligned({"a.gguf": MODEL, ".args": b"-m\na.gguf\n"}),
    "other members": archive({"README.md": b"read me", "usr/": b"", "a.gguf": MODEL, ".args": b"-m\na.gguf\n"}),
    "a projector": archive({"b-mmproj.gguf": MODEL, "a.gguf": MODEL}),
    "upper case": archive({"A.GGUF": MODEL}),
    "the first of three parts": archive({f"a-{part:05}-of-00003.gguf": MODEL for part in (2, 1, 3)}),
    "in a folder": archive({"models/a.gguf": MODEL}),
    "an @": archive({"a@b.gguf": MODEL}),
}


WHERE = {
    "upper case": "A.GGUF",
    "the first of three parts": "a-00001-of-00003.gguf",
    "in a folder": "models/a.gguf",
    "an @": "a@b.gguf",
}


@pytest.mark.parametrize("case", GOOD)
def test_the_only_model_is_found(dump: Ask, file: Path, case: str) -> None:
    content, name = GOOD[case], WHERE.get(case, "a.gguf")
    start = content.index(MODEL, content.index(name.encode()))
    assert dump("look", written(file, content)) == [f"inside @{name} {start} {len(MODEL)}"]
    assert start % ALIGN == 0


def test_a_comment_that_looks_like_an_end(dump: Ask, file: Path) -> None:
    written(file, archive({"a.gguf": MODEL}, comment=b"PK\5\6 is not the end of it" * 100))
    assert dump("look", file)[0].startswith("inside @a.gguf ")


def test_a_member_is_found_by_its_name(dump: Ask, file: Path) -> None:
    written(file, archive({"a.gguf": MODEL, "dir/b@c.gguf": MODEL, "mmproj.gguf": MODEL}))
    names = ("a.gguf", "dir/b@c.gguf", "mmproj.gguf", "/zip/a.gguf")
    assert [line.split()[1] for line in dump("look", *(f"{file}@{name}" for name in names))] == [
        "@a.gguf",
        "@dir/b@c.gguf",
        "@mmproj.gguf",
        "@a.gguf",
    ]


def test_the_projector_is_found(dump: Ask, file: Path) -> None:
    written(file, archive({"a.gguf": MODEL, "a-MMPROJ-f16.gguf": MODEL}))
    assert dump("mmproj", file)[0].startswith("inside @a-MMPROJ-f16.gguf ")


def test_the_stream_stands_at_the_member(dump: Ask, file: Path) -> None:
    written(file, archive({"b.gguf": b"GGUF-b-b", "a.gguf": b"GGUF-a-a"}))
    assert dump("open", f"{file}@a.gguf", f"{file}@b.gguf") == ["GGUF-a-a", "GGUF-b-b"]


def test_members_that_were_replaced_are_not_seen(dump: Ask, file: Path) -> None:
    """An update writes the new member over the old directory; the old member stays as dead bytes."""
    old = archive({"a.gguf": b"GGUF-old"})
    written(file, archive({"a.gguf": b"GGUF-new"}, prefix=old[: old.index(b"PK\1\2")]))
    assert file.read_bytes().count(b"PK\3\4") == 2
    assert dump("open", file) == ["GGUF-new"]


def test_ordinary_files_go_on_working(dump: Ask, tmp_path: Path) -> None:
    model = written(tmp_path / "my@model.gguf", MODEL)
    (tmp_path / "my").mkdir()
    assert dump("look", model, tmp_path / "no@such.gguf", tmp_path, "", "@", "a@") == ["plain"] * 6
    assert dump("open", model, tmp_path / "no@such.gguf", tmp_path) == ["null"] * 3
    assert dump("length", model, tmp_path / "no@such.gguf") == [
        str(len(str(model))),
        str(len(f"{tmp_path}/no@such.gguf")),
    ]


def test_an_archive_may_have_an_at_in_its_name(dump: Ask, tmp_path: Path) -> None:
    (tmp_path / "a@b").mkdir()
    file = written(tmp_path / "a@b" / "c@d.llamafile", archive({"e@f.gguf": MODEL}))
    assert dump("look", f"{file}@e@f.gguf")[0].startswith("inside @e@f.gguf ")
    assert dump("length", f"{file}@e@f.gguf", file) == [str(len(str(file)))] * 2


def test_a_plain_file_beats_a_member(dump: Ask, tmp_path: Path) -> None:
    file = written(tmp_path / "x.llamafile", archive({"a.gguf": b"GGUF-in."}))
    written(tmp_path / "x.llamafile@a.gguf", b"GGUF-out")
    assert dump("look", f"{file}@a.gguf") == ["plain"]


def test_zipfile_reads_what_zipalign_writes() -> None:
    with zipfile.ZipFile(io.BytesIO(GOOD["as zipalign writes it"])) as source:
        assert source.testzip() is None
        assert source.read("a.gguf") == MODEL


def test_args_are_read(dump: Ask, file: Path) -> None:
    written(file, archive({"a.gguf": MODEL, ".args": b"-m\na.gguf\n-c\n256\n...\n"}))
    assert dump("args", file) == ["text -m|a.gguf|-c|256|...|"]
    written(file, archive({"a.gguf": MODEL, ".args": b"\xef\xbb\xbf-c\n256\n"}))
    assert dump("args", file) == ["text -c|256|"]
    written(file, archive({"a.gguf": MODEL}))
    assert dump("args", file) == ["text "]


def test_layout_of_llamafiles(dump: Ask, tmp_path: Path) -> None:
    """As documented: aligned to 65536 bytes, sizes and end of 64 bits, behind an executable."""
    content = archive({"a.gguf": MODEL, ".args": b"..."}, prefix=b"MZqFpD" + bytes(1 << 20), align=65536, zip64=True)
    line = dump("look", written(tmp_path / "x.llamafile", with_end64(content)))[0].split()
    assert line[:2] == ["inside", "@a.gguf"]
    assert int(line[2]) % 65536 == 0
    assert int(line[2]) > 1 << 20


# --- more than 4 GiB -------------------------------------------------------------------------------------------------


def test_a_model_beyond_4_gib(dump: Ask, file: Path) -> None:
    with file.open("wb") as content:
        content.truncate(5 << 30)  # takes no space
    with zipfile.ZipFile(file, "a") as target:
        model = file.with_name("a.gguf")
        model.write_bytes(b"GGUF-far")
        pack.store(target, model, lambda _: None)
    line = dump("look", file)[0].split()
    assert int(line[2]) % 65536 == 0
    assert int(line[2]) > 5 << 30
    assert dump("open", file) == ["GGUF-far"]


def test_a_model_of_more_than_4_gib(dump: Ask, file: Path) -> None:
    info = zipfile.ZipInfo("a.gguf")
    info.CRC, info.file_size, info.compress_size = 0, 5 << 30, 5 << 30
    header = info.FileHeader(zip64=True)
    extra = struct.pack("<HHQQ", 1, 16, 5 << 30, 5 << 30)
    entry = struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 45, 45, 0, 0, 0, 0, 0, FULL, FULL, 6, 20, 0, 0, 0, 0, 0)
    directory = entry + b"a.gguf" + extra
    padding = -len(header) % 32
    with file.open("wb") as content:
        content.seek(padding)
        content.write(header + b"GGUF-big")
        content.seek(padding + len(header) + (5 << 30))
        at = content.tell()
        moved = bytearray(directory)
        struct.pack_into("<I", moved, 42, padding)
        content.write(moved)
        content.write(struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, 1, 1, len(directory), at))
        content.write(struct.pack("<IIQI", 0x07064B50, 0, at + len(directory), 1))
        content.write(struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 0xFFFF, 0xFFFF, FULL, FULL, 0))
    with zipfile.ZipFile(file) as source:
        assert source.getinfo("a.gguf").file_size == 5 << 30
    assert dump("look", file) == [f"inside @a.gguf {padding + len(header)} {5 << 30}"]
    assert dump("open", file) == ["GGUF-big"]


# --- bad -------------------------------------------------------------------------------------------------------------

TWO = {"a.gguf": MODEL, "b.txt": b"text"}


def edited(members: dict[str, bytes] = TWO, **changes: int) -> Edit:
    """An archive with fields set: entry__a_gguf__size=3; a value below 0 is added to what is there."""
    edit = Edit(bytearray(with_end64(archive(members)) if any("64" in key for key in changes) else archive(members)))
    for key, value in changes.items():
        record, name, what = key.split("__")
        place = (record, name.replace("_", "."), what)
        edit[place] = edit[place] + value if value < 0 else value
    return edit


def overlapping() -> Edit:
    """b.txt claims to begin inside a.gguf."""
    edit = edited()
    edit["entry", "b.txt", "header"] = edit["local", "a.gguf", "magic"] and edit.at["local", "a.gguf"] + 40
    return edit


def twice() -> Edit:
    """Two entries for the same bytes."""
    edit = edited({"a.gguf": MODEL, "b.gguf": MODEL})
    edit["entry", "b.gguf", "header"] = edit.at["local", "a.gguf"]
    return edit


def same_name() -> bytes:
    return archive({"a.gguf": MODEL, "b.gguf": MODEL}).replace(b"b.gguf", b"a.gguf")


BAD: dict[str, tuple[bytes | Edit, str]] = {
    # nothing, or not enough
    "empty file": (b"", "end record"),
    "text": (b"hello" * 100, "end record"),
    "only an end": (struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 0, 0, 0, 0, 0), "nothing in the archive"),
    "0 entries": (archive({}), "nothing in the archive"),
    "no model": (archive({"a.txt": b"a", "b.bin": MODEL}), "holds no model (*.gguf); there are: a.txt, b.bin"),
    "only a projector": (archive({"mmproj.gguf": MODEL}), "holds no model"),
    "only a later part": (archive({"a-00002-of-00002.gguf": MODEL}), "holds no model"),
    "two models": (archive({"a.gguf": MODEL, "b.gguf": MODEL}), "more than one model (*.gguf), so name it"),
    "a model twice": (same_name(), "more than one model"),
    # stored in another way
    "compressed": (archive({"a.gguf": MODEL * 9}, compress=True), "a.gguf is compressed; members have to be stored"),
    "encrypted": (edited(entry__a_gguf__flags=1), "a.gguf is encrypted; members have to be stored"),
    "not aligned": (archive({"a.gguf": MODEL}, skew=1), "no multiple of 32"),
    "16 bytes off": (archive({"a.gguf": MODEL}, skew=16), "no multiple of 32"),
    "no GGUF": (archive({"a.gguf": b"GGML" + MODEL}), "a.gguf is no GGUF file"),
    "an empty model": (archive({"a.gguf": b""}), "a.gguf is no GGUF file"),
    "two bytes": (archive({"a.gguf": b"GG"}), "a.gguf is no GGUF file"),
    "several volumes": (edited(end____disk=1), "one volume of several"),
    "entries elsewhere": (edited(end____entries_here=1), "one volume of several"),
    # sizes
    "more entries": (edited(end____entries=3, end____entries_here=3), "3 members, 103 bytes"),
    "fewer entries": (edited(end____entries=1, end____entries_here=1), "its 1 entries take"),
    "many entries": (edited(end____entries=65535, end____entries_here=65535), "65535 members"),
    "larger directory": (edited(end____size=10_000), "does not fit before its end"),
    "smaller directory": (edited(end____size=-1), "entry 2 of its directory is damaged"),
    "huge directory": (edited(end64____size=1 << 40), "1099511627776 bytes long; at most"),
    "smaller model": (edited(entry__a_gguf__size=-1), "another name or size"),
    "less stored": (edited(entry__a_gguf__stored=-1), "another name or size"),
    "larger model": (edited(entry__a_gguf__size=900, entry__a_gguf__stored=900), "does not fit before the end"),
    "4 GiB model": (edited(entry__a_gguf__size=FULL, entry__a_gguf__stored=FULL), "entry 1 of its"),
    "another size in front": (edited(local__a_gguf__size=9, local__a_gguf__stored=9), "another name or size"),
    "another name in front": (edited(local__a_gguf__name=ord("c")), "another name or size"),
    "another method in front": (edited(local__a_gguf__method=8), "another name or size"),
    "long name": (edited(entry__a_gguf__name_len=60_000), "entry 1 of its directory is damaged"),
    "long comment": (edited(entry__b_txt__comment_len=1), "entry 2 of its directory is damaged"),
    "long extra": (edited(entry__a_gguf__extra_len=5), "of its directory is damaged"),
    "long extra in front": (edited(local__a_gguf__extra_len=65535), "does not fit before the end"),
    "NUL in a name": (edited(entry__b_txt__name=0), "entry 2 of its directory is damaged"),
    # places
    "no directory there": (edited(end____offset=0), "entry 1 of its directory is damaged"),
    "directory past the end": (edited(end____offset=0xFFFFFFF0), "does not fit before its end"),
    "directory far past the end": (edited(end64____offset=1 << 63), "does not fit before its end"),
    "model past the end": (edited(entry__a_gguf__header=0x7FFFFFFF), "beyond the members"),
    "model at the directory": (edited(entry__a_gguf__header=-1), "not where the directory says"),
    "no such end": (edited(locator64____offset=5), "ZIP64 end record is not where"),
    "end past the end": (edited(locator64____offset=1 << 62), "ZIP64 end record is not where"),
    "no end there": (edited(end64____magic=0), "ZIP64 end record is not where"),
    "long end": (edited(end64____length=1 << 60), "ZIP64 end record is not where"),
    "entries of 64 bits": (
        edited(end64____entries=1 << 60, end64____entries_here=1 << 60),
        "1152921504606846976 members",
    ),
    "another volume": (edited(end64____disk=1), "one volume of several"),
    "overlapping": (overlapping(), "a.gguf and b.txt overlap"),
    "something behind": (archive({"a.gguf": MODEL}) + b"\n", "end record"),
    "cut short": (archive({"a.gguf": MODEL})[:-1], "end record"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_archive_is_refused(dump: Ask, file: Path, case: str) -> None:
    content, says = BAD[case]
    line = dump("look", written(file, content))[0]
    assert line.startswith((f"bad {file}: ", f"unknown {file}: ")), line
    assert says in line
    assert dump("open", file) == ["null"]


def test_same_bytes_twice(dump: Ask, file: Path) -> None:
    lines = dump("look", *(f"{written(file, twice())}@{name}" for name in ("a.gguf", "b.gguf")))
    assert "a.gguf and b.gguf overlap" in lines[0]
    assert "another name" in lines[1]


def test_same_name_twice(dump: Ask, file: Path) -> None:
    assert "a.gguf is in the archive twice" in dump("look", f"{written(file, same_name())}@a.gguf")[0]


def test_absent_member_is_an_error_that_names_those_there_are(dump: Ask, file: Path) -> None:
    written(file, archive({"b.gguf": MODEL, "c.gguf": MODEL, "d.txt": b""}))
    assert dump("look", f"{file}@a.gguf") == [f"bad {file}: there is no member a.gguf; there are: b.gguf, c.gguf"]
    written(file, archive({f"model-number-{i:04}.gguf": MODEL for i in range(100)}))
    line = dump("look", f"{file}@a.gguf")[0]
    assert "model-number-0000.gguf, " in line
    assert line.endswith(" more")


def test_a_plain_file_has_no_members(dump: Ask, tmp_path: Path) -> None:
    model = written(tmp_path / "a.gguf", MODEL)
    assert "it is a GGUF file and has no member b.gguf" in dump("look", f"{model}@b.gguf")[0]
    text = written(tmp_path / "a.txt", b"text")
    assert dump("look", f"{text}@b.gguf")[0].startswith(f"bad {text}: it has no end record")


def test_message_is_one_line(dump: Ask, file: Path) -> None:
    written(file, archive({"a\n\033[2J.gguf": b"no model", "b.gguf": MODEL}))
    assert all(line.isprintable() for line in dump("look", file, f"{file}@x\ny"))


@pytest.mark.parametrize(
    ("members", "compress", "says"),
    [
        ({".args": b"-c\n" * 30_000}, False, "90000 bytes; at most 65536"),
        ({".args": b"-c\n" * 3_000_000}, True, ".args is compressed"),  # 9 MB from 9 KB
        ({".args": b"a\0b"}, False, "is no text"),
    ],
)
def test_bad_args_are_refused(dump: Ask, file: Path, members: dict[str, bytes], compress: bool, says: str) -> None:
    line = dump("args", written(file, archive({"a.gguf": MODEL, **members}, compress=compress)))[0]
    assert line.startswith(f"bad {file}: ")
    assert says in line


def test_two_args_are_refused(dump: Ask, file: Path) -> None:
    content = archive({"a.gguf": MODEL, ".args": b"-c", "_args": b"-d"}).replace(b"_args", b".args")
    assert ".args is in the archive twice" in dump("args", written(file, content))[0]


def test_every_cut_is_refused(dump: Ask, tmp_path: Path) -> None:
    whole = with_end64(archive({"a.gguf": MODEL}, zip64=True, prefix=b""))
    files = [written(tmp_path / str(length), whole[:length]) for length in range(len(whole))]
    assert not [line for line in dump("look", *files) if not line.startswith(("unknown ", "bad "))]


def test_no_single_byte_crashes_it(dump: Ask, tmp_path: Path) -> None:
    """Every byte behind the model set to 0, 1, 255: refused, or the same model, or another name for it."""
    whole = with_end64(archive({"a.gguf": MODEL}, zip64=True, prefix=b""))
    places = [at for at in range(len(whole)) if at < whole.index(MODEL) or at >= whole.index(MODEL) + len(MODEL)]
    files = []
    for at in places:
        for value in (0, 1, 255):
            content = bytearray(whole)
            content[at] = value
            files.append(written(tmp_path / f"{at}-{value}", bytes(content)))
    start = str(whole.index(MODEL))
    for line in dump("look", *files):
        assert line.startswith(("unknown ", "bad ")) or line.split()[2:] == [start, str(len(MODEL))], line


# --- fuzz ------------------------------------------------------------------------------------------------------------


def seeds() -> list[bytes]:
    small = [content for content in GOOD.values() if len(content) < 2000]
    bad = [bytes(content.data) if isinstance(content, Edit) else content for content, _ in BAD.values()]
    return [*small, *(content for content in bad if len(content) < 2000), archive(TWO, prefix=b"", zip64=True)]


WORDS = ["PK\\x01\\x02", "PK\\x03\\x04", "PK\\x05\\x06", "PK\\x06\\x06", "PK\\x06\\x07", "GGUF", ".gguf", "mmproj"]
WORDS += ["\\xff\\xff\\xff\\xff", "\\x01\\x00\\x10\\x00", "-00001-of-00002.gguf"]


def test_fuzz(tmp_path: Path) -> None:
    program = cc.compile_fuzzer([cc.HERE / "fuzz_archive.c", *cc.llamafile("archive.c")], into=tmp_path)
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(seeds()):
        (corpus / str(number)).write_bytes(seed)
    words = tmp_path / "words"
    words.write_text("".join(f'"{word}"\n' for word in WORDS))
    runs = 50_000
    limits = [f"-runs={runs}", "-max_len=2048", f"-dict={words}", f"-artifact_prefix={tmp_path}/"]
    done = subprocess.run([program, *limits, corpus], capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stderr[-4000:]
    assert f"Done {runs} runs" in done.stderr


# --- Windows ---------------------------------------------------------------------------------------------------------


@pytest.mark.wine
def test_on_windows(tmp_path: Path) -> None:
    host.prefix()
    program = cc.compile_for_windows(
        [cc.HERE / "archive_dump.c", *cc.llamafile(*SOURCES, "os_windows.c"), *cc.core("path_windows.c")], into=tmp_path
    )
    file = written(tmp_path / "x.llamafile", archive({"a.gguf": b"GGUF-a-a"}))
    names = [wine.path(file), f"{wine.path(file)}@a.gguf", f"{wine.path(file)}@b.gguf", wine.path(tmp_path)]
    done = host.run([program, "look", *names])
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["inside", "inside", "bad", "plain"], done.stdout + done.stderr
    assert host.run([program, "open", names[1]]).stdout.split() == ["GGUF-a-a"]
    other = written(tmp_path / "ä模型.llamafile", archive({"ö.gguf": b"GGUF-utf"}))
    written(tmp_path / "names", f"{wine.path(other)}\n{wine.path(other)}@ö.gguf\n{wine.path(other)}@o.gguf\n".encode())
    done = host.run([program, "list", wine.path(tmp_path / "names")])
    assert done.stdout.split() == ["GGUF-utf", "GGUF-utf", "null"]
