//! `SetIPChecksum`: computes the checksum of IPv4 headers.
//!
//! Ports: one input, one output, push or pull. Packets without a complete header are dropped.
//!
//! No arguments. Handlers: `drops` (read).
use ringway_click::prelude::*;
use ringway_wire::Ipv4;

pub static CLASS: Class = Class::new("SetIPChecksum", || Box::<SetIpChecksum>::default()).ports("1/1");

#[derive(Debug, Default)]
pub struct SetIpChecksum {
    drops: u64,
}

impl Element for SetIpChecksum {
    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.retain(|packet| {
            let header = packet.network_data_mut().and_then(Ipv4::parse_mut);
            self.drops += u64::from(header.is_none());
            header.map(|(header, options, _)| header.fill_checksum(options)).is_some()
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::counter("drops", |e: &mut Self| &mut e.drops)].into()
    }
}
