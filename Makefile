# Two commands for a newcomer: `make demo` and `make test`. Both make a virtual environment first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
WORKERS ?= 2
PYTEST := $(BIN)/pytest -n $(WORKERS) --dist loadscope --no-loadscope-reorder

.PHONY: install demo demo-short test test-all lowest newest build lint docs site bench mutants fuzz faults by-hand outside gpu gpu-wheels

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[engine,dev]'
	touch $@

demo: install
	$(BIN)/specfleet demo --out runs/demo

demo-short: install
	$(BIN)/specfleet demo --short --out runs/demo-short

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(PYTEST) -m "not slow"

test-all: lint
	$(PYTEST)

# The lowest and the newest versions that pyproject.toml admits, for any Python: `make newest PYTHON=python3.13`.
lowest newest:
	$(PYTHON) -m venv --clear .venv-$@
	.venv-$@/bin/pip install --quiet --disable-pip-version-check uv
	.venv-$@/bin/uv pip install --quiet --python .venv-$@ --resolution $(if $(filter lowest,$@),lowest-direct,highest) \
		--editable '.[fast,dev]'
	.venv-$@/bin/python -m pytest -n $(WORKERS) --dist loadscope -m "not slow" $(if $(filter lowest,$@),-W ignore::DeprecationWarning) \
		-p tests.helpers.without_engine tests/fleet tests/sim tests/figures

build: install
	$(BIN)/pip install --quiet --disable-pip-version-check build twine
	rm -rf runs/dist
	$(BIN)/python -W error -m build --outdir runs/dist .
	$(BIN)/twine check --strict runs/dist/*

outside: install
	$(BIN)/python -m bench.others $(or $(ENGINE),vllm)
	$(BIN)/python -m bench outside --engine $(or $(ENGINE),vllm)

gpu: # numba compiles the simulator's loop once on a host, beside the first part, which times nothing
	$(PYTHON) -m specfleet simulate star --path fast >/dev/null 2>&1 & $(PYTHON) -m bench gpu

gpu-wheels:
	$(PYTHON) -m pip download --quiet --no-deps --only-binary=:all: --implementation cp --dest runs/wheels \
		--python-version $(or $(FOR),3.12) $(addprefix --platform manylinux,_2_28_x86_64 _2_26_x86_64 _2_17_x86_64 2014_x86_64) \
		$(or $(WHEELS),simpy msgspec pyzmq)

by-hand: install
	$(BIN)/pytest tests/specfleet/test_by_hand_page.py

fuzz: install
	$(BIN)/python -m tests.fuzz --messages 1000000

faults: install
	$(BIN)/python -m tests.faults --kills 100

mutants: install
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[mutants]'
	$(BIN)/python -m tests.mutation

docs: install
	$(BIN)/python -m tools.reference

site: install
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt mkdocs-material 'mkdocstrings[python]'
	PYTHONPATH=. NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: install
	$(BIN)/python -m bench $(NAME) $(if $(DATA),--data $(DATA))
