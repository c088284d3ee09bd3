#!/usr/bin/env bash
# Models of what threads share without a lock (published values, the IOTLB, rings, a worker's wake-ups), which loom runs
# in the orders that the memory model permits, with at most LOOM_MAX_PREEMPTIONS (2) preemptions in each. Arguments: the
# packages to test, by default ringway-mem, ringway-ring and ringway-fabric.
set -euo pipefail
cd "$(dirname "$0")/.."
export LOOM_MAX_PREEMPTIONS=${LOOM_MAX_PREEMPTIONS:-2} RUSTFLAGS="--cfg ringway_loom"
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}/loom
[ $# -gt 0 ] || set -- ringway-mem ringway-ring ringway-fabric
exec cargo test --lib "${@/#/--package=}" models::
