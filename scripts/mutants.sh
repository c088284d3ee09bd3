#!/usr/bin/env bash
# Changes single expressions of crates (PACKAGE..., `ring` by default), and runs each crate's tests on each change. A
# change that no test notices and that scripts/mutants.txt does not list is a failure. A list is of changes that the
# crate's own tests don't notice: those of `ring` are often noticed by tests of ring-client and port.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v cargo-mutants >/dev/null || cargo install --locked cargo-mutants
packages=("$@")
((${#packages[@]})) || packages=(ring)
output=$(mktemp -d)
trap 'rm -rf "$output"' EXIT
# Models of loom are compiled for loom only.
options=(--no-shuffle --timeout 120 --output "$output" --colors never --cap-lints true)
options+=(--exclude "**/models.rs")
for package in "${packages[@]}"; do options+=(--package "ringway-$package"); done
code=0
cargo mutants "${options[@]}" || code=$?
# 2: changes that no test noticed; 3: tests that did not end.
[[ $code == 0 || $code == 2 || $code == 3 ]] || exit "$code"
# Without line and column, which other changes move.
missed=("$output"/mutants.out/{missed,timeout}.txt)
new=$(sed "s/:[0-9]*:[0-9]*:/:/" "${missed[@]}" | sort -u | grep -vxFf scripts/mutants.txt || true)
[ -z "$new" ] || { printf 'no test notices:\n%s\n' "$new"; exit 1; }
