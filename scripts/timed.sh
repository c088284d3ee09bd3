#!/usr/bin/env bash
# The runner of test programs (Cargo's `target.TRIPLE.runner`): runs one, and appends its time, processor time
# and name to the file TEST_TIMES. The modules of a crate's tests/integration.rs run one after the other, each
# in a process of its own, since most of them need much of the machine. A module with real peers that fails
# runs once more, which tells a fault that comes and goes from one that stays; what its first run printed is
# kept below target/first-runs. If the second run passes, the module counts as failed all the same, except in
# continuous integration (CI=true): a machine that others use too may stand still for longer than a peer
# waits. A program that takes longer than TEST_LIMIT seconds (1200) is stopped; what it printed names the
# tests that hang. With ASIDE, a folder of scripts/aside.sh, cargo waits neither for programs that simulate
# and modules that compile nor, in continuous integration with four processors, for the modules of the command
# line: on two, tests fail for lack of time, and some want all huge pages. Each of these two kinds has a lane;
# second runs come when all else has ended.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
first_runs=${CARGO_TARGET_DIR:-$root/target}/first-runs
package=${CARGO_PKG_NAME:-} name=${1##*/}
package=${package#ringway-} name=${name%-*}
limit=${TEST_LIMIT:-1200}
# Packages most of whose modules have real peers.
with_peers=" cli exec tests "
[ -z "${ASIDE:-}" ] || . "$root/scripts/aside.sh"

# `spent` sets `ticks` to the processor time of programs that have ended, in hundredths of a second (proc(5), cutime).
spent() {
  local stat
  read -r -a stat <"/proc/$BASHPID/stat"
  ticks=$((stat[15] + stat[16]))
}

timed() {
  local title=$1 begin=${EPOCHREALTIME/./} code ticks before
  spent
  before=$ticks
  timeout --foreground --kill-after=10 "$limit" "${@:2}"
  code=$?
  [ "$code" -ne 124 ] || echo "$package $title was stopped: it took longer than $limit s"
  spent
  [ -z "${TEST_TIMES:-}" ] ||
    printf '%8.1f s %8.1f s of a processor  %s %s\n' "$((${EPOCHREALTIME/./} - begin))e-6" \
      "$((ticks - before))e-2" "$package" "$title" >>"$TEST_TIMES"
  return "$code"
}

# `in_module PROGRAM MODULE TEST...` runs the tests of a module, those with real peers a second time if they fail.
in_module() {
  local program=$1 module=$2 kept=$first_runs/$package-$2.txt
  shift 2
  echo "module $module"
  if [[ $with_peers != *" $package "* ]]; then
    timed "$module" "$program" --exact "$@"
    return
  fi
  mkdir -p "$first_runs"
  timed "$module" "$program" --exact "$@" 2>&1 | tee "$kept"
  [ "${PIPESTATUS[0]}" -ne 0 ] || { rm -f "$kept"; return 0; }
  if [ -z "${ASIDE:-}" ]; then
    again "$program" "$module" "$@"
  else
    lane again "$package $module, again" alone again "$program" "$module" "$@"
  fi
}

# `again PROGRAM MODULE TEST...` is the second run.
again() {
  local program=$1 module=$2 kept=$first_runs/$package-$2.txt counts
  local unsteady="unsteady: $package $module passed only in its second run"
  shift 2
  counts=$(awk '/^test result:/ { passed = $4; failed = $6 }
    END { print passed + 0, "passed and", failed + 0, "failed" }' "$kept")
  echo "again: $package $module, of which $counts; its first run is in $kept"
  timed "$module, again" "$program" --exact "$@" || return 101
  if [ -z "${CI:-}" ]; then
    echo "$unsteady, and counts as failed; its first run is in $kept"
    return 101
  fi
  echo "$unsteady; its first run is in $kept"
}

# Modules that compile programs for most of their time.
compiles=" cli/tiny cli/pcap_library sockets/examples "

# Runs a program, all of it or module by module.
whole() {
  if [ "$name" != integration ]; then
    timed "$name" "$@"
    return
  fi
  local code=0 tests of_module module
  mapfile -t tests < <("$@" --list --format terse | sed -n 's/: test$//p')
  for module in $(printf '%s\n' "${tests[@]%%::*}" | uniq); do
    mapfile -t of_module < <(printf '%s\n' "${tests[@]}" | grep "^$module::")
    if [[ -n ${ASIDE:-} && $compiles == *" $package/$module "* ]]; then
      aside "$package $module" in_module "$1" "$module" "${of_module[@]}"
    else
      in_module "$1" "$module" "${of_module[@]}" || code=101
    fi
  done
  return "$code"
}

# Packages whose tests need neither peers nor the time of day, and most of the time of which is their own computing.
simulates=" bench click click-lang elements frame fuzz link mem netstack nic place spec"
simulates+=" switch virtq wire "
# The program of a documentation test (rust_out) is removed when its runner ends.
if [ -n "${ASIDE:-}" ] && [[ $simulates == *" $package "* && $name != rust_out ]]; then
  aside "$package $name" whole "$@"
elif [[ -n ${ASIDE:-} && -n ${CI:-} && "$package $name" == "cli integration" ]] &&
  [ "${TEST_PROCESSORS:-$(nproc)}" -ge 4 ]; then
  lane peers "$package $name" whole "$@"
else
  whole "$@"
fi
