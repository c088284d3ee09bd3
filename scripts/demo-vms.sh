#!/usr/bin/env bash
# 400 functions start, each in a VM of its own, and answer ARP requests; one is changed, one is killed; prints the
# times. Needs /dev/kvm. Fails after 60 s. Stops everything that it started, also on Ctrl-C.
set -euo pipefail
cd "$(dirname "$0")/.."
profile=${PROFILE:-demo}
cargo build --profile "$profile" -p ringway-cli -p ringway-tests --bin ringway --bin demo_vms
target=${CARGO_TARGET_DIR:-target}/${profile/#dev/debug}

run=$(mktemp -d /tmp/rw-demo.XXXXXX)
export RINGWAY_RUN=$run
cleanup() {
  "$target/ringway" --fabric vms down >/dev/null 2>&1 || true
  rm -rf "$run"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
"$target/demo_vms" "$run"
