#!/usr/bin/env bash
# Everything that must hold before a change is kept. A step runs even when one before it failed; the last line
# counts tests.
set -uo pipefail
cd "$(dirname "$0")/.."
log=$(mktemp); trap 'rm -f "$log"' EXIT
failed=0
target=${CARGO_TARGET_DIR:-$PWD/target}
step() {
  local name=$1; shift
  echo "== $name"
  local begin=$SECONDS
  "$@" 2>&1 </dev/null | tee -a "$log"
  local code=${PIPESTATUS[0]}
  local verdict=ok
  [ "$code" -eq 0 ] || { verdict="FAILED ($code)"; failed=$((failed + 1)); }
  echo "== $name: $verdict, $((SECONDS - begin)) s"
}
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
# Together with the program, whose libraries are then not compiled again with other features. Of the guests that are
# moved the one with most to go wrong; the others are for `make soak`.
step "real peers" cargo test --release -p ringway-cli -p ringway-tests --no-fail-fast \
  --lib --test iommu_guests --test linux_guests --test migration --test notifications --test virtio_user -- \
  --test-threads=2 --skip a_guest_is_moved_while --skip a_guest_behind_virtio_s_iommu_is_moved_while
# The closing lines of cargo and of the Python tests: "test result: ok. 12 passed; 0 failed; ..."
read -r passed broken < <(awk '/^test result:/ { p += $4; f += $6 } END { print p + 0, f + 0 }' "$log")
[ "$failed" -eq 0 ] || [ "$broken" -gt 0 ] || broken=$failed
echo "$passed passed, $broken failed"
[ "$failed" -eq 0 ]
