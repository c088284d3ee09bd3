#!/usr/bin/env bash
# Tests the Debian package of target/package in a copy of this system that is thrown away: installed, upgraded
# while a fabric's hosts ping each other, removed, purged. Needs root.
set -euo pipefail
cd "$(dirname "$0")/.."
first=$(ls target/package/ringway_*-1_*.deb)
[ "$(id -u)" = 0 ] || { echo "package test: left out; it needs root"; exit 0; }
if [ -z "${PACKAGE_TEST:-}" ]; then
  PACKAGE_TEST=$(mktemp -d)
  export PACKAGE_TEST
  trap 'rm -rf "$PACKAGE_TEST"' EXIT
  code=0
  unshare --mount --pid --fork --kill-child --propagation private "$0" || code=$?
  exit "$code"
fi

# The copy: what is written goes into memory.
mount -t tmpfs tmpfs "$PACKAGE_TEST"
root=$PACKAGE_TEST/root
mkdir -p "$PACKAGE_TEST"/{changes,work} "$root"
mount -t overlay -o "lowerdir=/,upperdir=$PACKAGE_TEST/changes,workdir=$PACKAGE_TEST/work" overlay "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
cp "$first" "$root/tmp/first.deb"
# The same files as a later revision.
dpkg-deb -R "$first" "$PACKAGE_TEST/second"
sed -i 's/^\(Version: .*\)-1$/\1-2/' "$PACKAGE_TEST/second/DEBIAN/control"
dpkg-deb --root-owner-group -b "$PACKAGE_TEST/second" "$root/tmp/second.deb" >/dev/null
in_root() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"; }
said() { echo "package test: $*"; }
fail() { echo "package test: $*" >&2; exit 1; }

in_root dpkg -i /tmp/first.deb >/dev/null
said "installed: $(in_root ringway --version)"
in_root test -d /etc/ringway
in_root bash -n /usr/share/bash-completion/completions/ringway
in_root test -s /usr/share/man/man1/ringway-guest-migrate.1.gz
if in_root sh -c 'command -v systemd-analyze' >/dev/null; then
  in_root systemd-analyze verify /lib/systemd/system/ringway@lab.service 2>&1 |
    grep "ringway@" && fail "systemd-analyze finds faults in the unit"
fi

cat >"$root/etc/ringway/lab.toml" <<'FILE'
[switch.main]
[host.near]
switch = "main"
address = "10.99.0.1/24"
[host.far]
switch = "main"
address = "10.99.0.2/24"
FILE
in_root ringway --fabric lab up /etc/ringway/lab.toml --detach
in_root ringway host exec near -- ping -c 20 -i 0.25 -W 2 10.99.0.2 >"$PACKAGE_TEST/pings" &
pings=$!
in_root dpkg -i /tmp/second.deb >"$PACKAGE_TEST/upgrade" 2>&1 ||
  { cat "$PACKAGE_TEST/upgrade"; fail "not upgraded"; }
! grep "stays with its program" "$PACKAGE_TEST/upgrade" || fail "the fabric was not moved"
wait "$pings" || { cat "$PACKAGE_TEST/pings"; fail "the ping failed"; }
grep -q "20 received" "$PACKAGE_TEST/pings" || { cat "$PACKAGE_TEST/pings"; fail "the upgrade lost packets"; }
# The kernel marks a program whose file was replaced.
programs=$(in_root sh -c 'for process in /proc/[0-9]*; do readlink "$process/exe" || true; done')
grep -q 'ringway$' <<<"$programs" || fail "no process of the fabric is there"
! grep 'ringway (deleted)' <<<"$programs" || fail "processes run the former program"
said "upgraded: $(tail -n 2 "$PACKAGE_TEST/pings" | head -n 1)"
in_root ringway down

in_root dpkg -r ringway >/dev/null
! in_root test -e /usr/bin/ringway || fail "the program is there after the package was removed"
in_root test -e /etc/needrestart/conf.d/ringway.conf || fail "a configuration file went with the package"
in_root dpkg -P ringway >/dev/null 2>&1
in_root test -e /etc/ringway/lab.toml || fail "the administrator's file was removed"
# What was deleted is a character device there.
left=$(find "$PACKAGE_TEST/changes" -path '*ringway*' ! -type c ! -path "*/etc/ringway*" \
  ! -path "*/var/cache/man/*")
[ -z "$left" ] || fail "purging left: $left"
said "removed and purged"
if command -v lintian >/dev/null; then
  lintian --fail-on error,warning "$first" || fail "lintian finds faults"
fi
