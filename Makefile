# Two commands do everything on a fresh machine: `make demo` and `make test`.
# Needs: Linux, Python 3.11+ with venv, Rust 1.88+, make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
HERE := $(shell uname -m)
ARCH ?= $(HERE)
ARCHES := x86_64 aarch64
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
REMOTE ?= origin
WORKERS := $(shell echo $$(( 2 * $$(nproc) + 2 )))  # tests wait for servers and windows most of their time
ALONE = $(shell grep -rl --include='*.py' mark.alone tests)
SLOW_FIRST := $(addprefix tests/,cluster docs db commands contract worlds browser web laws unit)  # what takes a minute is not begun last
MAKEFLAGS += --no-builtin-rules  # else a newer bpf/*.bpf.c is compiled for this machine, over the object in the tree
unexport PYTHONDONTWRITEBYTECODE  # with it every start of the program would compile it anew
AGENT := python/dbdyno/remote/programs/dbdyno-agent-
RUST := $(shell find crates python/dbdyno/engines -name '*.rs' -o -name 'Cargo.toml' -o -name '*.bpf.o') \
	Cargo.toml Cargo.lock

# As many jobs as there are CPUs, whatever make has.
APART := env -u MAKEFLAGS -u MFLAGS
CARGO := $(APART) cargo
# Clippy as the compiler: what is tested is linted and compiled in one pass. The profile shares the release's libraries.
LINTED := $(APART) CARGO_INCREMENTAL=0 RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings cargo
TESTED := --profile bench --workspace --locked --quiet

.PHONY: demo check laws test build agent wheel wheels sdist made docs gallery cast deb release-check release bpf lint \
	format-rust lint-rust lint-python lint-room compile-rust test-rust compile-tests test-python test-room fuzz models miri loom \
	audit bench clean help

help:            ## What there is to make
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | sort

demo: build      ## Measure the embedded PostgreSQL for less than a minute and write a page
	$(BIN)/dbdyno demo

CHECKED := DBDYNO_LAWS=0.1 $(BIN)/python -m pytest -m "not (db or alone or whole)" --numprocesses auto --dist worksteal --quiet

check: build     ## Lint, types, unit tests and laws, without a server: the loop of an edit; ROOM=conclude: of one room
ifdef ROOM
	@$(BIN)/python tools/tests_of_room.py $(ROOM) >/dev/null  # an unknown room is refused at once
	$(MAKE) --jobs=2 --output-sync=target lint-room test-room
else
	$(MAKE) --jobs=2 --output-sync=target lint
	$(CHECKED) tests/laws tests/unit
	@echo "make test: whole experiments, real servers, and more examples of the laws"
endif

lint-room:
	tests=$$($(BIN)/python tools/tests_of_room.py $(ROOM)) && $(BIN)/ruff format --check python/dbdyno/$(ROOM) $$tests \
		&& $(BIN)/ruff check python/dbdyno/$(ROOM) $$tests
	$(BIN)/mypy --package dbdyno.$(ROOM)
	PYTHONPATH=python $(BIN)/lint-imports

test-room:
	$(CHECKED) $$($(BIN)/python tools/tests_of_room.py $(ROOM)) tests/unit/test_layers.py

test:            ## The whole check
	$(MAKE) --jobs=3 --output-sync=target compile-rust build
	$(MAKE) --jobs=2 --output-sync=target test-rust compile-tests lint-python  # the Rust tests have a CPU
	$(MAKE) test-python

build: $(VENV)/.built $(AGENT)$(HERE)  ## Virtual environment, locked dependencies, the Rust core, the agent for other hosts

agent: $(AGENT)$(ARCH)  ## The program that dbdyno starts on other hosts; ARCH=aarch64: for ARM (rustup target add)

$(AGENT)%: $(RUST) tools/build_agent.sh $(if $(filter $(HERE),$(ARCH)),,build/wheel/.deps)
	$(APART) $(SAME) tools/build_agent.sh $*

$(VENV)/.deps: requirements/dev.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r requirements/dev.lock
	touch $@

$(VENV)/.built: $(VENV)/.deps $(RUST) pyproject.toml tools/bundle_charts.py
	$(BIN)/python tools/bundle_charts.py  # the charts' code, once
	$(APART) VIRTUAL_ENV=$(abspath $(VENV)) PATH="$(abspath $(BIN)):$$PATH" $(BIN)/maturin develop --release --locked
	touch $@

# Of the same commit the same bytes, in any folder: archives have the commit's time, programs no path of this machine.
SAME = SOURCE_DATE_EPOCH=$(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct 2>/dev/null),315532800) \
	CARGO_ENCODED_RUSTFLAGS="$$(printf -- '--remap-path-prefix=%s=/dbdyno\037--remap-path-prefix=%s=/cargo' \
	'$(CURDIR)' "$${CARGO_HOME:-$$HOME/.cargo}")"
TARGET = $(ARCH)-unknown-linux-gnu
BUNDLED := build/sbom/dbdyno.cdx.json

wheel: made build/wheel/.deps build/release/.deps $(AGENT)$(ARCH)  ## A wheel in dist that installs without Rust; ARCH=aarch64: for ARM
	@[ -d "$$(rustc --print target-libdir --target $(TARGET))" ] || rustup target add $(TARGET)
	$(SAME) build/release/bin/python tools/sbom.py --bundled $(BUNDLED)
	$(APART) $(SAME) PATH="$(abspath build/wheel/bin):$(abspath $(BIN)):$$PATH" $(BIN)/maturin build --release --locked \
		--out dist --zig --target $(TARGET) --compatibility manylinux_2_28 --sbom-include $(BUNDLED)

wheels:          ## What a release consists of, in dist: wheels, each with both agents, sources, an SBOM, checksums
	rm -f dist/dbdyno-* dist/SHA256SUMS
	set -e; for arch in $(ARCHES); do $(MAKE) agent ARCH=$$arch; done
	set -e; for arch in $(ARCHES); do $(MAKE) wheel ARCH=$$arch; done
	$(MAKE) sdist
	$(SAME) build/release/bin/python tools/sbom.py dist/dbdyno-$(VERSION).cdx.json
	cd dist && sha256sum dbdyno-* > SHA256SUMS

sdist: made      ## The sources in dist, for pip to build
	$(SAME) $(BIN)/maturin sdist --out dist

made: $(VENV)/.deps  # files of wheels that are not in the tree
	$(BIN)/python tools/bundle_charts.py
	PYTHONPATH=python $(BIN)/python tools/man_page.py

deb: $(VENV)/.deps  ## A Debian package of the wheel in dist, for the release that this machine runs; ARCH=aarch64: for ARM
	$(SAME) $(BIN)/python tools/deb.py --arch $(ARCH)

release-check:   ## All that a release needs; STEPS="versions changelog": some of it
	$(PYTHON) tools/release_check.py $(STEPS)

release: release-check  ## Check everything, sign a tag, and push it to REMOTE
	git tag --sign --message "dbdyno $(VERSION)" v$(VERSION)
	git push $(REMOTE) v$(VERSION)

build/wheel/.deps: requirements/wheel.lock  # zig links against the C library of manylinux_2_28, on any machine
build/release/.deps: requirements/release.lock
build/wheel/.deps build/release/.deps:
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	touch $@

docs: build/docs/.deps  ## The documentation's site in build/site; links are checked, nothing is fetched by its pages
	build/docs/bin/python tools/build_site.py
	build/docs/bin/python tools/check_site.py

build/docs/.deps: requirements/docs.lock
	$(PYTHON) -m venv build/docs
	build/docs/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	touch $@

lint: lint-rust lint-python  ## Formatters, linters, strict types, layers

format-rust:
	$(CARGO) fmt --all --check

lint-rust: format-rust
	$(CARGO) clippy --workspace --all-targets --locked --quiet -- -D warnings

lint-python: $(VENV)/.deps
	$(BIN)/ruff format --check python tests benchmarks
	$(BIN)/ruff check python tests benchmarks
	$(BIN)/mypy
	PYTHONPATH=python $(BIN)/lint-imports  # before the package is built, too

compile-rust: format-rust  # lints all that lint-rust does
	$(LINTED) build --all-targets $(TESTED)

test-rust: compile-rust
	$(LINTED) test $(TESTED)

compile-tests: build  # once: each worker would compile all of them; without syrupy, to which all snapshots are unused
	@output=$$($(BIN)/python -m pytest --collect-only -qq -p no:syrupy 2>&1) || { echo "$$output"; exit 1; }

test-python: build
	$(BIN)/python -m pytest -m "not alone" --numprocesses $(WORKERS) --dist worksteal $(SLOW_FIRST) \
		|| $(BIN)/python tools/again_alone.py $$?
	$(BIN)/python -m pytest -m alone $(ALONE) || $(BIN)/python tools/again_alone.py $$?  # these measure

laws: build      ## The laws, tried on 50 times as many examples, new ones each time
	DBDYNO_LAWS=50 $(BIN)/python -m pytest --numprocesses auto tests/laws tests/unit/conclude/test_ladders_fuzz.py

SECONDS ?= 60
FUZZED := $(sort $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs))))
NIGHTLY = @cargo +nightly --version >/dev/null 2>&1 || { echo "needs a nightly toolchain: rustup toolchain install nightly \
	--component miri,rust-src"; exit 1; }

fuzz:            ## Give parsers bytes that nobody thought of; SECONDS=600: each of them so long
	$(NIGHTLY)
	@cargo fuzz --version >/dev/null 2>&1 || { echo "needs cargo-fuzz: cargo install cargo-fuzz --locked"; exit 1; }
	cp Cargo.lock fuzz/
	@mkdir -p $(addprefix target/fuzz/corpus/,$(FUZZED)) target/fuzz/failures
	set -e; for target in $(FUZZED); do \
		$(CARGO) +nightly fuzz run --fuzz-dir fuzz --target-dir target/fuzz $$target target/fuzz/corpus/$$target \
			fuzz/seeds/$$target -- -max_total_time=$(SECONDS) -max_len=4096 -timeout=20 -verbosity=0 -print_final_stats=1 \
			-artifact_prefix=target/fuzz/failures/$$target-; done

models: miri loom  ## Run what is cleverest under Miri, and all orders of the threads' steps under loom

miri:
	$(NIGHTLY)
	MIRIFLAGS=-Zmiri-disable-isolation PROPTEST_CASES=8 $(CARGO) +nightly miri test --quiet --locked --lib \
		--package dyno-engine-postgres -- frame:: out::
	MIRIFLAGS=-Zmiri-disable-isolation PROPTEST_CASES=2 $(CARGO) +nightly miri test --quiet --locked --lib \
		--package dyno-drive -- histogram:: queue::

loom:  # compiles dyno-drive once more
	RUSTFLAGS='--cfg loom' $(CARGO) test --quiet --locked --release --lib --target-dir target/loom --package dyno-drive loom

audit:           ## Compare locked dependencies with published advisories (needs the network; says what it could not check)
	$(PYTHON) tools/audit.py

bpf:             ## Compile the BPF programs (needs clang, llvm, libbpf-dev; the objects are in the tree)
	tools/build_bpf.sh

gallery: build   ## Run recipes shortly, and write their pages and pictures to docs/gallery (needs Chromium; ten minutes)
	$(BIN)/python tools/gallery.py

cast: build/cast/.deps build  ## Record docs/run.svg and docs/observe.svg anew (two minutes)
	PYTHONPATH=build/cast $(BIN)/python tools/cast.py

build/cast/.deps:  # a terminal emulator, beside the locked environment
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --target build/cast pyte==0.8.2
	touch $@

bench: build     ## All benchmarks: figures and ratios, paired with peers
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) target build dist
