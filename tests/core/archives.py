"""Zip archives laid out as llamafiles are, made by Python's zipfile, and what can be wrong with one."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

ALIGN = 64  # bytes; llamafiles have 65536, which takes long to write

MODEL = b"GGUF" + bytes(range(60))
EXECUTABLE = b"MZqFpD='\n" + b"#" * 100


def archive(
    members: Mapping[str, bytes],
    *,
    prefix: bytes = EXECUTABLE,
    align: int = ALIGN,
    skew: int = 0,
    compress: bool = False,
    zip64: bool = False,
    comment: bytes = b"",
) -> bytes:
    """An archive behind an executable, each member's data `skew` bytes behind a multiple of `align`."""
    content = io.BytesIO(prefix)
    content.seek(0, io.SEEK_END)
    with zipfile.ZipFile(content, "a") as target:
        for name, data in members.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
            info.CRC = info.compress_size = 0
            target.start_dir += (skew - (target.start_dir + len(info.FileHeader(zip64=zip64)))) % align
            with target.open(info, "w", force_zip64=zip64) as member:
                member.write(data)
        target.comment = comment
    return content.getvalue()


FULL = 0xFFFFFFFF  # the value has 64 bits and stands elsewhere


def zipaligned(members: Mapping[str, bytes], *, prefix: bytes = EXECUTABLE, align: int = ALIGN) -> bytes:
    """As zipalign writes it: every size and place, however small, in its form of 64 bits."""
    content, directory = bytearray(prefix), bytearray()
    for name, data in members.items():
        sizes = struct.pack("<QQ", len(data), len(data))
        content += bytes(-(len(content) + 30 + len(name) + 20) % align)
        at = struct.pack("<Q", len(content))
        common = struct.pack("<HHHHHIIIH", 45, 1 << 11, 0, 0, 0, zlib.crc32(data), FULL, FULL, len(name))
        content += b"PK\3\4" + common + struct.pack("<H", 20) + name.encode()
        content += struct.pack("<HH", 1, 16) + sizes + data
        directory += b"PK\1\2" + struct.pack("<H", 3 << 8 | 45) + common + struct.pack("<HHHHII", 28, 0, 0, 1, 0, FULL)
        directory += name.encode() + struct.pack("<HH", 1, 24) + sizes + at
    n, size, offset = len(members), len(directory), len(content)
    content += directory
    content += b"PK\6\6" + struct.pack("<QHHIIQQQQ", 44, 3 << 8 | 45, 45, 0, 0, n, n, size, offset)
    content += b"PK\6\7" + struct.pack("<IQI", 0, offset + size, 1)
    content += b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, n, n, size, FULL, 0)
    return bytes(content)


# Offsets of fields in the records of an archive, and how they are packed.
LOCAL = {"magic": (0, "<I"), "flags": (6, "<H"), "method": (8, "<H"), "stored": (18, "<I"), "size": (22, "<I")}
LOCAL |= {"name_len": (26, "<H"), "extra_len": (28, "<H"), "name": (30, "<B")}
ENTRY = {"magic": (0, "<I"), "flags": (8, "<H"), "method": (10, "<H"), "stored": (20, "<I"), "size": (24, "<I")}
ENTRY |= {"name_len": (28, "<H"), "extra_len": (30, "<H"), "comment_len": (32, "<H"), "header": (42, "<I")}
ENTRY |= {"name": (46, "<B")}
END = {"magic": (0, "<I"), "disk": (4, "<H"), "entries_here": (8, "<H"), "entries": (10, "<H")}
END |= {"size": (12, "<I"), "offset": (16, "<I"), "comment_len": (20, "<H")}
LOCATOR64 = {"magic": (0, "<I"), "offset": (8, "<Q")}
END64 = {"magic": (0, "<I"), "length": (4, "<Q"), "disk": (16, "<I"), "entries_here": (24, "<Q"), "entries": (32, "<Q")}
END64 |= {"size": (40, "<Q"), "offset": (48, "<Q")}
FIELDS = {"local": LOCAL, "entry": ENTRY, "end": END, "locator64": LOCATOR64, "end64": END64}


@dataclass
class Edit:
    """An archive whose records can be changed: edit["entry", "a.gguf", "size"] += 1."""

    data: bytearray
    at: dict[tuple[str, str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        with zipfile.ZipFile(io.BytesIO(self.data)) as source:
            at = source.start_dir
            for info in source.infolist():
                self.at["local", info.filename] = info.header_offset
                self.at["entry", info.filename] = at
                at += 46 + sum(struct.unpack_from("<HHH", self.data, at + 28))
        self.at["end", ""] = end = self.data.rindex(b"PK\5\6")
        self.at["locator64", ""] = end - 20
        self.at["end64", ""] = end - 76

    def __getitem__(self, key: tuple[str, str, str]) -> int:
        record, name, what = key
        offset, form = FIELDS[record][what]
        value: int = struct.unpack_from(form, self.data, self.at[record, name] + offset)[0]
        return value

    def __setitem__(self, key: tuple[str, str, str], value: int) -> None:
        record, name, what = key
        offset, form = FIELDS[record][what]
        wide = 1 << 8 * struct.calcsize(form)
        struct.pack_into(form, self.data, self.at[record, name] + offset, value % wide)


def with_end64(data: bytes) -> bytes:
    """The archive with ZIP64 end records, as an archive of more than 4 GiB has them."""
    end = data.rindex(b"PK\5\6")
    entries, size, offset = struct.unpack_from("<HII", data, end + 10)
    end64 = struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, entries, entries, size, offset)
    locator = struct.pack("<IIQI", 0x07064B50, 0, end, 1)
    last = bytearray(data[end:])
    struct.pack_into("<HHII", last, 8, 0xFFFF, 0xFFFF, FULL, FULL)
    return data[:end] + end64 + locator + bytes(last)
