//! `TruncateIPPayload(LENGTH, TRANSPORT, EXTRA_LENGTH)`: cuts IPv4 packets after so many bytes of payload.
//!
//! Ports: one input, one output, push or pull. Packets without a whole header pass unchanged.
//!
//! Arguments:
//! - `LENGTH`: bytes to keep behind the headers.
//! - `TRANSPORT`: whether headers of TCP and UDP count as headers; false by default.
//! - `EXTRA_LENGTH`: whether the bytes that were cut off are added to the EXTRA_LENGTH annotation; true by default.
//!
//! No handlers. The headers still tell the old length.
use super::transport::Transport;
use alloc::boxed::Box;
use ringway_click::arg::Args;
use ringway_click::{Annotations, Class, Context, Element, Failed, Metadata, Packet, PacketBurst};
use ringway_wire::{Header, Protocol, Tcp, Udp};

pub static CLASS: Class = Class::new("TruncateIPPayload", || Box::<TruncateIpPayload>::default())
    .ports("1/1")
    .metadata(Metadata::Resolve);

/// Cuts packets.
#[derive(Debug, Default)]
pub struct TruncateIpPayload {
    length: u32,
    transport: bool,
    extra: bool,
}

impl Element for TruncateIpPayload {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        self.extra = true;
        args.read_p("LENGTH", &mut self.length);
        args.read_p("TRANSPORT", &mut self.transport);
        args.read("EXTRA_LENGTH", &mut self.extra);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        for packet in burst.iter_mut() {
            let Some(keep) = self.keep(packet) else { continue };
            let cut = packet.len().saturating_sub(keep);
            packet.take(cut);
            if self.extra && cut > 0 {
                let extra = packet.notes().u32(Annotations::EXTRA_LENGTH);
                packet.notes_mut().set_u32(Annotations::EXTRA_LENGTH, extra.saturating_add(cut as u32));
            }
        }
    }
}

impl TruncateIpPayload {
    fn keep(&self, packet: &Packet) -> Option<usize> {
        let data = packet.network_data()?;
        let transport = Transport::of(data)?;
        let behind = match transport.protocol {
            _ if !self.transport || transport.later => 0,
            Protocol::TCP => Tcp::header_len_of(data.get(transport.header..)?)?,
            Protocol::UDP => Udp::LEN,
            _ => 0,
        };
        let at = packet.network_header()?;
        usize::try_from(at).ok().map(|at| at + transport.header + behind + self.length as usize)
    }
}
