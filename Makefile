# Everything a newcomer needs: `make demo` and `make test` build the environment by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast test-slow test-breaks check bench lock docs clean

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

test-fast: setup ## The tests that need no Java, under a minute
	@$(BIN)/python -m pytest -q -m "not spark and not slow"

test: check ## All tests on one Spark session, after `make check`
	@$(BIN)/python -m pytest -q -m "not slow"

test-slow: setup ## Several drivers, kills and minutes of load
	@$(BIN)/python -m pytest -q -m slow

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
