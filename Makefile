# Everything lives in .venv; `make demo` and `make test` are all it takes.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: install install-dev demo test interop lint types verify bench docs constraints wheels wheel-check matrix site clean

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

# PyTorch, Flax, Equinox and ONNX are large, and in an environment of their own
interop: .venv-interop/installed
	.venv-interop/bin/python -c "import torch, flax, equinox, onnx, onnxruntime"
	.venv-interop/bin/python -m pytest tests/interop

.venv-interop/installed: pyproject.toml constraints.txt tests/interop/requirements.txt
	$(PYTHON) -m venv .venv-interop
	.venv-interop/bin/python -m pip --disable-pip-version-check --quiet install -c constraints.txt \
	  -e . -r tests/interop/requirements.txt
	touch $@

lint: install-dev
	$(BIN)/ruff check src tests examples docs benchmarks .ci hatch_build.py
	$(BIN)/ruff format --check src tests examples docs benchmarks .ci hatch_build.py
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
	$(BIN)/python docs/front.py
	$(BIN)/kronline report $(RUNS) --beside results/published/copy.csv --out docs/results.html

# the documentation site, build/site: every cell is run, warnings are errors; then looked at in a browser
.venv/installed-docs: .venv/installed
	$(PIP) install -c constraints.txt -e ".[docs]"
	touch $@

site: .venv/installed-docs
	rm -rf build/site
	$(BIN)/python -m sphinx -W --keep-going -q -j auto -c docs -d build/doctrees . build/site
	$(BIN)/python tests/docs/look.py build/site

# a set of versions that works, for every platform; names no host
constraints:
	$(BIN)/uv pip compile --universal --python-version 3.11 --extra dev --extra docs --no-header --no-annotate \
	  --no-emit-index-url --no-emit-find-links -q -o constraints.txt pyproject.toml

# what is released: sources, a pure wheel, and one with the kernel compiled for this machine's kind of CPU
wheels:
	$(PYTHON) -m venv build/tools
	build/tools/bin/python -m pip --disable-pip-version-check -q install build auditwheel
	rm -rf dist
	build/tools/bin/python -m build
	KRONLINE_WHEEL=$$(uname -m) build/tools/bin/python -m build --wheel
	build/tools/bin/python -m auditwheel show dist/*manylinux*.whl

# a wheel with one kernel, installed where there is no compiler: `kronline info` says native
wheel-check:
	rm -rf build/wheel
	KRONLINE_WHEEL=$${KRONLINE_WHEEL:-x86-64-v3} $(PYTHON) -m pip --disable-pip-version-check wheel -q --no-deps -w build/wheel .
	$(PYTHON) .ci/wheel_check.py build/wheel/*.whl

# every Python that is here, with the oldest and the newest packages
matrix:
	$(PYTHON) .ci/matrix.py

clean:
	rm -rf .venv .venv-interop build dist .mypy_cache .ruff_cache .pytest_cache
