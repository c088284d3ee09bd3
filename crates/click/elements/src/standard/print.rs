//! `Print(LABEL, MAXLENGTH, CONTENTS, TIMESTAMP, PRINTANNO, HEADROOM, ACTIVE)`: prints packets.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `LABEL`: prefix of each line.
//! - `MAXLENGTH`: maximum number of bytes to print; 24 by default, -1 for all.
//! - `CONTENTS`: `HEX` (default), `ASCII`, `NONE`, or a Boolean.
//! - `TIMESTAMP`, `PRINTANNO`, `HEADROOM`: also print these; false by default.
//! - `ACTIVE`: whether it prints; true by default.
//!
//! Handlers: `active` (read, write).
use core::fmt::Write;
use ringway_click::Timestamp;
use ringway_click::arg::{Word, parse_bool};
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("Print", || Box::<Print>::default()).ports("1/1").metadata(Metadata::Resolve).live();

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Contents {
    None,
    #[default]
    Hex,
    Ascii,
}

#[derive(Debug, Default)]
pub struct Print {
    label: String,
    bytes: Option<usize>,
    contents: Contents,
    timestamp: bool,
    annotations: bool,
    headroom: bool,
    active: bool,
}

impl Element for Print {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut bytes = 24i32;
        let mut contents = Word("HEX".to_string());
        self.active = true;
        args.read_p("LABEL", &mut self.label);
        args.read_p("MAXLENGTH", &mut bytes);
        args.read("LENGTH", &mut bytes);
        args.read("NBYTES", &mut bytes);
        args.read("CONTENTS", &mut contents);
        args.read("TIMESTAMP", &mut self.timestamp);
        args.read("PRINTANNO", &mut self.annotations);
        args.read("ACTIVE", &mut self.active);
        args.read("HEADROOM", &mut self.headroom);
        args.complete()?;
        self.bytes = usize::try_from(bytes).ok();
        let upper = contents.0.to_uppercase();
        self.contents = match (parse_bool(&contents.0), upper.as_str()) {
            (Some(false), _) | (None, "NONE") => Contents::None,
            (Some(true), _) | (None, "HEX") => Contents::Hex,
            (None, "ASCII") => Contents::Ascii,
            _ => {
                let text = format!("bad contents value '{upper}'; should be 'NONE', 'HEX', or 'ASCII'");
                return Err(cx.error(text));
            }
        };
        Ok(())
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        if self.active {
            for packet in burst.iter() {
                let line = self.line(packet);
                cx.chatter(format_args!("{line}"));
            }
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::field("active", |e: &mut Self| &mut e.active).checkbox().calm().error("expected boolean")]
            .into()
    }
}

impl Print {
    fn line(&self, packet: &Packet) -> String {
        let mut line = self.label.clone();
        let separator = |line: &str| if line.is_empty() { "" } else { ": " };
        if self.timestamp {
            let before = separator(&line);
            let _ = write!(line, "{before}{}", Timestamp(packet.timestamp()));
        }
        let before = separator(&line);
        let _ = write!(line, "{before}{:4}", packet.len());
        if self.headroom {
            let _ = write!(line, " (h{} t{})", packet.headroom(), packet.tailroom());
        }
        if self.annotations {
            line.push_str(" | ");
            packet.notes().bytes().iter().for_each(|byte| {
                let _ = write!(line, "{byte:02x}");
            });
        }
        let data = &packet.data()[..self.bytes.unwrap_or(usize::MAX).min(packet.len())];
        if data.is_empty() || self.contents == Contents::None {
            return line;
        }
        line.push_str(" | ");
        for (index, byte) in data.iter().enumerate() {
            match self.contents {
                Contents::Hex => {
                    let space = if index > 0 && index % 4 == 0 { " " } else { "" };
                    let _ = write!(line, "{space}{byte:02x}");
                }
                _ => {
                    line.push_str(if index % 8 == 0 { " " } else { "" });
                    line.push(if (32..=126).contains(byte) { char::from(*byte) } else { '.' });
                }
            }
        }
        line
    }
}
