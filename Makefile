# Everything a user or CI calls. `make demo` and `make test` work on a fresh machine with Python 3.11
# (which the quickstart's tasks run on), git and make; the sandbox (bubblewrap) is installed with apt
# where that is allowed.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
export RAY_USAGE_STATS_ENABLED = 0

.PHONY: help setup sandbox browser demo check test test-services bench validate lock clean

help:
	@echo "make setup          the virtual environment .venv, from the lock"
	@echo "make sandbox        bubblewrap, where this user may install it"
	@echo "make browser        Chromium, for the report's check, where this user may install it"
	@echo "make demo           set up, run the quickstart studies, print their decisions"
	@echo "make check          lint, types, import rules"
	@echo "make test           lint, types, import rules, unit, property and end-to-end tests"
	@echo "make test-services  tests against real services (language model server) and crash points"
	@echo "make bench          benchmarks, printed as ratios"
	@echo "make validate       the long proofs; figures go to docs/validation/"
	@echo "make lock           resolve the dependency locks again (needs uv)"
	@echo "make clean          remove .venv, built tasks and runs"

setup: $(VENV)/.ready

$(VENV)/.ready: requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "error: Python 3.11 or newer with venv is needed (Debian: python3.11 python3.11-venv)," >&2; \
		echo "or name one: make setup PYTHON=/path/to/python3.11" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes -r requirements-dev.lock
	$(BIN)/pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

sandbox:
	@command -v bwrap >/dev/null && command -v setpriv >/dev/null || sh infra/install-sandbox.sh

browser:
	@command -v chromium >/dev/null || sh infra/install-browser.sh

demo: setup sandbox
	$(BIN)/factorial doctor
	$(BIN)/factorial run manifests/studies/quickstart.yaml --root runs/quickstart
	$(BIN)/factorial verify runs/quickstart
	$(BIN)/factorial run manifests/studies/quickstart-llm.yaml --root runs/quickstart-llm
	$(BIN)/factorial verify runs/quickstart-llm

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: check sandbox
	$(BIN)/pytest -m "not services and not validate" tests/e2e
	$(BIN)/pytest -m "not services and not validate" -n 2 tests/unit tests/property tests/golden

test-services: setup sandbox browser
	$(BIN)/pytest -m services

bench: setup sandbox
	for script in tests/bench/bench_*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

validate: setup sandbox
	$(BIN)/pytest -m validate -s

lock:
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-header -q \
		pyproject.toml -o requirements.lock
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-header -q \
		pyproject.toml --extra cpu-llm --extra dev -c requirements.lock -o requirements-dev.lock

clean:
	rm -rf $(VENV) build runs
