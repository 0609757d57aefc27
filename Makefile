# Every target sets itself up: the first one run makes .venv from requirements.lock and installs Milepost into it.
# The environment is made anew when the lock changes, and Milepost is installed anew when pyproject.toml does.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Stamps, touched last: an environment that was interrupted half-way has none and is made from scratch.
LOCKED := $(VENV)/.locked
READY := $(VENV)/.ready
# The classes of Spark, as tests/spark_archive.py keeps them.
ARCHIVE := $(VENV)/spark.jsa

NAME ?=
QUICK ?=
SECONDS_OF_FUZZING ?= 60
SOAK ?=

.DEFAULT_GOAL := help
.PHONY: help setup java demo test check prepared lint warm bytecode bench soak search fuzz lock clean
.DELETE_ON_ERROR:
# The tests start hundreds of Python processes. Without bytecode files each of them compiles Milepost anew, which is more
# than a third of the time that it takes to start.
unexport PYTHONDONTWRITEBYTECODE

help:
	@echo "make demo               see what Milepost does, on the terminal, in under two minutes"
	@echo "make test               run everything: lint, types, all tests, short benchmarks (15 to 20 minutes on two cores)"
	@echo "make check              format, lint, types, import layers, unit tests (under a minute)"
	@echo "make bench NAME=format  one benchmark, against its peers; also NAME=query, match, input_queues, pubsub, durable, queues, pipeline, control; QUICK=1: a short run"
	@echo "make soak               kill brokers and clients of topics, queues and pipelines, on each store, and count what arrived"
	@echo "make search             look for counterexamples to every property, with five times the random examples of make test"
	@echo "make fuzz               throw a minute of hostile input at the decoder and the parsers"
	@echo "make lock               pin every dependency anew in requirements.lock"
	@echo "make clean              remove .venv and everything generated"
	@echo
	@echo "The first one that you run sets itself up, which takes about two minutes on two cores: it installs the pinned packages into .venv."

setup: $(READY)

$(LOCKED): requirements.lock
	@command -v $(PYTHON) >/dev/null || { \
	  echo "There is no '$(PYTHON)': install Python 3.11 or newer (Debian, Ubuntu: apt install python3 python3-venv), or name one: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Milepost needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) --version 2>&1): install a newer one (Debian, Ubuntu: apt install python3.11 python3.11-venv), or name one: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "'$(PYTHON)' cannot make virtual environments: install its venv package (Debian, Ubuntu: apt install $$($(PYTHON) -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'))."; exit 1; }
	@rm -rf $(VENV)
	@echo "making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)
	@echo "installing $$(grep -c '^[A-Za-z0-9]' requirements.lock) packages from requirements.lock, about two minutes"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps -r requirements.lock
	@touch $@

# The build backend is in the lock, so that nothing unpinned is fetched here.
$(READY): $(LOCKED) pyproject.toml
	@echo "installing milepost into $(VENV)"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# Spark runs on Java. Where nobody has installed it, and this may be done without asking for a password, it is done.
java:
	@command -v java >/dev/null || [ -n "$$JAVA_HOME" -a -x "$$JAVA_HOME/bin/java" ] || { \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	    echo "installing Java for Spark with apt-get" && apt-get update -qq >/dev/null && \
	    for version in 17 21 25; do \
	      DEBIAN_FRONTEND=noninteractive apt-get install -y -qq openjdk-$$version-jre-headless >/dev/null 2>&1 && break; \
	    done && command -v java >/dev/null; } || { \
	    echo "Spark needs Java 17 or newer: install it (Debian, Ubuntu: sudo apt install openjdk-17-jre-headless, or a newer one), or set JAVA_HOME."; $(or $(WITHOUT_JAVA),exit 1); \
	  }; }

demo: WITHOUT_JAVA := echo "The demo goes on without its scene on Spark."
demo: $(READY) java
	@$(BIN)/python -m milepost.cli demo

test: ALSO := $(ARCHIVE) bytecode
# Four workers for two cores: there is always one or two that wait for a disk, a broker or a clock.
test: prepared java
	@echo "running all tests"
	@$(BIN)/python -m pytest -q -n 4 --dist loadgroup --hypothesis-profile=ci --durations=25 tests

# One core each.
prepared: $(READY)
	@$(MAKE) --no-print-directory -j 2 lint warm $(ALSO)

check: prepared
	@echo "running the unit tests, of stores those on SQLite"
	@$(BIN)/python -m pytest -q -n 2 --hypothesis-profile=check -m "not slow" -k "not postgresql" tests/unit

# Before the tests and not within them: without kernels a broker answers more slowly, and compiles beside what is tested.
warm: $(READY)
	@$(BIN)/python -m milepost.cli warm

# pytest rewrites the assertions of a module when it is imported first. All workers begin at once: without this each of
# them rewrites all modules.
bytecode: $(READY)
	@$(BIN)/python -m pytest -q --collect-only tests >/dev/null

$(ARCHIVE): $(LOCKED) | $(READY) java
	@$(BIN)/python -m tests.spark_archive $@

lint: $(READY)
	@echo "checking format, lint, types and import layers"
	@$(BIN)/python -m ruff format --quiet --check .
	@$(BIN)/python -m ruff check --quiet .
	@$(BIN)/python -m mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo

bench: $(READY) $(if $(filter pipeline control,$(NAME)),java)
	@QUICK=$(QUICK) $(BIN)/python -m benchmarks $(NAME)

# SOAK passes more to it: make soak SOAK="--store sqlite --seed 7"
soak: $(READY) warm java $(if $(SOAK),,search)
	@$(BIN)/python -m soak $(SOAK)

# `make test` draws few random examples of each property, and other ones each time.
search: $(READY) warm
	@$(BIN)/python -m pytest -q -n 2 --hypothesis-profile=long -m hypothesis tests/unit

fuzz: $(READY)
	@$(BIN)/python -m fuzz --seconds $(SECONDS_OF_FUZZING)

# The resolver lives in an environment of its own: it is needed here only. The index it asks is its user's setting,
# and never written into the lock.
lock:
	@$(PYTHON) -m venv $(VENV)-lock
	@$(VENV)-lock/bin/python -m pip install -qq --disable-pip-version-check uv
	@$(VENV)-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --upgrade \
	  --extra server --extra spark --group dev --group bench --group fuzz \
	  --no-emit-index-url --no-emit-find-links --no-header --no-annotate \
	  --generate-hashes pyproject.toml --output-file requirements.lock
	@rm -rf $(VENV)-lock
	@echo "requirements.lock pins $$(grep -c '^[A-Za-z0-9]' requirements.lock) packages"

clean:
	rm -rf $(VENV) $(VENV)-lock build dist fuzz/findings .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
