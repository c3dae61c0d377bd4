"""Decides what work costs.

A plan has a price for each task, for each hour of a core and for each hour of a GiB of
memory. Granted is what counts, for as long as an attempt ran: what a task keeps from others
it pays for, whether it uses it or not. All of it is multiplied by a factor that follows from
how long the start could be put off: who can wait lets us fill the quiet hours, and pays less.

Urgency follows from the queue that a task asks for, and from its delay tolerance: `urgent` is
paid for however long the task could wait, and `off_peak` is one band cheaper, if it can wait at
all. PostgreSQL, which adds up what was used, decides the same in `count_usage`.
"""

from datetime import timedelta
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from fractions import Fraction

from duly.model.queue import Queue
from duly.model.task import Outcome
from duly.model.usage import Amounts, Band, Rates, Tariff, Urgency

TARIFF = Tariff(
    bands=(
        Band(Urgency.URGENT, timedelta(0), Decimal("1.5")),
        Band(Urgency.ORDINARY, timedelta(minutes=1), Decimal("1")),
        Band(Urgency.PATIENT, timedelta(hours=1), Decimal("0.8")),
        Band(Urgency.OFF_PEAK, timedelta(hours=12), Decimal("0.5")),
    ),
    free=frozenset({Outcome.LOST, Outcome.PREEMPTED, Outcome.EXPIRED}),
)
"""What Duly itself broke off costs nothing: the task did nothing wrong."""

HOUR = 3600 * 1_000_000
"""In microseconds."""
CENT = Decimal("0.000001")
"""Prices are told to so many digits; they are added up without rounding."""


def band_of(
    delay_tolerance: timedelta, queue: Queue | None = None, tariff: Tariff = TARIFF
) -> Band:
    """Return the band that a task belongs to, by the queue that it asked for and its tolerance."""
    if queue is Queue.URGENT:
        return tariff.bands[0]
    reached = sum(band.since <= delay_tolerance for band in tariff.bands)
    if queue is Queue.OFF_PEAK and reached > 1:
        reached = min(reached + 1, len(tariff.bands))
    return tariff.bands[reached - 1]


def cost(rates: Rates, factor: Decimal, amounts: Amounts) -> Fraction:
    """Return what `amounts` cost; exact, so that the parts of a sum cost what the sum costs."""
    cpu_hours = Fraction(amounts.granted_cpu_milli_us, 1000 * HOUR)
    gib_hours = Fraction(amounts.granted_memory_mb_us, 1024 * HOUR)
    plain = (
        Fraction(rates.price_per_task) * amounts.tasks
        + Fraction(rates.price_per_cpu_hour) * cpu_hours
        + Fraction(rates.price_per_gib_hour) * gib_hours
    )
    return Fraction(factor) * plain


def told(price: Fraction) -> Decimal:
    """Return a price as it is told to people: rounded once, at the end."""
    with localcontext() as context:
        context.prec = 60
        exact = Decimal(price.numerator) / Decimal(price.denominator)
        return exact.quantize(CENT, rounding=ROUND_HALF_EVEN)
