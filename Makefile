# `make quickstart` and `make test` are all that a fresh machine needs; it must have Python 3.11+ and make.
# Another Python: make PYTHON=python3.12 test

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help install quickstart test test-browser lint bench torture docs site

help: ## this list
	@awk -F ': .*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Made anew when what is to be installed has changed.
$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "make: there is no $(PYTHON); install Python 3.11 or later, or name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: electra needs Python 3.11 or later, but $(PYTHON) is $$($(PYTHON) --version 2>&1); name another one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "make: $(PYTHON) has no venv module; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV); PyTorch is large, so the first time takes minutes."
	$(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

install: $(READY) ## make the environment in .venv, nothing else

quickstart: $(READY) ## make the environment, then the whole way in minutes on text that this machine has
	$(BIN)/electra quickstart

test: lint ## lint, types, layers and the whole test suite
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses logical --maxprocesses 8 --dist loadfile

test-browser: $(READY) ## the tests of the page of `electra serve`, in a Chromium that is installed first
	scripts/install-chromium
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/browser

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
