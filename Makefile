# Dayahead. `make` lists the verbs; those that need .venv set it up by themselves.

PYTHON ?=
PORT ?= 5000
TESTS ?=
IMAGE ?= localhost/dayahead

READY := .venv/.ready
DEV_READY := .venv/.dev-ready
# A worker per core. Each begins with a share of neighbouring tests, which have fixtures in common,
# and takes some of another's when it is done.
PARALLEL := -n logical --dist worksteal
# For a test that would be taken for one that hangs.
MORE_TIME := -o faulthandler_timeout=7200
LOCK := UV_SYSTEM_CERTS=true UV_DEFAULT_INDEX=https://pypi.org/simple .venv/bin/uv
EXPORT := .venv/bin/uv export --quiet --frozen --no-emit-project --no-annotate --no-header --no-default-groups
# Stages and tests start Python hundreds of times: without bytecode each would compile torch again.
unexport PYTHONDONTWRITEBYTECODE
# A verb's commands find the environment's programs first, and so do the stages that dvc starts.
export PATH := $(CURDIR)/.venv/bin:$(PATH)

.DEFAULT_GOAL := help
.PHONY: help repro test test-long test-slow walks faults cluster check format bench image ui experiments docs lock clean

help:  ## list the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {gsub(/[$$][$$]/, "$$"); printf "  make %-12s %s\n", $$1, $$2}' Makefile

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

format: $(DEV_READY)  ## rewrite the source in the house format
	ruff check --fix --quiet
	ruff format

bench: $(READY)  ## measure training, evaluation and recommend; say what changed since last time
	python benchmarks/throughput.py
	python -W ignore benchmarks/recommend.py

image:  ## build a container image of this folder, with docker, podman or buildah (BASE=...)
	$(or $(shell command -v docker podman buildah | head -n 1),$(error no docker, podman or buildah is installed)) build \
	    $(if $(BASE),--build-arg BASE=$(BASE)) --file containers/Containerfile --tag $(IMAGE) .

# No pickle of an artifact is read, and only a browser on this machine is answered.
ui: $(READY)  ## open MLflow on the runs of this folder, or of $$MLFLOW_TRACKING_URI (PORT=5000)
	MLFLOW_ALLOW_PICKLE_DESERIALIZATION=false MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false \
	MLFLOW_BACKEND_STORE_URI="$${MLFLOW_TRACKING_URI:-sqlite:///mlflow.db}" mlflow ui --host 127.0.0.1 --port $(PORT) --workers 1

experiments: $(READY)  ## list DVC's experiments: their settings that differ, AOD at 20
	@COLUMNS=400 dvc exp show --no-pager --only-changed --keep 'aod\.(recall|ndcg)_at_20$$' \
	    --drop '.*(/|\.txt|_at_[0-9]+|session_mean|n_windows|n_sessions|Created|Executor)'

docs: $(DEV_READY)  ## build the documentation: build/docs/index.html
	zensical build --clean --strict

lock: $(READY)  ## lock what pyproject.toml asks for, in the versions that are locked where they fit
	$(LOCK) lock
	$(EXPORT) --group test --output-file requirements.txt
	$(EXPORT) --only-group dev --output-file requirements-dev.txt
	$(EXPORT) --only-group setup --output-file requirements-setup.txt

clean:  ## remove .venv and the tools' caches; data, models, results and experiments stay
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build
	rm -rf src/*.egg-info
	find src stages tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

# A stamp is removed first and written last, so a failed set-up leaves none.
$(READY): requirements.txt requirements-setup.txt pyproject.toml
	@rm -f $(READY) $(DEV_READY)
	@PYTHON="$(PYTHON)" tools/setup .venv requirements.txt
	@.venv/bin/python -m pip install --quiet --no-input --disable-pip-version-check --no-deps --editable .
# DVC's own site cache would lie where everyone may write, with pickles in it.
	@[ ! -d .dvc ] || { mkdir -p -m 700 .dvc/tmp/site && { dvc config core.site_cache_dir > /dev/null 2>&1 || \
	    dvc config --local core.site_cache_dir "$(CURDIR)/.dvc/tmp/site"; }; }
	@touch $@

$(DEV_READY): $(READY) requirements-dev.txt
	@rm -f $@
	@tools/setup .venv requirements-dev.txt
	@touch $@

# The peers of benchmarks/peers.py and peer_accuracy.py have environments of their own.
build/peers/%/.ready: benchmarks/%.txt | $(READY)
	@PYTHON=.venv/bin/python tools/setup build/peers/$* $<
	@touch $@
