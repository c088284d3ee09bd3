#!/usr/bin/env bash
# Runs every fuzz target for EACH seconds (default 60); cargo-fuzz needs the nightly compiler.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz
rustup toolchain list | grep -q nightly || rustup toolchain install nightly --profile minimal --no-self-update
for target in $(cargo +nightly fuzz list); do
  echo "== $target"
  cargo +nightly fuzz run "$target" -- -max_total_time="${EACH:-60}" -print_final_stats=1
done
