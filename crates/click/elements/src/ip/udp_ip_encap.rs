//! `UDPIPEncap(SRC, SPORT, DST, DPORT, CHECKSUM)`: prepends UDP and IPv4 headers to packets.
//!
//! Ports: one input, one output, push or pull. Packets that would be longer than 65535 bytes are dropped.
//!
//! Arguments:
//! - `SRC`, `SPORT`: source address and port.
//! - `DST`, `DPORT`: destination; DST may be `DST_ANNO` for the destination annotation.
//! - `CHECKSUM`: whether the UDP checksum is computed; true by default.
//!
//! Handlers: `src`, `sport`, `dst`, `dport` (read, write).
use super::encap::Encap;
use super::names::{parse_port, port_handler};
use ringway_click::arg::{MANDATORY_POSITIONAL, NameKind};
use ringway_click::prelude::*;
use ringway_wire::{Header, Protocol, Udp};

pub static CLASS: Class = Class::new("UDPIPEncap", || Box::<UdpIpEncap>::default())
    .ports("1/1")
    .flags("A")
    .live()
    .metadata(Metadata::Resolve);

#[derive(Debug, Default)]
pub struct UdpIpEncap {
    encap: Encap,
    source: u16,
    destination: u16,
    checksum: bool,
    /// The arguments include INTERVAL.
    dynamic: bool,
    /// Both ports are incremented after this many packets; never if 0.
    interval: u32,
    count: u32,
}

impl UdpIpEncap {
    /// An element that increments ports.
    pub(super) fn dynamic() -> Self {
        Self { dynamic: true, ..Self::default() }
    }
}

impl Element for UdpIpEncap {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        self.checksum = true;
        self.encap.protocol = Protocol::UDP;
        args.read_mp("SRC", &mut self.encap.source);
        args.read_with("SPORT", MANDATORY_POSITIONAL, &mut self.source, parse_port(NameKind::UdpPort));
        args.read_mp("DST", &mut self.encap.destination);
        args.read_with("DPORT", MANDATORY_POSITIONAL, &mut self.destination, parse_port(NameKind::UdpPort));
        args.read_p("CHECKSUM", &mut self.checksum);
        if self.dynamic {
            args.read_p("INTERVAL", &mut self.interval);
        }
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        let Self { source, destination, checksum, interval, count, .. } = self;
        let checksum = *checksum;
        self.encap.wrap_all(burst, Udp::LEN, |datagram, mut pseudo| {
            let length = datagram.len() as u16;
            if let Some((udp, payload)) = Udp::split_mut(datagram) {
                *udp = Udp {
                    source_port: (*source).into(),
                    destination_port: (*destination).into(),
                    length: length.into(),
                    checksum: 0.into(),
                };
                if checksum {
                    pseudo.add(udp.bytes());
                    pseudo.add(payload);
                    udp.checksum.set(pseudo.finish_nonzero());
                }
            }
            if *interval > 0 {
                *count += 1;
                if *count == *interval {
                    *count = 0;
                    (*source, *destination) = (source.wrapping_add(1), destination.wrapping_add(1));
                }
            }
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        let [source, destination] = Encap::handlers(|e: &mut Self| &mut e.encap);
        [
            source.argument(Some(0), "SRC"),
            port_handler("sport", |e: &mut Self| &mut e.source).argument(Some(1), "SPORT"),
            destination.argument(Some(2), "DST"),
            port_handler("dport", |e: &mut Self| &mut e.destination).argument(Some(3), "DPORT"),
        ]
        .into()
    }
}
