#!/usr/bin/env bash
# The long tests: those of `make test` with many more rounds, and what cargo-deny says of the dependencies.
set -euo pipefail
cd "$(dirname "$0")/.."
export RINGWAY_ROUNDS=${RINGWAY_ROUNDS:-100} PROPTEST_CASES=${PROPTEST_CASES:-20000}
cargo build --release -p ringway-cli
cargo test --release --workspace --exclude ringway-tests --no-fail-fast
cargo test --release -p ringway-tests --no-fail-fast -- --test-threads=2
make deny
