"""`python3 -m tools VERB`: finds the verb's module, makes the environment it needs, runs it."""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import sys
from pathlib import Path
from typing import NoReturn

if sys.version_info < (3, 11):  # noqa: UP036 - tells those who start it with an older one
    sys.exit(f"error: Python 3.11 or newer is needed; this is {sys.version.split()[0]} ({sys.executable})")

from tools import bootstrap
from tools.fail import Fail

# In the order they follow each other. The module of a verb has its name; the first line of its docstring is its help.
VERBS = ("setup", "fetch", "patch", "ui", "build", "wheel", "run", "pack", "test", "lab", "bench", "clean")

# Requirement groups of pyproject.toml that a verb needs, where that is more than `tools`.
GROUPS = {"setup": ("tools", "test"), "test": ("tools", "test")}


class Parser(argparse.ArgumentParser):
    """argparse with one-line errors."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message} (see: {self.prog} --help)\n")


def module_file(verb: str) -> Path | None:
    here = Path(__file__).parent
    candidates = (here / f"{verb}.py", here / verb / "__init__.py")
    return next((file for file in candidates if file.is_file()), None)


def help_line(file: Path) -> str:
    """First line of a module's docstring, read without importing it: its imports may not be installed yet."""
    doc = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return doc.partition("\n")[0]


def available() -> dict[str, Path]:
    return {verb: file for verb in VERBS if (file := module_file(verb))}


def usage() -> str:
    verbs = available()
    width = max(map(len, verbs))
    lines = "\n".join(f"  {verb:{width}}  {help_line(file)}" for verb, file in verbs.items())
    return f"usage: python3 -m tools VERB [options]\n\n{lines}\n\npython3 -m tools VERB --help tells more about one.\n"


def run_verb(verb: str, arguments: list[str]) -> int:
    if verb not in available():
        raise Fail(f"there is no verb {verb!r}; there are: {', '.join(available())}", code=2)
    bootstrap.enter(GROUPS.get(verb, ("tools",)), [verb, *arguments])
    module = importlib.import_module(f"tools.{verb}")
    parser = Parser(prog="python3 -m tools")
    module.register(parser.add_subparsers(dest="verb", required=True, parser_class=Parser))
    return int(module.run(parser.parse_args([verb, *arguments])))


def main(arguments: list[str]) -> int:
    """Run one verb; returns the exit code (1: it failed, 2: it was asked wrongly, 130: interrupted)."""
    if not arguments:
        sys.stderr.write(usage())
        return 2
    if arguments[0] in ("-h", "--help", "help"):
        sys.stdout.write(usage())
        return 0
    try:
        return run_verb(arguments[0], arguments[1:])
    except Fail as failure:
        print(f"error: {failure}", file=sys.stderr)
        return failure.code
    except BrokenPipeError:
        # The reader of our output has gone (`| head`); nothing is left to say, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
