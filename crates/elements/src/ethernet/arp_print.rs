//! `ARPPrint(LABEL, TIMESTAMP, ETHER, ACTIVE)`: prints ARP packets, as tcpdump does.
//!
//! Ports: one input, one output, push or pull. Packets whose network header is not known are not printed.
//!
//! Arguments:
//! - `LABEL`: stands before each line.
//! - `TIMESTAMP`: prints the time; true by default.
//! - `ETHER`: prints the Ethernet addresses; false by default.
//! - `ACTIVE`: whether it prints; true by default.
//!
//! Handlers: `active` (read, write).
use super::arp::{OPERATION, SENDER_ETHER, SENDER_IP, TARGET_ETHER, TARGET_IP};
use crate::packet::{mac_text, u16_at, u32_at};
use crate::stamp::Stamp;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use core::net::Ipv4Addr;
use ringway_click::arg::Args;
use ringway_click::{Class, Context, Element, Failed, Handler, Packet, PacketBurst};
use ringway_wire::{MacAddress, ethernet::Frame};

/// Facts.
pub static CLASS: Class = Class::new("ARPPrint", || Box::<ArpPrint>::default()).ports("1/1");

/// Prints packets.
#[derive(Debug, Default)]
pub struct ArpPrint {
    label: String,
    timestamp: bool,
    ether: bool,
    active: bool,
}

impl Element for ArpPrint {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        (self.timestamp, self.active) = (true, true);
        args.read_p("LABEL", &mut self.label);
        args.read("TIMESTAMP", &mut self.timestamp);
        args.read("ETHER", &mut self.ether);
        args.read("ACTIVE", &mut self.active);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for packet in burst.iter().filter(|_| self.active) {
            if let Some(line) = self.line(packet) {
                cx.chatter(format_args!("{line}"));
            }
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::field("active", |e: &mut Self| &mut e.active).checkbox().error("expected boolean")].into()
    }
}

impl ArpPrint {
    fn line(&self, packet: &Packet) -> Option<String> {
        let network = packet.network_header()?;
        let arp = packet.network_data().unwrap_or_default();
        let mut line = String::new();
        if !self.label.is_empty() {
            let _ = write!(line, "{}: ", self.label);
        }
        if self.timestamp {
            let _ = write!(line, "{}: ", Stamp(packet.notes().timestamp));
        }
        let mac = packet.mac_header().unwrap_or(0);
        let bytes = packet.mac_data().unwrap_or_else(|| packet.data());
        if self.ether
            && mac + 14 <= network
            && let Ok(frame) = Frame::new_checked(bytes)
        {
            let _ = write!(line, "{} > {}: ", mac_text(frame.source()), mac_text(frame.destination()));
        }
        describe(&mut line, arp);
        Some(line)
    }
}

fn describe(line: &mut String, arp: &[u8]) {
    let address = |at: usize| Ipv4Addr::from_bits(u32_at(arp, at));
    let mac = |at: usize| {
        let bytes = arp.get(at..).and_then(<[u8]>::first_chunk).copied();
        mac_text(MacAddress(bytes.unwrap_or_default()))
    };
    if arp.len() < 8 {
        let _ = write!(line, "truncated-arp ({})", arp.len());
        return;
    }
    let (hardware, protocol, operation) = (u16_at(arp, 0), u16_at(arp, 2), u16_at(arp, OPERATION));
    let (hardware_length, protocol_length) = (arp[4], arp[5]);
    if protocol != 0x0800 || protocol_length != 4 || hardware_length == 0 || arp.len() < 28 {
        let _ = write!(
            line,
            "arp-#{operation} for proto #{protocol} ({protocol_length}) \
             hardware #{hardware} ({hardware_length})"
        );
        return;
    }
    let (sender, target) = (address(SENDER_IP), address(TARGET_IP));
    let (sender_ether, target_ether) = (mac(SENDER_ETHER), mac(TARGET_ETHER));
    let known = arp[TARGET_ETHER..TARGET_IP].iter().any(|byte| *byte != 0);
    let _ = match operation {
        1 if known => write!(line, "arp who-has {target} ({target_ether}) tell {sender}"),
        1 => write!(line, "arp who-has {target} tell {sender}"),
        2 => write!(line, "arp reply {sender} is-at {sender_ether}"),
        3 => write!(line, "rarp who-is {target_ether} tell {sender_ether}"),
        4 => write!(line, "rarp reply {target_ether} at {target}"),
        8 => write!(line, "invarp who-is {target_ether} tell {sender_ether}"),
        9 => write!(line, "invarp reply {target_ether} at {target}"),
        other => write!(line, "arp-#{other}"),
    };
    if hardware != 1 {
        let _ = write!(line, "hardware #{hardware}");
    }
}
