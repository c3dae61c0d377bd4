"""A cluster in namespaces, shared by the tests of a file."""

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
    """A folder that the users of tasks and of PostgreSQL can enter, unlike pytest's own.

    DULY_KEEP keeps it, with the logs of all processes.
    """
    path = Path(tempfile.mkdtemp(prefix="duly-torture-"))
    path.chmod(0o755)
    yield path
    if not os.environ.get("DULY_KEEP"):
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def network(folder: Path) -> Iterator[Network]:
    missing = namespaces.missing_requirement()
    if missing:
        pytest.skip(missing)
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
