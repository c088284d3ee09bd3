#!/usr/bin/env bash
# Measures every performance target and a peer in the same run, and writes target/bench/SUBJECT.json.
# Arguments go to ringway-bench: --subject fabric (or click, functions, vms, iommu, nic, tcp, exec), keys, --seconds N,
# --list.
# A timing never fails it.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --release -p ringway-bench
case " $* " in
  # tcpdump captures by the program and its libpcap; without its source, that key is left out.
  "  " | *" pcap"*)
    cargo build --release -p ringway-cli
    ./scripts/pcap-library.sh || [ $? = 2 ]
    ;;
esac
case " $* " in
  # netmap's programs, if NETMAP names some, run on ports of the program by the library that they preload.
  "  " | *" netmap"*) cargo build --release -p ringway-cli -p ringway-netmap-preload ;;
esac
exec "${CARGO_TARGET_DIR:-target}/release/ringway-bench" "$@"
