import os
import socket

from duly.config import Settings
from duly.launch.serve import ServeOptions, advertised_url, listen
from duly.server import components as server_components
from duly.server.cluster.cluster_manager import SERVER_TIMEOUT
from duly.store.fleet import overview


def test_a_server_that_listens_everywhere_is_advertised_by_its_machine():
    options = ServeOptions(dsn="", store_url="", host="0.0.0.0")
    with listen("127.0.0.1", 0) as sock:
        port = sock.getsockname()[1]
        assert advertised_url(options, sock) == f"http://{socket.gethostname()}:{port}"
        local = ServeOptions(dsn="", store_url="", host="127.0.0.1")
        assert advertised_url(local, sock) == f"http://127.0.0.1:{port}"


async def test_a_server_is_listed_with_its_address_and_process(database, tmp_path):
    built = server_components.build(database, Settings(), str(tmp_path / "store"))
    built.cluster_manager.advertise("http://127.0.0.1:8470")
    await built.cluster_manager.tick()
    async with database.connection() as conn:
        (listed,) = await overview.read_servers(conn, silence=SERVER_TIMEOUT, listed=SERVER_TIMEOUT)
    assert (listed.address, listed.pid, listed.host) == (
        "http://127.0.0.1:8470", os.getpid(), socket.gethostname(),
    )  # fmt: skip
