//! `ARPPrint(LABEL, TIMESTAMP, ETHER, ACTIVE, OUTFILE, CHANNEL)`: prints ARP packets, as tcpdump does.
//!
//! Ports: one input, one output, push or pull. Packets without a marked network header are not printed.
//!
//! Arguments:
//! - `LABEL`: prefix of each line.
//! - `TIMESTAMP`: prints the time; true by default.
//! - `ETHER`: prints the Ethernet addresses; false by default.
//! - `ACTIVE`: whether it prints; true by default.
//! - `OUTFILE`: prints to this file instead of standard error.
//! - `CHANNEL`: prints to the ChatterSockets of this channel instead.
//!
//! Handlers: `active` (read, write).
use crate::packet::mac_text;
use crate::printout::Printout;
use core::fmt::Write;
use core::net::Ipv4Addr;
use ringway_click::Timestamp;
use ringway_click::prelude::*;
use ringway_wire::{Arp, EtherType, Ethernet, Header, MacAddress, arp};

pub static CLASS: Class = Class::new("ARPPrint", || Box::<ArpPrint>::default()).ports("1/1");

#[derive(Debug, Default)]
pub struct ArpPrint {
    label: String,
    timestamp: bool,
    ether: bool,
    active: bool,
    printout: Printout,
}

impl Element for ArpPrint {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        (self.timestamp, self.active) = (true, true);
        args.read_p("LABEL", &mut self.label);
        args.read("TIMESTAMP", &mut self.timestamp);
        args.read("ETHER", &mut self.ether);
        args.read("ACTIVE", &mut self.active);
        self.printout.read(args);
        args.complete()?;
        self.printout.check(cx)
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.printout.create(cx)
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for packet in burst.iter().filter(|_| self.active) {
            if let Some(line) = self.line(packet) {
                self.printout.print(&line, cx);
            }
        }
    }

    fn shares(&self) -> Option<String> {
        self.printout.shares()
    }

    fn cleanup(&mut self, cx: &mut Context<'_>) {
        self.printout.flush(cx);
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
            let _ = write!(line, "{}: ", Timestamp(packet.timestamp()));
        }
        let mac = packet.mac_header().unwrap_or(0);
        let bytes = packet.mac_data().unwrap_or_else(|| packet.data());
        if self.ether
            && mac + Ethernet::LEN as isize <= network
            && let Some(frame) = Ethernet::of(bytes)
        {
            let _ = write!(line, "{} > {}: ", mac_text(frame.source), mac_text(frame.destination));
        }
        describe(&mut line, arp);
        Some(line)
    }
}

fn describe(line: &mut String, bytes: &[u8]) {
    if bytes.len() < 8 {
        let _ = write!(line, "truncated-arp ({})", bytes.len());
        return;
    }
    let arp = Arp::padded(bytes);
    let Arp { hardware, protocol, hardware_len, protocol_len, operation, .. } = arp;
    if protocol != EtherType::IPV4 || protocol_len != 4 || hardware_len == 0 || bytes.len() < Arp::LEN {
        let _ = write!(
            line,
            "arp-#{operation} for proto #{} ({protocol_len}) hardware #{hardware} ({hardware_len})",
            protocol.get()
        );
        return;
    }
    let [sender, target] = [arp.sender_protocol, arp.target_protocol].map(|ip| Ipv4Addr::from_bits(ip.get()));
    let [sender_ether, target_ether] = [arp.sender_hardware, arp.target_hardware].map(mac_text);
    let known = arp.target_hardware != MacAddress::default();
    let _ = match operation.get() {
        arp::REQUEST if known => write!(line, "arp who-has {target} ({target_ether}) tell {sender}"),
        arp::REQUEST => write!(line, "arp who-has {target} tell {sender}"),
        arp::REPLY => write!(line, "arp reply {sender} is-at {sender_ether}"),
        arp::REVERSE_REQUEST => write!(line, "rarp who-is {target_ether} tell {sender_ether}"),
        4 => write!(line, "rarp reply {target_ether} at {target}"),
        8 => write!(line, "invarp who-is {target_ether} tell {sender_ether}"),
        9 => write!(line, "invarp reply {target_ether} at {target}"),
        other => write!(line, "arp-#{other}"),
    };
    if hardware != arp::ETHERNET {
        let _ = write!(line, "hardware #{hardware}");
    }
}
