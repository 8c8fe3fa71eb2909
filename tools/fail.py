"""The one exception that stands for "the user has to do something": no imports, so that anything can raise it."""


class Fail(Exception):  # noqa: N818 - short, as it is raised everywhere
    """A one-line error: what was wrong, what is possible instead. main() prints it and exits with `code`."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code
