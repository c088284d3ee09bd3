#!/usr/bin/env bash
# split-debug.sh PROGRAM: moves the line tables of PROGRAM to PROGRAM.debug, which debuggers and backtraces
# find by its link.
set -euo pipefail
program=$1
readelf -SW "$program" | grep -q '\.debug_line' || exit 0
objcopy --only-keep-debug "$program" "$program.debug"
objcopy --strip-debug --remove-section=.gnu_debuglink --add-gnu-debuglink="$program.debug" \
  "$program" "$program.tmp"
mv "$program.tmp" "$program"
size=$(stat -c %s "$program" | numfmt --to=iec)
echo "$program: $size, debug information in $program.debug and $program.dwp"
