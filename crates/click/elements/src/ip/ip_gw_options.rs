//! `IPGWOptions(MYADDR, OTHERADDRS)`: processes IPv4 options as a router does: records routes and times (RFC 791, 3.1;
//! RFC 1812, 5.2.4).
//!
//! Ports: one input; one output, and optionally a push output for packets with invalid options, with the offset of the
//! error in the ICMP_PARAMPROB annotation.
//!
//! Arguments:
//! - `MYADDR`: the address to record.
//! - `OTHERADDRS`: this host's other addresses.
//!
//! Handlers: `drops` (read).
use crate::packet::{divert_counting, put, u32_at};
use core::net::Ipv4Addr;
use ringway_click::arg::Ipv4List;
use ringway_click::prelude::*;
use ringway_wire::ipv4::option::{END, NOP, RECORD_ROUTE, TIMESTAMP};
use ringway_wire::{Header, Ipv4};

pub static CLASS: Class =
    Class::new("IPGWOptions", || Box::<IpGwOptions>::default()).ports("1/1-2").processing("a/ah");

/// Milliseconds of a day.
const DAY: u64 = 86_400_000;

/// The addresses of this host.
#[derive(Debug, Default)]
pub(super) struct Own {
    pub(super) preferred: [u8; 4],
    pub(super) all: Vec<Ipv4Addr>,
}

#[derive(Debug, Default)]
pub struct IpGwOptions {
    own: Own,
    drops: u64,
}

impl Element for IpGwOptions {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        let (mut address, mut others) = (Ipv4Addr::UNSPECIFIED, Ipv4List::default());
        args.read_mp("MYADDR", &mut address);
        args.read_p("OTHERADDRS", &mut others);
        self.own.preferred = address.octets();
        self.own.all = others.0;
        self.own.all.push(address);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        divert_counting(burst, cx, &mut self.drops, |packet, cx| self.own.handle(packet, cx));
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::counter("drops", |e: &mut Self| &mut e.drops)].into()
    }
}

impl Own {
    /// Processes a packet's options. For an invalid one, stores its offset and returns false.
    #[inline]
    pub(super) fn handle(&self, packet: &mut Packet, cx: &mut Context<'_>) -> bool {
        // The byte read first if the packet is too short.
        let first = packet.network::<u8>();
        first.is_none_or(|first| first & 15 <= 5) || self.handle_options(packet, cx)
    }

    #[cold]
    fn handle_options(&self, packet: &mut Packet, cx: &mut Context<'_>) -> bool {
        let Some((header, options, _)) = packet.network_data_mut().and_then(Ipv4::parse_mut) else {
            return true;
        };
        let mut at = 0;
        let mut bad = None;
        let mut changed = false;
        while at < options.len() && bad.is_none() {
            let size = match options[at] {
                END => break,
                NOP => 1,
                _ => match options.get(at + 1).map(|size| usize::from(*size)) {
                    Some(size) if size >= 2 && at + size <= options.len() => size,
                    _ => {
                        bad = Some(at + 1);
                        break;
                    }
                },
            };
            let option = &mut options[at..at + size];
            let done = match option[0] {
                RECORD_ROUTE => self.record_route(option),
                TIMESTAMP => self.record_time(option, (cx.now() / (SECOND / 1000) % DAY) as u32),
                _ => Ok(false),
            };
            match done {
                Ok(wrote) => changed |= wrote,
                Err(offset) => bad = Some(at + offset),
            }
            at += size;
        }
        if changed {
            header.fill_checksum(options);
        }
        if let Some(offset) = bad {
            packet.notes_mut().set_u8(Annotations::ICMP_PARAMPROB, (Ipv4::LEN + offset) as u8);
        }
        bad.is_none()
    }

    /// Returns whether the option was changed, or the offset of the error in it.
    fn record_route(&self, option: &mut [u8]) -> Result<bool, usize> {
        let at = usize::from(*option.get(2).ok_or(1usize)?).wrapping_sub(1);
        if at >= 3 && at.saturating_add(4) <= option.len() {
            put(option, at, self.preferred);
            option[2] += 4;
            return Ok(true);
        }
        if at == option.len() { Ok(false) } else { Err(2) }
    }

    fn record_time(&self, option: &mut [u8], now: u32) -> Result<bool, usize> {
        let (pointer, flags) = match option {
            [_, _, pointer, flags, ..] => (*pointer, *flags),
            _ => return Err(1),
        };
        if pointer < 5 {
            return Err(2);
        }
        let at = usize::from(pointer) - 1;
        let (wide, kind) = (at + 8 <= option.len(), flags & 15);
        match kind {
            0 if at + 4 <= option.len() => {
                put(option, at, now.to_be_bytes());
                option[2] += 4;
            }
            1 if wide => {
                put(option, at, self.preferred);
                put(option, at + 4, now.to_be_bytes());
                option[2] += 8;
            }
            3 if wide => {
                if !self.all.contains(&Ipv4Addr::from_bits(u32_at(option, at))) {
                    return Ok(false);
                }
                put(option, at + 4, now.to_be_bytes());
                option[2] += 8;
            }
            // Increments the overflow count.
            0 | 1 if flags < 0xf0 => option[3] += 0x10,
            _ => return Err(3),
        }
        Ok(true)
    }
}
