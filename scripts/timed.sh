#!/usr/bin/env bash
# The runner of test programs (Cargo's `target.TRIPLE.runner`): runs one, and appends its time and name to the file
# TEST_TIMES. The modules of a crate's tests/integration.rs run one after the other, each in a process of its own, since
# most of them need the whole machine. A module with real peers that fails runs a second time, which the summary counts.
set -u
package=${CARGO_PKG_NAME:-} name=${1##*/}
package=${package#ringway-} name=${name%-*}

timed() {
  local title=$1 begin=${EPOCHREALTIME/./} code
  "${@:2}"
  code=$?
  [ -z "${TEST_TIMES:-}" ] ||
    printf '%8.1f s  %s %s\n' "$((${EPOCHREALTIME/./} - begin))e-6" "$package" "$title" >>"$TEST_TIMES"
  return "$code"
}

if [ "$name" != integration ]; then
  timed "$name" "$@"
  exit
fi
code=0
mapfile -t tests < <("$@" --list --format terse | sed -n 's/: test$//p')
for module in $(printf '%s\n' "${tests[@]%%::*}" | uniq); do
  mapfile -t of_module < <(printf '%s\n' "${tests[@]}" | grep "^$module::")
  echo "module $module"
  timed "$module" "$1" --exact "${of_module[@]}" && continue
  if [[ $package = tests || $package = cli ]]; then
    echo "again: $package $module"
    timed "$module, again" "$1" --exact "${of_module[@]}" && continue
  fi
  code=101
done
exit "$code"
