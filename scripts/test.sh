#!/usr/bin/env bash
# All tests required for a change. A step runs even if an earlier one failed; the last line counts tests. All code is
# compiled once, with the profile `test`.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/steps.sh
target=${CARGO_TARGET_DIR:-$PWD/target}
triple=$(rustc -vV | sed -n 's/^host: //p')
runner=CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$triple")_RUNNER
TEST_TIMES=$(mktemp)
export TEST_TIMES
trap 'rm -f "$TEST_TIMES" "$log"' EXIT
step "tidy" cargo xtask tidy
step "format" cargo fmt --check
step "lints" cargo clippy --workspace --all-targets -- -D warnings
step "without an operating system" cargo xtask bare
step "test programs" cargo test --workspace --no-run
# The other tests of migration are in `make soak`.
step "tests" env "$runner=$PWD/scripts/timed.sh" cargo test --workspace --no-fail-fast -- \
  --skip a_guest_is_moved_while --skip a_guest_behind_virtio_s_iommu_is_moved_while
if command -v valgrind >/dev/null; then
  step "instructions a frame" ./scripts/counts.sh
else
  echo "== instructions a frame: left out; valgrind is missing"
fi
step "Python package, installed" env RINGWAY="$target/debug/ringway" ./scripts/python.sh
echo "== times of test programs of 5 s and more"
sort -rn "$TEST_TIMES" | awk '$1 >= 5'
summary
