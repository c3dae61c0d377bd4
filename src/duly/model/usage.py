"""Usage: what attempts took, and the prices that it is paid at.

Amounts are whole numbers (microseconds, times thousandths of a core or mebibytes), so that
a sum is the same in whatever order, and by whomever, it is made.
"""

from datetime import date, timedelta
from decimal import Decimal
from enum import StrEnum

import msgspec

from duly.model.task import Outcome
from duly.model.tenant import Plan


class Urgency(StrEnum):
    """How much sooner than others a task is to start; what it costs depends on it."""

    URGENT = "urgent"
    ORDINARY = "ordinary"
    PATIENT = "patient"
    OFF_PEAK = "off_peak"


class Amounts(msgspec.Struct, frozen=True, kw_only=True):
    """What some attempts took."""

    tasks: int = 0
    """Tasks whose first attempt is among them: a task counts once."""
    attempts: int = 0
    cpu_us: int = 0
    """The time that processors really worked."""
    granted_cpu_milli_us: int = 0
    """Thousandths of a core, times how long the attempt ran."""
    granted_memory_mb_us: int = 0
    """Mebibytes, times how long the attempt ran."""

    def plus(self, other: "Amounts") -> "Amounts":
        """Return both together."""
        return Amounts(
            tasks=self.tasks + other.tasks,
            attempts=self.attempts + other.attempts,
            cpu_us=self.cpu_us + other.cpu_us,
            granted_cpu_milli_us=self.granted_cpu_milli_us + other.granted_cpu_milli_us,
            granted_memory_mb_us=self.granted_memory_mb_us + other.granted_memory_mb_us,
        )


NONE = Amounts()


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan asks for, before it is made dearer or cheaper by urgency."""

    price_per_task: Decimal = Decimal(0)
    price_per_cpu_hour: Decimal = Decimal(0)
    price_per_gib_hour: Decimal = Decimal(0)

    @classmethod
    def of(cls, plan: Plan) -> "Rates":
        """Return the prices of a plan."""
        return cls(
            price_per_task=plan.price_per_task,
            price_per_cpu_hour=plan.price_per_cpu_hour,
            price_per_gib_hour=plan.price_per_gib_hour,
        )


class Band(msgspec.Struct, frozen=True):
    """The tolerances from `above` on, up to the next band, and what they cost."""

    urgency: Urgency
    since: timedelta
    factor: Decimal


class Tariff(msgspec.Struct, frozen=True):
    """How attempts are told apart by what they cost, the shortest tolerance first."""

    bands: tuple[Band, ...]
    free: frozenset[Outcome]
    """Outcomes of attempts that nobody pays for."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """By whom, when and for what something was used; None where that is not told apart."""

    day: date | None = None
    tenant: str | None = None
    user: str | None = None
    tier: str | None = None
    urgency: Urgency | None = None


class Used(msgspec.Struct, frozen=True):
    """What was used in one place, at one price."""

    place: Place
    rates: Rates
    factor: Decimal
    amounts: Amounts
