"""Types for tests of the encoding."""

import dataclasses
import enum
from datetime import date, datetime
from decimal import Decimal
from typing import Generic, Literal, NamedTuple, NewType, NotRequired, TypedDict, TypeVar
from uuid import UUID

import msgspec
import pydantic

T = TypeVar("T")
OrderId = NewType("OrderId", int)


class Colour(enum.Enum):
    """An enum of text."""

    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    """An enum of numbers."""

    LOW = 1
    HIGH = 2


class Shape(enum.Enum):
    """An enum whose values are neither."""

    POINT = (0, 0)
    LINE = (0, 1)


@dataclasses.dataclass(frozen=True)
class Money:
    """A plain dataclass."""

    amount: Decimal
    currency: str = "EUR"


@dataclasses.dataclass
class Order:
    """A dataclass with others inside, itself included."""

    id: OrderId
    at: datetime
    prices: dict[str, Money]
    tags: set[Colour] = dataclasses.field(default_factory=set)
    parent: "Order | None" = None


@dataclasses.dataclass
class Box(Generic[T]):
    """A generic dataclass."""

    content: T
    label: str = ""


@dataclasses.dataclass(frozen=True)
class Refund:
    """Looks like Money in JSON, but for its type."""

    amount: Decimal
    currency: str = "EUR"


class Point(NamedTuple):
    """A named tuple."""

    x: int
    y: float


class Options(TypedDict):
    """A typed dict."""

    day: date
    mode: NotRequired[Literal["fast", "slow", 3]]


class Track(msgspec.Struct, frozen=True):
    """A struct of msgspec."""

    key: UUID
    points: tuple[Point, ...] = ()


class Profile(pydantic.BaseModel):
    """A model of pydantic."""

    name: str
    born: date | None = None
    scores: list[Decimal] = []
