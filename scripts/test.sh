#!/usr/bin/env bash
# All tests required for a change. A step runs even if an earlier one failed; the last line
# counts tests.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/steps.sh
target=${CARGO_TARGET_DIR:-$PWD/target}
step "tidy" cargo xtask tidy
step "format" cargo fmt --check
step "lints" cargo clippy --workspace --all-targets -- -D warnings
step "without an operating system" cargo xtask bare
step "build" cargo build --release -p ringway-cli
step "unit and property tests" cargo test --workspace --exclude ringway-tests --no-fail-fast
step "Python package, installed" ./scripts/python.sh
step "fuzz targets, mutated seeds" env CARGO_TARGET_DIR="$target" cargo test --manifest-path fuzz/Cargo.toml
step "an element of one's own" env CARGO_TARGET_DIR="$target" \
  cargo test --manifest-path examples/click-element/Cargo.toml
step "a kind of port of one's own" env CARGO_TARGET_DIR="$target" \
  cargo test --manifest-path examples/port-kind/Cargo.toml
# Together with the program, so that its libraries are not compiled again with other features. Only the riskiest
# migration test; the others are in `make soak`.
step "real peers" cargo test --release -p ringway-cli -p ringway-tests --no-fail-fast \
  --lib --test c_library --test e1000 --test iommu_guests --test linux_guests --test migration \
  --test nic_guests --test notifications --test ring_guests --test tcp_kernel --test tcp_uml \
  --test vfio_user --test virtio_user -- \
  --test-threads=2 --skip a_guest_is_moved_while --skip a_guest_behind_virtio_s_iommu_is_moved_while
summary
