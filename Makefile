# Two commands matter: `make demo` and `make test`. Each makes .venv when it is missing and installs what it needs, once.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check

.PHONY: help demo test fuzz lint bench clean canary chromium docs notebooks bench-gpu test-gpu release-check parity
.DEFAULT_GOAL := help

help:
	@echo "make demo               look at two models, write out/demo/report.html"
	@echo "make test               ruff, mypy and the tests"
	@echo "make fuzz [CASES=6000]  hostile input by the thousand, kill -9 at every write; tables"
	@echo "make lint               ruff and mypy only"
	@echo "make bench [ONLY=name]  one JSON line per figure"
	@echo "make bench-gpu          the same on a GPU; make test-gpu: the kernels there"
	@echo "make docs               the site, in out/docs"
	@echo "make notebooks          run all notebooks of docs/notebooks"
	@echo "make release-check      build wheel and sdist, install and try them in a fresh environment"
	@echo "make canary [ONLY=...]  docs/models.md against the newest transformers, in a fresh environment"
	@echo "make parity             against TransformerLens, kvpress and lxt, in an environment of their own"
	@echo "make clean              remove caches and out/ (not .venv)"

demo: $(INSTALLED)
	@$(BIN)/lorgnette demo --out out/demo

test: lint chromium
	$(BIN)/python -m pytest

# Some twenty minutes on two cores; SEED=n draws other cases, ONLY=corpora (treebanks, …, trainings, kills, signals) only some.
fuzz: $(INSTALLED)
	@PYTHONPATH=.:src:tests $(BIN)/python -m fuzz $(if $(CASES),--cases $(CASES)) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only $(ONLY))

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The browser tests need Chromium; without it they are skipped, and say so. Nothing fails here.
chromium:
	@test -n "$$LORGNETTE_CHROMIUM" || command -v chromium >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1 \
	|| { test "$$(id -u)" = 0 && command -v apt-get >/dev/null 2>&1 && echo "Installing chromium for the browser tests …" >&2 \
	&& apt-get install -y -qq --no-install-recommends chromium >/dev/null 2>&1; } \
	|| echo "No Chromium: the browser tests will be skipped (Debian: apt-get install chromium)." >&2

# Half an hour on two cores; ONLY="bert llama" for some models. Fails if a model is less exact than the table says.
canary:
	@$(PYTHON) scripts/canary.py $(ONLY)

# Some minutes, most of them for installing. A comparison that is skipped fails.
parity:
	@$(PYTHON) scripts/parity.py

bench: $(INSTALLED)
	@$(BIN)/python -m benchmarks $(ONLY)

# A warning of Sphinx is an error. A notebook whose model is not here (docs/needs.py) is shown without outputs.
docs: $(INSTALLED)
	@$(BIN)/python -m sphinx -q -W --keep-going -b html docs out/docs
	@echo "out/docs/index.html"

# One asks a real language model, which no package brings.
SMOLLM2 := $(or $(LORGNETTE_MODELS),.models)/smollm2
ANSWERS := docs/notebooks/what-did-the-answer-use.ipynb

notebooks: $(INSTALLED)
	@$(BIN)/jupyter-execute --timeout=900 $(filter-out $(ANSWERS),$(wildcard docs/notebooks/*.ipynb))
	@if test -d "$(SMOLLM2)"; then $(BIN)/jupyter-execute --timeout=900 $(ANSWERS); \
	else echo "Not run: $(ANSWERS), because $(SMOLLM2) is not there. Put SmolLM2-135M-Instruct into it, or set LORGNETTE_MODELS."; fi

release-check:
	@$(PYTHON) scripts/release_check.py

bench-gpu: $(INSTALLED)
	@$(BIN)/python -m benchmarks.gpu

test-gpu: $(INSTALLED)
	-@$(PIP) install -q bitsandbytes
	@$(BIN)/python -m pytest -n 0 tests/attending/test_kernels.py tests/contributions/test_norm_kernels.py \
		tests/contributions/test_drawn_pairs.py tests/lens/test_geometry_kernels.py tests/looking/test_replay.py \
		tests/attending/test_band.py tests/looking/test_processes_on_a_gpu.py tests/lens/test_divergence_kernel.py \
		tests/looking/test_gpu_equals_cpu.py tests/looking/test_questions_on_a_device.py \
		tests/models/test_quantised.py

clean:
	rm -rf out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

# The stamp is touched last: an install that was interrupted is done again, a finished one is not.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Lorgnette needs Python 3.11 or later; try: make PYTHON=python3.12")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing Lorgnette into $(VENV) (once; some minutes) …" >&2
	@$(PIP) -c constraints.txt -e '.[all,dev]'
	@touch $@
