#!/usr/bin/env bash
# Runs the tests of memory, IOTLB, ring and packet code under Miri, on the test's own memory: miri.sh [TEST...]
# Miri needs the nightly compiler, and is about a hundred times slower; property tests run few cases of few steps.
set -euo pipefail
cd "$(dirname "$0")/.."
rustup toolchain list | grep nightly >/dev/null \
  || rustup toolchain install nightly --profile minimal --no-self-update
rustup component add miri rust-src --toolchain nightly
# Replaced values that no thread waited for are leaked on purpose.
export MIRIFLAGS=${MIRIFLAGS:--Zmiri-disable-isolation -Zmiri-ignore-leaks}
export PROPTEST_CASES=${MIRI_CASES:-2} PROPTEST_DISABLE_FAILURE_PERSISTENCE=1
exec cargo +nightly miri test -p ringway-mem -p ringway-virtq -p ringway-frame "$@"
