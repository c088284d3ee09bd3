//! `ringway` with an additional kind of port: the same commands, and `kind = "capture"`.
//!
//! ```sh
//! cargo run -- up capture.toml
//! ```
mod capture;
mod kinds;

use std::process::ExitCode;

fn main() -> ExitCode {
    let (control, data) = (kinds::KINDS, &[capture::KIND]);
    ringway_cli::main(ringway_cli::Kinds { control, data, ..Default::default() })
}
