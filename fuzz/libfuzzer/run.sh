#!/usr/bin/env bash
# Fuzzes each target for TIME seconds, 60 by default (EACH means the same): fuzz/libfuzzer/run.sh [TARGET...]
# With KEEP=1 it then keeps a minimal set of inputs that reaches the same code in fuzz/corpus.
# Needs a nightly compiler, cargo-fuzz and a C++ compiler; says what is missing.
set -uo pipefail
cd "$(dirname "$0")"
time=${TIME:-${EACH:-60}}
export PATH=$HOME/.cargo/bin:$PATH

missing=0
lack() { echo "fuzz: $1 is missing: $2" >&2; missing=1; }
[[ $time =~ ^[1-9][0-9]*$ ]] || { echo "fuzz: TIME is a number of seconds, not '$time'" >&2; exit 2; }
command -v cargo >/dev/null || lack cargo "install Rust by rustup"
cargo +nightly --version >/dev/null 2>&1 ||
  lack "a nightly compiler" "rustup toolchain install nightly --profile minimal"
cargo fuzz --version >/dev/null 2>&1 || lack cargo-fuzz "cargo install --locked cargo-fuzz"
command -v c++ >/dev/null || lack "a C++ compiler" "apt install g++"
((missing == 0)) || exit 2

if (($#)); then targets=("$@"); else
  mapfile -t targets < <(sed -n 's/^ *{ name = "\([^"]*\)".*/\1/p' Cargo.toml)
fi
echo "== build ${#targets[@]} targets"
cargo run --quiet --manifest-path ../Cargo.toml --example seeds -- corpus ||
  { echo "fuzz: the seeds can't be written" >&2; exit 1; }
cargo +nightly fuzz build --fuzz-dir . ||
  { echo "fuzz: the targets don't build" >&2; exit 1; }

failed=()
log=$(mktemp); trap 'rm -f "$log"' EXIT
for target in "${targets[@]}"; do
  # A target that takes 10 s for one input, or 2 GB of memory, has failed too.
  if cargo +nightly fuzz run --fuzz-dir . "$target" "corpus/$target" -- \
    -max_total_time="$time" -timeout=10 -rss_limit_mb=2048 -max_len=65600 >"$log" 2>&1; then
    echo "$target: ok, $(grep -oE 'Done [0-9]+ runs in [0-9]+ second' "$log" | tail -1)s," \
      "$(grep -oE 'cov: [0-9]+' "$log" | tail -1) edges"
  else
    failed+=("$target")
    echo "$target: FAILED"
    tail -n 60 "$log"
  fi
done
if ((${#failed[@]})); then
  echo "fuzz: failed: ${failed[*]}; what broke them is in fuzz/libfuzzer/artifacts/, run again by" >&2
  echo "  cd fuzz/libfuzzer; cargo +nightly fuzz run --fuzz-dir . TARGET artifacts/TARGET/FILE" >&2
  exit 1
fi
echo "fuzz: ${#targets[@]} targets, $time s each, nothing broke"
[ -n "${KEEP:-}" ] || exit 0
rm -rf minimized
for target in "${targets[@]}"; do
  mkdir -p "minimized/$target"
  cargo +nightly fuzz run --fuzz-dir . "$target" "minimized/$target" "corpus/$target" -- \
    -set_cover_merge=1 -max_len=2048 -timeout=10 -rss_limit_mb=2048 >"$log" 2>&1 ||
    { echo "fuzz: the inputs of $target can't be minimized" >&2; tail -n 20 "$log"; exit 1; }
done
exec cargo run --quiet --manifest-path ../Cargo.toml --example keep -- minimized
