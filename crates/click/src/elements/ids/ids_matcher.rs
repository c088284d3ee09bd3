//! `IDSMatcher(PATTERN, ..., NOCASE)`: sorts packets by whether what they carry holds one of many patterns.
//!
//! Ports: one push input; output 0: packets without a pattern; output 1 (optional): packets with one, else dropped.
//! Of IPv4 packets whose header is noted, the payload of TCP and UDP is searched, of other protocols and of later
//! fragments what follows the IPv4 header; of all others the whole packet. What is split over several packets is not
//! found.
//!
//! Arguments:
//! - `PATTERN`: bytes, as a Click string: `"/cgi-bin/"`, `\<90 90 90>`. As often as there are patterns, by position or
//!   as keyword; 1048576 patterns and 64 MB at most.
//! - `NOCASE`: whether the case of ASCII letters does not matter; false by default.
//!
//! Handlers: `packets` (searched), `matches`, `patterns` (how many) (read); `table` (read): of each pattern that was
//! found its place in the list from 0 and how often, a packet counting for one of its patterns; `reset` (write).
use super::patterns::Patterns;
use crate::arg::{Arg, Args};
use crate::elements::ip::transport::Transport;
use crate::{Class, Context, Element, Failed, Handler, HandlerError, Metadata, Packet, PacketBurst};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Write;

/// Facts.
pub static CLASS: Class = Class::new("IDSMatcher", || Box::<IdsMatcher>::default())
    .ports("1/1-2")
    .processing("h")
    .metadata(Metadata::Keeps);

/// Patterns at most, and their bytes. Attack: a configuration that would take all memory.
const MOST: usize = 1 << 20;
const MOST_BYTES: usize = 64 << 20;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// See the module.
#[derive(Debug, Default)]
pub struct IdsMatcher {
    patterns: Option<Patterns>,
    counts: Vec<u64>,
    packets: u64,
    matches: u64,
}

/// What is searched of a packet.
#[inline]
fn text(packet: &Packet) -> &[u8] {
    let Some(ip) = packet.network_data().filter(|ip| ip.first().is_some_and(|first| first >> 4 == 4)) else {
        return packet.data();
    };
    let Some(transport) = Transport::of(ip) else { return packet.data() };
    let Some(payload) = ip.get(transport.header..) else { return packet.data() };
    let payload = payload.get(..transport.length).unwrap_or(payload);
    let header = match transport.protocol {
        _ if transport.later => 0,
        TCP => payload.get(12).map_or(0, |offset| usize::from(offset >> 4) * 4).max(20),
        UDP => 8,
        _ => 0,
    };
    payload.get(header..).unwrap_or_default()
}

impl Element for IdsMatcher {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let (mut nocase, mut patterns): (bool, Vec<Vec<u8>>) = (false, Vec::new());
        args.read("NOCASE", &mut nocase);
        args.read_all("PATTERN", &mut patterns);
        args.result()?;
        let scope = cx.scope();
        for text in args.take_rest() {
            match Vec::<u8>::parse(&text, &scope) {
                Ok(pattern) => patterns.push(pattern),
                Err(error) => args.error(format!("PATTERN '{text}': {error}")),
            }
        }
        args.complete()?;
        let error = match () {
            () if patterns.is_empty() => "need at least one PATTERN",
            () if patterns.iter().any(Vec::is_empty) => "a PATTERN must not be empty",
            () if patterns.len() > MOST => "too many patterns",
            () if patterns.iter().map(Vec::len).sum::<usize>() > MOST_BYTES => "patterns too long",
            () => "",
        };
        if !error.is_empty() {
            return Err(cx.error(error));
        }
        self.counts = vec![0; patterns.len()];
        self.patterns = Some(Patterns::new(patterns, nocase).map_err(|error| cx.error(error.to_string()))?);
        Ok(())
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let Some(patterns) = &self.patterns else { return };
        self.packets += burst.len() as u64;
        burst.filter_map(|packet| {
            let Some(found) = patterns.find(text(&packet)) else { return Some(packet) };
            self.matches += 1;
            if let Some(count) = self.counts.get_mut(found) {
                *count += 1;
            }
            cx.push(1, packet);
            None
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        let mut handlers: Vec<Handler> =
            ["packets", "matches", "patterns", "table"].map(Handler::read).into();
        handlers.push(Handler::write("reset").button());
        handlers
    }

    fn read(&mut self, name: &str, _: &str, _: &mut Context<'_>) -> Result<String, HandlerError> {
        Ok(match name {
            "packets" => self.packets.to_string(),
            "matches" => self.matches.to_string(),
            "patterns" => self.patterns.as_ref().map_or(0, Patterns::len).to_string(),
            "table" => {
                let mut out = String::new();
                for (number, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                    let _ = writeln!(out, "{number} {count}");
                }
                out
            }
            _ => return Err(HandlerError::missing(name)),
        })
    }

    fn write(&mut self, name: &str, _: &str, _: &mut Context<'_>) -> Result<(), HandlerError> {
        if name != "reset" {
            return Err(HandlerError::missing(name));
        }
        (self.packets, self.matches) = (0, 0);
        self.counts.fill(0);
        Ok(())
    }
}
