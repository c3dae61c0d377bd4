"""Resources: what a task needs and what a node has, as one vector.

Amounts are integers (thousandths of a core, mebibytes), so that sums over any
number of tasks are exact and a node is full exactly when it is full.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import msgspec

from duly.model.numerals import format_number
from duly.model.wording import count_of, cpu_noun

KINDS = ("cpu_milli", "memory_mb", "disk_mb", "iops", "bandwidth_mbps", "ports")
OPTIONAL_KINDS = frozenset({"iops", "bandwidth_mbps"})
"""Kinds that count only on nodes that declare them (a capacity of 0 means undeclared)."""

SLOTS = "slots"
"""The kind of which a worker offers some, and each call takes one; nobody else may name it."""

NO_EXTRA: Mapping[str, int] = MappingProxyType({})


class Resources(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An amount of every kind of resource; also a node's capacity and what is free on it."""

    cpu_milli: int = 0
    memory_mb: int = 0
    disk_mb: int = 0
    iops: int = 0
    bandwidth_mbps: int = 0
    ports: int = 0
    extra: dict[str, int] = {}

    def items(self) -> Iterator[tuple[str, int]]:
        """Yield (kind, amount) for every kind, extras by their own name."""
        for kind in KINDS:
            yield kind, getattr(self, kind)
        yield from self.extra.items()

    def plus(self, other: "Resources", times: int = 1) -> "Resources":
        """Return this plus `times` the other; `times=-1` subtracts it."""
        extra = self.extra
        if other.extra:
            names = extra.keys() | other.extra.keys()
            extra = {name: extra.get(name, 0) + times * other.extra.get(name, 0) for name in names}
        # Unrolled: this runs for every placed task.
        return Resources(
            cpu_milli=self.cpu_milli + times * other.cpu_milli,
            memory_mb=self.memory_mb + times * other.memory_mb,
            disk_mb=self.disk_mb + times * other.disk_mb,
            iops=self.iops + times * other.iops,
            bandwidth_mbps=self.bandwidth_mbps + times * other.bandwidth_mbps,
            ports=self.ports + times * other.ports,
            extra=extra,
        )

    def shortage(self, needs: "Resources", declared: "Resources | None" = None) -> dict[str, int]:
        """Return by how much each kind falls short of `needs`; empty if they fit.

        `declared` is the capacity that says which optional kinds count here (itself by default).
        """
        declared = self if declared is None else declared
        short = {}
        for kind, amount in needs.items():
            if kind in OPTIONAL_KINDS and not getattr(declared, kind):
                continue
            missing = amount - (getattr(self, kind) if kind in KINDS else self.extra.get(kind, 0))
            if amount > 0 and missing > 0:
                short[kind] = missing
        return short

    def count_fitting(self, needs: "Resources", declared: "Resources", limit: int) -> int:
        """Return how many times `needs` fits, up to `limit`; see `shortage` for `declared`."""
        # Unrolled: this runs for every pair of a node and a group of equal tasks.
        if (needed := needs.cpu_milli) > 0 and (fit := self.cpu_milli // needed) < limit:
            limit = fit
        if (needed := needs.memory_mb) > 0 and (fit := self.memory_mb // needed) < limit:
            limit = fit
        if (needed := needs.disk_mb) > 0 and (fit := self.disk_mb // needed) < limit:
            limit = fit
        if (needed := needs.ports) > 0 and (fit := self.ports // needed) < limit:
            limit = fit
        if needs.iops > 0 and declared.iops:
            limit = min(limit, self.iops // needs.iops)
        if needs.bandwidth_mbps > 0 and declared.bandwidth_mbps:
            limit = min(limit, self.bandwidth_mbps // needs.bandwidth_mbps)
        for kind, needed in needs.extra.items():
            if needed > 0:
                limit = min(limit, self.extra.get(kind, 0) // needed)
        return limit if limit > 0 else 0

    def share_of(self, capacity: "Resources") -> float:
        """Return the largest share that any kind takes of `capacity`, from 0 to 1 and beyond."""
        # Unrolled: this scores every node that a task fits on.
        largest = 0.0
        if whole := capacity.cpu_milli:
            largest = max(largest, self.cpu_milli / whole)
        if whole := capacity.memory_mb:
            largest = max(largest, self.memory_mb / whole)
        if whole := capacity.disk_mb:
            largest = max(largest, self.disk_mb / whole)
        if whole := capacity.iops:
            largest = max(largest, self.iops / whole)
        if whole := capacity.bandwidth_mbps:
            largest = max(largest, self.bandwidth_mbps / whole)
        if whole := capacity.ports:
            largest = max(largest, self.ports / whole)
        for kind, amount in self.extra.items():
            if whole := capacity.extra.get(kind, 0):
                largest = max(largest, amount / whole)
        return largest


NO_RESOURCES = Resources()
ONE_SLOT = Resources(extra={SLOTS: 1})
"""What a call of a function takes of its worker."""

TIERS: Mapping[str, Resources] = MappingProxyType(
    {
        "basic": Resources(cpu_milli=500, memory_mb=256, disk_mb=512),
        "regular": Resources(cpu_milli=1000, memory_mb=1024, disk_mb=2048),
        "premium": Resources(cpu_milli=2000, memory_mb=4096, disk_mb=8192),
    }
)


def field_name(kind: str) -> str:
    """Return the JSON field of a kind of resource."""
    return "cpu" if kind == "cpu_milli" else kind


def field_amount(kind: str, amount: int) -> float:
    """Return an amount in the unit of its JSON field: cores, not thousandths of cores."""
    return amount / 1000 if kind == "cpu_milli" else amount


def format_amount(kind: str, amount: int) -> str:
    """Format an amount for people: 0.5 CPU, 256 MiB of memory, 2 ports."""
    match kind:
        case "cpu_milli":
            return f"{format_number(amount / 1000)} {cpu_noun(amount / 1000)}"
        case "memory_mb":
            return f"{amount} MiB of memory"
        case "disk_mb":
            return f"{amount} MiB of disk"
        case "bandwidth_mbps":
            return f"{amount} Mbit/s of bandwidth"
        case "iops":
            return f"{amount} IOPS"
        case "ports":
            return count_of(amount, "port")
        case _:
            return f"{amount} {kind}"


def format_bare_amount(kind: str, amount: int) -> str:
    """Format an amount of a kind that the sentence has named already: 2, 256 MiB."""
    match kind:
        case "cpu_milli":
            return format_number(amount / 1000)
        case "memory_mb" | "disk_mb":
            return f"{amount} MiB"
        case "bandwidth_mbps":
            return f"{amount} Mbit/s"
        case _:
            return str(amount)
