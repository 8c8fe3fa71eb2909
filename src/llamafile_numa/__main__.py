"""`llamafile-numa` and `python -m llamafile_numa`: hand over to the program."""

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
    # Windows cannot replace a process. Ctrl-C reaches the program by itself, so here it is only waited for.
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(subprocess.run(command, check=False).returncode)


if __name__ == "__main__":
    main()
