"""The interface of a measured system: its description and its operations.

Every module of a system is imported in the environments of all others, too, so it imports its own
libraries only inside its methods.
"""

import json
import os
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, Self

CONTEXT_VARIABLE = "PEERS_CONTEXT"
"""An environment variable, because the context may hold a password, and arguments are public."""


class Broker(StrEnum):
    """Where a system keeps waiting tasks, and when they are on disk."""

    NONE = "none"
    OWN = "own PostgreSQL, every commit"
    POSTGRES = "PostgreSQL, every commit"
    REDIS = "Redis, fsync every second"
    REDIS_ALWAYS = "Redis, fsync always"


@dataclass(frozen=True, slots=True)
class Facts:
    """The properties of a system beside speed, for readers who have to choose one."""

    worker_killed: str
    isolation: str
    caps: str
    logs: str


@dataclass(frozen=True, slots=True)
class About:
    """The description of a system, its requirements, and its configuration."""

    name: str
    title: str
    brokers: tuple[Broker, ...]
    settings: tuple[str, ...]
    """As needed to repeat the measurement."""
    facts: Facts
    packages: tuple[str, ...] = ()
    """Packages from PyPI."""
    program: str = ""
    """A program from the Debian package of the same name."""
    is_peer: bool = True
    """False for Duly itself, and for baselines."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a measurement provides to the system."""

    folder: Path
    broker: str = ""
    """The address of the broker, if there is one."""
    program: str = ""

    @classmethod
    def from_environment(cls) -> Self:
        """Decode the context from the environment of this process."""
        data = json.loads(os.environ[CONTEXT_VARIABLE])
        return cls(Path(data["folder"]), data["broker"], data["program"])

    def as_variable(self) -> dict[str, str]:
        """Return the environment variable that passes the context to a child process."""
        return {CONTEXT_VARIABLE: json.dumps(asdict(self) | {"folder": str(self.folder)})}


class System(ABC):
    """A system that runs commands. Tasks are numbered from 0; each number is used once."""

    about: ClassVar[About]
    calls_functions: ClassVar[bool] = False
    """Whether it runs Python functions as well, in processes that are there already."""

    def __init__(self, context: Context) -> None:
        self.context = context

    @abstractmethod
    def prepare(self) -> None:
        """Start the processes that run tasks. The warm-up tasks show whether they work."""

    @abstractmethod
    def submit(self, numbers: range, command: list[str]) -> None:
        """Submit a task for each of `numbers`, in the fastest way that the system offers."""

    def prepare_functions(self) -> None:  # noqa: B027
        """Start what only functions need; by default nothing."""

    def call(self, numbers: range, pipe: str = "") -> None:
        """Submit a call for each of `numbers`, of a function that records its number.

        With a `pipe`, the function opens that first.
        """
        raise NotImplementedError

    @abstractmethod
    def wait(self, numbers: range) -> None:
        """Return when all of `numbers` have ended."""

    @abstractmethod
    def check(self, total: int) -> None:
        """Raise `CheckFailed` unless every number below `total` ran exactly once and succeeded."""

    @abstractmethod
    def stop(self) -> None:
        """Stop all processes, even if `prepare` failed halfway."""


class CheckFailed(Exception):
    """The system lost, repeated or failed tasks, so its figures mean nothing."""


class Unavailable(Exception):
    """A program or package that the system needs is missing on this machine."""
