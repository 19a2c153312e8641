# Every target does its own set-up first, and the set-up is quick the second time.

VENV ?= .venv
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13; do \
	$$p -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
# The two builds of onnxruntime exclude each other: CUDA where there is an NVIDIA GPU, the CPU's elsewhere.
EXTRA ?= $(shell nvidia-smi >/dev/null 2>&1 && echo cuda || echo cpu)
PYTEST_ARGS ?= -n auto
EXAMPLES ?= 20

PY := $(VENV)/bin/python
STAMPS := $(VENV)/.stamps
READY := $(STAMPS)/$(EXTRA)

.PHONY: setup demo test test-all array-api bench docs lint gpu clean

setup: $(READY)

# A venv that holds the other build of onnxruntime is made anew. magika is wanted for its model file alone: its
# dependencies would bring in the CPU build.
$(READY): pyproject.toml
	@test -n "$(PYTHON)" || { echo "irkit needs Python 3.11 or newer with the venv module" >&2; exit 1; }
	@test -x $(PY) -a -z "$(filter-out $(READY),$(wildcard $(STAMPS)/cpu $(STAMPS)/cuda))" \
		|| $(PYTHON) -m venv --clear $(VENV)
	$(PY) -m pip install --quiet --upgrade "pip>=25.1"
	$(PY) -m pip install --quiet --editable ".[$(EXTRA),rich,images]" --group test
	$(PY) -m pip install --quiet --no-deps "magika==1.*"
	@mkdir -p $(STAMPS) && touch $@

# The dependency groups of pyproject.toml that only some targets need.
$(STAMPS)/group-%: $(READY)
	$(PY) -m pip install --quiet --group $*
	@touch $@

demo: setup
	$(PY) examples/demo.py

test: setup
	$(PY) -m pytest $(PYTEST_ARGS)

test-all: setup $(STAMPS)/group-oracles
	$(PY) -m pytest -m "" $(PYTEST_ARGS)

# SUITE: a checkout of data-apis/array-api-tests, with its submodule. The numbers in the docs are those of this commit.
SUITE_COMMIT := 55fcc60179efa2680ddd6cd926ddf17b83530e2b
array-api: setup
	@test -d "$(SUITE)/array_api_tests" || { echo "usage: make array-api SUITE=path/to/array-api-tests" >&2; exit 1; }
	@test "$$(git -C $(SUITE) rev-parse HEAD)" = $(SUITE_COMMIT) || echo "note: the docs tell of commit $(SUITE_COMMIT)" >&2
	$(PY) -m pip install --quiet --requirement $(SUITE)/requirements.txt
	cd $(SUITE) && PYTHONPATH=.:$(CURDIR)/tests/unit/array_api \
		ARRAY_API_TESTS_MODULE=irkit.frontends.dsl.xp ARRAY_API_TESTS_VERSION=2024.12 \
		$(abspath $(PY)) -m pytest array_api_tests -p official_suite --disable-deadline --max-examples $(EXAMPLES)

bench: setup $(STAMPS)/group-bench
	$(PY) -m benchmarks

docs: setup $(STAMPS)/group-docs
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

lint: setup $(STAMPS)/group-lint
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m pyright --warnings
	$(VENV)/bin/lint-imports

gpu: setup
	$(PY) benchmarks/gpu.py

clean:
	rm -rf $(VENV) build dist site *.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
