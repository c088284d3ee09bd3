//! Captures of a test's own frames, and what tshark finds in them.

use crate::say;
use ringway_wire::pcap::Header;
use std::io::ErrorKind;
use std::process::Command;

/// Frames and their times, in tshark's format.
#[derive(Debug)]
pub struct Capture(Vec<u8>);

/// tshark's messages about a busy machine: a program reads more slowly than its peer writes, or a segment is sent again
/// since its acknowledgment is late, and arrives twice.
pub const BUSY: [&str; 3] = [
    "TCP window specified by the receiver is now completely full",
    "TCP Zero Window segment",
    "D-SACK Sequence",
];
/// tshark's messages about frames that were lost before they were captured, or overtook each other: an acknowledgment
/// that arrives after the end of its connection is answered with a reset.
pub const LOSSES: [&str; 3] =
    ["Previous segment(s) not captured", "out-of-order segment", "Connection reset (RST)"];

impl Default for Capture {
    fn default() -> Capture {
        Capture(Header::ethernet().to_bytes().to_vec())
    }
}

impl Capture {
    /// Records a frame; `now` in nanoseconds.
    pub fn record(&mut self, now: u64, frame: &[u8]) {
        let len = frame.len() as u32;
        // tshark shows times before the first second of 1970 oddly.
        self.0.extend(Header::ethernet().record_header(1_000_000_000 + now, len, len));
        self.0.extend_from_slice(frame);
    }

    /// What tshark finds wrong: malformed frames, wrong checksums unless hardware may fill them, and every message of
    /// its TCP analysis that is at least a warning and contains none of `explained`. None if it is not installed.
    ///
    /// # Errors
    /// If tshark can't read the capture.
    pub fn findings(
        &self,
        name: &str,
        checksums: bool,
        explained: &[&str],
    ) -> Result<Option<Vec<String>>, String> {
        let path = std::env::temp_dir().join(format!("ringway-{name}-{}.pcap", std::process::id()));
        std::fs::write(&path, &self.0).map_err(|error| error.to_string())?;
        let mut command = Command::new("tshark");
        for layer in ["tcp", "ip"] {
            command.arg("-o").arg(format!("{layer}.check_checksum:{checksums}"));
        }
        // The payload is of no protocol, whatever it looks like.
        command.args(["-n", "-d", "tcp.port==1-65535,data", "-Y"]);
        command.arg("_ws.malformed || _ws.expert.severity >= 0x600000");
        command.args(["-T", "fields", "-E", "aggregator=|"]);
        for field in ["frame.number", "_ws.expert.severity", "_ws.expert.message"] {
            command.args(["-e", field]);
        }
        let found = command.arg("-r").arg(&path).output();
        // Left behind if tshark can't be started for another reason.
        let found = match found {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                say("left out: tshark is not installed");
                return std::fs::remove_file(&path).map(|()| None).map_err(|error| error.to_string());
            }
            found => found.map_err(|error| error.to_string())?,
        };
        let [list, errors] =
            [found.stdout, found.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        if !found.status.success() {
            return Err(errors);
        }
        let findings: Vec<String> = list.lines().flat_map(|line| unexplained(line, explained)).collect();
        if findings.is_empty() {
            std::fs::remove_file(&path).map_err(|error| error.to_string())?;
        } else {
            say(&format!("kept: {}", path.display()));
        }
        Ok(Some(findings))
    }
}

/// The messages of a frame that are at least warnings and not explained; a malformed frame may have none.
fn unexplained(line: &str, explained: &[&str]) -> Vec<String> {
    let mut fields = line.split('\t');
    let [number, severities, messages] = [(); 3].map(|()| fields.next().unwrap_or_default());
    let severe = |text: &str| text.parse::<u32>().is_ok_and(|severity| severity >= 0x60_0000);
    let severities: Vec<&str> = severities.split('|').collect();
    let messages: Vec<&str> = messages.split('|').collect();
    if severities.len() != messages.len() || !severities.iter().any(|text| severe(text)) {
        return vec![format!("frame {number}: {line}")];
    }
    let all = severities.iter().zip(messages).filter(|(severity, _)| severe(severity));
    let left = all.filter(|(_, message)| !explained.iter().any(|part| message.contains(part)));
    left.map(|(_, message)| format!("frame {number}: {message}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unexplained_warnings_and_errors_are_findings() {
        let line = "7\t4194304|6291456\tDuplicate ACK (#1)|TCP Zero Window segment";
        assert_eq!(unexplained(line, &BUSY), [""; 0]);
        assert_eq!(unexplained(line, &LOSSES), ["frame 7: TCP Zero Window segment"]);
        assert_eq!(unexplained("8\t\t", &LOSSES).len(), 1);
    }
}
