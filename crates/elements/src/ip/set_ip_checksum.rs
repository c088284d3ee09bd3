//! `SetIPChecksum`: computes the checksum of IPv4 headers.
//!
//! Ports: one input, one output, push or pull. Packets without a whole header are dropped.
//!
//! No arguments. Handlers: `drops` (read).
use crate::packet::{fill_ip_checksum, ip_header_mut};
use alloc::boxed::Box;
use alloc::vec::Vec;
use ringway_click::{Class, Context, Element, Handler, PacketBurst};

/// Facts.
pub static CLASS: Class = Class::new("SetIPChecksum", || Box::<SetIpChecksum>::default()).ports("1/1");

/// Computes checksums.
#[derive(Debug, Default)]
pub struct SetIpChecksum {
    drops: u64,
}

impl Element for SetIpChecksum {
    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.retain(|packet| {
            let header = ip_header_mut(packet);
            self.drops += u64::from(header.is_none());
            header.map(fill_ip_checksum).is_some()
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::read("drops", |e: &Self| e.drops)].into()
    }
}
