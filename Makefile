# The doors of the project. `make` alone lists them.
.DEFAULT_GOAL := help
.PHONY: help setup chaos venv check format test test-slow test-browser test-postgres test-docker test-model test-root test-vllm test-clients test-forges test-all conformance attack demo demo-clean bench clean

PYTEST := .venv/bin/python -m pytest
WORKERS := $(shell expr 2 "*" $$(nproc))   # many tests wait for sockets and clocks

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 24

setup: ## .venv, the embedded model's weights, what sandboxes need; quick when already done
	@scripts/setup

venv: ## .venv alone
	@scripts/setup venv

check: venv ## format, lint, types, and the arrows between the rooms
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/mypy scripts/demo.py scripts/canary.py scripts/conformance.py scripts/attack.py scripts/chaos.py scripts/chaos_model.py
	.venv/bin/lint-imports --no-logo

format: venv ## put the code into the house format
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

test: setup ## the fast suite; TEST="..." goes to pytest
	$(PYTEST) -n $(WORKERS) --dist worksteal $(TEST)

test-slow: setup ## tests that start many processes or wait for real time
	$(PYTEST) -n $(WORKERS) --dist worksteal -m 'slow and not docker and not vllm and not model and not root and not clients and not forges and not postgres and not browser'

test-browser: setup ## tests that open pages in a real browser (Debian: chromium-headless-shell)
	$(PYTEST) -m browser

test-postgres: setup ## tests that need a Postgres server; scripts/postgres starts one of its own
	$(PYTEST) -n 2 --dist worksteal -m postgres

test-docker: setup ## tests that need a Docker engine and the base image (scripts/build-image)
	$(PYTEST) -n 3 --dist worksteal -m docker

test-model: setup ## tests that need the embedded model
	$(PYTEST) -n 2 --dist loadfile -m model

test-root: setup ## tests that need root
	$(PYTEST) -n 3 --dist worksteal -m root

test-vllm: setup ## tests that need a real vLLM server (scripts/vllm-server installs it)
	$(PYTEST) -m vllm

test-clients: setup ## other people's agents against the gateway; installs them
	$(PYTEST) -m clients

test-forges: setup ## the forges against what others wrote for them; installs that (scripts/forge-parts)
	scripts/forge-parts prepare >/dev/null
	$(PYTEST) -m forges

test-all: setup ## every test; those whose need is missing say so
	$(PYTEST) -m ''

conformance: setup ## the sandbox's claims, attacked on every backend of this machine, as a table; CONFORMANCE="--only bwrap"
	.venv/bin/python scripts/conformance.py $(CONFORMANCE)

attack: setup ## attacks on a real broker process and what became of each, as a table; ATTACK="--only CVE"
	.venv/bin/python scripts/attack.py $(ATTACK)

chaos: setup ## kills at random over 300 short tasks on two workers and Postgres; CHAOS="--tasks 30 --kills 20 --embedded"
	.venv/bin/python scripts/chaos.py $(CHAOS)

demo: setup ## one task from submit to a pull request, everything real
	@scripts/demo

demo-clean: venv ## remove what the demo made, its users included
	@scripts/demo --clean

bench: setup ## how often the embedded model repairs the demo's bug
	.venv/bin/python -m benchmarks.repair $(BENCH)

clean: ## remove .venv and caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
