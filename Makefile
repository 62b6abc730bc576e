# Everything a newcomer needs: `make demo` and `make test` build the environment by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Tests that need no Spark run side by side. A Spark takes all cores for itself.
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast test-slow test-exhaustive test-breaks check bench lock docs clean

help: ## Show what there is to run
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(STAMP) ## Build the environment in .venv

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "deltaplane needs Python 3.11 or later; $(PYTHON) is older. Set PYTHON=…"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing the locked packages into $(VENV) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(STAMP)

demo: setup ## Plan, apply, a dangerous change refused, a rollback and a commit over two tables, on local Spark
	@$(BIN)/deltaplane demo

check: setup ## Format, lint, types, architecture
	@$(BIN)/ruff format --check src tests benchmarks examples docs
	@$(BIN)/ruff check src tests benchmarks examples docs
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

test-fast: setup ## The tests that need no Java
	@$(BIN)/python -m pytest -q -n $(WORKERS) -m "not spark and not slow"

test: check ## `make check`, then all tests that are not slow
	@$(BIN)/python -m pytest -q -n $(WORKERS) -m "not spark and not slow"
	@$(BIN)/python -m pytest -q -m "spark and not slow"

test-slow: setup ## Several drivers, kills and load
	@$(BIN)/python -m pytest -q -n $(WORKERS) -m "slow and not exhaustive and not spark"
	@$(BIN)/python -m pytest -q -m "slow and not exhaustive and spark"

test-exhaustive: setup ## Kills at every statement on every database, long histories
	@$(BIN)/python -m pytest -q -m exhaustive

test-breaks: setup ## Take the fixes of Spark's holes out, one by one: the tests that guard them must fail
	@cd tests && PYTHONPATH=. ../$(BIN)/python -m spark_ledger.breaks $(BREAKS)

bench: setup ## Goals and what was measured
	@status=0; for part in planning ledger spark; do $(BIN)/python -m benchmarks.$$part || status=1; done; exit $$status

docs: setup ## Write the generated reference pages again
	@$(BIN)/python -m docs.generate

lock: setup ## Resolve the dependencies anew into requirements.lock
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --all-extras --group dev pyproject.toml -o requirements.lock

clean: ## Remove the environment and local state
	rm -rf $(VENV) .deltaplane
