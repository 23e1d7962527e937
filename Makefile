# Everything starts here. Targets make what they need and are quick the second time.
#
#   make run        set-up, then the whole walk for spellcheck on this machine
#   make test       set-up, then lint, types and tests
#   make test-all   the same with the slow tests
#   make lint       format, lint and types alone
#   make rehearse   every stack deployed, checked, changed, broken and taken down here; writes docs/rehearsal.md
#   make bench      us beside our peers

SHELL := /bin/bash
PYTHON ?= python3.11
VENV := .venv
TRITON := .venv-triton
PIP := -m pip install --quiet --disable-pip-version-check

export PATH := $(CURDIR)/$(VENV)/bin:$(CURDIR)/node_modules/.bin:$(PATH)
export JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION := 1

# The machine's own Node.js where it is recent enough, else one from a wheel.
NODE_EXTRA := $(shell node -e 'process.exit(process.versions.node.split(".")[0] >= 22 ? 0 : 1)' 2>/dev/null && npm --version >/dev/null 2>&1 || echo ,node)

# A process for each of two cores; the tests of one file stay together, since they share servers and templates. In the
# order of tests/conftest.py, the long ones first: left to itself, xdist begins with the files of many tests.
SIDE_BY_SIDE := --numprocesses 2 --dist loadfile --no-loadscope-reorder

.PHONY: run test test-all lint rehearse bench setup triton clean
.DELETE_ON_ERROR:

run: setup
	@python -m scripts.walk

test: lint
	python -m pytest $(SIDE_BY_SIDE) -m "not slow"

test-all: lint
	python -m pytest $(SIDE_BY_SIDE)

lint: setup
	ruff format --check .
	ruff check .
	mypy

rehearse: setup
	@set -o pipefail; mkdir -p build docs; bash scripts/rehearse.sh | tee build/rehearsal.log
	@python -m scripts.rehearsal.transcript < build/rehearsal.log > build/rehearsal.md
	@mv build/rehearsal.md docs/rehearsal.md

bench: setup
	python $(PIP) --constraint constraints.txt --editable ".[bench]"
	python -m model_build build --all --target cpu
	python -m model_build build --all --target cpu-int8
	python benchmarks/spellcheck_latency.py
	python benchmarks/t5_latency.py
	python benchmarks/batch.py
	python benchmarks/warm_up.py
	python benchmarks/build_memory.py
	python benchmarks/synth.py
	test -x build/venv-generators/bin/python || $(PYTHON) -m venv build/venv-generators
	build/venv-generators/bin/python $(PIP) --requirement benchmarks/generator-requirements.txt
	python benchmarks/generator.py

triton: $(TRITON)/.installed

setup: $(VENV)/.installed triton node_modules/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	@echo "Installing the Python environment into $(VENV) (a few minutes the first time)"
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/python $(PIP) --constraint constraints.txt --editable ".[measure,cdk,build,local,dev$(NODE_EXTRA)]"
	@touch $@

# What a Triton container has, and nothing else: the server binary, its Python backend, the model's own packages.
$(TRITON)/.installed: containers/triton/local-requirements.txt containers/triton/requirements.txt containers/triton/constraints.txt
	@echo "Installing the Triton server into $(TRITON)"
	@test -x $(TRITON)/bin/python || $(PYTHON) -m venv $(TRITON)
	@$(TRITON)/bin/python $(PIP) --constraint containers/triton/constraints.txt --requirement $<
	@touch $@

node_modules/.installed: package.json package-lock.json $(VENV)/.installed
	@echo "Installing the CDK command line into node_modules"
	@npm ci --no-audit --no-fund --loglevel=error
	@touch $@

clean:
	rm -rf build runs cdk.out .local_aws .mypy_cache .pytest_cache .ruff_cache .hypothesis
