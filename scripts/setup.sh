#!/usr/bin/env bash
# Installs and lists missing dependencies for building, testing and measuring Ringway.
# For Debian 12 or newer and Ubuntu 22.04 or newer, as root or with sudo. It changes no setting of the system.
set -euo pipefail

# A required program, and its package.
needed=(
  cc:build-essential curl:curl python3:python3 node:nodejs ip:iproute2 ping:iputils-ping ethtool:ethtool
  openssl:openssl
  iperf3:iperf3 dig:bind9-dnsutils qemu-system-x86_64:qemu-system-x86 xz:xz-utils zstd:zstd setpriv:util-linux
)
# Optional: only features that use them are unavailable without them.
wanted=(
  linux.uml:user-mode-linux dpdk-testpmd:dpdk-dev tcpdump:tcpdump tshark:tshark
  /usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk:openvswitch-switch-dpdk
  valgrind:valgrind pppd:ppp freeradius:freeradius nginx:nginx-light nfcapd:nfdump tsc:node-typescript
  npm:npm chromium:chromium
  dune:ocaml-dune
  redis-server:redis-server redis-benchmark:redis-tools wget:wget wrk:wrk ssh:openssh-client
  sshd:openssh-server pgbench:postgresql musl-gcc:musl-tools sockperf:sockperf nc:netcat-openbsd
  flex:flex bison:bison prometheus:prometheus ngrep:ngrep arping:arping
)
# Benchmarks and tests run their own: the services of newly installed ones are turned off again.
declare -A services=([freeradius]=freeradius [nfdump]=nfdump [nginx-light]=nginx [redis-server]=redis-server
  [openssh-server]=ssh [postgresql]=postgresql
  [prometheus]=prometheus)
[ -e /usr/sbin/ovs-vswitchd ] || services[openvswitch-switch-dpdk]=openvswitch-switch
# For the Kubernetes test of `make soak`; Kubernetes' own programs are in no distribution.
[ -z "${KUBERNETES:-}" ] || needed+=(etcd:etcd-server)

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else echo "setup: not root and no sudo; as root run: $*" >&2; return 1
  fi
}

install() {
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -q --no-install-recommends "$@" </dev/null 2>&1 >/dev/null \
    | { grep -v '^debconf:' || true; } >&2
}

export PATH="$HOME/.cargo/bin:$PATH:/usr/sbin:/sbin"
missing=() optional=()
for pair in "${needed[@]}"; do command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}"); done
for pair in "${wanted[@]}"; do command -v "${pair%%:*}" >/dev/null || optional+=("${pair#*:}"); done
# A driver of ours is built for the kernel of guests with emulated cards.
[ -d /usr/share/doc/linux-headers-amd64 ] || optional+=(linux-headers-amd64)
# The JSON library of the client in OCaml.
[ -d /usr/lib/ocaml/yojson ] || optional+=(libyojson-ocaml-dev)
# The C library of programs for tiny VMs.
[ -e /usr/lib/klibc/lib/libc.a ] || optional+=(libklibc-dev)
[ -x /bin/busybox ] && ! ldd /bin/busybox >/dev/null 2>&1 || missing+=(busybox-static)
python3 -c "import ensurepip, venv" 2>/dev/null || missing+=(python3-venv)
[ -e /etc/ssl/certs/ca-certificates.crt ] || missing+=(ca-certificates)

# Whether this system's package lists were updated today and have the package.
are_new() { [ -n "$(find /var/lib/apt/lists -name '*_Packages*' -ctime -1 -print -quit 2>/dev/null)" ]; }
is_known() { LC_ALL=C apt-cache policy "$1" 2>/dev/null | grep 'Candidate: [0-9]' >/dev/null; }
if are_new; then
  offered=()
  for package in "${optional[@]}"; do
    if is_known "$package"; then offered+=("$package")
    else echo "setup: $package is not available here; what needs it is left out" >&2; fi
  done
  optional=("${offered[@]}")
fi

if [ ${#missing[@]} -gt 0 ] || [ ${#optional[@]} -gt 0 ]; then
  if ! command -v apt-get >/dev/null; then
    echo "setup: this system has no apt; install by hand what matches: ${missing[*]} ${optional[*]}" >&2
    [ ${#missing[@]} -eq 0 ] || exit 1
  else
    as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q >/dev/null
    if [ ${#missing[@]} -gt 0 ]; then echo "setup: installing ${missing[*]}"; install "${missing[@]}"; fi
    # All at once, which is faster; one by one if a package is not available.
    if [ ${#optional[@]} -gt 0 ]; then
      echo "setup: installing ${optional[*]}"
      install "${optional[@]}" 2>/dev/null || for package in "${optional[@]}"; do
        install "$package" || echo "setup: $package is not available here; what needs it is left out" >&2
      done
    fi
    for package in "${optional[@]}"; do
      service=${services[$package]:-}
      if [ -n "$service" ] && [ -d /run/systemd/system ]; then
        as_root systemctl disable --now --quiet "$service" || true
      fi
    done
  fi
fi

# rustup installs the toolchain, since rust-toolchain.toml names channel, components and targets.
if ! command -v rustup >/dev/null; then
  if is_known rustup; then
    echo "setup: installing rustup"
    install rustup
  else
    echo "setup: installing rustup into ~/.cargo (your shell's start files stay as they are)"
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs \
      | sh -s -- -y -q --no-modify-path --profile minimal --default-toolchain none
  fi
fi
cd "$(dirname "$0")/.."
complete() {
  # Read completely: rustup fails if the reader of a pipe stops early.
  local targets
  cargo --version && cargo clippy --version && cargo fmt --version \
    && targets=$(rustup target list --installed) && [[ $targets == *x86_64-unknown-none* ]]
}
if ! complete >/dev/null 2>&1; then
  echo "setup: installing the Rust toolchain named in rust-toolchain.toml"
  parts=(-c clippy -c rustfmt -t x86_64-unknown-none)
  rustup toolchain install stable --profile minimal "${parts[@]}" --no-self-update >/dev/null \
    || { echo "setup: rustup failed; try by hand: rustup toolchain install stable" >&2; exit 1; }
fi
