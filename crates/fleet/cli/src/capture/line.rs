//! A captured frame in a line of text or JSON.

use super::reader::Frame;
use crate::text::to_json;
use ringway_wire::pcapng::Direction;
use ringway_wire::summary::summary;
use serde_json::json;
use std::fmt::Write;

/// The line of a frame.
pub fn line(port: &str, frame: &Frame, comment: &str) -> String {
    let (seconds, fraction) = (frame.time / 1_000_000_000, frame.time % 1_000_000_000);
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    let direction = if frame.event.direction == Direction::Outbound { "Out" } else { "In" };
    let mut line = format!(
        "{hours:02}:{minutes:02}:{:02}.{fraction:09} {port} {direction} {}",
        seconds % 60,
        summary(&frame.data, frame.len)
    );
    if !comment.is_empty() {
        let _ = write!(line, " [{comment}]");
    }
    line
}

/// The line of a frame as JSON.
pub fn json(port: &str, frame: &Frame) -> String {
    to_json(&json!({
        "time": frame.time,
        "port": port,
        "direction": if frame.event.direction == Direction::Outbound { "out" } else { "in" },
        "length": frame.len,
        "captured": frame.data.len(),
        "dropped": frame.event.drop.map(|reason| reason.name()),
        "uncertain": frame.event.is_uncertain,
        "summary": summary(&frame.data, frame.len),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_fabric::capture::CaptureEvent;

    #[test]
    fn a_line_has_time_port_direction_and_reason() {
        let event = CaptureEvent::passing(Direction::Outbound);
        let time = (3600 * 25 + 61) * 1_000_000_000 + 5;
        let frame = Frame { port: 0, event, time, len: 3, data: vec![1, 2, 3] };
        let expected = "01:01:01.000000005 left Out [truncated frame], length 3 [dropped: full]";
        assert_eq!(line("left", &frame, "dropped: full"), expected);
        assert!(json("left", &frame).contains("\"direction\":\"out\""));
    }
}
