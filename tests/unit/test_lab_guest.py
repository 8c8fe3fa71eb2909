"""The guest's files: the initrd, and our C tools as seen by the kernel of this machine."""

from __future__ import annotations

import lzma
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools.lab import disk, evidence, guest, kernel, needs
from tools.lab.guest import File

linux = pytest.mark.skipif(bool(needs.missing()), reason=str(needs.missing()))


@linux
def test_an_initrd_as_cpio_reads_it(tmp_path: Path) -> None:
    content = {"/init": File(b"#!", executable=True), "/a/b/odd": File(b"12345"), "/a/empty": File(b"")}
    unpack = subprocess.run(
        [needs.path("busybox"), "cpio", "-id"],
        cwd=tmp_path,
        input=guest.cpio(content),
        capture_output=True,
        check=False,
    )
    assert unpack.returncode == 0, unpack.stderr
    found = {f"/{file.relative_to(tmp_path)}": file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert found == {path: file.content for path, file in content.items()}
    assert os.access(tmp_path / "init", os.X_OK)
    assert not os.access(tmp_path / "a/empty", os.X_OK)


@linux
def test_a_program_comes_with_its_libraries() -> None:
    files = guest.with_libraries(Path(needs.path("numactl")), "/tools/numactl")
    names = {Path(path).name for path in files}
    assert {"numactl", "libnuma.so.1", "libc.so.6", "ld-linux-x86-64.so.2"} <= names


@linux
def test_a_static_program_comes_alone() -> None:
    assert list(guest.libraries(Path(needs.path("busybox")))) == []


def test_modules_are_unpacked(tmp_path: Path) -> None:
    (tmp_path / "virtio.ko.xz").write_bytes(lzma.compress(b"module"))
    (tmp_path / "virtio.ko").write_bytes(b"module")
    assert {guest.read_module(file) for file in tmp_path.iterdir()} == {b"module"}


def test_modules_are_found_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "boot").mkdir()
    (tmp_path / "boot/vmlinuz-1").touch()
    for name in ("virtio_blk.ko", "virtio.ko.xz", "virtio_net.ko", "virtio_pci.ko"):
        (tmp_path / name).touch()
    found = kernel.find(tmp_path)
    assert found.image.name == "vmlinuz-1"
    assert [module.name for module in found.modules] == ["virtio.ko.xz", "virtio_pci.ko", "virtio_blk.ko"]


@linux
def test_a_disk_holds_the_model_and_an_empty_file(tmp_path: Path) -> None:
    model, image = tmp_path / "some.gguf", tmp_path / "disk.img"
    model.write_bytes(os.urandom(3 << 20))
    disk.build({"model": model, "other": model}, image)
    debugfs = needs.find("debugfs")
    assert debugfs
    listing = subprocess.run([debugfs, "-R", "ls -l", str(image)], capture_output=True, text=True, check=True).stdout
    sizes = {name: int(size) for size, name in re.findall(r"(\d+)\s+\S+\s+\S+\s+([a-z][\w.]*)\n", listing)}
    assert sizes["model.gguf"] == sizes["other.gguf"] == 3 << 20
    assert sizes["filler"] == disk.FILLER_BYTES
    dumped = tmp_path / "dumped"
    subprocess.run([debugfs, "-R", f"dump other.gguf {dumped}", str(image)], capture_output=True, check=True)
    assert dumped.read_bytes() == model.read_bytes()


# A process that maps a file and some memory, touches a part of each, and waits.
MAPPER = """\
import mmap, sys
size = 4 << 20
model = open(sys.argv[1], "rb")
file = mmap.mmap(model.fileno(), size, access=mmap.ACCESS_READ)
memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE)
memory.madvise(15)  # no huge pages: the count is to be exact
for page in range(0, size, 4096):
    file[page]
    if page < size // 2:
        memory[page] = 1
print("ready", flush=True)
sys.stdin.read()
"""


@linux
def test_pages_and_numa_maps_count_the_same(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.write_bytes(bytes(4 << 20))
    with subprocess.Popen(
        [sys.executable, "-c", MAPPER, str(model)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stdin
        assert process.stdout.readline() == "ready\n"
        proc = Path("/proc", str(process.pid))
        if not (proc / "numa_maps").exists():
            pytest.skip("this kernel has no numa_maps")
        numa_maps = (proc / "numa_maps").read_text()
        counted = subprocess.run(
            [guest.compile_tool("pages"), str(process.pid), str(model)], capture_output=True, text=True, check=False
        )
        process.stdin.close()
    if "Operation not permitted" in counted.stderr:
        pytest.skip("this container does not allow move_pages")
    assert counted.returncode == 0, counted.stderr
    seen = evidence.see(numa_maps, counted.stdout, "", str(model))
    assert sum(seen.model.values()) == 1024
    assert seen.model == seen.model_moved
    assert sum(seen.buffers.values()) >= 512
    assert seen.buffers == seen.buffers_moved


@linux
def test_pages_of_nobody() -> None:
    done = subprocess.run([guest.compile_tool("pages"), "0", "/x"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("pages: /proc/0/maps: ")


@linux
@pytest.mark.parametrize(
    ("calls", "code", "says"),
    [
        ("mbind,sched_setaffinity", 1, "PermissionError"),
        ("set_mempolicy,mbind,get_mempolicy,move_pages,migrate_pages", 0, ""),
        ("open", 126, "deny: unknown call"),
        (",".join(["mbind"] * 9), 126, "deny: unknown call, or one too many"),
    ],
)
def test_denied_calls(calls: str, code: int, says: str) -> None:
    program = [sys.executable, "-c", "import os; os.sched_setaffinity(0, os.sched_getaffinity(0))"]
    command = [str(guest.compile_tool("deny")), calls, *program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, says in done.stderr, bool(done.stderr)) == (code, True, bool(says))
