"""What people see of their limits."""

import pytest

from duly.cli.accounts.plan_tables import format_field, print_limits

AMOUNTS = {"cpu": 0.5, "memory_mb": 256, "disk_mb": 512, "extra": {}}
LIMITS = {
    "tenant": "acme",
    "plan": "free",
    "rate": {"tasks_per_hour": 100, "burst": 50, "left": 37, "full_in": 468.0},
    "running": {"limit": 2, "used": 1, "left": 1},
    "resources": {
        "limit": {"cpu": 2.0, "memory_mb": 2048, "extra": {"gpu": 1}},
        "used": {**AMOUNTS, "extra": {"gpu": 1}},
        "left": {"cpu": 1.5, "memory_mb": 1792, "extra": {"gpu": 0}},
    },
    "waiting": {"limit": 1000, "used": 2, "left": 998},
    "schedules": {"limit": None, "used": 0, "left": None},
    "tiers": {"basic": AMOUNTS},
    "queues": ["off_peak"],
    "execution_cap": {"default": 600, "longest": 3600},
    "delay_tolerance": {"default": 3600, "longest": None, "categories": {"mail": 30.0}},
    "retention": 604800.0,
    "log_bytes": 1000000,
    "result_bytes": 65536,
    "max_artifact_bytes": 100_000_000,
    "cpu_quota": True,
    "artifact_bytes": {"limit": 10**9, "used": 4096, "left": 10**9 - 4096},
}


def test_every_limit_is_shown_beside_what_is_used_of_it(capsys):
    print_limits(LIMITS)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if line and "─" not in line] == [
        "WHAT USED / LIMIT LEFT",
        "submitted at once 13 / 50 37, all in 7 min 48 s",
        "running 1 / 2 1",
        "cpu 0.5 / 2 1.5",
        "memory (MiB) 256 / 2048 1792",
        "gpu 1 / 1 0",
        "waiting 2 / 1000 998",
        "schedules 0 / no limit no limit",
        "artifact bytes 4096 / 1000000000 999995904",
        "tenant acme",
        "plan free",
        "tasks per hour 100",
        "tiers basic: 0.5 CPU, 256 MiB memory, 512 MiB disk",
        "queues off_peak",
        "execution cap 10 min by default, at most 1 h",
        "delay tolerance 1 h by default, no limit",
        "by category mail 30 s",
        "history kept for 7 d",
        "log 1000000 bytes",
        "result 64 KiB",
        "an artifact 100000000 bytes",
        "cpu quota yes",
    ]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("price_per_task", 0.00001, "0.00001"),
        ("price_per_cpu_hour", 2.0, "2"),
        (
            "max_resources",
            {"cpu": 1234.567, "memory_mb": 2**24, "extra": {"gpu": 8}},
            "1234.567 CPUs, 16777216 MiB memory, 8 gpu",
        ),
    ],
)
def test_amounts_of_a_plan_are_written_without_exponents(field, value, said):
    assert format_field(field, value) == said
