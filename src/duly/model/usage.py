"""Usage: the resources that attempts used, and their prices.

Amounts are integers (microseconds, times thousandths of a core or mebibytes), so that a sum is the
same in any order of addition, and wherever it is computed.
"""

from datetime import date, timedelta
from decimal import Decimal
from enum import StrEnum

import msgspec

from duly.model.task import Outcome
from duly.model.tenant import Plan


class Urgency(StrEnum):
    """How urgently a task must start; its price depends on it."""

    URGENT = "urgent"
    ORDINARY = "ordinary"
    PATIENT = "patient"
    OFF_PEAK = "off_peak"


class Amounts(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of a set of attempts."""

    tasks: int = 0
    """Tasks whose first attempt is in the set: a task counts once."""
    attempts: int = 0
    cpu_us: int = 0
    """CPU time that was actually used."""
    granted_cpu_milli_us: int = 0
    """Thousandths of a core, times the attempt's run time."""
    granted_memory_mb_us: int = 0
    """Mebibytes, times the attempt's run time."""

    def plus(self, other: "Amounts") -> "Amounts":
        """Return the sum of both."""
        return Amounts(
            tasks=self.tasks + other.tasks,
            attempts=self.attempts + other.attempts,
            cpu_us=self.cpu_us + other.cpu_us,
            granted_cpu_milli_us=self.granted_cpu_milli_us + other.granted_cpu_milli_us,
            granted_memory_mb_us=self.granted_memory_mb_us + other.granted_memory_mb_us,
        )


NO_AMOUNTS = Amounts()


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """The prices of a plan, before the factor for urgency is applied."""

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


class TariffBand(msgspec.Struct, frozen=True):
    """Delay tolerances from `min_tolerance` up to the next band, and their price factor."""

    urgency: Urgency
    min_tolerance: timedelta
    factor: Decimal


class Tariff(msgspec.Struct, frozen=True):
    """Price factors by delay tolerance, the shortest first."""

    bands: tuple[TariffBand, ...]
    free: frozenset[Outcome]
    """Outcomes of attempts that are not charged."""


class UsageDimensions(msgspec.Struct, frozen=True, kw_only=True):
    """The dimensions of usage; None for a dimension that is aggregated."""

    day: date | None = None
    tenant: str | None = None
    user: str | None = None
    tier: str | None = None
    urgency: Urgency | None = None


class UsageRecord(msgspec.Struct, frozen=True):
    """Usage with the same dimensions and price."""

    dimensions: UsageDimensions
    rates: Rates
    factor: Decimal
    amounts: Amounts
