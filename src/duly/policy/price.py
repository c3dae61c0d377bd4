"""Decides the price of usage.

A plan has a price per task, per core hour and per GiB hour of memory. Billed is what an attempt
was granted for as long as it ran, whether it used it or not. The sum is multiplied by a factor
for urgency: a task that tolerates delay can be moved to quiet hours and costs less.

Urgency follows from the requested queue and the delay tolerance: `urgent` pays the urgent rate
whatever its tolerance, and `off_peak` is one band cheaper if the task tolerates any delay. In an
administrator's queue, and for a retry that was moved to a higher one, the tolerance alone counts.
`count_usage`, which sums usage in PostgreSQL, implements the same rule.
"""

from datetime import timedelta
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from fractions import Fraction

from duly.model.queues.queue import Queue
from duly.model.task import Outcome
from duly.model.usage import Amounts, Rates, Tariff, TariffBand, Urgency

TARIFF = Tariff(
    bands=(
        TariffBand(Urgency.URGENT, timedelta(0), Decimal("1.5")),
        TariffBand(Urgency.ORDINARY, timedelta(minutes=1), Decimal("1")),
        TariffBand(Urgency.PATIENT, timedelta(hours=1), Decimal("0.8")),
        TariffBand(Urgency.OFF_PEAK, timedelta(hours=12), Decimal("0.5")),
    ),
    free=frozenset({Outcome.LOST, Outcome.PREEMPTED, Outcome.EXPIRED}),
)
"""Attempts that Duly interrupted are free: the task did nothing wrong."""

HOUR_MICROSECONDS = 3600 * 1_000_000
PRICE_QUANTUM = Decimal("0.000001")
"""Prices are shown with this precision; sums are exact."""


def band_of(
    delay_tolerance: timedelta, queue: str | None = None, tariff: Tariff = TARIFF
) -> TariffBand:
    """Return the tariff band of a task, by its requested queue and its delay tolerance."""
    if queue == Queue.URGENT:
        return tariff.bands[0]
    reached = sum(band.min_tolerance <= delay_tolerance for band in tariff.bands)
    if queue == Queue.OFF_PEAK and reached > 1:
        reached = min(reached + 1, len(tariff.bands))
    return tariff.bands[reached - 1]


def cost(rates: Rates, factor: Decimal, amounts: Amounts) -> Fraction:
    """Return the exact price of `amounts`, so that the prices of parts add up to the whole."""
    cpu_hours = Fraction(amounts.granted_cpu_milli_us, 1000 * HOUR_MICROSECONDS)
    gib_hours = Fraction(amounts.granted_memory_mb_us, 1024 * HOUR_MICROSECONDS)
    plain = (
        Fraction(rates.price_per_task) * amounts.tasks
        + Fraction(rates.price_per_cpu_hour) * cpu_hours
        + Fraction(rates.price_per_gib_hour) * gib_hours
    )
    return Fraction(factor) * plain


def round_price(price: Fraction) -> Decimal:
    """Return a price as shown to people: rounded once, after summing."""
    with localcontext() as context:
        context.prec = 60
        exact = Decimal(price.numerator) / Decimal(price.denominator)
        return exact.quantize(PRICE_QUANTUM, rounding=ROUND_HALF_EVEN)
