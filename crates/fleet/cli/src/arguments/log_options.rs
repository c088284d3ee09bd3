//! The options of commands that print logs.

use crate::values::whole;
use clap::Args;

/// How much of a log.
#[derive(Args)]
pub struct LogOptions {
    /// Go on with what is logged, until the fabric is down.
    #[arg(long, short)]
    pub follow: bool,
    /// Only the last lines.
    #[arg(long, short = 'n', value_name = "N", value_parser = whole::<usize>)]
    pub lines: Option<usize>,
}
