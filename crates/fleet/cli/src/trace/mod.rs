//! `ringway trace`: what would become of a frame, and what happens to the next ones.
//!
//! `input` reads the frame, `show` prints the answer of the API, `live` follows real frames.

mod input;
mod live;
mod show;

use crate::arguments::{Target, TraceArguments};
use crate::client::Client;
use crate::command_error::CommandError;
use crate::object_kind;
use crate::text;
use ringway_control::api::{NewTrace, TraceView};

/// Runs `ringway trace`.
pub fn trace(target: &Target, json: bool, arguments: &TraceArguments) -> Result<(), CommandError> {
    if let (Some(frames), Some(port)) = (arguments.live, &arguments.port) {
        let filter = arguments.filter.as_deref().unwrap_or_default();
        return live::follow(target, json, (port, filter), frames);
    }
    let input::Input { port, frame } = input::read(arguments)?;
    // Names of functions' ends in chains have dots.
    if !port.chars().all(|c| c.is_ascii_alphanumeric() || "-_/.".contains(c)) {
        return Err(object_kind::PORT.unknown(&port));
    }
    let new = NewTrace {
        frame,
        checksum_offload: arguments.checksum_offload,
        gso_size: arguments.gso_size,
        inject: arguments.inject,
    };
    let path = format!("/v1/ports/{}/trace", port.replace('/', "%2F"));
    let view: TraceView = Client::connect(target)?.ask(&path, &new)?;
    if json {
        text::json(&view);
    } else {
        print!("{}", show::text(&view));
    }
    Ok(())
}
