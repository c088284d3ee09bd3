# Sourced by scripts: work that runs beside the tests with real peers, which mostly wait. `ASIDE` is a folder.
# `aside NAME COMMAND...` returns at once; such commands run one after the other, and get a processor after all others.
# `aside_end` waits for all, prints what they printed, and their times, and fails if one failed. `aside_stop` ends them.
aside() {
  local title=$1
  shift
  # Shared until the command has ended.
  exec 8>>"$ASIDE/pending"
  flock -s 8
  # A group of processes of its own, which can be ended as a whole.
  set -m
  (
    exec 7>>"$ASIDE/lane"
    flock 7
    renice -n 19 -p "$BASHPID" >/dev/null
    begin=$SECONDS
    "$@" || echo "aside: $title failed" >>"$ASIDE/failed"
    printf '%6d s  %s, beside the tests\n' "$((SECONDS - begin))" "$title" >>"$ASIDE/times"
  ) >>"$ASIDE/log" 2>&1 </dev/null &
  echo $! >>"$ASIDE/groups"
  set +m
  exec 8>&-
}

aside_end() {
  flock "$ASIDE/pending" cat "$ASIDE/log" "$ASIDE/times"
  [ ! -e "$ASIDE/failed" ] || { cat "$ASIDE/failed"; return 1; }
}

aside_stop() {
  local group
  while read -r group; do kill -- "-$group" 2>/dev/null; done <"$ASIDE/groups"
  rm -rf "$ASIDE"
}
