//! `CheckIPHeader(OFFSET, BADSRC, INTERFACES, GOODDST, CHECKSUM, VERBOSE, DETAILS)`: passes only packets with a valid
//! IPv4 header, truncates them to the header's length, and marks the header.
//!
//! Ports: one input; one output, and optionally a push output for bad packets.
//!
//! Arguments:
//! - `OFFSET`: offset of the header in the packet; 0 by default.
//! - `BADSRC`: invalid source addresses, unless the destination is in GOODDST.
//! - `INTERFACES`: prefixes of this host: their broadcast addresses, 0.0.0.0 and 255.255.255.255 are added to BADSRC,
//!   their addresses to GOODDST.
//! - `GOODDST`: destinations for which BADSRC is not checked.
//! - `CHECKSUM`: whether the header's checksum is checked; true by default.
//! - `VERBOSE`: reports each bad packet, not only the first.
//! - `DETAILS`: counts bad packets by reason.
//!
//! Handlers: `drops`, and with DETAILS `drop_details` (read).
use core::net::Ipv4Addr;
use ringway_click::arg::{Arg, ArgError, Ipv4List, KEYWORD, Prefix, Scope};
use ringway_click::prelude::*;
use ringway_click_lang::config;
use ringway_wire::{Header, Ipv4, checksum};

pub static CLASS: Class = Class::new("CheckIPHeader", || Box::<CheckIpHeader>::default())
    .ports("1/1-2")
    .processing("a/ah")
    .flags("A")
    .metadata(Metadata::Keeps);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Tiny,
    Version,
    HeaderLength,
    Length,
    Checksum,
    Source,
}

const REASONS: [&str; 6] = [
    "tiny packet",
    "bad IP version",
    "bad IP header length",
    "bad IP length",
    "bad IP checksum",
    "bad source address",
];

#[derive(Debug, Default)]
pub struct CheckIpHeader {
    offset: usize,
    bad_sources: Vec<Ipv4Addr>,
    /// The bits of all bad sources: an address whose bit is not set is not bad.
    bad_bits: u64,
    good_destinations: Vec<Ipv4Addr>,
    checksum: bool,
    /// Whether the checksum is unchecked by default.
    trusting: bool,
    verbose: bool,
    details: bool,
    drops: u64,
    reasons: [u64; REASONS.len()],
}

impl Element for CheckIpHeader {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        let (mut offset, mut bad, mut good) = (0u32, Ipv4List::default(), Ipv4List::default());
        let mut interfaces: Vec<Prefix> = Vec::new();
        self.checksum = !self.trusting;
        args.read_with("INTERFACES", KEYWORD, &mut interfaces, prefixes);
        args.read("BADSRC", &mut bad);
        args.read("GOODDST", &mut good);
        args.read_p("OFFSET", &mut offset);
        args.read("VERBOSE", &mut self.verbose);
        args.read("DETAILS", &mut self.details);
        args.read("CHECKSUM", &mut self.checksum);
        (self.bad_sources, self.good_destinations) = (bad.0, good.0);
        for Prefix { address, mask } in &interfaces {
            self.bad_sources.push(Ipv4Addr::from_bits(address.to_bits() | !mask.to_bits()));
            self.good_destinations.push(*address);
        }
        if !interfaces.is_empty() {
            self.bad_sources.extend([Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST]);
        }
        self.bad_bits = self.bad_sources.iter().fold(0, |bits, address| bits | bit(*address));
        self.offset = offset as usize;
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        burst.sift(
            self,
            |check, packet| check.check(packet).err(),
            |check, packet, reason| check.drop(reason, packet, cx),
        );
    }

    fn handlers(&self) -> Vec<Handler> {
        let mut handlers = Vec::from([Handler::counter("drops", |e: &mut Self| &mut e.drops)]);
        if self.details {
            handlers.push(Handler::read("drop_details", |e: &Self| {
                let lines = e.reasons.iter().zip(REASONS);
                lines.map(|(count, reason)| format!("{count}\t{reason}\n")).collect::<String>()
            }));
        }
        handlers
    }
}

/// The bit of an address in a set of 64 bits.
#[inline]
fn bit(address: Ipv4Addr) -> u64 {
    1 << (address.to_bits().wrapping_mul(0x9e37_79b1) >> 26)
}

fn prefixes(text: &str, scope: &Scope) -> Result<Vec<Prefix>, ArgError> {
    config::split_words(text).iter().map(|word| Prefix::parse(word, scope)).collect()
}

impl CheckIpHeader {
    /// An element that does not check checksums by default.
    pub(super) fn trusting() -> Self {
        Self { trusting: true, ..Self::default() }
    }

    #[inline]
    fn check(&self, packet: &mut Packet) -> Result<(), Reason> {
        let data = packet.data().get(self.offset..).unwrap_or_default();
        let Some(header) = Ipv4::of(data) else { return Err(Reason::Tiny) };
        if header.version() != 4 {
            return Err(Reason::Version);
        }
        let header_length = header.header_len();
        if header_length < Ipv4::LEN {
            return Err(Reason::HeaderLength);
        }
        let length = usize::from(header.total_length.get());
        if length > data.len() || length < header_length {
            return Err(Reason::Length);
        }
        if self.checksum {
            let good = match header_length {
                Ipv4::LEN => header.is_checksum_valid(&[]),
                _ => checksum::checksum(&data[..header_length]) == 0,
            };
            if !good {
                return Err(Reason::Checksum);
            }
        }
        if self.bad_bits & bit(header.source_addr()) != 0 && self.is_bad(header) {
            return Err(Reason::Source);
        }
        let destination = header.destination.to_bytes();
        let behind = data.len() - length;
        packet.set_network_header(self.offset as isize, header_length);
        packet.notes_mut().set_dst_ip(destination);
        packet.take(behind);
        Ok(())
    }

    #[cold]
    fn is_bad(&self, header: &Ipv4) -> bool {
        self.bad_sources.contains(&header.source_addr())
            && !self.good_destinations.contains(&header.destination_addr())
    }

    #[cold]
    fn drop(&mut self, reason: Reason, packet: Packet, cx: &mut Context<'_>) {
        if self.drops == 0 || self.verbose {
            let name = cx.name().to_string();
            let text = REASONS[reason as usize];
            cx.chatter(format_args!("{name}: IP header check failed: {text}"));
        }
        self.drops += 1;
        self.reasons[reason as usize] += 1;
        cx.push(1, packet);
    }

    /// Packets dropped so far.
    pub(super) fn drops(&mut self) -> &mut u64 {
        &mut self.drops
    }
}
