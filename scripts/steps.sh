# For scripts that continue after a failed step and count tests at the end: `step NAME COMMAND...`, then `summary`.
log=$(mktemp); trap 'rm -f "$log"' EXIT
failed=0 rows=()
step() {
  local name=$1; shift
  echo "== $name"
  local begin=$SECONDS
  "$@" 2>&1 </dev/null | tee -a "$log"
  local code=${PIPESTATUS[0]}
  local verdict=ok
  [ "$code" -eq 0 ] || { verdict="FAILED ($code)"; failed=$((failed + 1)); }
  rows+=("$(printf '%6d s  %s: %s' "$((SECONDS - begin))" "$name" "$verdict")")
  echo "== ${rows[-1]}"
}
# The closing lines of cargo and of the Python tests: "test result: ok. 12 passed; 0 failed; ..."; scripts/timed.sh's
# "again" takes the first run's counts back, and "unsteady ... counts as failed" adds its failures again.
summary() {
  local passed broken
  read -r passed broken < <(awk '
    /^test result:/ { p += $4; f += $6 }
    /^again: / { p -= $6; f -= $9; first = $9 }
    /^unsteady: .* counts as failed/ { p -= first; f += first }
    END { print p + 0, f + 0 }' "$log")
  [ "$failed" -eq 0 ] || [ "$broken" -gt 0 ] || broken=$failed
  echo "== steps"
  printf '%s\n' "${rows[@]}"
  grep -a '^again: \|^unsteady: ' "$log"
  echo "$passed passed, $broken failed"
  [ "$failed" -eq 0 ]
}
