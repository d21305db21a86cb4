# One command for each thing a contributor does. `make help` lists them.
# PYTHON picks the interpreter where .venv is made anew: rm -r .venv && make setup PYTHON=python3.12
SHELL := /bin/bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
WORKERS ?= 2
# Two workers, each taking from the other what is left. Snapshots can't be written by workers, and that would be said.
PYTEST := $(BIN)/pytest --no-header -n $(WORKERS) --dist worksteal
CODE := server session tests $(wildcard benchmarks)
# Rings that need no process, no editor and no network, cheapest first; those that exist.
FAST := $(wildcard tests/architecture tests/core tests/config tests/properties tests/log tests/runtime tests/cli)

.PHONY: help setup demo test check bench soak lint format types generate

help:
	@echo 'make demo      a whole session with the built-in scripted model: no key, no network'
	@echo 'make check     lint, types and the fast tests, in under a minute'
	@echo 'make test      lint, types and every test; what CI runs'
	@echo 'make soak      minutes of load: kills, many servers, a long session, properties with 5,000 cases'
	@echo 'make bench     the table of figures'
	@echo 'make format    let ruff write the layout'
	@echo 'make generate  write the protocol documents, schema, TypeScript and Lua types anew'
	@echo 'make setup     the venv with everything in it; the others do it when they need it'

setup: .venv/.dev

# A demo needs a third of the time of a whole setup, so it gets a stamp of its own; `dev` makes both.
.venv/.run .venv/.dev: pyproject.toml constraints.txt scripts/setup.sh
	@scripts/setup.sh $(subst .venv/.,,$@)

demo: .venv/.run
	@$(BIN)/deskmate demo

# Lint and types come first, so that the last line printed is pytest's own.
test: lint types
	@$(PYTEST) -m 'not soak' --ignore=tests/soak

check: lint types
	@HYPOTHESIS_PROFILE=quick $(PYTEST) -m 'not slow and not soak' $(FAST)

soak: .venv/.dev
	@HYPOTHESIS_PROFILE=soak $(BIN)/pytest --no-header --timeout=0 tests/soak tests/properties

bench: .venv/.dev
	@$(BIN)/python -m benchmarks

lint: .venv/.dev
	@$(BIN)/ruff check --quiet $(CODE)
	@$(BIN)/ruff format --quiet --check $(CODE) || { echo 'layout differs: run make format' >&2; exit 1; }
	@if command -v luacheck >/dev/null; then cd editors/nvim && luacheck --quiet --quiet --no-color .; fi

format: .venv/.dev
	@$(BIN)/ruff format --quiet $(CODE)
	@$(BIN)/ruff check --quiet --fix $(CODE)

types: .venv/.dev
	@$(BIN)/basedpyright --level error

generate: .venv/.dev
	@$(BIN)/python -m deskmate_server.wire.export
