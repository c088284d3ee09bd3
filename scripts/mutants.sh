#!/usr/bin/env bash
# Runs cargo-mutants on crates (PACKAGE..., `ring` by default), each with its own tests only. Fails if a mutant is
# missed that scripts/mutants.txt does not list. Tests of other crates (ring-client, port) catch many of those listed.
# MUTANTS_SHARD=K/N runs the K-th of N parts; MUTANTS_SHARD=day/N another part each day, so that N days run all.
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
shard=${MUTANTS_SHARD:-}
if [ -n "$shard" ]; then
  [[ $shard != day/* ]] || shard=$(($(date +%s) / 86400 % ${shard#day/}))/${shard#day/}
  options+=(--shard "$shard" --sharding round-robin)
  echo "mutants: part $shard of ${packages[*]}"
fi
for package in "${packages[@]}"; do options+=(--package "ringway-$package"); done
code=0
cargo mutants "${options[@]}" || code=$?
# 2: missed mutants; 3: tests that did not end.
[[ $code == 0 || $code == 2 || $code == 3 ]] || exit "$code"
# Without line and column, which other changes move.
missed=("$output"/mutants.out/{missed,timeout}.txt)
new=$(sed "s/:[0-9]*:[0-9]*:/:/" "${missed[@]}" | sort -u | grep -vxFf scripts/mutants.txt || true)
[ -z "$new" ] || { printf 'missed mutants:\n%s\n' "$new"; exit 1; }
