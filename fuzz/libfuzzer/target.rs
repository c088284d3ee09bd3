//! A program of libFuzzer: it runs the target that has the program's name.
#![no_main]

use std::sync::LazyLock;

static TARGET: LazyLock<&ringway_fuzz::Target> =
    LazyLock::new(|| ringway_fuzz::target(env!("CARGO_BIN_NAME")));

libfuzzer_sys::fuzz_target!(|data: &[u8]| (TARGET.run)(data));
