# `make quickstart` and `make test` are all that a fresh machine needs; it must have Python 3.11+ and make.
# Another Python: make PYTHON=python3.12 test

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.core
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help install quickstart test test-browser test-random test-disturbed lint dist docs site bench torture mutate

help: ## this list
	@awk -F ': .*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# electra and what it needs to run. Installed again when pyproject.toml or constraints.txt has changed.
$(CORE): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) was not found; install Python 3.11 or later, or give its path: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: electra needs Python 3.11 or later, but $(PYTHON) is $$($(PYTHON) --version 2>&1); give another one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "make: $(PYTHON) has no venv module; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV). PyTorch is large: the first time takes minutes."
	$(PIP) --editable .
	@touch $@

# The same, and everything for development.
$(READY): $(CORE)
	@echo "Installing the tools for development into $(VENV)."
	$(PIP) --editable '.[dev]'
	@touch $@

install: $(READY) ## make the environment for development in .venv

quickstart: $(CORE) ## make an environment without development tools, then train and try a small model in minutes
	$(BIN)/electra quickstart

test: lint ## lint, types, layers and the whole test suite
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses logical --maxprocesses 8 --dist loadfile

test-browser: $(READY) ## the tests of the page of `electra serve`; installs Chromium if it is missing
	scripts/install-chromium
	REQUIRE_BROWSER=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/browser

test-random: $(READY) ## the whole test suite in random order of files and of the tests in a file
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --random-order-bucket=module

test-disturbed: $(READY) ## the whole test suite while its processes are paused at random (SEED=2: other pauses and weights)
	OMP_NUM_THREADS=1 $(BIN)/python scripts/disturbed_tests.py --seed $(or $(SEED),1) --numprocesses logical --maxprocesses 8 --dist loadfile

dist: $(READY) ## build the sdist and the wheel in dist/, and try the wheel in an empty environment
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(BIN)/python scripts/check_wheel.py dist

lint: $(READY) ## ruff, mypy and import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(READY) ## write the generated pages of docs/
	$(BIN)/python docs/generate_configuration.py

site: $(READY) ## build docs/ as a site in build/site; every internal link is checked
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

bench: $(READY) ## every benchmark beside its peers, in about ten minutes; writes one table into docs/results/benchmarks.md
	$(BIN)/python benchmarks/overview.py

torture: $(READY) ## kill a run 50 times and flip 2,000 bits of its files, in some minutes; nothing may come of it
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/torture.py

mutate: $(READY) ## plant the errors of tests/mutations/ one by one; a test must fail at each (NAMES="one two": only these)
	OMP_NUM_THREADS=1 $(BIN)/python scripts/mutate.py $(NAMES)
