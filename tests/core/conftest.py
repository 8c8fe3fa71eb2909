import pytest

from tests.core import dump


@pytest.fixture(scope="session")
def topology(tmp_path_factory: pytest.TempPathFactory) -> dump.Dump:
    """topology_dump, compiled once with sanitizers."""
    return dump.build(tmp_path_factory.mktemp("topology_dump"))
