//! `ringway events`.

use crate::values::whole;
use clap::Args;

/// Which events.
#[derive(Args)]
pub struct EventOptions {
    /// Show events after that of this number only; `--json` has the numbers.
    #[arg(long, value_name = "NUMBER", value_parser = whole::<u64>)]
    pub after: Option<u64>,
    /// Maximum number, before those that follow.
    #[arg(long, default_value_t = 50, value_parser = whole::<usize>)]
    pub count: usize,
    /// Continue with new events, until the fabric is down.
    #[arg(long, short)]
    pub follow: bool,
}
