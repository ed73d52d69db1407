# Two commands do all the set-up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
RUN    := $(BIN)/smartmig

.PHONY: demo test check bench docs install install-dev system-packages clean

demo: install
	$(RUN) demo

test: install-dev system-packages
	$(BIN)/python -m pytest -n auto --dist loadfile

# Servers and the browser that end-to-end tests start themselves. Without them those tests are skipped and say so.
SYSTEM_PACKAGES := postgresql chromium slurm-wlm slurmctld slurmd slurm-client munge libslurm-dev slurm-wlm-basic-plugins gcc

system-packages:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  for package in $(SYSTEM_PACKAGES); do \
	    dpkg -s $$package >/dev/null 2>&1 || missing="$$missing $$package"; \
	  done; \
	  if [ -n "$$missing" ]; then \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing \
	      >/dev/null || echo "could not install$$missing: the tests that need them will be skipped" >&2; \
	  fi; \
	else \
	  echo "not root on Debian: tests that need $(SYSTEM_PACKAGES) run only where they are installed already" >&2; \
	fi

check: install-dev
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --no-cache --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The site, to out/site: it opens from the disk and asks no network.
docs: install-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "open out/site/index.html"

bench: install-dev
	$(BIN)/python -m bench

install: $(VENV)/.installed
install-dev: $(VENV)/.installed-dev

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) out build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -prune -exec rm -rf {} +
