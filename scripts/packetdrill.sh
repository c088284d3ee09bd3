#!/usr/bin/env bash
# Plays packetdrill's Linux scripts with our TCP/IP stack. `packetdrill.sh FOLDER [SCRIPT...]`: FOLDER is a source
# tree of packetdrill, built there (`cd gtests/net/packetdrill; ./configure; make packetdrill`; needs bison and flex);
# a SCRIPT is named by its path below gtests/net/tcp, by default all. Prints a result for each; with all, compares the
# results with docs/tcp-conformance.md. Needs root.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
[ $# -ge 1 ] || { sed -n '2,5s/^# //p' "$0"; exit 2; }
net=$(cd "$1/gtests/net" && pwd) || exit 2
shift
program=$net/packetdrill/packetdrill
[ -x "$program" ] || { echo "packetdrill: $program is not built" >&2; exit 2; }
[ -n "${NOBUILD:-}" ] || (cd "$root" && cargo build -q -p ringway-packetdrill) || exit 1
library=${CARGO_TARGET_DIR:-$root/target}/debug/libringway_packetdrill.so
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The interface exists only in the stack. These stand for programs that a script calls to change it, and leave notes for
# the library; routes' metrics have no counterpart.
mkdir "$work/bin" "$work/notes"
cat >"$work/bin/tc" <<'TC'
#!/bin/sh
case " $* " in *" fq "*) echo fq ;; *" limit 0 "*) echo full ;; *) echo pfifo ;; esac >"$RINGWAY_NOTES/qdisc"
TC
cat >"$work/bin/ip" <<'IP'
#!/bin/sh
[ "$1" != tcp_metrics ] || : >"$RINGWAY_NOTES/flush"
IP
printf '#!/bin/sh\n: >"$RINGWAY_NOTES/ethtool"\n' >"$work/bin/ethtool"
# Counters that have changed since the last call.
cat >"$work/bin/nstat" <<'NSTAT'
#!/bin/sh
cd "$RINGWAY_NOTES" && : >>counters && { cmp -s counters counted || cat counters; } && cp counters counted
NSTAT
chmod +x "$work/bin/"*

# A script changes settings below /proc/sys, where it finds copies of the kernel's.
cat >"$work/bin/within" <<'WITHIN'
#!/bin/sh
mount -t tmpfs none "$1" && cp /proc/sys/net/ipv4/tcp_* "$1" 2>/dev/null
mount --bind "$1" /proc/sys/net/ipv4 || exit 1
# Scripts redirect by `&>`, which is not the same in other shells.
mount --bind "$(command -v bash)" "$(readlink -f /bin/sh)" || exit 1
shift
exec "$@"
WITHIN
chmod +x "$work/bin/within"
mkdir "$work/ipv4"

# The cookies that the key of common/defaults.sh gives.
cookie4=3021b9d889017eeb cookie6=c1d1e9742a47a9bc
play() { # play SCRIPT: within its folder, in a network namespace of its own, so that it may change settings
  local version=4 local=192.168.0.1 prefix=16 remote=192.0.2.1 mtu=1500 level=IP cookie=$cookie4
  # run_all.py sets an MTU of 1520 for IPv6, but the script that needs IPv6 expects segments for one of 1500.
  case $1 in *v6.pkt)
    version=6 local=fd3d:a0b:17d6::1 prefix=32 remote=fd3d:fa7b:d17d::1 level=IPV6 cookie=$cookie6 ;;
  esac
  local own && own=$(sed -n 's/^--local_ip=//p' "$net/tcp/$1") && local=${own:-$local}
  own=$(sed -n 's/^--remote_ip=//p' "$net/tcp/$1") && remote=${own:-$remote}
  local gateway=(--gateway_ip=$local)
  [ $version = 6 ] || gateway+=(--netmask_ip=255.255.0.0)
  rm -f "$work/notes/"*
  (cd "$net/tcp/$(dirname "$1")" && RINGWAY_NOTES=$work/notes PATH=$work/bin:$PATH timeout 60 unshare -nm \
    "$work/bin/within" "$work/ipv4" env LD_PRELOAD="$library" "$program" \
    --send_omit_free --so_filename="$library" \
    --so_flags="$local/$prefix mtu=$mtu" --ip_version=ipv$version --mtu=$mtu --local_ip=$local \
    "${gateway[@]}" \
    --remote_ip=$remote -D TFO_COOKIE=$cookie -D CODE=host_unreachable -D CMSG_LEVEL_IP=SOL_$level \
    -D CMSG_TYPE_RECVERR=${level}_RECVERR ${PACKETDRILL_FLAGS:-} "$(basename "$1")") >"$work/output" 2>&1
}
scripts=("$@")
[ $# -gt 0 ] || mapfile -t scripts < <(cd "$net/tcp" && find . -name '*.pkt' | sed 's,^\./,,' | sort)
for script in "${scripts[@]}"; do
  if play "$script"; then
    echo "pass $script"
  else
    echo "fail $script: $(grep -v '^ *$' "$work/output" | tail -1 | cut -c1-200)"
  fi | tee -a "$work/results"
  [ $# -ne 1 ] || cat "$work/output"
done
good=$(grep -c '^pass' "$work/results")
echo "$good of ${#scripts[@]}"
[ $# -gt 0 ] && exit
listed=$(sed -n 's/^| `\(.*\.pkt\)` | \([a-z]*\) |.*/\2 \1/p' "$root/docs/tcp-conformance.md" | sort)
diff <(echo "$listed") <(sed 's/:.*//' "$work/results" | sort) >&2 || {
  echo "docs/tcp-conformance.md differs" >&2
  exit 1
}
