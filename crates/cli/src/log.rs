//! Logging: text for people, or JSON if requested.

use crate::arguments::Log;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Sets up logging to standard error. `RINGWAY_LOG` is the filter, such as `info` or `ringway_control=debug`.
pub fn start(log: Log) {
    let least = if matches!(log, Log::Warnings) { "warn" } else { "info" };
    let filter = EnvFilter::try_from_env("RINGWAY_LOG").unwrap_or_else(|_| EnvFilter::new(least));
    let colour =
        std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty());
    let base =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    match log {
        Log::Text | Log::Warnings => base.with_ansi(colour).init(),
        Log::Json => base.json().init(),
    }
}
