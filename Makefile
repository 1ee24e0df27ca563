# make setup    virtual environment with everything the tests and lints need
# make build    the extension, into the environment, in the profile the Rust tests use
# make demo     merges real tables and prints the reports
# make demo-spark  a pipeline on Spark, end to end (needs a JDK)
# make demo-join   a Delta table follows the join of two tables that change (needs a JDK)
# make check    Rust tests and the fast Python tests
# make test     Rust tests, documentation tests, Python tests, Spark tests (these need a JDK)
# make test-slow  the Python and Spark tests that take longest, which `make test` leaves out and CI runs
# make lint     formats, lints, types, links of the documentation, licences of dependencies
# make docs     the documentation as a site, in build/docs
# make asan     the tests of all unsafe kernels under AddressSanitizer (needs a nightly toolchain)
# make bench    side by side with other engines
# make bench-rust   keys, order, weave, dictionaries alone; BENCH="merge/bytes --save-baseline before" and the like
# make wheel    a wheel for every Linux with glibc 2.28, in dist; PROFILE=fast builds sooner
# make crates   the packages that crates.io would get, in target/package; nothing is compiled or sent
# make clean    everything that was made here

export CARGO_TARGET_DIR ?= $(HOME)/.cache/plait/target
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PROFILE := fast
# One interpreter for cargo and maturin, so that pyo3 is compiled once.
export PYO3_PYTHON ?= $(CURDIR)/$(BIN)/python
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
ASAN_TARGET ?= $(shell rustc -vV | sed -n 's/^host: //p')
PYTEST := $(BIN)/python -m pytest tests/python
# Tests run in so many processes.
TEST_PROCESSES ?= 2
RUST_PACKAGES := --workspace --exclude plait-py
# What is measured has no assertions, and is not cut into pieces that cannot be inlined into each other, as incremental builds
# are. Dependencies are the same anyway, and are not compiled again.
BENCH_SETTINGS := opt-level=3 debug-assertions=false overflow-checks=false
BENCH_PROFILE := --profile $(PROFILE) --config profile.$(PROFILE).incremental=false \
  $(foreach crate,base interleave core parquet delta py,$(foreach setting,$(BENCH_SETTINGS),\
    --config profile.$(PROFILE).package.plait-$(crate).$(setting)))

.PHONY: setup build demo demo-spark demo-join check test test-rust test-rust-code test-python test-spark test-slow java lint asan docs docs-site docs-rust bench bench-rust callgrind wheel crates clean

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml scripts/extras.py
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python scripts/extras.py build test spark connect lint > $(VENV)/requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r $(VENV)/requirements.txt
	touch $@

$(VENV)/.bench: $(VENV)/.installed
	$(BIN)/python scripts/extras.py bench > $(VENV)/requirements-bench.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r $(VENV)/requirements-bench.txt
	touch $@

$(VENV)/.docs: $(VENV)/.installed
	$(BIN)/python scripts/extras.py docs > $(VENV)/requirements-docs.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r $(VENV)/requirements-docs.txt
	touch $@

# maturin hands every optional dependency to pip, which would name each that it ignores.
build: setup
	PIP_QUIET=1 $(BIN)/maturin develop --quiet --profile $(PROFILE)

demo: build
	$(BIN)/python examples/demo.py

demo-spark: build java
	$(BIN)/python examples/spark_pipeline.py

demo-join: build java
	$(BIN)/python examples/orders_customers.py

check: test-rust-code build
	$(PYTEST) -n $(TEST_PROCESSES) --dist worksteal -m "not spark and not slow and not long"

test: test-rust test-python test-spark

test-rust: setup
	cargo test --profile $(PROFILE) $(RUST_PACKAGES)

# Without the examples of the documentation, which are compiled anew each time.
test-rust-code: setup
	cargo test --profile $(PROFILE) $(RUST_PACKAGES) --tests

test-python: build
	$(PYTEST) -n $(TEST_PROCESSES) --dist worksteal -m "not spark and not long"

test-spark: build java
	$(PYTEST) -n $(TEST_PROCESSES) --dist worksteal -m "spark and not long"

test-slow: build java
	$(PYTEST) -n $(TEST_PROCESSES) --dist worksteal -m "long and not spark"
	$(PYTEST) -n $(TEST_PROCESSES) --dist worksteal -m "long and spark"

java:
	@java -version >/dev/null 2>&1 || { \
	  echo "make: the Spark tests need a JDK (17 or newer) on the PATH; without one run: make test-rust test-python" >&2; \
	  exit 1; }

lint: setup docs-site docs-rust
	cargo fmt --check
	cargo clippy --profile $(PROFILE) --workspace --all-targets -- -D warnings
	$(BIN)/python scripts/licenses.py --check
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

docs: docs-site docs-rust
	cp -R $(CARGO_TARGET_DIR)/doc build/docs/rust

# Links that lead nowhere, or to what is private, are errors.
docs-rust: setup
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --profile $(PROFILE) $(RUST_PACKAGES)

# Strict: a link or anchor that leads nowhere is an error. Needs no extension and takes seconds.
docs-site: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# The target is named, so that flags do not reach build scripts and procedural macros.
asan:
	RUSTFLAGS="-Zsanitizer=address" cargo +nightly test --target $(ASAN_TARGET) --target-dir $(CARGO_TARGET_DIR)/asan \
	  -p plait-interleave --tests

bench: $(VENV)/.bench
	PIP_QUIET=1 $(BIN)/maturin develop --quiet --release
	$(BIN)/python benches/run.py

bench-rust: setup
	cargo bench $(BENCH_PROFILE) $(RUST_PACKAGES) -- $(BENCH)

# make callgrind BENCH="merge packed/interleaved"
callgrind: setup
	BENCH_PROFILE="$(BENCH_PROFILE)" benches/callgrind.sh $(BENCH)

wheel:
	PROFILE=$(if $(filter command line environment,$(origin PROFILE)),$(PROFILE),release) scripts/wheel.sh

crates:
	cargo package --locked --no-verify $(RUST_PACKAGES)

clean:
	cargo clean
	rm -rf $(VENV) build dist demo-data bench-data .pytest_cache .hypothesis .mypy_cache .ruff_cache
	rm -f python/plait/*.so THIRD-PARTY-LICENSES.txt
	find python tests examples benches scripts -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
