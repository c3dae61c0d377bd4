"""Resources as clients write them: cores, sizes such as "512MiB", and custom kinds by name.

They replace the amounts of a tier, or of another base, kind by kind.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from duly.errors import Invalid
from duly.model.resources import KINDS, SLOTS, Resources, field_amount
from duly.model.resources import field_name as field_of

MAX_AMOUNT = 1_000_000_000
MAX_CORES = 100_000
EXTRA_NAME_PATTERN = re.compile(r"[a-z][a-z0-9_.-]{0,62}")
SIZE_PATTERN = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]i?B?|B)?", re.IGNORECASE | re.ASCII)
SIZE_UNITS = {"b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
KINDS_BY_FIELD = {"cpu": "cpu_milli", "memory": "memory_mb", "disk": "disk_mb"}


class ResourcesRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Amounts that replace those of the tier, kind by kind."""

    cpu: float | None = None
    memory_mb: int | None = None
    memory: str | None = None
    disk_mb: int | None = None
    disk: str | None = None
    iops: int | None = None
    bandwidth_mbps: int | None = None
    ports: int | None = None
    extra: dict[str, int] | None = None


def apply_amounts(
    asked: ResourcesRequest | None, base: Resources, field: str = "resources"
) -> Resources:
    """Return `base` with the requested kinds replaced; raises Invalid for a bad amount.

    `field` is the place of the amounts in the request.
    """
    if asked is None:
        return base
    return Resources(
        cpu_milli=_cpu(asked.cpu, f"{field}.cpu", base.cpu_milli),
        memory_mb=_sized(asked.memory_mb, asked.memory, f"{field}.memory", base.memory_mb),
        disk_mb=_sized(asked.disk_mb, asked.disk, f"{field}.disk", base.disk_mb),
        iops=_amount(asked.iops, f"{field}.iops", base.iops),
        bandwidth_mbps=_amount(
            asked.bandwidth_mbps, f"{field}.bandwidth_mbps", base.bandwidth_mbps
        ),
        ports=_amount(asked.ports, f"{field}.ports", base.ports),
        extra=base.extra if asked.extra is None else check_extra(asked.extra, f"{field}.extra"),
    )


def amounts_to_json(kinds: Mapping[str, Any]) -> dict[str, Any]:
    """Return amounts by kind as in a request: cpu in cores, custom kinds under `extra`."""
    told: dict[str, Any] = {}
    for kind, amount in kinds.items():
        if kind in ResourcesRequest.__struct_fields__ or kind in KINDS:
            told[field_of(kind)] = field_amount(kind, amount)
        else:
            told.setdefault("extra", {})[kind] = amount
    return told


def resources_to_json(resources: Resources) -> dict[str, Any]:
    """Return the nonzero amounts, as in a request."""
    return amounts_to_json({kind: amount for kind, amount in resources.items() if amount})


def requested_kinds(asked: ResourcesRequest, field: str = "resources") -> dict[str, Any]:
    """Return only the requested amounts, by kind, to replace part of a stored capacity."""
    whole = apply_amounts(asked, Resources(), field)
    named = {name for name, value in msgspec.structs.asdict(asked).items() if value is not None}
    kinds = {KINDS_BY_FIELD.get(name, name) for name in named}
    return {kind: getattr(whole, kind) for kind in (*KINDS, "extra") if kind in kinds}


def parse_size(value: str, field: str) -> int:
    """Parse "512MiB", "2 GB" or "100000" (bytes) as whole mebibytes, rounded up."""
    match = SIZE_PATTERN.fullmatch(value.strip()) if len(value) <= 40 else None
    if match is None:
        raise Invalid(field, f"{value[:40]!r} is not a size. Try 512MiB or 2GiB.")
    unit = (match[2] or "B")[0].lower()
    return -int(-float(match[1]) * SIZE_UNITS[unit] // 2**20)


def _cpu(value: float | None, field: str, default: int) -> int:
    if value is None:
        return default
    # The comparison also refuses NaN.
    if not 0 < value <= MAX_CORES:
        raise Invalid(
            field, f"{value:.12g} is not a number of CPUs from 0.001 to {MAX_CORES}. Try 0.5 or 2."
        )
    return max(1, round(value * 1000))


def _sized(amount: int | None, text: str | None, field: str, default: int) -> int:
    if text is not None:
        if amount is not None:
            raise Invalid(field, f"give either {field} or {field}_mb, not both.")
        amount = parse_size(text, field)
    return default if amount is None else _amount(amount, f"{field}_mb", default)


def _amount(value: int | None, field: str, default: int) -> int:
    if value is None:
        return default
    if not 0 <= value <= MAX_AMOUNT:
        raise Invalid(field, f"{value} is not a whole number from 0 to {MAX_AMOUNT}.")
    return value


def check_extra(extra: dict[str, int], field: str = "resources.extra") -> dict[str, int]:
    """Return the nonzero kinds; raises Invalid for a bad name or amount."""
    if len(extra) > 20:
        raise Invalid(field, f"it names {len(extra)} resources; at most 20 are allowed.")
    for name, amount in extra.items():
        if not EXTRA_NAME_PATTERN.fullmatch(name) or name in KINDS:
            raise Invalid(
                field,
                f"{name[:60]!r} is not the name of a custom resource. Begin with a letter, and use "
                "lower-case letters, digits, '.', '_' and '-'.",
            )
        if name == SLOTS:
            raise Invalid(
                field, f"{SLOTS!r} is what workers offer to calls. Use another name, or a call."
            )
        _amount(amount, f"{field}.{name}", 0)
    return {name: amount for name, amount in sorted(extra.items()) if amount}
