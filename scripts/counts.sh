#!/usr/bin/env bash
# Counts, by valgrind, what the release build executes for each frame, segment, transaction or page on paths
# through ports, switch, elements and TCP, and compares it with benches/counts.txt: instructions, system calls, and
# cache lines that move between two cores. Counts don't depend on the machine's speed or load. One that is more than
# 4% larger fails, since compilers differ; BLESS=1 writes the present ones.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v valgrind >/dev/null ||
  { echo "counts: valgrind is missing; apt-get install valgrind" >&2; exit 1; }
target=${CARGO_TARGET_DIR:-$PWD/target}/release/examples
file=benches/counts.txt
cargo build --release -p ringway-port -p ringway-ring-client -p ringway-switch -p ringway-elements \
  -p ringway-netstack \
  --example loop --example ring-bench --example count_ports --example count_switch --example count_elements \
  --example count_tcp
# The C library copies by the same instructions on every processor; `rep movsb` would count for each byte.
export GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2,-AVX512F,-AVX512VL,-AVX512BW,-ERMS,-FSRM,-AVX_Fast_Unaligned_Load
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT

# grind KEY OPTIONS WORDS...: runs a program under valgrind; its log is $folder/KEY.
grind() {
  local key=$1
  shift
  valgrind "$@" >"$folder/$key" 2>&1 || { cat "$folder/$key" >&2; exit 1; }
}

# count KEY NUMBER FUNCTION PROGRAM WORDS...: instructions of FUNCTION, and of what it calls, for each of
# NUMBER.
count() {
  local key=$1 number=$2 function=$3
  shift 3
  grind "$key" --tool=callgrind --callgrind-out-file="$folder/out.$key" --toggle-collect="*$function*" "$@"
  awk -v key="$key" -v number="$number" '
    /Collected/ { printf "%-24s %8.1f\n", key, $NF / number }
  ' "$folder/$key"
}

# calls KEY NUMBER PROGRAM WORDS...: system calls of ports for each of NUMBER; nothing else in the program makes
# these.
calls() {
  local key=$1 number=$2
  shift 2
  grind "$key" --tool=none --trace-syscalls=yes "$@" "$number"
  grind "$key.twice" --tool=none --trace-syscalls=yes "$@" "$((2 * number))"
  awk -v key="$key" -v number="$number" '
    /sys_(read|readv|write|writev) / { if (FNR == NR) once++; else twice++ }
    END { printf "%-24s %8.1f\n", key, (twice - once) / number }
  ' "$folder/$key" "$folder/$key.twice"
}

# lines KEY PROGRAM WORDS...: cache lines that move between the core of a program's function and the other, for
# each frame; a word FRAMES is their number.
lines() {
  local key=$1 frames
  shift
  for frames in 1280 2560; do
    valgrind --tool=lackey --trace-mem=yes --log-fd=9 "${@/#FRAMES/$frames}" 9>&1 2>/dev/null |
      python3 scripts/lines.py
  done | awk -v key="$key" '{ at[NR] = $1 } END { printf "%-24s %8.1f\n", key, (at[2] - at[1]) / 1280 }'
}

frames=6400
measure() {
  local case name size
  for case in split.64 split.64.iommu split.1500 packed.64 packed.64.iommu packed.1500; do
    name=${case/.64/.64.256} name=${name/.1500/.1500.256}
    count "vhost.$case" "$frames" loop::forward "$target/loop" count "$name" "$frames"
  done
  for size in 64 1500; do
    count "ring.$size" "$frames" through::relay "$target/ring-bench" --count "$frames" "$size"
  done
  for case in split.64 packed.64; do
    lines "vhost.$case.lines" "$target/loop" count "$case.256" FRAMES traced
  done
  lines ring.64.lines "$target/ring-bench" --count FRAMES 64
  lines ring.1500.lines "$target/ring-bench" --count FRAMES 1500
  count pipe.64 "$frames" pipe::pass "$target/ring-bench" pipe --count "$frames" 64
  for case in one many many.vlan; do
    count "switch.$case" "$frames" count_switch::look_up "$target/count_switch" "$case" "$frames"
  done
  count flow.10 "$frames" count_switch::run_flows "$target/count_switch" flow.10 "$frames"
  count iommu.lookup "$frames" count_ports::look_up "$target/count_ports" iommu.lookup "$frames"
  count wire.codec "$frames" count_ports::code "$target/count_ports" wire.codec "$frames"
  count iommu.map 1000 count_ports::map "$target/count_ports" iommu.map 1000
  for size in 64 1500; do
    calls "tap.$size.calls" 640 "$target/count_ports" "tap.$size"
  done
  calls tap.joined.calls 640 "$target/count_ports" tap.joined
  for case in filled pending; do
    count "gro.$case" "$frames" count_ports::join "$target/count_ports" "gro.$case" "$frames"
  done
  for case in source mirror classifier chain router filter nat lb flowmon ids link bras.down; do
    count "click.$case" "$frames" count_elements::run "$target/count_elements" "$case" "$frames"
  done
  count tcp.bulk 10000 count_tcp::run "$target/count_tcp" bulk 10000
  count tcp.bulk.offload 20000 count_tcp::run "$target/count_tcp" offload 20000
  count tcp.rr 2000 count_tcp::run "$target/count_tcp" rr 2000
  count tcp.crr 500 count_tcp::run "$target/count_tcp" crr 500
}
measure | tee "$folder/counts"

if [ -n "${BLESS:-}" ] && ! grep -q ' 0\.0$' "$folder/counts"; then
  { echo "# Counts by scripts/counts.sh: instructions a frame, segment, transaction or page;"
    echo "# .calls: system calls a frame; .lines: cache lines that move between two cores a frame."
    echo "# BLESS=1 rewrites them."
    cat "$folder/counts"; } >"$file"
fi
awk -v passed=0 -v failed=0 '
  /^#/ { next }
  FNR == NR { most[$1] = $2; next }
  { seen[$1] = 1 }
  $2 <= 0 { print "counts: " $1 " counted nothing; is the function inlined or renamed?"; failed++; next }
  !($1 in most) { print "counts: " $1 " is not in benches/counts.txt; BLESS=1 adds it"; failed++; next }
  $2 > most[$1] * 1.04 { print "counts: " $1 " is " $2 ", at most " most[$1]; failed++; next }
  { passed++ }
  END {
    for (key in most) if (!(key in seen)) { print "counts: " key " was not counted"; failed++ }
    print "test result: counts. " passed " passed; " failed " failed"; exit failed > 0
  }
' "$file" "$folder/counts"
