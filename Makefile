# `make help` describes every target; scripts/setup.sh installs what a target needs.
SHELL := /bin/bash
.DEFAULT_GOAL := help
CARGO ?= cargo
SETUP := ./scripts/setup.sh
export GUEST ?= uml
export NIC ?= virtio
export PATH := $(HOME)/.cargo/bin:$(PATH)

.PHONY: help setup bless demo demo-functions demo-vms test bench bench-bbr bench-cards bench-click bench-exec bench-functions bench-iommu bench-nic bench-place bench-tcp bench-vms counts soak fuzz click-conf click-tools build stack-library netmap-library netmap-suite pcap-library check fmt deny msrv package clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install what is missing: apt packages, the Rust toolchain
	@$(SETUP)

demo: setup ## two Linux guests communicate through the switch; GUEST=qemu for QEMU, NIC=e1000 or e1000e for emulated cards
	@./scripts/demo.sh

demo-functions: setup ## 100 functions start at once, and each answers an ARP request
	@./scripts/demo-functions.sh

demo-vms: setup ## 400 VMs start, answer ARP requests, one is changed, one killed; needs /dev/kvm
	@./scripts/demo-vms.sh

test: setup ## all required tests: tidy, lints, unit tests, real guests and DPDK (about 35 minutes the first time on two cores, 22 afterwards)
	@./scripts/test.sh

bench: setup ## measure every performance target, or those in KEYS; writes target/bench/fabric.json
	@./scripts/bench.sh $(KEYS)

bench-click: setup ## measure Click configurations; FASTCLICK and FASTCLICK_NOCLONE name peers
	@./scripts/bench.sh --subject click $(KEYS)

bench-exec: setup ## measure unmodified programs of `ringway exec` beside the kernel's TCP; writes target/bench/exec.json
	@$(CARGO) build --release -p ringway-cli
	@./scripts/bench.sh --subject exec $(KEYS)

bench-functions: setup ## measure functions on a worker and in a process; writes target/bench/functions.json
	@./scripts/bench.sh --subject functions $(KEYS)

bench-vms: setup ## measure functions in VMs beside processes, containers and QEMU's microvm; writes target/bench/vms.json
	@$(CARGO) build --release -p ringway-cli
	@./scripts/bench.sh --subject vms $(KEYS)

bench-nic: setup ## measure emulated cards and rings in guests, beside QEMU's own cards; writes target/bench/nic.json
	@./scripts/bench.sh --subject nic $(KEYS)

bench-cards: setup ## measure ports on network cards, and receivers under overload; writes target/bench/cards.json
	@./scripts/bench.sh --subject cards $(KEYS)

bench-place: setup ## measure placement; writes target/bench/place.json
	@$(CARGO) run --release -p ringway-bench --bin ringway-bench-place -- $(KEYS)

bench-faults: setup ## kill data, control and both 100 times each under numbered frames, Open vSwitch with DPDK and testpmd 20 times, upgrade as often, move a guest 40 times, and measure the silence; count what recorded positions cost; writes target/bench/faults.json
	@mkdir -p target/bench
	@FAULTS=$${FAULTS:-100} FAULTS_REPORT=$(CURDIR)/target/bench/faults.json $(CARGO) test -p ringway-cli --test integration data_kills:: -- --nocapture --test-threads=1
	@FAULTS_REPORT=$(CURDIR)/target/bench/faults.json $(CARGO) test -p ringway-cli --test integration peer_kills:: -- --nocapture --test-threads=1
	@MIGRATIONS=$${MIGRATIONS:-40} REQUESTS=$${REQUESTS:-10000} FAULTS_REPORT=$(CURDIR)/target/bench/faults.json $(CARGO) test -p ringway-cli --test integration requests_to_a_guest -- --nocapture
	@./scripts/resume-cost.sh $(CURDIR)/target/bench/faults.json

bench-iommu: setup ## measure the cost of a guest's IOMMU; writes target/bench/iommu.json
	@./scripts/bench.sh --subject iommu $(KEYS)

bench-bbr: setup ## measure BBR on emulated lines beside the kernel's, in twelve minutes; writes target/bench/bbr.json
	@./scripts/bench.sh --subject bbr $(KEYS)

bench-tcp: setup ## measure the TCP/IP stack of programs beside the kernel's; writes target/bench/tcp.json
	@./scripts/bench.sh --subject tcp $(KEYS)

counts: setup ## count instructions, system calls and cache lines a frame by valgrind, and compare them with benches/counts.txt; BLESS=1 rewrites it
	@./scripts/counts.sh

soak: setup ## the long tests: many kills, full matrices, ten million random steps, Miri, mutation tests, advisories of dependencies
	@./scripts/soak.sh

bless: setup ## write every golden file, generated page and client anew; read the difference before a commit
	@./scripts/bless.sh

fuzz: setup ## fuzz each target for TIME (default 60) seconds
	@./scripts/fuzz.sh

click-conf: ## run Click's or FastClick's example configurations, with ports for devices; CONF=folder conf/ of the source tree
	@CLICK_CONF="$(CONF)" cargo test -p ringway-click-driver --test integration conf:: -- --nocapture

click-tools: build ## create links named like Click's programs in DIR, for Click's configurations and tests
	@./scripts/click-tools.sh "$(DIR)"

build: setup ## build the release program, target/release/ringway
	@$(CARGO) build --release -p ringway-cli
	@./scripts/split-debug.sh "$${CARGO_TARGET_DIR:-target}/release/ringway"

stack-library: setup ## build libringway-stack.so, the TCP/IP stack for C and Python, and its examples, in clients/stack
	@$(MAKE) -C clients/stack CARGO="$(CARGO)"

pcap-library: ## fetch the source package of libpcap, and build it with ports as devices: target/pcap/libpcap.so.0.8
	@./scripts/pcap-library.sh

netmap-library: setup ## build target/release/libringway-netmap.so, which netmap programs preload
	@$(CARGO) build --release -p ringway-netmap-preload
	@cd "$${CARGO_TARGET_DIR:-target}/release" && cp libringway_netmap.so libringway-netmap.so

netmap-suite: build netmap-library ## run netmap's own programs on ports, and print a table; NETMAP=folder with a build of netmap
	@./scripts/netmap-suite.sh "$(NETMAP)"

package: setup ## write packages into target/package: Debian, archive, wheel, npm; as root, also install, upgrade and remove the first in a copy of this system
	@./scripts/package.sh
	@./scripts/package-test.sh

check: setup ## tidy, formatting, lints; no tests
	@$(CARGO) xtask tidy && $(CARGO) fmt --check && $(CARGO) clippy --workspace --all-targets -- -D warnings

fmt: ## format the code
	@$(CARGO) fmt

deny: setup ## licences, sources and advisories of every dependency by cargo-deny, unused ones by cargo-shear
	@command -v cargo-deny >/dev/null || $(CARGO) install --locked cargo-deny
	@command -v cargo-shear >/dev/null || $(CARGO) install --locked cargo-shear
	@$(CARGO) deny check
	@$(CARGO) shear

msrv: setup ## check with the oldest Rust that Cargo.toml permits (rust-version)
	@./scripts/msrv.sh

clean: ## remove what was built
	@$(CARGO) clean
