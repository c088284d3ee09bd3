#!/usr/bin/env bash
# Counts, by callgrind, the instructions that the release build executes a frame on paths through ports, and compares
# them with benches/counts.txt. Counts don't depend on the machine's speed or load. One that is more than 5% larger
# fails, since compilers differ; BLESS=1 writes the present ones.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v valgrind >/dev/null ||
  { echo "counts: valgrind is missing; apt-get install valgrind" >&2; exit 1; }
target=${CARGO_TARGET_DIR:-$PWD/target}/release/examples
file=benches/counts.txt
cargo build --release -p ringway-port -p ringway-client --example loop --example ring-bench
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT

# count KEY NUMBER FUNCTION PROGRAM WORDS...: instructions of FUNCTION, and of what it calls, for each of NUMBER.
count() {
  local key=$1 number=$2 function=$3
  shift 3
  valgrind --tool=callgrind --callgrind-out-file="$folder/out" --toggle-collect="*$function*" "$@" \
    >"$folder/log" 2>&1 || { cat "$folder/log" >&2; exit 1; }
  awk -v key="$key" -v number="$number" '
    /Collected/ { printf "%-24s %8.1f\n", key, $NF / number }
  ' "$folder/log"
}

frames=6400
{
  for case in split.64 split.64.iommu split.1500 packed.64 packed.64.iommu packed.1500; do
    name=${case/.64/.64.256} name=${name/.1500/.1500.256}
    count "vhost.$case" "$frames" loop::forward "$target/loop" count "$name" "$frames"
  done
  for size in 64 1500; do
    count "ring.$size" "$frames" through::relay "$target/ring-bench" --count "$frames" "$size"
  done
} | tee "$folder/counts"

if [ -n "${BLESS:-}" ] && ! grep -q ' 0\.0$' "$folder/counts"; then
  { echo "# Instructions a frame, by scripts/counts.sh; BLESS=1 rewrites them."
    cat "$folder/counts"; } >"$file"
fi
awk -v passed=0 -v failed=0 '
  /^#/ { next }
  FNR == NR { most[$1] = $2; next }
  { seen[$1] = 1 }
  $2 <= 0 { print "counts: " $1 " counted nothing; is the function inlined or renamed?"; failed++; next }
  !($1 in most) { print "counts: " $1 " is not in benches/counts.txt; BLESS=1 adds it"; failed++; next }
  $2 > most[$1] * 1.05 { print "counts: " $1 " takes " $2 " instructions, at most " most[$1]; failed++; next }
  { passed++ }
  END {
    for (key in most) if (!(key in seen)) { print "counts: " key " was not counted"; failed++ }
    print "test result: counts. " passed " passed; " failed " failed"; exit failed > 0
  }
' "$file" "$folder/counts"
