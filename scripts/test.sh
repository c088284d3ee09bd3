#!/usr/bin/env bash
# All tests required for a change. A step runs even if an earlier one failed; the last line counts tests. All code is
# compiled once, with the profile `test`. Tests with real peers mostly wait: what only computes runs beside them, and
# in continuous integration with four processors two modules run at a time.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/steps.sh
. scripts/aside.sh
target=${CARGO_TARGET_DIR:-$PWD/target}
triple=$(rustc -vV | sed -n 's/^host: //p')
runner=CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$triple")_RUNNER
TEST_TIMES=$(mktemp)
ASIDE=$(mktemp -d)
touch "$ASIDE"/{groups,times}
export TEST_TIMES ASIDE
trap 'aside_stop; rm -f "$TEST_TIMES" "$log"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
step "tidy" cargo xtask tidy
step "format" cargo fmt --check
step "without an operating system" cargo xtask bare
step "test programs" cargo test --workspace --no-run
if command -v valgrind >/dev/null; then
  aside "instructions a frame" ./scripts/counts.sh
else
  echo "== instructions a frame: left out; valgrind is missing"
fi
# After the counts, for which Cargo builds in another folder: by then the tests' Cargo has released the folder of both.
aside "lints" cargo clippy --workspace --all-targets -- -D warnings
aside "Python package, installed" env RINGWAY="$target/debug/ringway" ./scripts/python.sh
aside "models of loom" ./scripts/loom.sh ringway-mem ringway-ring
# The other tests of migration are in `make soak`.
step "tests" env "$runner=$PWD/scripts/timed.sh" cargo test --workspace --no-fail-fast -- \
  --skip a_guest_is_moved_while --skip a_guest_behind_virtio_s_iommu_is_moved_while
step "what ran beside the tests" aside_end
echo "== times of test programs of 5 s and more"
sort -rn "$TEST_TIMES" | awk '$1 >= 5'
summary
