#!/usr/bin/env bash
# Changes single expressions of crates that peers' bytes reach (or of PACKAGE...), and runs the crate's tests on each
# change: a change that no test notices, and that scripts/mutants.txt does not list with its reason, is a failure.
# SHARD=K/N takes every Nth change only, from the Kth on (all by default, which takes days).
set -euo pipefail
cd "$(dirname "$0")/.."
command -v cargo-mutants >/dev/null || cargo install --locked cargo-mutants
packages=("$@")
((${#packages[@]})) || packages=(mem ring virtq switch netstack)
output=$(mktemp -d)
trap 'rm -rf "$output"' EXIT
options=(--no-shuffle --baseline skip --timeout 300 --output "$output" --colors never --cap-lints true)
[ -z "${SHARD:-}" ] || options+=(--shard "$SHARD")
for package in "${packages[@]}"; do options+=(--package "ringway-$package"); done
# It ends with an error for each change that no test noticed, and for those only it is not one here.
code=0
cargo mutants "${options[@]}" || code=$?
[[ $code == 0 || $code == 2 || $code == 3 ]] || exit "$code"
# Without line and column, which other changes move.
missed=("$output"/mutants.out/{missed,timeout}.txt)
new=$(sed "s/:[0-9]*:[0-9]*:/:/" "${missed[@]}" | grep -vxFf <(cut -f1 scripts/mutants.txt) || true)
[ -z "$new" ] || { printf 'no test notices:\n%s\n' "$new"; exit 1; }
