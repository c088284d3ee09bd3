#!/usr/bin/env bash
# Two Linux guests on one switch: pings, TCP and UDP both ways, live rates, a table. GUEST=uml (default) or qemu.
# Stops everything that it started, also on Ctrl-C; exits 0 only if all traffic passed.
set -euo pipefail
cd "$(dirname "$0")/.."
guest=${GUEST:-uml}
case $guest in
  uml | qemu) ;;
  *) echo "demo: GUEST is uml or qemu, not $guest" >&2; exit 2 ;;
esac
if [ "$guest" = uml ] && ! command -v linux.uml >/dev/null; then
  echo "demo: User-Mode Linux is not available; using QEMU"
  guest=qemu
fi
cargo build --release -p ringway-cli -p ringway-tests --bin ringway --bin demo
target=${CARGO_TARGET_DIR:-target}/release

run=$(mktemp -d /tmp/rw-demo.XXXXXX)
export RINGWAY_RUN=$run
cleanup() {
  "$target/ringway" --fabric two-guests down >/dev/null 2>&1 || true
  rm -rf "$run"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
file=examples/two-guests.toml
if [ "$guest" != uml ]; then
  sed "s/kind = \"uml\"/kind = \"$guest\"/" "$file" >"$run/two-guests.toml"
  file=$run/two-guests.toml
fi
"$target/demo" "$file"
