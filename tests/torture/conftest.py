"""A whole cluster in namespaces, for the tests of one file together."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.torture import namespaces
from tests.torture.cluster import Cluster
from tests.torture.network import Network
from tests.torture.postgres import PostgresPair


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that the tasks' users and PostgreSQL's can reach, unlike pytest's own.

    DULY_KEEP keeps it, for whoever wants to know what the processes have said.
    """
    place = Path(tempfile.mkdtemp(prefix="duly-torture-"))
    place.chmod(0o755)
    yield place
    if not os.environ.get("DULY_KEEP"):
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="module")
def network(folder: Path) -> Iterator[Network]:
    why_not = namespaces.lacking()
    if why_not:
        pytest.skip(why_not)
    with Network() as network:
        yield network


@pytest.fixture(scope="module")
def postgres(network: Network, folder: Path) -> Iterator[PostgresPair]:
    with PostgresPair(network, folder) as pair:
        yield pair


@pytest.fixture(scope="module")
def cluster(network: Network, postgres: PostgresPair, folder: Path) -> Iterator[Cluster]:
    with Cluster(network, postgres, folder) as cluster, cluster.client_host.entered():
        yield cluster
