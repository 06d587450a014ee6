# Everything a person needs, from a machine that has only Python, make and pip.
# Each command sets up .venv the first time, and only installs again when pyproject.toml changed.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= 2
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast lint format bench examples clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.installed  ## compare every suitable model on the bundled digits
	$(BIN)/energax compare

test: $(VENV)/.installed-dev  ## the whole test-suite
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -q

test-fast: $(VENV)/.installed-dev  ## the tests that take no statistics, in under two minutes
	$(BIN)/python -m pytest tests -n $(JOBS) --dist worksteal -q -m "not slow"

lint: $(VENV)/.installed-dev  ## style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed-dev  ## put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed-dev  ## speed against peers, also written to benchmarks/RESULTS.md
	$(BIN)/python -m benchmarks

examples: $(VENV)/.installed-dev  ## run every example
	@for f in examples/*.py; do echo "== $$f"; $(BIN)/python $$f || exit 1; done

clean:  ## remove the environment and all caches
	rm -rf $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache build dist

# Some systems ship venv without ensurepip; then the pip outside installs into the environment.
$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "energax needs Python 3.11 or newer; say which: make PYTHON=/path/to/python"; exit 1; }
	$(PYTHON) -m venv $(VENV) || $(PYTHON) -m venv --clear --without-pip $(VENV)

install = if $(BIN)/python -m pip --version >/dev/null 2>&1; \
	then $(BIN)/python -m pip install -qq $(1); \
	else $(PYTHON) -m pip --python $(BIN)/python install -qq $(1); fi

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	@echo "installing energax into $(VENV) (a minute or two, once)"
	@$(call install,-e .)
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	@echo "installing energax and its development tools into $(VENV) (a minute or two, once)"
	@$(call install,-e ".[dev]")
	@touch $(VENV)/.installed $@
