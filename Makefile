# Every target sets itself up: the first target that runs makes .venv from requirements.lock and installs Milepost into it.
# A changed lock makes .venv again, and a changed pyproject.toml installs Milepost again.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Stamps, touched last: an environment whose installation was interrupted has none, and is made from scratch.
LOCKED := $(VENV)/.locked
READY := $(VENV)/.ready
# The classes of Spark, in the archive that tests/spark_archive.py writes.
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
	@echo "make check              format, lint, types, import layers, unit tests: run it while you work"
	@echo "make test               everything: lint, types, all tests, short benchmarks"
	@echo "make bench NAME=format  one benchmark, against its peers (QUICK=1: a short run); also NAME=query, match,"
	@echo "                        input_queues, pubsub, durable, queues, pipeline, control"
	@echo "make soak               kill brokers, stores, clients and pipelines under load, and count what arrived"
	@echo "make search             look for counterexamples to every property, with five times the examples of make test"
	@echo "make fuzz               a minute of hostile input for the decoder, the parsers and the broker"
	@echo "make setup              only install: the pinned packages, and Milepost, into .venv"
	@echo "make lock               resolve and pin every dependency again, in requirements.lock"
	@echo "make clean              remove .venv and everything generated"
	@echo
	@echo "Every target sets itself up. The first run takes about two minutes longer on two cores: it installs the packages."

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

# Spark runs on Java. This installs it where it is missing and apt-get needs no password.
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
# Four workers for two cores, because one or two of them usually wait for a disk, a broker or a clock.
test: prepared java
	@echo "running all tests"
	@$(BIN)/python -m pytest -q -n 4 --dist loadgroup --hypothesis-profile=ci --durations=25 tests

# Lint and kernels side by side, one core each.
prepared: $(READY)
	@$(MAKE) --no-print-directory -j 2 lint warm $(ALSO)

check: prepared
	@echo "running the unit tests; those of stores run on SQLite"
	@$(BIN)/python -m pytest -q -n 2 --hypothesis-profile=check -m "not slow and not postgresql" tests/unit

# Before the tests and not within them: without kernels a broker answers more slowly, and compiles while it is tested.
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

# SOAK has further options: make soak SOAK="--store sqlite --seed 7"
soak: $(READY) warm java $(if $(SOAK),,search)
	@$(BIN)/python -m soak $(SOAK)

# `make test` draws few random examples of each property, and other ones each time.
search: $(READY) warm
	@$(BIN)/python -m pytest -q -n 2 --hypothesis-profile=long -m hypothesis tests/unit

fuzz: $(READY)
	@$(BIN)/python -m fuzz --seconds $(SECONDS_OF_FUZZING)

# The resolver has an environment of its own, because only this target needs it. The package index is a setting of the
# user, and is never written into the lock.
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
