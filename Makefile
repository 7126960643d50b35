# hugeleaf: every command that a developer needs. `make help` lists them.
SHELL := /bin/bash
CARGO ?= cargo
# Seconds that each fuzz target runs, and how many run at a time (0: one a processor).
SECONDS_EACH ?= 600
JOBS ?= 0
# Times that make test-repeat runs the tests.
RUNS ?= 20
# Where the library for C programs goes.
PREFIX ?= /usr/local
# Real kernels in virtual machines: which, and what to run there.
HOST ?=
A ?= x86-6.1
B ?= x86-7.3-two-nodes
CMD ?= hugeleaf
VM = scripts/lab.sh run --quiet --package hugeleaf-vm --bin hugeleaf-vm --

.DEFAULT_GOAL := help
.PHONY: help compiler build lab try test test-repeat test-all lint fmt bench soak suites docs fuzz dist release wheel install-library publish-check deny vm vm-shell vm-list vm-kernels vm-test vm-table captures

help:           ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 24

compiler:
	@scripts/need-compiler.sh

build: compiler ## the program: target/release/hugeleaf (make dist: smaller, all of it optimised)
	$(CARGO) build --release --locked --package hugeleaf-cli
	@scripts/split-symbols.sh $${CARGO_TARGET_DIR:-target}/release/hugeleaf

lab: build      ## how hugeleaf is measured: target/release/hugeleaf-lab, next to hugeleaf
	scripts/lab.sh build --release --package hugeleaf-lab

try: build      ## build it and run the main job on an embedded database: about four minutes
	target/release/hugeleaf try

test: compiler  ## what to run before a change goes in
	scripts/test.sh

test-repeat: compiler ## make test RUNS times (20) under load, to find tests that fail now and then
	scripts/test-repeat.sh $(RUNS)

test-all: compiler ## everything that a release needs: the lab, all kernels, documents, packages as well
	scripts/test-all.sh

lint: compiler  ## lints and documents only
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	scripts/lab.sh clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

fmt:            ## format all code
	$(CARGO) fmt --all
	$(CARGO) fmt --all --manifest-path lab/Cargo.toml
	$(CARGO) fmt --all --manifest-path python/Cargo.toml

bench: compiler ## hugeleaf's own benchmarks; raw samples go to bench/runs/
	scripts/bench.sh

soak: compiler  ## the tests with large numbers, then every fuzz target
	scripts/soak.sh $(SECONDS_EACH) $(JOBS)

suites: build   ## other people's tests (CPython, MariaDB, stress-ng, libhugetlbfs, users of SQLite), bare and under run: an hour or two
	scripts/suites.sh

docs:           ## the documentation site: target/docs; needs Python 3.11
	scripts/docs.sh

dist: compiler  ## a release's files: deb, rpm, archive, OCI image, wheel, C library, checksums; each tried in a clean root
	scripts/dist.sh
	scripts/dist-try.sh

release:        ## version, changelog, packages, commit and tag: make release VERSION=0.2.0 (scripts/release.sh has its settings)
	scripts/release.sh $(VERSION)

wheel: compiler ## the Python package with the program, for this machine: target/wheel
	pip wheel --no-deps --wheel-dir $${CARGO_TARGET_DIR:-target}/wheel ./python

install-library: compiler ## the library for C programs, its header and pkg-config file: below PREFIX
	scripts/install-library.sh $(PREFIX)

publish-check: compiler ## whether the library could be published to crates.io; uploads nothing
	scripts/publish-check.sh

deny:           ## licences, sources, versions and known weaknesses of what we depend on: deny.toml; needs cargo-deny
	scripts/deny.sh

vm: compiler    ## one command on a real kernel: make vm HOST=x86-6.1 CMD='hugeleaf mem'
	$(VM) run $(HOST) -- '$(CMD)'

vm-shell: compiler ## a shell there: make vm-shell HOST=arm64-16k
	$(VM) shell $(HOST)

vm-list: compiler ## the hosts there are
	$(VM) list

vm-kernels: compiler ## the same workloads on two kernels, counted and compared: make vm-kernels A=x86-6.1 B=x86-7.3-two-nodes
	scripts/kernels.sh $(A) $(B)

vm-test: compiler ## the tests of all hosts, or of HOST='A B'; results go to lab/vm/results
	$(VM) test --record $(HOST)
	$(VM) table

captures:       ## the captured hosts in fixtures anew, of what the guests of vm-test brought home
	scripts/captures.sh

vm-table: compiler ## docs/reference/hosts.md anew, of lab/vm/results
	$(VM) table

fuzz: compiler  ## build and run every fuzz target (needs nightly and cargo-fuzz)
	scripts/fuzz-build.sh
	scripts/fuzz-all.sh $(SECONDS_EACH) $(JOBS)
