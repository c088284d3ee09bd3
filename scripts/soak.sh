#!/usr/bin/env bash
# The long tests: those of `make test` with many more rounds, ring code under Miri, and what cargo-deny says of the
# dependencies. RINGWAY_ROUNDS, PROPTEST_CASES and RINGWAY_STEPS (of random front-ends and drivers, ten million by
# default, about a quarter of an hour) bound it.
set -euo pipefail
cd "$(dirname "$0")/.."
export RINGWAY_ROUNDS=${RINGWAY_ROUNDS:-100} PROPTEST_CASES=${PROPTEST_CASES:-20000}
export RINGWAY_STEPS=${RINGWAY_STEPS:-10000000}
cargo build --release -p ringway-cli
cargo test --release --workspace --exclude ringway-tests --no-fail-fast
cargo test --release -p ringway-tests --no-fail-fast -- --test-threads=2
scripts/miri.sh
make deny
