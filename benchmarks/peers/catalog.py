"""The measured systems, in the order of the table. To add one, add a file and a line here."""

from benchmarks.peers.system import System
from benchmarks.peers.systems.awa_postgres import AwaPostgres
from benchmarks.peers.systems.celery_redis import CeleryRedis
from benchmarks.peers.systems.dramatiq_redis import DramatiqRedis
from benchmarks.peers.systems.duly_up import DulyUp
from benchmarks.peers.systems.gnu_parallel import GnuParallel
from benchmarks.peers.systems.huey_redis import HueyRedis
from benchmarks.peers.systems.procrastinate_postgres import ProcrastinatePostgres
from benchmarks.peers.systems.rq_redis import RqRedis
from benchmarks.peers.systems.taskiq_redis import TaskiqRedis
from benchmarks.peers.systems.two_loops import TwoLoops
from benchmarks.peers.systems.xargs import Xargs

ALL: tuple[type[System], ...] = (
    DulyUp,
    AwaPostgres,
    ProcrastinatePostgres,
    CeleryRedis,
    DramatiqRedis,
    HueyRedis,
    TaskiqRedis,
    RqRedis,
    GnuParallel,
    Xargs,
    TwoLoops,
)
SYSTEMS = {system.about.name: system for system in ALL}
