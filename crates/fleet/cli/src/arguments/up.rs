//! `ringway up`.

use crate::values::endpoint;
use clap::Args;
use ringway_control::file::{API_ADDRESS, METRICS_ADDRESS};
use ringway_control::tcp_api::PAGE_ADDRESS;
use std::net::SocketAddr;
use std::path::PathBuf;

/// How to bring a fabric up.
#[derive(Args)]
pub struct Up {
    /// The fabric file.
    pub file: PathBuf,
    /// Return once the fabric is up, and leave it running. Its log is written to a file next to its run directory.
    #[arg(long, short)]
    pub detach: bool,
    /// Serve kube-scheduler's extender over HTTP on this address, by default 127.0.0.1:10263. Clients are not
    /// authenticated: any that can reach the address can reserve hosts.
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true,
        default_missing_value = "127.0.0.1:10263", value_parser = endpoint)]
    pub extender: Option<SocketAddr>,
    /// Serve Prometheus metrics over HTTP on this address, by default 127.0.0.1:9468; instead of the file's
    /// `[metrics]`. Clients are not authenticated.
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true,
        default_missing_value = METRICS_ADDRESS, value_parser = endpoint)]
    pub metrics: Option<SocketAddr>,
    /// Serve the API over TLS on this address, by default 127.0.0.1:9467; instead of the file's `[api]`. Clients need
    /// tokens of `ringway token add`, or certificates.
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true,
        default_missing_value = API_ADDRESS, value_parser = endpoint)]
    pub listen: Option<SocketAddr>,
    /// Serve a page for browsers on this address, by default 127.0.0.1:9466: over TLS, unless the address is of this
    /// host alone. `ringway page` prints its URL with a token.
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true,
        default_missing_value = PAGE_ADDRESS, value_parser = endpoint)]
    pub page: Option<SocketAddr>,
    /// How to log.
    #[arg(long, value_enum, default_value_t)]
    pub log: Log,
    /// Report on standard output when the fabric is up; set for detached fabrics.
    #[arg(long, hide = true)]
    pub detached: bool,
    /// Be the control process of the keeper at standard input.
    #[arg(long, hide = true)]
    pub kept: bool,
    /// Go on as the keeper in place of another program, with the image at this descriptor.
    #[arg(long, hide = true, value_name = "NUMBER")]
    pub keeper_image: Option<i32>,
}

/// How to log.
#[derive(Clone, Copy, Default, clap::ValueEnum)]
pub enum Log {
    /// Lines for people.
    #[default]
    Text,
    /// JSON, one line per event.
    Json,
    /// Lines for people, warnings and errors only.
    #[value(hide = true)]
    Warnings,
}

impl Log {
    /// The word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Log::Text => "text",
            Log::Json => "json",
            Log::Warnings => "warnings",
        }
    }
}
