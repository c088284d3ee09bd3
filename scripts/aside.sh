# Sourced by scripts: work that runs beside the tests which cargo runs. `ASIDE` is a folder.
# `lane LANE NAME COMMAND...` returns at once; the commands of a lane run one after the other, beside those of others.
# `aside NAME COMMAND...` does so in the lane `computing`, whose commands get a processor after all others.
# `alone COMMAND...` runs a command when cargo's tests (file `ended`) and the lanes `peers` and `computing` have ended.
# `aside_end` waits for all, prints what they printed, and their times, and fails if one failed. `aside_stop` ends them.
lane() {
  local lane=$1 title=$2
  shift 2
  # Shared until the command has ended.
  exec 8>>"$ASIDE/pending.$lane"
  flock -s 8
  # A group of processes of its own, which can be ended as a whole.
  set -m
  (
    exec 7>>"$ASIDE/lane.$lane"
    flock 7
    [ "$lane" != computing ] || renice -n 19 -p "$BASHPID" >/dev/null
    begin=$SECONDS
    "$@" || echo "aside: $title failed" >>"$ASIDE/failed"
    printf '%6d s  %s, beside the tests\n' "$((SECONDS - begin))" "$title" >>"$ASIDE/times"
  ) >>"$ASIDE/log.$lane" 2>&1 </dev/null &
  echo $! >>"$ASIDE/groups"
  set +m
  exec 8>&-
}

aside() {
  lane computing "$@"
}

alone() {
  until [ -e "$ASIDE/ended" ]; do sleep 1; done
  flock "$ASIDE/pending.peers" flock "$ASIDE/pending.computing" true
  "$@"
}

aside_end() {
  touch "$ASIDE/ended"
  # A command may start one of a later lane.
  local lane
  for lane in peers computing again; do
    flock "$ASIDE/pending.$lane" true
    [ ! -e "$ASIDE/log.$lane" ] || cat "$ASIDE/log.$lane"
  done
  cat "$ASIDE/times"
  [ ! -e "$ASIDE/failed" ] || { cat "$ASIDE/failed"; return 1; }
}

aside_stop() {
  local group
  while read -r group; do kill -- "-$group" 2>/dev/null; done <"$ASIDE/groups"
  rm -rf "$ASIDE"
}
