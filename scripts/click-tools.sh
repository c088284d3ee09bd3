#!/usr/bin/env bash
# Creates links to the release program in a folder, named like Click's programs: click-tools.sh FOLDER
# Click's own tests then run against it: perl test/clicktest -p FOLDER FILE, from its source tree.
set -euo pipefail
(($# == 1)) && [[ -n $1 ]] || { echo "usage: make click-tools DIR=folder" >&2; exit 2; }
target=${CARGO_TARGET_DIR:-$(cd "$(dirname "$0")/.." && pwd)/target}
program=$(cd "$target/release" && pwd)/ringway
[[ -x $program ]] || { echo "click-tools: $program is missing; make build" >&2; exit 1; }
mkdir -p "$1"
for name in '' -align -buildtool -combine -flatten -uncombine -undead -xform; do
  ln -sfn "$program" "$1/click$name"
done
echo "$1: links to $program"
