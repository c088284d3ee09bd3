//! `SetTCPChecksum(FIXOFF)`: computes the checksum of TCP over IPv4.
//!
//! Ports: one input, one output, push or pull. Fragments, truncated packets and packets other than TCP are dropped.
//!
//! Arguments:
//! - `FIXOFF`: corrects a data offset that is smaller than a header or larger than the packet; false by default.
//!
//! Handlers: `drops` (read). The IPv4 header must be marked.
use super::transport::Transport;
use crate::packet::retain_counting;
use ringway_click::prelude::*;
use ringway_wire::{Header, Protocol, Tcp};

pub static CLASS: Class = Class::new("SetTCPChecksum", || Box::<SetTcpChecksum>::default())
    .ports("1/1")
    .metadata(Metadata::Resolve);

#[derive(Debug, Default)]
pub struct SetTcpChecksum {
    fix_offset: bool,
    drops: u64,
}

impl Element for SetTcpChecksum {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_p("FIXOFF", &mut self.fix_offset);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        let mut drops = 0;
        retain_counting(burst, &mut drops, |packet| self.set(packet).is_some());
        self.drops += drops;
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::counter("drops", |e: &mut Self| &mut e.drops)].into()
    }
}

impl SetTcpChecksum {
    fn set(&self, packet: &mut Packet) -> Option<()> {
        let transport =
            Transport::of_packet(packet).filter(|t| t.protocol == Protocol::TCP && !t.later && !t.more)?;
        let segment = transport.slice_mut(packet.network_data_mut()?)?;
        let length = segment.len();
        let tcp = Tcp::of_mut(segment)?;
        let offset = tcp.header_len();
        if self.fix_offset && (offset < Tcp::LEN || offset > length) {
            let words = if offset < Tcp::LEN { 5 } else { (length / 4).min(15) as u8 };
            tcp.data_offset = tcp.data_offset & 15 | words << 4;
        }
        Tcp::fill_checksum(segment, transport.pseudo(length))
    }
}
