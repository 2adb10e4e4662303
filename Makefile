# One command each, on a machine that has python3 (3.11 to 3.13, with venv), make and a package index.
# Everything lives in .venv; it is built on first use, and again when pyproject.toml changes.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV ?= .venv
BIN := $(VENV)/bin
RIGHT_VERSION := import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	"$$python" -c '$(RIGHT_VERSION)' 2>/dev/null && echo "$$python" && break; done)

NO_PYTHON := no Python 3.11, 3.12 or 3.13 found: install one, or say PYTHON=/path/to/python3

# pytest's own options, for example: make test PYTEST="-k gather -x"
PYTEST ?=

# Tests mostly wait for processes: four files at a time keep two cores busy.
TESTS_AT_ONCE ?= 4

FOR_TEST := --editable '.[local,flower,bench]' --group dev

# For every Python and machine that the image may be built for.
LOCKING := --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate --no-emit-index-url \
	--custom-compile-command 'make lock'

CLIENTS := tests/clients/environments

.PHONY: demo test fresh faults lint style types walls compose typescript lock audit format bench profile clean help

demo: $(VENV)/.for-demo ## run a conversation on a local fleet; needs no key, no Docker, no Redis
	$(BIN)/toolfleet demo

test: $(VENV)/.for-test ## run the whole test suite
	$(BIN)/python -m pytest --numprocesses $(TESTS_AT_ONCE) --dist loadfile --no-loadscope-reorder $(PYTEST)

fresh: ## build the wheel and run the commands where there is nothing else, on each Python from 3.11 to 3.13 that is here
	@test -n "$(PYTHON)" || { echo "make: $(NO_PYTHON)" >&2; exit 1; }
	$(PYTHON) .ci/fresh

faults: $(VENV)/.for-test ## kill workers, servers and orchestrators, and count what it cost; SHORT=1 for under ten minutes
	$(BIN)/python -m tests.faults $(if $(SHORT),--short,--lanes 3)

lint: style types walls compose typescript ## check style, types (TypeScript's too), the wall between the halves, and the compose file

style: $(VENV)/.for-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/.for-test
	$(BIN)/mypy

walls: $(VENV)/.for-test
	$(BIN)/lint-imports

compose: $(VENV)/.for-test
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yml

typescript: $(VENV)/.for-test
	$(BIN)/python -m tests.workers_ts.built

lock: $(VENV)/.for-test ## pin what the image and the clients in the tests have, by version and hash, to today's
	$(BIN)/uv pip compile $(LOCKING) --extra agui --extra flower --extra serve pyproject.toml --output-file deploy/requirements.lock
	echo 'hatchling' | $(BIN)/uv pip compile $(LOCKING) - --output-file deploy/build.lock
	$(BIN)/uv pip compile $(LOCKING) $(CLIENTS)/litellm.in --override $(CLIENTS)/litellm.left-out \
		--output-file $(CLIENTS)/litellm.txt
	$(BIN)/python -m tests.clients.environments

audit: $(VENV)/.for-test ## ask the package index what is known to be wrong with what the image has
	$(BIN)/uv tool run pip-audit --disable-pip --require-hashes --requirement deploy/requirements.lock

format: $(VENV)/.for-test ## put the code into its form
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(VENV)/.for-bench ## measure against other task queues; QUICK=1 for a few minutes' look, which leaves the published figures alone
	$(BIN)/python -m benchmarks $(if $(QUICK),--quick)

profile: $(VENV)/.for-bench ## print what a call costs, by stage and process, and what it asks of Redis
	$(BIN)/python -m benchmarks.profile

clean: ## remove the environment and everything that was generated
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache benchmarks/out
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{ printf "  make %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# --- the environment ------------------------------------------------------------------------------------------------

$(VENV)/.for-demo: pyproject.toml | $(VENV)/.made
	$(BIN)/python -m pip install --quiet --editable '.[local,flower]'
	@touch $@

# Dependency groups came with pip 25.1.
$(VENV)/.for-test: pyproject.toml .ci/helm .ci/promtool .ci/debian .ci/browser | $(VENV)/.made
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1' uv
	# A third of pip's time; pip may have been told of an index that uv knows nothing of.
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python $(FOR_TEST) \
		|| $(BIN)/python -m pip install --quiet $(FOR_TEST)
	.ci/helm $(VENV)
	.ci/promtool $(VENV)
	.ci/browser
	@touch $@ $(VENV)/.for-demo

$(VENV)/.for-bench: pyproject.toml | $(VENV)/.made
	$(BIN)/python -m pip install --quiet --editable '.[local,flower,bench]'
	@touch $@ $(VENV)/.for-demo

$(VENV)/.made:
	@test -n "$(PYTHON)" || { echo "make: $(NO_PYTHON)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@
