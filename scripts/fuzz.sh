#!/usr/bin/env bash
# Runs every fuzz target for TIME seconds (default 60); cargo-fuzz needs the nightly compiler.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz
rustup toolchain list | grep nightly >/dev/null \
  || rustup toolchain install nightly --profile minimal --no-self-update
exec fuzz/libfuzzer/run.sh "$@"
