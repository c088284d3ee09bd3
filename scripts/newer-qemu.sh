#!/usr/bin/env bash
# Brings a QEMU newer than this release's, for tests that Debian 12's can't do, and prints the path of a program that
# starts it: scripts/newer-qemu.sh [SUITE], by default forky. Nothing is installed: the packages, of the mirror that
# apt here uses, are unpacked below the cache folder (XDG_CACHE_HOME or ~/.cache), once. Needs no root; x86-64 only.
set -euo pipefail
suite=${1:-forky}
root=${XDG_CACHE_HOME:-$HOME/.cache}/ringway/qemu-$suite
program=$root/qemu-system-x86_64
if [ -x "$program" ]; then echo "$program"; exit 0; fi
command -v apt-get >/dev/null || { echo "newer-qemu: this system has no apt" >&2; exit 1; }
repositories=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian')
mirror=$(grep -v security <<<"$repositories" | head -n 1)
[ -n "$mirror" ] || { echo "newer-qemu: apt here knows no mirror of Debian" >&2; exit 1; }

# A package system of its own, in which nothing is installed yet.
new=$root.new
rm -rf "$new"
mkdir -p "$new"/{files,apt/{lists,archives}/partial,apt/etc/{apt.conf.d,preferences.d}}
: >"$new/apt/status"
echo "deb $mirror $suite main" >"$new/apt/etc/sources.list"
options=(
  -o Dir::Etc="$new/apt/etc" -o Dir::Etc::trusted=/etc/apt/trusted.gpg
  -o Dir::Etc::trustedparts=/etc/apt/trusted.gpg.d
  -o Dir::State="$new/apt" -o Dir::State::status="$new/apt/status" -o Dir::Cache="$new/apt"
  -o APT::Sandbox::User=root -o Acquire::Check-Valid-Until=false -o Debug::NoLocking=true
)
apt-get "${options[@]}" -q update >"$new/log" 2>&1 ||
  { echo "newer-qemu: the packages of $suite can't be listed:" >&2; tail -n 5 "$new/log" >&2; exit 1; }
apt-get "${options[@]}" -q -y --download-only --no-install-recommends install \
  qemu-system-x86 seabios ipxe-qemu >>"$new/log" 2>&1 ||
  { echo "newer-qemu: the packages can't be fetched:" >&2; tail -n 5 "$new/log" >&2; exit 1; }
for package in "$new"/apt/archives/*.deb; do dpkg-deb -x "$package" "$new/files"; done
rm -rf "$new/apt"

cat >"$new/qemu-system-x86_64" <<'END'
#!/bin/sh
# QEMU with the libraries it was made for.
root=$(dirname "$(readlink -f "$0")")/files
loader=$root/lib64/ld-linux-x86-64.so.2
[ -e "$loader" ] || loader=$root/usr/lib64/ld-linux-x86-64.so.2
export QEMU_MODULE_DIR="$root/usr/lib/x86_64-linux-gnu/qemu"
exec "$loader" --library-path "$root/usr/lib/x86_64-linux-gnu:$root/lib/x86_64-linux-gnu" \
  "$root/usr/bin/qemu-system-x86_64" -L "$root/usr/share/qemu" -L "$root/usr/share/seabios" \
  -L "$root/usr/lib/ipxe/qemu" "$@"
END
chmod +x "$new/qemu-system-x86_64"
"$new/qemu-system-x86_64" --version >>"$new/log" 2>&1 ||
  { echo "newer-qemu: it does not start:" >&2; tail -n 5 "$new/log" >&2; exit 1; }
rm -rf "$root"
mv "$new" "$root"
echo "$program"
