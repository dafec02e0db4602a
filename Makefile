# Dayahead. `make` lists the verbs; those that need .venv set it up by themselves.

PYTHON ?=
TORCH ?=
PORT ?= 5000
SIZE ?=
TESTS ?=
TARGET ?= pipeline
IMAGE ?= localhost/dayahead:$(or $(TORCH),cpu)

UV_READY := .venv/.uv-ready
# An image (containers/Containerfile) has its environment elsewhere, ready.
READY := $(if $(DAYAHEAD_ENVIRONMENT),,.venv/.ready)
DEV_READY := $(if $(DAYAHEAD_ENVIRONMENT),,.venv/.dev-ready)
DOCS_READY := build/docs-env/.ready
PEERS_READY := $(patsubst %,build/peers/%/.ready,transformers4rec rectools)
RECBOLE_READY := build/peers/recbole/.ready
PEERS_IN_A_SHOP := peer_accuracy.py --datasets shop --epochs 1 \
	--models popularity transitions memory gpt2 "RecTools SASRec" "Transformers4Rec XLNet"
INSTALL := .venv/bin/python tools/install.py
# A worker per core. Each begins with a share of neighbouring tests, which have fixtures in common,
# and takes some of another's when it is done.
PARALLEL := -n logical --dist worksteal
# For a test that would be taken for one that hangs.
MORE_TIME := -o faulthandler_timeout=7200
# Stages and tests start Python hundreds of times: without bytecode each would compile torch again.
unexport PYTHONDONTWRITEBYTECODE
TORCH_OPTION := $(if $(TORCH),--torch $(TORCH))
# A verb's commands find the environment's programs first, and so do the stages that dvc starts.
export PATH := $(or $(DAYAHEAD_ENVIRONMENT),$(CURDIR)/.venv)/bin:$(PATH)

.DEFAULT_GOAL := help
.PHONY: help repro test test-long test-slow walks faults cluster check bench bench-peers bench-accuracy bench-preprocess bench-live gpu-smoke profile ui experiments cache image image-test sbom docs format lock clean

help:  ## list the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {gsub(/[$$][$$]/, "$$"); printf "  make %-16s %s\n", $$1, $$2}' Makefile

repro: $(READY)  ## run the pipeline on the data set in params.yaml
	dvc repro
	@echo
	@python -m dayahead summary

test: $(DEV_READY)  ## run the fast tests (TESTS="tests/unit/train tests/pipeline")
	python -m pytest $(strip $(PARALLEL) $(TESTS))

test-long: $(DEV_READY)  ## run the tests that take a second or more: five minutes
	python -m pytest $(strip $(PARALLEL) $(TESTS)) -m "long and not slow and not gpu and not faults and not cluster and not walk"

test-slow: $(DEV_READY)  ## run the tests that take minutes
	python -m pytest $(MORE_TIME) -m "slow and not gpu and not walk"

walks: $(DEV_READY)  ## run sentences of a user, each a test
	python -m pytest $(MORE_TIME) -m walk tests/walks

faults: $(DEV_READY)  ## kill, starve and damage runs on real clicks ($$DAYAHEAD_DATA): an hour
	python -m pytest $(MORE_TIME) -m faults tests/faults

cluster: $(DEV_READY)  ## as root, where Slurm is installed: disturb jobs on two nodes: 15 minutes
	python -m pytest $(MORE_TIME) -m cluster tests/cluster

check: $(DEV_READY)  ## format, lint, types, layers, fast tests: what must pass before a commit
	ruff format --check --quiet
	ruff check --quiet
	mypy
	lint-imports
	python -m pytest $(PARALLEL)

bench: $(READY)  ## measure training, evaluation and recommend; say what changed since last time
	python benchmarks/throughput.py
	python -W ignore benchmarks/recommend.py

bench-peers: $(READY) $(PEERS_READY)  ## measure against Transformers4Rec and RecTools, in environments of their own (SIZE=shop: a shop's days: hours)
	$(if $(filter-out shop,$(SIZE)),$(error SIZE=$(SIZE): expected shop, or nothing))
	python -W ignore benchmarks/$(if $(SIZE),$(PEERS_IN_A_SHOP),peers.py)

bench-accuracy: $(READY) $(PEERS_READY) $(RECBOLE_READY)  ## NDCG, recall and CPU time of peers under the protocol, on $$DAYAHEAD_DATA: hours (OPTIONS="--datasets synthetic")
	python -W ignore benchmarks/peer_accuracy.py $(OPTIONS)

bench-preprocess: $(DEV_READY)  ## measure preprocessing: at 42 M events, by the day
	python -W ignore benchmarks/scaling.py

bench-live: $(READY)  ## measure a tick of memories that hold 200,000 sessions
	python benchmarks/live.py

gpu-smoke: $(DEV_READY)  ## on a machine with a GPU: time a step, compare every backbone with the CPU: 20 minutes
	@python benchmarks/gpu.py
	@python benchmarks/gpu.py --triton
	TRITON_INTERPRET=0 python -m pytest tests/unit/model/test_softmax_kernels.py
	TRITON_INTERPRET=0 python -m pytest -m gpu tests/unit/train/test_real_gpu.py

profile: $(READY)  ## profile a fit of the study in params.yaml: tables and traces in build/profile (WINDOW=...)
	dvc repro preprocess
	@python -m dayahead profile $(if $(WINDOW),--window $(WINDOW))

ui: $(READY)  ## open MLflow on the tracking store at http://127.0.0.1:5000 (PORT=...)
	@tools/ui $(PORT)

experiments: $(READY)  ## list DVC's experiments: their settings that differ, AOD at 20
	@COLUMNS=400 dvc exp show --no-pager --only-changed --keep 'aod\.(recall|ndcg)_at_20$$' \
	    --drop '.*(/|\.txt|_at_[0-9]+|session_mean|n_windows|n_sessions|Created|Executor)'

cache: $(READY)  ## list the cache (DAYS=30: remove entries not used for 30 days)
	python -m dayahead cache $(if $(DAYS),--prune $(DAYS))

image:  ## build a container image of the last commit (TORCH=cuda, BASE=..., TARGET=development)
	@tools/image $(TARGET) $(IMAGE)

image-test: $(READY)  ## as root: build the image on a new Debian, compare its results: half an hour
	@tools/image-test

sbom:  ## list the packages of the image: build/image/sbom.json
	@mkdir -p build/image
	@OUTPUT=$(CURDIR)/build/image tools/image sbom sbom

docs: $(READY) $(DOCS_READY)  ## build the documentation: build/docs/index.html
	python tools/settings_pages.py
	build/docs-env/bin/zensical build --clean --strict
	@echo "Open build/docs/index.html; with search: python -m http.server -d build/docs"

format: $(DEV_READY)  ## rewrite the source in the house format
	ruff check --fix --quiet
	ruff format

lock: $(UV_READY)  ## compile requirements*.txt, the complete lock, from pyproject.toml
	@echo "Compiling requirements*.txt from pyproject.toml"
	@.venv/bin/python tools/lock.py

clean:  ## remove .venv and the tools' caches; data, models, results and experiments stay
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build
	rm -rf src/*.egg-info
	find src stages tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

# No file has this name, so that it is always checked, and before anything is set up.
.place:
	@tools/check-place "$(MAKECMDGOALS)" "$(PYTHON)" "$(TORCH)"

# A stamp is removed first and written last, so a failed set-up leaves none.
$(UV_READY): requirements-setup.txt | .place
	@rm -f $(UV_READY) $(READY) $(DEV_READY)
	@.venv/bin/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	    || { python=$$(tools/find-python $(PYTHON)) && "$$python" -m venv --clear .venv; }
	@echo "Setting up .venv: pip and uv"
	@.venv/bin/python -m pip install --quiet --no-input --disable-pip-version-check --no-deps \
	    --require-hashes --requirement $< 2> .venv/pip-errors \
	    || { grep '^ERROR' .venv/pip-errors >&2; exit 1; }
	@touch $@

$(READY): $(UV_READY) requirements.txt requirements-cuda.txt pyproject.toml | .place
	@rm -f $@
	@echo "Setting up .venv: the $$(grep -c == requirements.txt) packages of requirements.txt"
	@$(INSTALL) .venv requirements.txt $(TORCH_OPTION)
	@echo "Setting up .venv: Dayahead and DVC's cache"
	@$(INSTALL) .venv --editable .
	@tools/private-cache
	@touch $@
	@echo "Environment ready. Activate it with: source .venv/bin/activate"

$(DEV_READY): $(READY) requirements-dev.txt
	@rm -f $@
	@echo "Setting up .venv: the $$(grep -c == requirements-dev.txt) packages of requirements-dev.txt"
	@$(INSTALL) .venv requirements-dev.txt
	@touch $@

# The tools of the documentation have an environment of their own: no stage depends on them.
$(DOCS_READY): requirements-docs.txt | $(UV_READY)
	@echo "Setting up build/docs-env from requirements-docs.txt"
	@.venv/bin/uv venv --quiet --clear --python .venv/bin/python build/docs-env
	@$(INSTALL) build/docs-env requirements-docs.txt
	@touch $@

# The peers of benchmarks/peers.py and peer_accuracy.py have environments of their own too.
$(PEERS_READY) $(RECBOLE_READY): build/peers/%/.ready: benchmarks/%.txt | $(UV_READY)
	@echo "Setting up build/peers/$* from $<"
	@.venv/bin/uv venv --quiet --clear --python .venv/bin/python build/peers/$*
	@$(INSTALL) build/peers/$* $< $(TORCH_OPTION)
	@touch $@
