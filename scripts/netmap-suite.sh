#!/usr/bin/env bash
# Runs netmap's own programs on ports of a fabric, by the preloaded library, and prints a row for each: program, route,
# result. The first argument is a folder with a build of netmap, which is searched for the programs; netmap's sources
# beside them have `randomized_tests`. RINGWAY and LIBRARY name another program and library than those of the release
# build. Ends with 1, and says which, if a program fails or passes fewer frames or tests than it must.
set -euo pipefail
cd "$(dirname "$0")/.."
netmap=${1:-}
if [ ! -d "$netmap" ]; then
  echo "netmap-suite: NETMAP names no folder; give one with a build of netmap's apps/ and utils/" >&2
  exit 2
fi
target=${CARGO_TARGET_DIR:-target}/release
ringway=$(realpath "${RINGWAY:-$target/ringway}")
library=$(realpath "${LIBRARY:-$target/libringway-netmap.so}")

work=$(mktemp -d)
export RINGWAY_RUN=$work/run
cleanup() {
  kill $(jobs -p) 2>/dev/null || true
  "$ringway" down >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap cleanup EXIT
for port in a:s b:s c:t d:t a-host:s eph0:u; do
  name=${port%:*}
  printf '[port.%s]\nkind = "ring"\nsocket = "%s.sock"\nswitch = "%s"\n' "$name" "$name" "${port#*:}"
done > "$work/file.toml"
printf '[switch.s]\n[switch.t]\n[switch.u]\n[switch.0]\nopen = "0600"\n' >> "$work/file.toml"
for switch in 0A 0B; do printf '[switch.%s]\n' $switch; done >> "$work/file.toml"
"$ringway" up "$work/file.toml" --detach >/dev/null

program() { find -L "$netmap" -type f -perm -u+x -name "$1" -print -quit; }

# row NAME ROUTE RESULT
row() { printf '| `%s` | %s | %s |\n' "$1" "$2" "$3"; }

# What has failed, a line each; programs that run beside others write it, too.
failures=$work/failures
: > "$failures"
fail() { echo "$*" >> "$failures"; }

# run SECONDS LOG PROGRAM WORDS...: with the library, for so long at most, ended as by Ctrl-C. A program that a signal
# ends otherwise has failed; some end with an error whenever they are ended.
run() {
  local seconds=$1 log=$work/$2 name=$3 path status=0
  path=$(program "$3")
  shift 3
  LD_PRELOAD=$library timeout -k 5 -s INT "$seconds" "$path" "$@" > "$log" 2>&1 || status=$?
  [ $status -lt 125 ] || [ $status = 130 ] || fail "$name $*: ended with $status"
}

# least NAME COUNT LEAST: the test of this name needs so many at least.
least() {
  [ "$2" != none ] && [ "$2" -ge "$3" ] || fail "$1: $2 instead of at least $3"
}

# counted LOG WORD: the frames that pkt-gen says it has sent or received.
counted() {
  local found
  found=$(sed -n "s/^$2 \([0-9]*\) packets.*/\1/p" "$work/$1" | tail -1)
  echo "${found:-none}"
}

lacks() {
  [ -n "$(program "$1")" ] && return 1
  row "$1" "" "not in $netmap"
}

mac() { echo "-S 02:00:00:00:00:0$1 -D 02:00:00:00:00:0$2"; }

# between NAME ROUTE TX RX FRAMES RATE WORDS...: frames from one name to another, beside what runs already; at least
# `least` must arrive.
between() {
  run 9 rx pkt-gen -i "$4" -f rx -w 1 &
  local receiver=$!
  sleep 2
  # shellcheck disable=SC2046
  run 9 tx pkt-gen -i "$3" -f tx -n "$5" -R "$6" -w 1 $(mac a d) "${@:7}"
  wait $receiver
  row "$1" "$2" "$(counted tx Sent) sent, $(counted rx Received) received"
  least "$1 ($2)" "$(counted rx Received)" "$least"
}

echo "| program | route | result |"
echo "|---|---|---|"
if ! lacks pkt-gen; then
  # A switch may drop; a pipe may not.
  least=1000 between "pkt-gen -f tx, rx" "a, switch, b" netmap:a netmap:b 200000 100000
  least=1000000 between "pkt-gen -f tx, rx" "pipe" 'netmap:p{1' 'netmap:p}1' 1000000 0
  run 7 pong pkt-gen -i netmap:b -f pong -w 1 -S 02:00:00:00:00:0b &
  sleep 1
  # shellcheck disable=SC2046
  run 5 ping pkt-gen -i netmap:a -f ping -n 20000 -w 1 $(mac a b)
  wait
  trips=$(grep -o 'RTT.*' "$work/ping" | tail -1 || true)
  row "pkt-gen -f ping, pong" "a, switch, b" "$trips"
  [ -n "$trips" ] || fail "pkt-gen -f ping, pong: no round trip"
  for name in bridge dedup tlem; do
    lacks $name && continue
    words=(-i netmap:b -i netmap:c)
    case $name in
      # Its own threads have real-time priority: they leave the other cores to the worker, and may be late.
      tlem) words+=(-C "1,1,1,1" -d 100ms) ;;
      *) words+=(-w 1) ;;
    esac
    run 13 $name $name "${words[@]}" &
    sleep 2
    least=100 between $name "a, switch, b, $name, c, switch, d" netmap:a netmap:d 4000 1000
    wait
  done
  for pipes in 2 20; do
    lacks lb && break
    run 13 lb lb -i netmap:b -p "$pipes" -w 1 &
    sleep 2
    run 11 second pkt-gen -i 'netmap:b}1' -f rx -w 1 &
    # A share of the frames, of which there are 600 flows.
    share=$((2000 / pipes))
    least=$share between "lb -p $pipes" "a, switch, b, lb, first of $pipes pipes" \
      netmap:a 'netmap:b}0' 20000 5000 \
      -s 10.0.0.1-10.0.0.200 -d 10.1.0.1-10.1.0.3
    wait
    all=$(grep -o '[0-9]* packets forwarded.*' "$work/lb" || true)
    least "lb -p $pipes (second pipe)" "$(counted second Received)" "$share"
    row "lb -p $pipes" "second pipe" "$(counted second Received) received; $all"
  done
  if ! lacks nmreplay; then
    {
      printf '\xd4\xc3\xb2\xa1\2\0\4\0\0\0\0\0\0\0\0\0\0\0\1\0\1\0\0\0'
      for ((i = 0; i < 1000; i++)); do
        printf "\\x$(printf %02x $((i / 250 + 1)))\\0\\0\\0\\0\\0\\0\\0\\x3c\\0\\0\\0\\x3c\\0\\0\\0"
        printf '\2\0\0\0\0\xb\2\0\0\0\0\xa\x88\xb5%046d' "$i"
      done
    } > "$work/frames.pcap"
    run 9 rx pkt-gen -i netmap:b -f rx -w 1 &
    sleep 1
    run 7 nmreplay nmreplay -f "$work/frames.pcap" -i netmap:a
    wait
    row nmreplay "a, switch, b" "$(counted rx Received) received, 1000 in the file, which it repeats"
    least nmreplay "$(counted rx Received)" 1000
  fi
fi
if ! lacks vale-ctl; then
  run 5 list vale-ctl
  listed=$(grep -c bridge_idx "$work/list" || true)
  row vale-ctl "lists" "$listed ports of 6"
  least vale-ctl "$listed" 6
fi
if ! lacks ctrl-api-test; then
  # The C library's perror changes errno unless it writes to a terminal, and two tests look at errno then.
  path=$(program ctrl-api-test) passed=0 failed=
  tests=$("$path" -l | grep -c '^#')
  for ((i = 1; i <= tests; i++)); do
    test="env LD_PRELOAD='$library' timeout 20 '$path' -i a -j $i"
    if script -qec "$test" /dev/null > "$work/test" 2>&1; then
      passed=$((passed + 1))
    else
      failed="$failed $(sed -n 's/.*Start of Test #[0-9]* \[\(.*\)\].*/\1/p' "$work/test" | head -1)"
    fi
  done
  row ctrl-api-test "a" "$passed of $tests; fails:$failed"
  least ctrl-api-test "$passed" 35
fi

# The tests of randomized_tests, each in a shell whose programs are those of the build, with the library.
tests=$(find -L "$netmap" -type f -name randomized_tests -print -quit)
if [ -n "$tests" ] && ! lacks functional && ! lacks vale-ctl; then
  mkdir "$work/bin"
  for name in {functional,fd_server}{,-legacy} vale-ctl get_{max,avail}_tx_packets; do
    path=$(program "$name")
    [ -n "$path" ] || continue
    path=$(realpath "$path")
    printf '#!/bin/sh\nLD_PRELOAD=%q exec %q "$@"\n' "$library" "$path" > "$work/bin/$name"
  done
  chmod +x "$work"/bin/*
  for functional in functional functional-legacy; do
    [ -x "$work/bin/$functional" ] || continue
    passed=0 failed='' all=0
    for test in "$(dirname "$tests")"/tests/*; do
      all=$((all + 1))
      # One after the other, as randomized_tests does, but also those behind one that fails.
      if (cd "$(dirname "$tests")" && PATH=$work/bin:$PATH FUNCTIONAL=$functional bash -c '
        "$FUNCTIONAL" -c && "$FUNCTIONAL" -o && timeout 60 "$0" -n 20 -l 700 -f q -q; result=$?
        "$FUNCTIONAL" -c; exit $result' "$test") > "$work/test" 2>&1; then
        passed=$((passed + 1))
      else
        failed="$failed $(basename "$test" | cut -c1-3)"
        [ -z "${VERBOSE:-}" ] || { echo "-- $functional $test"; cat "$work/test"; } >&2
      fi
    done
    row "randomized_tests, $functional" "open switch, pipes, persistent ports" \
      "$passed of $all; fails:$failed"
    least "randomized_tests, $functional" "$passed" 22
  done
fi

if [ -s "$failures" ]; then
  sed 's/^/netmap-suite: /' "$failures" >&2
  exit 1
fi
