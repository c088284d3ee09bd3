#!/usr/bin/env bash
# The long tests: those of `make test` with many more rounds, ring code under Miri, mutation tests, checks of
# dependencies, and the oldest Rust. A step runs even if an earlier one failed; the last line counts tests.
# RINGWAY_ROUNDS, PROPTEST_CASES, RINGWAY_FUZZ_CASES and RINGWAY_STEPS (of random front-ends and drivers, ten million by
# default, about half an hour) limit it; RINGWAY_SOAK is for how many seconds faults come at random, for each seed.
set -uo pipefail
[ -z "${KUBERNETES:-}" ] || { KUBERNETES=$(realpath -- "$KUBERNETES"); export KUBERNETES; }
cd "$(dirname "$0")/.."
. scripts/steps.sh
export RINGWAY_ROUNDS=${RINGWAY_ROUNDS:-100} PROPTEST_CASES=${PROPTEST_CASES:-2000}
export RINGWAY_STEPS=${RINGWAY_STEPS:-10000000} RINGWAY_FUZZ_CASES=${RINGWAY_FUZZ_CASES:-100000}
step "build" cargo build --release -p ringway-cli
# Each case builds all elements in several thousand routers, so a twentieth of the cases.
slow=packets_are_completed_for_elements_that_need_it
step "unit and property tests" \
  cargo test --release --workspace --exclude ringway-tests --no-fail-fast -- --skip "$slow"
step "elements, exhaustively" \
  env "PROPTEST_CASES=$((PROPTEST_CASES / 20 + 1))" cargo test --release -p ringway-elements "$slow"
step "real peers" \
  env -u KUBERNETES cargo test --release -p ringway-tests --no-fail-fast -- --test-threads=2
# Prints the rate of bound pods, which concurrent tests would distort.
if [ -n "${KUBERNETES:-}" ]; then
  step "Kubernetes" cargo test --release -p ringway-tests --test integration kubernetes:: -- --nocapture
else
  echo "== Kubernetes: left out; KUBERNETES=FOLDER names the folder of kube-apiserver and kube-scheduler"
fi
# Faults at random; SECONDS for each of the seeds.
for seed in 1 2 3; do
  step "faults and changes, seed $seed" env "RINGWAY_SOAK=${RINGWAY_SOAK:-1200}" "RINGWAY_SEED=$seed" \
    cargo test --release -p ringway-cli --test integration frames_are_conserved -- --nocapture
done
step "kills and upgrades" env FAULTS=50 \
  cargo test --release -p ringway-cli --test integration data_kills:: -- --nocapture --test-threads=1
step "Miri" ./scripts/miri.sh
step "models of loom" env LOOM_MAX_PREEMPTIONS=4 ./scripts/loom.sh
step "mutation tests" ./scripts/mutants.sh
# They have about 8,000 mutants: another sixtieth each day.
step "mutation tests, a part" env MUTANTS_SHARD=day/60 ./scripts/mutants.sh mem virtq switch netstack
step "documentation" env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
step "packages" make package
step "dependencies" make deny
step "oldest Rust" ./scripts/msrv.sh
summary
