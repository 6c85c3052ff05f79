# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PEERS := .bench-venv

# Tests start hundreds of Python processes. Without byte code on disk, each compiles all modules again and takes twice as long.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-stories test-faults kube test-kube test-browser tools test-deploy fuzz fuzz-inputs fuzz-capacity chaos chaos-kube soak check format proto client docs bench study clean

demo: $(STAMP)
	@$(BIN)/spill demo

# Runs test files in parallel: many tests wait for servers, not for a core.
WORKERS ?= 2
test: $(STAMP)
	@$(BIN)/python -m pytest -m "not slow and not kube and not browser" -n $(WORKERS) --dist loadfile

# All cases of the tests with many seeds or examples, of which `make test` runs the first few. They need cores, not time: they
# run in parallel.
test-stories: $(STAMP)
	@$(BIN)/python -m pytest -m "(slow or hypothesis) and not kube" --hypothesis-profile stories -n $(WORKERS) tests/property tests/unit

# Servers, agents and disks fail while real jobs run. Takes some minutes; best on an idle machine.
test-faults: $(STAMP)
	@$(BIN)/python -m pytest -m "slow and not kube" tests/conformance tests/integration tests/e2e

# Random faults between the server and its agents, and between pools and their providers. Prints the first failing case.
SEEDS ?= 1000
FIRST ?= 1
fuzz: $(STAMP)
	@$(BIN)/python -m tests.support.fuzz --seeds $(SEEDS) --first $(FIRST)

# Malformed input from every source (or SOURCE=agents, clusters, requests, files, plugins, clocks) to a real server.
# Prints the first failing case in its shortest form.
SOURCE ?=
fuzz-inputs: SEEDS = 200
fuzz-inputs: $(STAMP)
	@$(BIN)/python -m tests.support.inputs --seeds $(SEEDS) --first $(FIRST) $(if $(SOURCE),--source $(SOURCE))

# Books, starts and gives back capacity at random, beside a naive calendar. Prints the first seed that fails.
STEPS ?= 40
fuzz-capacity: SEEDS = 50000
fuzz-capacity: $(STAMP)
	@$(BIN)/python -m tests.support.timelines --seeds $(SEEDS) --first $(FIRST) --steps $(STEPS)

# Kills, stops and disconnects real agents while JOBS jobs run, and then while GANGS gangs do. 0 leaves a part out.
JOBS ?= 20000
GANGS ?= 2000
chaos: $(STAMP)
	@CHAOS_JOBS=$(JOBS) CHAOS_GANGS=$(GANGS) CHAOS_SEED=$(SEED) $(BIN)/python -m pytest -s \
	  $(if $(filter-out 0,$(JOBS)),tests/e2e/test_chaos.py) $(if $(filter-out 0,$(GANGS)),tests/e2e/test_gang_chaos.py)

# The same on two Kubernetes clusters: the server, API servers and etcd fail, and a proxy corrupts the traffic between them. Then
# GANGS gangs of 2 to 64 pods on one cluster, while all of its parts and some nodes fail. 0 leaves a part out.
SEED ?= 20261115
chaos-kube: JOBS = 2000
chaos-kube: GANGS = 1000
chaos-kube: kube
	@CHAOS_JOBS=$(JOBS) CHAOS_GANGS=$(GANGS) CHAOS_SEED=$(SEED) $(BIN)/python -m pytest -s \
	  $(if $(filter-out 0,$(JOBS)),tests/kube/test_chaos.py) $(if $(filter-out 0,$(GANGS)),tests/kube/test_gang_chaos.py)

# Runs a real server under mixed load, then checks its memory, log, jobs and pauses.
MINUTES ?= 20
PAUSE ?= 1
soak: SEED = 1
soak: $(STAMP)
	@$(BIN)/python -m tests.support.soak --minutes $(MINUTES) --seed $(SEED) --pause $(PAUSE)

# Builds the image and runs a server, an agent and a job in it; needs root, podman, runc and debootstrap, and some minutes.
test-deploy: $(STAMP)
	@SPILL_TEST_IMAGE=1 $(BIN)/python -m pytest tests/e2e/test_deploy_image.py -v

# Opens the web page of real servers in a real browser, which make tools installs.
test-browser: $(STAMP)
	@$(BIN)/python -m pytest -m browser tests/browser

# Builds a Kubernetes control plane, and KWOK for its nodes, into a cache (SPILL_KUBE_CACHE). Takes about seven minutes on two cores, once.
kube: $(STAMP)
	@$(BIN)/python -m tests.support.kube.building

# Tests on two real Kubernetes clusters.
test-kube: kube
	@$(BIN)/python -m pytest -m kube tests/kube

# Installs Debian packages that some tests use. A test without its program is skipped and says so.
tools:
	@missing=$$(for each in podman:podman runc:runc busybox:busybox-static ip:iproute2 mpirun.openmpi:openmpi-bin mpicc.openmpi:libopenmpi-dev \
  mpiexec.mpich:mpich mpicc.mpich:libmpich-dev chromium:chromium; do \
	  command -v $${each%%:*} >/dev/null || echo $${each##*:}; done); \
	test -z "$$missing" || { echo "installing" $$missing; \
	  { apt-get update && apt-get install -y --no-install-recommends $$missing; } >/dev/null 2>&1 \
	    || echo "these cannot be installed here, and their tests are left out:" $$missing; }

check: $(STAMP)
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(STAMP)
	@$(BIN)/ruff check --fix --quiet
	@$(BIN)/ruff format --quiet

proto: $(STAMP)
	@$(BIN)/python -m grpc_tools.protoc -Isrc --python_out=src --pyi_out=src src/spillover/wire/agents.proto src/spillover/wire/clusters.proto src/spillover/wire/jobs.proto

# Generates the blocking client from the asyncio client. A test checks that it is up to date.
client: $(STAMP)
	@$(BIN)/python -m tests.support.unasync

# Generates figures and tables from the code. A test checks that they are up to date.
docs: $(STAMP)
	@$(BIN)/python docs/generate.py

# Installs peers into their own environment. Names and skips those that cannot be installed.
bench: $(STAMP) $(PEERS)/.installed
	@$(BIN)/python -m bench $(BENCH)

# Runs the simulations of docs/studies.md and writes its tables. Resumes where it was interrupted.
study: $(STAMP)
	@$(BIN)/python -m bench.study $(STUDY)

$(PEERS)/.installed: bench/requirements.txt
	@test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	@while read -r peer; do case "$$peer" in "#"*|"") continue;; esac; \
	  echo "installing $$peer into $(PEERS)"; \
	  $(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check "$$peer" </dev/null 2>/dev/null \
	    || echo "$$peer cannot be installed here and is left out"; \
	done < bench/requirements.txt
	@command -v slurmctld >/dev/null || { echo "installing Slurm"; \
	  apt-get install -y slurm-wlm munge >/dev/null 2>&1 || echo "Slurm cannot be installed here and is left out"; }
	@touch $@

clean:
	rm -rf $(VENV) $(PEERS) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Spillover needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
	@test -x $(BIN)/python || { echo "creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing Spillover and its tools into $(VENV) (a minute or two the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
