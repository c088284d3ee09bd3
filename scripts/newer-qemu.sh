#!/usr/bin/env bash
# Fetches a QEMU newer than this release's, for tests that Debian 12's can't run, and prints the path of a program that
# starts it: scripts/newer-qemu.sh [SUITE], by default forky. Nothing is installed: the packages, of the mirror that
# apt here uses, are unpacked below the cache folder (XDG_CACHE_HOME or ~/.cache), once. Needs no root; x86-64 only.
set -euo pipefail
suite=${1:-forky}
root=${XDG_CACHE_HOME:-$HOME/.cache}/ringway/qemu-$suite
program=$root/qemu-system-x86_64
. "$(dirname "$0")/suite.sh"
suite_alone "$root"
if [ -x "$program" ]; then echo "$program"; exit 0; fi
new=$root.new
suite_open newer-qemu "$suite" "$new"
suite_try "the packages can't be fetched" suite apt-get -q -y --download-only --no-install-recommends \
  install qemu-system-x86 seabios ipxe-qemu
suite_unpack

cat >"$new/qemu-system-x86_64" <<'END'
#!/bin/sh
# QEMU with its own release's libraries.
root=$(dirname "$(readlink -f "$0")")/files
loader=$root/lib64/ld-linux-x86-64.so.2
[ -e "$loader" ] || loader=$root/usr/lib64/ld-linux-x86-64.so.2
export QEMU_MODULE_DIR="$root/usr/lib/x86_64-linux-gnu/qemu"
exec "$loader" --library-path "$root/usr/lib/x86_64-linux-gnu:$root/lib/x86_64-linux-gnu" \
  "$root/usr/bin/qemu-system-x86_64" -L "$root/usr/share/qemu" -L "$root/usr/share/seabios" \
  -L "$root/usr/lib/ipxe/qemu" "$@"
END
chmod +x "$new/qemu-system-x86_64"
suite_try "it does not start" "$new/qemu-system-x86_64" --version
rm -rf "$root"
mv "$new" "$root"
echo "$program"
