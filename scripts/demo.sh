#!/usr/bin/env bash
# Two Linux guests on one switch: pings, TCP and UDP both ways, live rates, a table. GUEST=uml (default) or qemu.
# NIC=e1000, e1000e, 8139cp or pcnet32: QEMU guests on emulated network cards, with the kernel's own driver, instead
# of virtio.
# Stops everything that it started, also on Ctrl-C; exits 0 only if all traffic passed.
set -euo pipefail
cd "$(dirname "$0")/.."
guest=${GUEST:-uml} nic=${NIC:-virtio}
case $guest in
  uml | qemu) ;;
  *) echo "demo: GUEST is uml or qemu, not $guest" >&2; exit 2 ;;
esac
case $nic in
  virtio) ;;
  e1000) guest=qemu model=82540em ;;
  e1000e) guest=qemu model=82574l ;;
  8139cp) guest=qemu model=rtl8139 ;;
  pcnet32) guest=qemu model=pcnet ;;
  *) echo "demo: NIC is virtio, e1000, e1000e, 8139cp or pcnet32, not $nic" >&2; exit 2 ;;
esac
if [ "$guest" = uml ] && ! command -v linux.uml >/dev/null; then
  echo "demo: User-Mode Linux is not available; using QEMU"
  guest=qemu
fi
program=
# QEMU 7 exits with 0 for a device that it lacks.
attaches_cards() { [ -n "$("$1" -M none -device vfio-user-pci,help 2>/dev/null)" ]; }
if [ "$nic" != virtio ] && ! attaches_cards qemu-system-x86_64; then
  echo "demo: emulated cards need QEMU 10.1 or newer; fetching one to ~/.cache/ringway, unless it is there"
  program=$(./scripts/newer-qemu.sh)
  attaches_cards "$program" || { echo "demo: $program has no vfio-user-pci" >&2; exit 1; }
fi
cargo build --profile demo -p ringway-cli -p ringway-tests --bin ringway --bin demo
target=${CARGO_TARGET_DIR:-target}/demo

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
  keys="kind = \"$guest\"\nnic = \"$nic\"${program:+\nprogram = \"$program\"}"
  sed "s|kind = \"uml\"|$keys|" "$file" >"$run/two-guests.toml"
  file=$run/two-guests.toml
  [ "$nic" = virtio ] || sed -i "s|kind = \"vhost-user\"|kind = \"e1000\"\nmodel = \"$model\"|" "$file"
fi
"$target/demo" "$file" "$guest" "$nic"
