# Everything lives in .venv; `make demo` and `make test` are all it takes.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: install install-dev demo test lint types verify bench docs constraints clean

install: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) install -c constraints.txt -e ".[lab]"
	touch $@

install-dev: .venv/installed-dev

.venv/installed-dev: .venv/installed
	$(PIP) install -c constraints.txt -e ".[dev]"
	touch $@

demo: install
	$(BIN)/kronline demo

test: install-dev
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

lint: install-dev
	$(BIN)/ruff check src tests examples docs benchmarks
	$(BIN)/ruff format --check src tests examples docs benchmarks
	$(BIN)/lint-imports

types: install-dev
	$(BIN)/mypy

verify: install
	$(BIN)/kronline verify

bench: install
	$(BIN)/kronline bench

# tables and figures of the docs, and the page docs/results.html (not tracked), from the files in results/
TEXT := $(patsubst %,'results/ptb.runs:%',*rtrl* uoro* tbptt* snap* *-5--pairs-8*)
RUNS := results/variance.runs results/copy-clip.runs $(TEXT) 'results/ptb.runs:*-25--*auto*'
docs: install
	$(BIN)/python docs/tables.py
	$(BIN)/kronline plot results/variance.runs --out docs/figures/variance.png
	$(BIN)/kronline plot results/copy-clip.runs --beside results/published/copy.csv --out docs/figures/copy-clip.png
	$(BIN)/kronline plot results/copy-million.runs --beside results/published/copy.csv --out docs/figures/million.png
	$(BIN)/kronline plot $(TEXT) --width 6.8 --out docs/figures/ptb-128.png
	$(BIN)/kronline plot results/lstm --out docs/figures/lstm.png
	$(BIN)/python docs/ahead.py
	$(BIN)/kronline report $(RUNS) --beside results/published/copy.csv --out docs/results.html

# a set of versions that works, for every platform; names no host
constraints:
	$(BIN)/uv pip compile --universal --python-version 3.11 --extra dev --no-header --no-annotate \
	  --no-emit-index-url --no-emit-find-links -q -o constraints.txt pyproject.toml

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache
