# Every target sets up what it needs. A fresh machine needs Python 3.11 or newer with its venv module, make, and PyPI.
#   make test ARGS="-k agent"      more arguments for the command behind a target
#   make setup PYTHON=/path/to/python3.12

UV_VERSION := 0.13.9
# Ours, in a folder of ours: nothing outside the checkout is changed, and everybody resolves with the same uv.
UV ?= .uv/$(UV_VERSION)/bin/uv
PYTHON ?=
ARGS ?=
BIN := .venv/bin
READY := .venv/.ready
RIVALS := .venv/.rivals

# A Python is asked what it is, since a name may be a shim that leads nowhere.
define FIND_PYTHON
for name in $(or $(PYTHON),python3.11 python3.12 python3.13 python3 python); do \
  python=$$("$$name" -c 'import sys, venv, ensurepip; print(sys.executable) if sys.version_info >= (3, 11) else sys.exit(1)' 2>/dev/null) && break; \
done; \
if [ -z "$$python" ]; then \
  echo "sluice needs Python 3.11 or newer with its venv module ($(or $(PYTHON),python3) is $$($(or $(PYTHON),python3) --version 2>&1 | head -n 1)): LangGraph's interrupts break on 3.10." >&2; \
  exit 1; \
fi
endef

export UV_PYTHON_DOWNLOADS := never
# The machine's certificates, where it has any: a network with a proxy of its own puts its certificate there.
ifneq ($(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem),)
export UV_SYSTEM_CERTS ?= 1
endif

.DEFAULT_GOAL := help
.PHONY: help setup demo test stories check format bench figures race chaos clean

help: ## Show this list.
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile

setup: $(READY) ## Make .venv with everything, from uv.lock. Quick when nothing changed.
	@echo "$(BIN)/sluice is ready."

demo: $(READY) ## Run the whole job in about two minutes, and check its accounts.
	@$(BIN)/sluice demo $(ARGS)

test: $(READY) ## Run the tests of every part, in some minutes.
	@$(BIN)/python -m pytest $(or $(ARGS),--ignore=tests/stories)

stories: $(READY) ## Run whole scenarios with real processes, on Tansu and (where Java 17 and Maven are) on Apache Kafka.
	@$(BIN)/python -m pytest $(or $(ARGS),tests/stories)

check: $(READY) ## Check format, lint, types, the direction of imports, and the lock.
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(UV) lock --check

format: $(READY) ## Format, and mend what ruff can mend.
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

bench: $(RIVALS) ## Measure, and print the table of figures.
	@$(BIN)/python -m bench $(ARGS)

figures: $(READY) ## Measure retrieval, limits, outages, streams and agents on real data, in a short form (FULL=1: whole).
	@$(BIN)/python -m bench.figures $(if $(FULL),--full) $(ARGS)

race: $(READY) ## Race contradictory decisions on paused threads (SHORT=1: 40 of them), beside plain LangGraph.
	@$(BIN)/python -m bench.race $(if $(SHORT),--short) $(ARGS)

chaos: $(RIVALS) ## Kill, freeze and cut off workers on Apache Kafka (SHORT=1: some minutes), beside engines that lack a guard.
	@$(BIN)/python -m bench.chaos $(if $(SHORT),--short) $(ARGS)

clean: ## Remove what the targets made in this folder.
	rm -rf .venv .uv .sluice .cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(READY): pyproject.toml uv.lock | $(UV)
	@$(FIND_PYTHON); $(UV) sync --locked --python "$$python"
	@touch $@

$(RIVALS): $(READY)
	@$(UV) sync --quiet --locked --all-groups --python $(BIN)/python
	@touch $@

.uv/$(UV_VERSION)/bin/uv:
	@$(FIND_PYTHON); rm -rf .uv && "$$python" -m venv .uv/$(UV_VERSION) \
	  && .uv/$(UV_VERSION)/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
