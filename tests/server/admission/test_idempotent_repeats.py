"""Two submissions under one key must have the same body; the plan may change in between."""

from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from duly.model.requests.task_request import TaskRequest, complete
from duly.model.resources import TIERS, Resources
from duly.model.tenant import Plan
from duly.server.admission.idempotency import hash_spec

UNLIMITED = Plan(
    name="unlimited",
    delay_tolerance=timedelta(minutes=5),
    execution_cap=timedelta(hours=24),
    max_execution_cap=timedelta(days=36525),
    weight=1,
)
FREE = Plan(
    name="free",
    delay_tolerance=timedelta(hours=1),
    max_delay_tolerance=timedelta(days=7),
    tolerances={"mail": 30.0},
    execution_cap=timedelta(minutes=10),
    max_execution_cap=timedelta(hours=1),
    weight=1,
    tiers=("basic", "wide"),
    max_log_bytes=1000,
    max_result_bytes=1000,
    cpu_quota=True,
)
LATER = replace(
    FREE,
    delay_tolerance=timedelta(hours=2),
    max_delay_tolerance=timedelta(hours=6),
    tolerances={"mail": 60.0},
    execution_cap=timedelta(minutes=20),
    tiers=("wide", "basic"),
    max_log_bytes=None,
    max_result_bytes=None,
    cpu_quota=False,
    known_tiers={**TIERS, "basic": Resources(cpu_milli=100, memory_mb=64)},
)


def digest(plan, **fields):
    spec = complete(msgspec.convert({"command": ["true"], **fields}, TaskRequest), plan)
    return hash_spec(spec, plan)


def test_the_hash_of_an_earlier_version_still_matches():
    # As the version before plans computed it.
    assert digest(UNLIMITED, idempotency_key="x", labels={"b": "1", "a": "2"}).hex() == (
        "01de5f181e770f2084e0bd37aa945c2cd51549cc2415c2513eab634d76ba0443"
    )
    # As the version before inputs did.
    assert digest(UNLIMITED, idempotency_key="x", depends_on=["7"]).hex() == (
        "ca390ba42f8427d7afe64b2b49e379a6ae2ad775fd2688fe236e84a54cdbb613"
    )


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"name": "x"},
        {"category": "mail"},
        {"tier": "basic"},
        {"execution_cap": 7},
        {"queue": "off_peak"},
    ],
)
def test_a_change_of_the_plan_does_not_change_the_hash(fields):
    assert digest(FREE, **fields) == digest(LATER, **fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "x"},
        {"execution_cap": 7},
        {"delay_tolerance": 7},
        {"category": "mail"},
        {"resources": {"cpu": 0.25}},
        {"priority": 1},
        {"concurrency": {"key": "a", "limit": 1}},
        {"unique": {"key": "a"}},
    ],
)
def test_another_body_has_another_hash(fields):
    assert digest(FREE, **fields) != digest(FREE)
