#!/usr/bin/env bash
# The runner of test programs (Cargo's `target.TRIPLE.runner`): runs one, and appends its time and name to the file
# TEST_TIMES.
begin=${EPOCHREALTIME/./}
"$@"
code=$?
time=$((${EPOCHREALTIME/./} - begin)) package=${CARGO_PKG_NAME:-} name=${1##*/}
[ -z "${TEST_TIMES:-}" ] ||
  printf '%8.1f s  %s %s\n' "${time}e-6" "${package#ringway-}" "${name%-*}" >>"$TEST_TIMES"
exit "$code"
