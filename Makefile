# Everything starts here. Targets make what they need, and are quick the second time. `make help` lists them.

SHELL := /bin/bash
VENV := .venv
TRITON := .venv-triton
INF1 := .venv-inf1
UV := build/venv-lock
OUTSIDE := scanners aws-cli clients clients-3
comma := ,

# The newest Python that the pinned packages have wheels for. The Triton server's Python backend needs numpy 1, which has
# none for Python 3.13. `make PYTHON=… TRITON_PYTHON=…` takes others.
newest = $(shell for name in $(2) python3; do $$name -c 'import sys; \
  sys.exit(not (3, 11) <= sys.version_info[:2] <= $(1))' 2>/dev/null && echo $$name && break; done)
ifndef PYTHON
PYTHON := $(call newest,(3$(comma) 13),python3.13 python3.12 python3.11)
endif
ifndef TRITON_PYTHON
TRITON_PYTHON := $(call newest,(3$(comma) 12),python3.12 python3.11)
endif
# The Inf1 image's Python, which its torch 1.13.1 needs. pyenv has it on no PATH where another version is chosen.
ifndef INF1_PYTHON
INF1_PYTHON := $(shell for name in python3.10 $(HOME)/.pyenv/versions/3.10.*/bin/python3.10; do \
  $$name -c '' 2>/dev/null && echo $$name && break; done)
endif

export PATH := $(CURDIR)/$(VENV)/bin:$(CURDIR)/node_modules/.bin:$(PATH)
export JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION := 1

# The machine's own Node.js where it is recent enough and has npm, else one from a wheel.
NODE_LOCK = $(shell node -e 'process.exit(process.versions.node.split(".")[0] >= 22 ? 0 : 1)' 2>/dev/null && npm --version >/dev/null 2>&1 || echo requirements/node.txt)

# Installs into the environment of a Python what locks pin, each file compared with its hash.
LOCKED := bash scripts/install_locked.sh
TORCH := requirements/torch-cpu.txt requirements/torch-cuda.txt scripts/install_locked.sh

# Prints the time that passes and the number of packages while an installation runs; its own output goes to the log.
INSTALL = $(PYTHON) scripts/install.py

.PHONY: help run test test-all fuzz lint lock rehearse rehearse-release bench setup machine triton inf1 uv peers $(OUTSIDE) clean
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

help: ## this list
	@echo "Transformers in production: README.md says what it is, docs/README.md has the rest."
	@sed -nE 's/^([a-z0-9-]+):.*## (.*)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'

run: setup ## build, deploy, measure, deploy and invoke spellcheck, all on this machine
	@python -m scripts.walk

# Without a way to PyPI the tests that build engines are skipped, and say so.
test: setup ## lint and types beside the tests, but for the slow ones
	-@PIP_RETRIES=1 $(MAKE) --no-print-directory $(VENV)/.tensorrt-check
	@python -m scripts.run_tests -m "not slow"

test-all: setup uv $(VENV)/.tensorrt-check $(if $(INF1_PYTHON),inf1) ## the same with the slow tests, which measure
	-@PIP_RETRIES=1 $(MAKE) --no-print-directory --keep-going $(OUTSIDE)
	@python -m scripts.run_tests --hypothesis-profile new-examples

fuzz: setup ## ten minutes of malformed and hostile input for all that reads what strangers send
	@end=$$((SECONDS + 600)); while [ $$SECONDS -lt $$end ]; do seed=$$RANDOM; echo "seed $$seed"; \
	  FUZZ_FACTOR=20 python -m pytest tests/fuzz -q --numprocesses 2 --dist loadfile \
	    --hypothesis-profile new-examples --hypothesis-seed $$seed || exit 1; done

ON_INF1 := aws_api containers model_build workloads
lint: setup ## format, lint, types and words
	ruff format --check .
	ruff check .
	mypy
	@# The Python of Inf1's image. Values of numpy have other types in its stubs.
	mypy --python-version 3.10 --disable-error-code no-any-return --disable-error-code arg-type --no-warn-unused-ignores \
	  $(patsubst %,-p %,$(ON_INF1))
	python scripts/check_words.py

lock: setup uv ## the pins and hashes of every environment, from pyproject.toml; UPGRADE="--upgrade-package NAME" moves one
	@PATH="$$PATH:$(CURDIR)/$(UV)/bin" python -m scripts.lock $(UPGRADE)

rehearse: setup ## deploy every stack to a local account, change it, break it and destroy it
	@set -o pipefail; mkdir -p build; bash scripts/rehearse.sh | tee build/rehearsal.log

rehearse-release: setup aws-cli uv ## run four releases through the synthesised pipeline, on a local account
	@python -m scripts.rehearsal.release

bench: setup peers ## this project beside its peers: every cell with its goal
	python -m model_build build --all --target cpu
	python -m model_build build --all --target cpu-int8
	@test -x build/venv-generators/bin/python || $(TRITON_PYTHON) -m venv build/venv-generators
	@$(INSTALL) "the load generators to compare with" $(LOCKED) build/venv-generators/bin/python benchmarks/generator/requirements.txt
	@python benchmarks/run.py

setup: $(VENV)/.installed triton node_modules/.installed ## the environments that all others need

triton: $(TRITON)/.installed ## the Triton server alone

inf1: $(INF1)/.installed ## what the Inf1 image runs with, its torch 1.13.1 first (1.8 GB), for `make test-all`

scanners: .venv-scanners/.installed ## checkov and hadolint, which read templates and Dockerfiles in `make test-all`
aws-cli: .venv-aws-cli/.installed ## the AWS CLI, for `make test-all` and the rehearsal of a release
clients: .venv-clients/.installed ## the SageMaker Python SDK 2 and tritonclient, for `make test-all`
clients-3: .venv-clients-3/.installed ## what of the SageMaker Python SDK 3 deploys and asks, for `make test-all`

peers: .venv-peers-optimum/.installed .venv-peers-openvino/.installed ## what encoders.py and text2text/latency.py run beside us

uv: $(UV)/.installed ## uv, which resolves for `make lock` and installs in the steps of a rehearsed release

$(UV)/.installed: requirements/uv.txt scripts/install_locked.sh | $(VENV)/.installed
	@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	@$(INSTALL) "uv into $(@D)" $(LOCKED) $(@D)/bin/python $<
	@touch $@

machine:
	@bash scripts/check_machine.sh "$(PYTHON)" "$(TRITON_PYTHON)"

$(VENV)/.installed: pyproject.toml requirements/development.txt requirements/node.txt $(TORCH) | machine
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	@$(INSTALL) "the Python environment into $(VENV)" $(LOCKED) $(VENV)/bin/python requirements/development.txt $(NODE_LOCK) torch
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-index --no-deps --no-build-isolation --editable .
	@touch $@

# NVIDIA's builder of engines, under NVIDIA's licence, and its quantiser: for TensorRT alone, so no part of `setup`.
$(VENV)/.tensorrt-check: requirements/tensorrt-check.txt requirements/modelopt.txt | $(VENV)/.installed
	@$(INSTALL) "NVIDIA's builder of engines and ModelOpt into $(VENV)" $(LOCKED) $(VENV)/bin/python $^
	@touch $@

# What a Triton container has, and nothing else: the server binary, its Python backend, the model's own packages.
$(TRITON)/.installed: containers/triton/local-requirements.txt $(TORCH) | machine
	@test -x $(TRITON)/bin/python || $(TRITON_PYTHON) -m venv $(TRITON)
	@$(INSTALL) "the Triton server into $(TRITON)" $(LOCKED) $(TRITON)/bin/python $< torch
	@touch $@

# What the Inf1 image brings and what a build and the server install in it.
$(INF1)/.installed: requirements/inf1.txt containers/neuron/requirements.txt model_build/remote/neuron-requirements.txt scripts/install_locked.sh
	@test -n "$(INF1_PYTHON)" || { echo "The Inf1 image's torch 1.13.1 is tested on Python 3.10, and there is none on this machine's PATH: install one, for example with \`pip install uv && uv python install 3.10\`, or name one with \`make inf1 INF1_PYTHON=/path/to/python3.10\`." >&2; exit 3; }
	@test -x $(INF1)/bin/python || $(INF1_PYTHON) -m venv $(INF1)
	@$(INSTALL) "what the Inf1 image has into $(INF1)" $(LOCKED) $(INF1)/bin/python $(filter %.txt,$^)
	@touch $@

# Engines of other projects: Optimum's transformers is older than ours, and that of OpenVINO's Optimum is another one.
.venv-peers-%/.installed: benchmarks/peers-%-requirements.txt $(TORCH)
	@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	@$(INSTALL) "the engines to compare with into $(@D)" $(LOCKED) $(@D)/bin/python $< torch
	@touch $@

# Third-party tools, an environment each: their pinned versions exclude one another and ours.
.venv-%/.installed: requirements/%.txt scripts/install_locked.sh
	@test -x .venv-$*/bin/python || $(PYTHON) -m venv .venv-$*
	@$(INSTALL) "third-party $* into .venv-$*" $(LOCKED) .venv-$*/bin/python $<
	@touch $@

node_modules/.installed: package.json package-lock.json $(VENV)/.installed
	@$(INSTALL) "the CDK command line into node_modules" npm ci --no-audit --no-fund --loglevel=error
	@touch $@

clean: ## remove what was built, measured and cached; the environments stay
	rm -rf build runs cdk.out .local_aws .mypy_cache .pytest_cache .ruff_cache .hypothesis
