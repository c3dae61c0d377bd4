# Each target sets up what it needs in .venv first; a machine with Python, make and git is enough.
#
#   make demo    a demo on a temporary installation; exits 0 only if all of its checks hold
#   make up      everything on this machine, in the foreground
#   make test    the checks and the whole test suite
#   make check   the checks alone: ruff, mypy, import-linter
#   make test-lowest  tests with the oldest dependencies that pyproject.toml allows
#   make docs    regenerates the generated pages, and builds the site: build/site
#   make bench   measures Duly against what this machine can do; PARTS=submit,latency for some
#   make bench-peers  compares Duly with other queues, installed into temporary environments
#   make simulate  200 small random worlds in the simulator, with invariants checked
#   make torture 2,000 interleavings of statements, the fault tests, 20 minutes of faults under load

unexport PYTHONDONTWRITEBYTECODE  # every process would compile all of Duly again: 0.3 s each

PEERS ?=
SEEDS ?=
PYTEST_ARGS ?= -n 4 --dist loadfile --no-loadscope-reorder
TORTURE_ARGS ?= --minutes 20
# The layers that use third-party libraries; those below use only msgspec.
LOWEST_TESTS ?= $(addprefix tests/,agent api cli client dashboard http launch model store)

.PHONY: demo up test test-lowest tests check checks docs bench bench-peers simulate torture
.DEFAULT_GOAL := help

.PHONY: help
help:
	@sed -n 's/^#   //p' Makefile

demo:
	@scripts/setup
	@.venv/bin/python scripts/demo.py

up:
	@scripts/setup
	@exec .venv/bin/duly up

check:
	@scripts/setup dev
	@$(MAKE) --no-print-directory checks

# In parallel: the tests leave cores idle that the checks can use.
test:
	@scripts/setup dev
	@$(MAKE) --no-print-directory --jobs=2 checks tests

checks:
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports

tests:
	.venv/bin/pytest $(PYTEST_ARGS)

test-lowest:
	@scripts/setup dev
	@.venv/bin/python -m pip install --quiet uv
	.venv/bin/python scripts/lowest.py $(PYTEST_ARGS) $(LOWEST_TESTS)

docs:
	@scripts/setup dev
	.venv/bin/python scripts/reference.py
	.venv/bin/python scripts/schema.py
	.venv/bin/python scripts/database.py
	.venv/bin/python scripts/site.py
	@echo "To read it: python3 -m http.server --bind 127.0.0.1 --directory build/site"

bench:
	@scripts/setup
	@.venv/bin/python -m benchmarks $(PARTS) $(BENCH_ARGS)

bench-peers:
	@scripts/setup
	@.venv/bin/python -m benchmarks.peers $(PEERS)

simulate:
	@scripts/setup dev
	.venv/bin/python -m tests.sim $(SEEDS)

torture:
	@scripts/setup dev
	DULY_SEEDS=2000 DULY_TORTURE=1 .venv/bin/pytest $(PYTEST_ARGS) --timeout 1800 \
		tests/interleavings tests/faults tests/torture
	.venv/bin/python -m tests.torture $(TORTURE_ARGS)
