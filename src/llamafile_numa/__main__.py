"""`llamafile-numa` and `python -m llamafile_numa`: hand over to the program.

On Windows the program is a child of this process (and this one of the launcher that pip makes). What it is given:

- arguments, environment, standard streams, and its exit code, which becomes this process's;
- Ctrl-C and Ctrl-Break, which Windows sends to each process of a console;
- a processor affinity (`start /AFFINITY`), which child processes inherit;
- the end of this process, a forced one, too, with which the program ends;
- not `start /NODE` by itself, a hint for the one process that `start` makes: start the program there, which is where
  `find_bin()` says, or give --numa-node.
"""

import os
import subprocess
import sys
from typing import NoReturn

from llamafile_numa import find_bin


def main() -> NoReturn:
    """Become the program, with this process's arguments; on Windows run it and pass on its exit code."""
    try:
        program = find_bin()
    except FileNotFoundError as error:
        sys.exit(f"error: {error}")
    command = [program, *sys.argv[1:]]
    if sys.platform != "win32":
        os.execv(program, command)
    # Windows cannot replace a process: this one waits, whatever keys are pressed, for the program to deal with them.
    import signal

    for name in ("SIGINT", "SIGBREAK"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    environment = {**os.environ, "LLAMAFILE_NUMA_EXIT_WITH_PARENT": str(os.getpid())}
    code = subprocess.run(command, env=environment, check=False).returncode
    # Codes of 32 bits, 0xC0000005 for one; exit() takes them with a sign, and makes -1 of any that is too large.
    sys.exit(code - (1 << 32) if code >= 1 << 31 else code)


if __name__ == "__main__":
    main()
