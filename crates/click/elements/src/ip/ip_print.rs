//! `IPPrint(LABEL, CONTENTS, PAYLOAD, MAXLENGTH, ID, TIMESTAMP, PAINT, TOS, TTL, SWAP, LENGTH, AGGREGATE, ACTIVE,
//! OUTFILE, CHANNEL)`: prints IPv4 packets like tcpdump.
//!
//! Ports: one input, one output, push or pull. Packets without a marked network header are not printed.
//!
//! Arguments:
//! - `LABEL`: prefix of each line.
//! - `CONTENTS`: also prints the packet: `NONE` (default), `HEX`, `ASCII`, or a Boolean.
//! - `PAYLOAD`: prints the bytes after the transport header instead: `NO` (default), `HEX`, `ASCII`.
//! - `MAXLENGTH`: maximum number of these bytes; 1500 by default, unlimited if negative.
//! - `TIMESTAMP`: prints the time; true by default.
//! - `ID`, `TTL`, `TOS`, `LENGTH`, `PAINT`, `AGGREGATE`: also print these fields; false by default.
//! - `SWAP`: whether identifiers of ICMP echoes are printed in network byte order, otherwise byte-swapped; true by
//!   default.
//! - `ACTIVE`: whether it prints; true by default.
//! - `OUTFILE`: prints to this file instead of standard error.
//! - `CHANNEL`: prints to the ChatterSockets of this channel instead.
//!
//! Handlers: `active` (read, write).
use super::ip_line;
use crate::printout::Printout;
use core::fmt::Write;
use ringway_click::Timestamp;
use ringway_click::arg::{Word, parse_bool};
use ringway_click::prelude::*;
use ringway_wire::{Header, Ipv4, Protocol, Tcp, Udp};

pub static CLASS: Class =
    Class::new("IPPrint", || Box::<IpPrint>::default()).ports("1/1").metadata(Metadata::Resolve);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Contents {
    #[default]
    None,
    Hex,
    Ascii,
}

#[derive(Debug, Default)]
pub struct IpPrint {
    label: String,
    contents: Contents,
    payload: bool,
    bytes: Option<usize>,
    fields: ip_line::Fields,
    timestamp: bool,
    paint: bool,
    aggregate: bool,
    active: bool,
    printout: Printout,
}

impl Element for IpPrint {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let (mut contents, mut payload) = (Word("no".to_string()), Word("no".to_string()));
        let mut bytes = 1500i32;
        (self.timestamp, self.active, self.fields.swap) = (true, true, true);
        args.read_p("LABEL", &mut self.label);
        args.read("CONTENTS", &mut contents);
        args.read("PAYLOAD", &mut payload);
        args.read("MAXLENGTH", &mut bytes);
        args.read("NBYTES", &mut bytes);
        args.read("ID", &mut self.fields.id);
        args.read("TIMESTAMP", &mut self.timestamp);
        args.read("PAINT", &mut self.paint);
        args.read("TOS", &mut self.fields.tos);
        args.read("TTL", &mut self.fields.ttl);
        args.read("SWAP", &mut self.fields.swap);
        args.read("LENGTH", &mut self.fields.length);
        args.read("AGGREGATE", &mut self.aggregate);
        args.read("ACTIVE", &mut self.active);
        self.printout.read(args);
        args.complete()?;
        self.printout.check(cx)?;
        self.bytes = usize::try_from(bytes).ok();
        let Some(contents) = form(&contents.0) else {
            let value = contents.0.to_uppercase();
            let text = format!("bad contents value '{value}'; should be 'NONE', 'HEX', or 'ASCII'");
            return Err(cx.error(text));
        };
        let Some(payload) = form(&payload.0) else {
            let text = format!("bad payload value '{}'; should be 'false', 'hex', or 'ascii'", payload.0);
            return Err(cx.error(text));
        };
        if payload != Contents::None && contents != Contents::None {
            return Err(cx.error("specify at most one of PAYLOAD and CONTENTS"));
        }
        self.payload = payload != Contents::None;
        self.contents = if self.payload { payload } else { contents };
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.printout.create(cx)
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for packet in burst.iter().filter(|packet| self.active && packet.network_header().is_some()) {
            let line = self.line(packet);
            self.printout.print(&line, cx);
        }
    }

    fn shares(&self) -> Option<String> {
        self.printout.shares()
    }

    fn cleanup(&mut self, cx: &mut Context<'_>) {
        self.printout.flush(cx);
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::field("active", |e: &mut Self| &mut e.active).checkbox().calm().error("expected boolean")]
            .into()
    }
}

fn form(text: &str) -> Option<Contents> {
    match (parse_bool(text), text.to_uppercase().as_str()) {
        (Some(false), _) | (_, "NONE" | "NO" | "FALSE") => Some(Contents::None),
        (Some(true), _) | (_, "HEX" | "YES" | "TRUE") => Some(Contents::Hex),
        (None, "ASCII") => Some(Contents::Ascii),
        _ => None,
    }
}

impl IpPrint {
    fn line(&self, packet: &Packet) -> String {
        let mut line = String::new();
        if !self.label.is_empty() {
            let _ = write!(line, "{}: ", self.label);
        }
        if self.timestamp {
            let _ = write!(line, "{}: ", Timestamp(packet.timestamp()));
        }
        if self.aggregate {
            let _ = write!(line, "#{}", packet.notes().u32(Annotations::AGGREGATE));
        }
        if self.paint {
            let before = if self.aggregate { "." } else { "paint " };
            let _ = write!(line, "{before}{}", packet.notes().paint());
        }
        if self.aggregate || self.paint {
            line.push_str(": ");
        }
        let data = packet.network_data().unwrap_or_default();
        let Some(ip) = Ipv4::of(data) else {
            line.push_str("truncated-ip");
            return line;
        };
        self.fields.describe(&mut line, ip, data, packet.len());
        if self.contents != Contents::None {
            self.dump(&mut line, if self.payload { behind_headers(data) } else { packet.data() });
        }
        line
    }

    fn dump(&self, line: &mut String, data: &[u8]) {
        let (across, group) = if self.contents == Contents::Hex { (24, 4) } else { (48, 8) };
        for (index, byte) in data.iter().take(self.bytes.unwrap_or(usize::MAX)).enumerate() {
            if index % across == 0 {
                line.push_str("\n  ");
            } else if index % group == 0 {
                line.push(' ');
            }
            let printable = (32..=126).contains(byte);
            let _ = match self.contents {
                Contents::Hex => write!(line, "{byte:02x}"),
                _ => line.write_char(if printable { char::from(*byte) } else { '.' }),
            };
        }
    }
}

/// The bytes after the TCP or UDP header, or after the IPv4 header for other protocols.
fn behind_headers(data: &[u8]) -> &[u8] {
    let Some((ip, _, transport)) = Ipv4::parse(data) else { return &[] };
    let header = match ip.protocol {
        _ if ip.is_later_fragment() => 0,
        Protocol::TCP => Tcp::header_len_of(transport).unwrap_or(0),
        Protocol::UDP => Udp::LEN,
        _ => 0,
    };
    transport.get(header..).unwrap_or_default()
}
