#!/usr/bin/env bash
# resume-cost.sh REPORT: writes the key resume.cost into REPORT (target/bench/faults.json): the share of a frame's
# instructions between two vhost-user ports that is left without the positions of the rings that are recorded, so that
# another data process can go on with them. They can't be turned off, and times differ by more from run to run than they
# cost: instructions are counted, by valgrind, of the function that records them, with its call.
set -euo pipefail
cd "$(dirname "$0")/.."
report=$1
command -v valgrind >/dev/null || { echo "resume.cost: skipped, valgrind is missing"; exit 0; }
cargo build --release -p ringway-port --example loop --features count-positions
program=${CARGO_TARGET_DIR:-$PWD/target}/release/examples/loop
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
frames=6400
for case in split.64.256 packed.64.256; do
  valgrind --tool=callgrind --callgrind-out-file="$folder/$case" --toggle-collect='*loop::forward*' \
    "$program" count "$case" "$frames" >"$folder/log" 2>&1 || { cat "$folder/log" >&2; exit 1; }
  all=$(awk '/Collected/ { print $NF }' "$folder/log")
  part=$(python3 scripts/inclusive_cost.py "$folder/$case" '::vring::Vring::record')
  echo "${case%.64.256} $all $part"
done | python3 -c '
import json, sys
from pathlib import Path
path, frames = Path(sys.argv[1]), int(sys.argv[2])
found = {"frames": frames}
for row in sys.stdin:
    case, all, part = row.split()
    if int(part) == 0:
        sys.exit(f"resume.cost: nothing was counted for {case}; are the functions renamed?")
    found[case] = {
        "instructions_a_frame": round(int(all) / frames, 1),
        "of_them_for_positions": round(int(part) / frames, 2),
        "without": round(1 - int(part) / int(all), 4),
    }
report = json.loads(path.read_text()) if path.exists() else {}
report["resume.cost"] = found
path.parent.mkdir(parents=True, exist_ok=True)
path.write_text(json.dumps(report, indent=2) + "\n")
print("resume.cost:", json.dumps(found))
' "$report" "$frames"
