#!/usr/bin/env bash
# Writes every file that a test compares with what the code makes: messages of fabric files, tables of registers, of
# copies and of goodput, results of Click configurations, the element reference, keys in docs, the clients of the API.
set -euo pipefail
cd "$(dirname "$0")/.."
export BLESS=1
cargo test -p ringway-control --test file
cargo test -p ringway-nic --test integration -- agreed
cargo test -p ringway-sockets --lib copies::
cargo test -p ringway-netstack --test integration matrix::
cargo test -p ringway-click-driver --test integration -- reference:: function_test::
cargo run -q -p ringway-cli -- openapi | scripts/clients.py
git --no-pager diff --stat
