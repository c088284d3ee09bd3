//! `ringway trace --live`: what happens to frames that a port's peer sends, by a capture with verdicts.

use crate::arguments::Target;
use crate::capture::reader::{Frame, Reader};
use crate::capture::{BUSY_INTERVAL, IDLE_INTERVAL, Signals, begin};
use crate::client::Client;
use crate::command_error::CommandError;
use crate::object_kind;
use crate::text::{self, to_json};
use ringway_control::api::{FabricView, PortView};
use ringway_control::captures::CaptureRequest;
use ringway_fabric::capture::{LONGEST_COPY, LiveFrame};
use ringway_fabric::proto::{Capture, Traced, TracedCopy};
use ringway_spec::printable;
use ringway_wire::filter::Filter;
use ringway_wire::summary::summary;
use serde_json::json;
use std::path::Path;

/// Memory for frames that were not shown yet, in bytes.
const BUFFER_LEN: u64 = 8 << 20;
/// Bytes of a frame that are copied for its summary.
const SNAP_LEN: u32 = 128;

/// Shows what happens to the next frames of a port.
pub fn follow(
    target: &Target,
    json: bool,
    (port, filter): (&str, &str),
    frames: u64,
) -> Result<(), CommandError> {
    let mut client = Client::connect(target)?;
    let ports: Vec<PortView> = client.get("/v1/ports")?;
    if !ports.iter().any(|known| known.name == port) {
        return Err(object_kind::PORT.unknown(port));
    }
    Filter::parse(filter)
        .map_err(|error| CommandError::Failed(format!("the filter \"{filter}\", {error}")))?;
    let FabricView { run, .. } = client.get("/v1/fabric")?;
    let capture = Capture {
        ports: vec![port.into()],
        inbound: true,
        outbound: false,
        drops: false,
        filter: filter.into(),
        snap_len: SNAP_LEN.min(LONGEST_COPY),
        verdicts: true,
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CommandError::because)?;
    let mut signals = Signals::new(&runtime).map_err(CommandError::because)?;
    let mut reader = begin(Path::new(&run), &CaptureRequest { capture, buffer: BUFFER_LEN })?;
    if !json {
        text::note(&format!("tracing frames of {port}; Ctrl-C ends it"));
    }
    runtime.block_on(show(&mut reader, &mut signals, json, frames))?;
    let lost = reader.statistics().iter().map(|port| port.dropped).sum::<u64>() + reader.missed();
    if lost > 0 {
        text::warn(&format!("{lost} frames are not shown, since they came faster than they could be"));
    }
    Ok(())
}

/// Prints frames until there were so many, a signal, or the end of the fabric.
async fn show(reader: &mut Reader, signals: &mut Signals, json: bool, most: u64) -> Result<(), CommandError> {
    let (mut is_last, mut pause, mut shown) = (false, BUSY_INTERVAL, 0);
    loop {
        let frames = reader.next(is_last).map_err(CommandError::Failed)?;
        for frame in &frames {
            // `data` may have been taken over.
            let Some(live) = LiveFrame::of(&frame.data) else { continue };
            println!("{}", if json { as_json(frame, &live) } else { line(frame, &live) });
            shown += 1;
            if shown >= most {
                return Ok(());
            }
        }
        if is_last {
            return Ok(());
        }
        is_last = reader.is_over();
        pause = if frames.is_empty() { (2 * pause).min(IDLE_INTERVAL) } else { BUSY_INTERVAL };
        is_last |= signals.within(pause).await;
    }
}

fn as_json(frame: &Frame, live: &LiveFrame<'_>) -> String {
    to_json(&json!({
        "time": frame.time,
        "length": frame.len,
        "summary": summary(live.data, frame.len),
        "traced": live.traced,
    }))
}

/// A frame and what happened to it.
fn line(frame: &Frame, LiveFrame { traced, data }: &LiveFrame<'_>) -> String {
    let (seconds, fraction) = (frame.time / 1_000_000_000, frame.time % 1_000_000_000);
    let (hours, minutes, seconds) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let line = format!(
        "{hours:02}:{minutes:02}:{seconds:02}.{fraction:09} {}: {}",
        summary(data, frame.len),
        verdict(traced)
    );
    printable(&line).into_owned()
}

/// What happened, in words.
fn verdict(traced: &Traced) -> String {
    let mut words = vec![traced.lookup.clone()];
    words.extend(
        traced.learned.iter().filter(|learned| *learned != "known").map(|how| format!("source {how}")),
    );
    words.extend(traced.dropped.iter().map(|reason| format!("dropped: {reason}")));
    let copy = |TracedCopy { port, verdict, reason, frames, .. }: &TracedCopy| match (reason, frames) {
        (Some(reason), _) => format!("{port} {verdict}: {reason}"),
        (None, 1) => format!("{port} {verdict}"),
        (None, frames) => format!("{port} {verdict} as {frames} frames"),
    };
    words.extend(traced.copies.iter().map(copy));
    if traced.omitted > 0 {
        words.push(format!("{} more", traced.omitted));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_happened() {
        let copy = |port: &str, verdict: &str, reason: Option<&str>, frames| TracedCopy {
            port: port.into(),
            verdict: verdict.into(),
            reason: reason.map(Into::into),
            frames,
            ..TracedCopy::default()
        };
        let traced = Traced {
            lookup: "flooded".into(),
            learned: Some("new".into()),
            copies: vec![copy("a", "delivered", None, 3), copy("b", "dropped", Some("down"), 1)],
            omitted: 2,
            ..Traced::default()
        };
        assert_eq!(verdict(&traced), "flooded, source new, a delivered as 3 frames, b dropped: down, 2 more");
        let dropped = Traced { lookup: "known".into(), dropped: Some("hairpin".into()), ..Traced::default() };
        assert_eq!(verdict(&dropped), "known, dropped: hairpin");
    }
}
