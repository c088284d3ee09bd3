//! `EnsureEther(ETHERTYPE, SRC, DST)`: prepends an Ethernet header to packets that don't seem to have one.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `ETHERTYPE`: EtherType of an added header; 0x800 by default.
//! - `SRC`, `DST`: addresses of an added header; 1:1:1:1:1:1 and 2:2:2:2:2:2 by default.
//!
//! No handlers. Packets without a marked network header pass unchanged. So do packets with an Ethernet header for IP
//! before the network header; if it was stripped, it is restored. For other packets, the bytes before their network
//! header are removed first.
use crate::packet::mark_ethernet;
use ringway_click::prelude::*;
use ringway_wire::{EtherType, Ethernet, Header, MacAddress};

pub static CLASS: Class = Class::new("EnsureEther", || Box::<EnsureEther>::default()).ports("1/1");

#[derive(Debug, Default)]
pub struct EnsureEther {
    header: Ethernet,
}

impl Element for EnsureEther {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        let (mut source, mut destination) = (MacAddress([1; 6]), MacAddress([2; 6]));
        let mut ethertype = EtherType::IPV4.get();
        args.read_p("ETHERTYPE", &mut ethertype);
        args.read_p("SRC", &mut source);
        args.read_p("DST", &mut destination);
        self.header = Ethernet { destination, source, ethertype: EtherType::new(ethertype) };
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.retain(|packet| self.ensure(packet));
    }
}

impl EnsureEther {
    fn ensure(&self, packet: &mut Packet) -> bool {
        let Some(network @ 0..) = packet.network_header() else { return true };
        let network = network as usize;
        let (buffer, data) = packet.buffer();
        let header = match network {
            Ethernet::LEN => Some(data.start),
            0 => data.start.checked_sub(Ethernet::LEN),
            _ => None,
        };
        let found = header.and_then(|at| Ethernet::of(buffer.get(at..)?)).map(|header| header.ethertype);
        if matches!(found, Some(EtherType::IPV4 | EtherType::IPV6)) {
            return network > 0 || packet.unpull(Ethernet::LEN);
        }
        packet.pull(network);
        let pushed = packet.push_header(&self.header);
        mark_ethernet(packet, Ethernet::LEN);
        pushed
    }
}
