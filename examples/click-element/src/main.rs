//! `ringway` with an additional element and an additional lookup: the same commands, one more class and
//! `lookup = "hub"`. A fabric's functions have the element as processes and on workers, but not in VMs.
//!
//! ```sh
//! cargo run -- click -e 'InfiniteSource(LIMIT 3, STOP true) -> s :: SizeHistogram -> Discard' -h s.histogram
//! cargo run -- click --elements SizeHistogram
//! cargo run -- up fabric.toml
//! ```
mod elements;
mod hub;

use ringway_cli::Kinds;
use std::process::ExitCode;

fn main() -> ExitCode {
    ringway_cli::main(Kinds {
        classes: elements::CLASSES,
        documentation: elements::DOCUMENTATION,
        lookups: &[hub::LOOKUP],
        lookup_keys: &[&hub::Keys],
        ..Kinds::default()
    })
}
