//! Arguments of `ringway profile`.

use clap::Args;
use std::path::PathBuf;

/// What to observe.
#[derive(Args)]
#[command(after_help = "\
Of the data path: sleep, polling without frames, each stage of a burst, signals, functions. It costs less
than 1%, and nothing when it does not run; with --elements, functions are slower meanwhile. docs/measure.md
explains the rows. A guest must be able to run commands, see `ringway guest exec --help`.

Examples:
  ringway profile                          where workers' time goes
  ringway profile --elements --svg profile.svg
  ringway profile left --seconds 10 --json   where a guest's time goes")]
pub struct ProfileArguments {
    /// A guest; without one, workers and functions.
    pub name: Option<String>,
    /// Seconds to observe for.
    #[arg(long, default_value_t = 2, value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: u64,
    /// Each element of running functions, too.
    #[arg(long, conflicts_with = "name")]
    pub elements: bool,
    /// Draw the result as SVG.
    #[arg(long, value_name = "FILE", conflicts_with = "name")]
    pub svg: Option<PathBuf>,
}
