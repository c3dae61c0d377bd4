"""The interface of a measured system: its description and four operations.

A system's file is imported in the environment of every other one too, so it imports its own
libraries only inside its methods.
"""

import json
import os
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, Self

PLACE = "PEERS_PLACE"
"""The variable that carries the place: it may hold a password, and arguments are public."""


class Broker(StrEnum):
    """Where a system keeps what waits, and when that is on disk."""

    NONE = "none"
    OWN = "own PostgreSQL, every commit"
    POSTGRES = "PostgreSQL, every commit"
    REDIS = "Redis, fsync every second"
    REDIS_ALWAYS = "Redis, fsync always"


@dataclass(frozen=True, slots=True)
class Facts:
    """What a system gives beside speed, in sentences for somebody who has to choose."""

    worker_killed: str
    isolation: str
    caps: str
    logs: str


@dataclass(frozen=True, slots=True)
class About:
    """Who a system is, what has to be there for it, and how it was set up."""

    name: str
    title: str
    brokers: tuple[Broker, ...]
    settings: tuple[str, ...]
    """As somebody would write them down to do the same again."""
    facts: Facts
    packages: tuple[str, ...] = ()
    """From PyPI."""
    program: str = ""
    """From Debian, in a package of the same name."""
    is_peer: bool = True
    """Not so for Duly, and for what is there to compare with."""


@dataclass(frozen=True, slots=True)
class Place:
    """What the environment of a measurement has for the system."""

    folder: Path
    broker: str = ""
    """The address of the broker, if there is one."""
    program: str = ""

    @classmethod
    def from_environment(cls) -> Self:
        """Return the place that we were started for."""
        kept = json.loads(os.environ[PLACE])
        return cls(Path(kept["folder"]), kept["broker"], kept["program"])

    def as_variable(self) -> dict[str, str]:
        """Return what the environment of another process needs to find the same place."""
        return {PLACE: json.dumps(asdict(self) | {"folder": str(self.folder)})}


class System(ABC):
    """Something that runs commands. Tasks have numbers, from 0 on, each used once."""

    about: ClassVar[About]

    def __init__(self, place: Place) -> None:
        self.place = place

    @abstractmethod
    def prepare(self) -> None:
        """Start what runs tasks. The first tasks show whether it does."""

    @abstractmethod
    def submit(self, numbers: range, command: list[str]) -> None:
        """Hand in a task for each of `numbers`, in the quickest way that is offered."""

    @abstractmethod
    def wait(self, numbers: range) -> None:
        """Return when all of `numbers`, which were submitted, have ended."""

    @abstractmethod
    def check(self, total: int) -> None:
        """Raise `Wrong` unless every number below `total` ran exactly once, and well."""

    @abstractmethod
    def stop(self) -> None:
        """Leave no process behind, however far `prepare` came."""


class Wrong(Exception):
    """The system did not do what was asked, so its figures mean nothing."""


class LeftOut(Exception):
    """Something is missing here; the sentence says what, and for whom."""
