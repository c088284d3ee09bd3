//! `ringway` with an additional element and an additional lookup: the same commands, one more class and
//! `lookup = "hub"`. A fabric's functions have the element in processes, on workers and in VMs.
//!
//! ```sh
//! cargo run -- click -e 'InfiniteSource(LIMIT 3, STOP true) -> s :: SizeHistogram -> Discard' -h s.histogram
//! cargo run -- click --elements SizeHistogram
//! cargo run -- up fabric.toml
//! ```
mod hub;

use ringway_cli::Kinds;
use std::process::ExitCode;

fn main() -> ExitCode {
    ringway_cli::main(Kinds {
        classes: my_elements::CLASSES,
        documentation: my_elements::DOCUMENTATION,
        image: Some(include_bytes!(env!("IMAGE"))),
        lookups: &[hub::LOOKUP],
        lookup_keys: &[&hub::Keys],
        ..Kinds::default()
    })
}
