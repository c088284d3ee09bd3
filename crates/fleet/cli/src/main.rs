//! The ringway program.

fn main() -> std::process::ExitCode {
    ringway_cli::main(ringway_cli::Kinds::default())
}
