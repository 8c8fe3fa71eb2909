"""The programs under test, built for the CPU that the guest will have."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tools import build, compiler, patch
from tools.console import err, say
from tools.fail import Fail
from tools.lock import locked
from tools.paths import flavour_dir

FLAVOURS = {"llamafile-numa": "native", "llama": "upstream", "llamafile-numa.exe": "win_amd64"}

# CMake reads it right after `project(ggml)`, where it overrides what our CMakeLists.txt has set.
EMULATED_CPU = Path(__file__).parent / "emulated_cpu.cmake"


def program(name: str, accelerator: str) -> Path:
    """An up-to-date program by its name in scenarios. Under KVM the guest has this machine's CPU, else QEMU's.

    What is built for Windows is for no particular machine.
    """
    flavour = FLAVOURS[name]
    as_it_is = accelerator == "kvm" or flavour not in build.FOR_THIS_CPU
    return build.build(flavour) if as_it_is else build_emulated(flavour)


def build_emulated(flavour: str) -> Path:
    """A flavour beside its usual build, in `emulated` instead of `out`: the compiler cache shares all but ggml's CPU
    backend. QEMU emulates no AVX-512, which a build for this machine's CPU may use."""
    tree = patch.prepare(flavour)
    chosen = compiler.choose(flavour)
    folder = flavour_dir(flavour) / "emulated"
    lock = flavour_dir(flavour) / ".build.lock"
    with locked(lock, lambda: say(f"waiting for another run that builds {flavour}")):
        build.configure(flavour, folder, tree, chosen)
        if build.cached(folder, "CMAKE_PROJECT_ggml_INCLUDE") != EMULATED_CPU:
            reconfigure(folder)
        build.compile_all(folder, f"{flavour}, for an emulated CPU")
    return folder / "bin" / build.program(flavour).name


def reconfigure(folder: Path) -> None:
    cmake = build.installed("cmake", "CMAKE_BIN_DIR")
    command = [str(cmake), f"-DCMAKE_PROJECT_ggml_INCLUDE:FILEPATH={EMULATED_CPU}", str(folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        err.print(done.stdout)
        raise Fail(f"CMake cannot configure {folder.parent.name} for an emulated CPU; its words are above")
