#!/usr/bin/env bash
# Checks the workspace with the oldest Rust that Cargo.toml permits (`rust-version`), and installs it if it is
# missing.
set -euo pipefail
cd "$(dirname "$0")/.."
oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
rustup toolchain list | grep -q "^$oldest-" ||
  rustup toolchain install "$oldest" --profile minimal --no-self-update --target x86_64-unknown-none
# A folder of its own: otherwise both compilers would build all of the other's work again.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/msrv
exec cargo "+$oldest" check --workspace --all-targets --locked
