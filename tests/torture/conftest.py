"""A whole cluster in namespaces, for each test that asks for one."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.torture import namespaces
from tests.torture.cluster import Cluster
from tests.torture.network import Network
from tests.torture.postgres import PostgresPair


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the tasks' users and PostgreSQL's can reach, unlike pytest's own."""
    place = Path(tempfile.mkdtemp(prefix="duly-torture-"))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def network(folder: Path) -> Iterator[Network]:
    why_not = namespaces.lacking()
    if why_not:
        pytest.skip(why_not)
    with Network() as network:
        yield network


@pytest.fixture
def postgres(network: Network, folder: Path) -> Iterator[PostgresPair]:
    with PostgresPair(network, folder) as pair:
        yield pair


@pytest.fixture
def cluster(network: Network, postgres: PostgresPair, folder: Path) -> Iterator[Cluster]:
    with Cluster(network, postgres, folder) as cluster:
        yield cluster
