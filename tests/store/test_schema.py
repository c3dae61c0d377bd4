"""The schema that people read is the one that the migrations make."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_written_schema_is_what_the_migrations_make(dsn):
    script = runpy.run_path(str(ROOT / "scripts" / "schema.py"))
    assert script["SCHEMA"].read_text() == script["dump"](dsn), "run scripts/schema.py"
