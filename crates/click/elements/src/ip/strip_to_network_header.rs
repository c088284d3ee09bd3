//! `StripToNetworkHeader`: removes the bytes before the network header.
//!
//! Ports: one input, one output, push or pull. Packets without a marked network header pass unchanged.
//!
//! No arguments, no handlers.
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("StripToNetworkHeader", || Box::<StripToNetworkHeader>::default()).ports("1/1");

#[derive(Debug, Default)]
pub struct StripToNetworkHeader;

impl Element for StripToNetworkHeader {
    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.retain(|packet| match packet.network_header() {
            Some(at @ 0..) => {
                packet.pull(at as usize);
                true
            }
            Some(at) => packet.unpull(at.unsigned_abs()),
            None => true,
        });
    }
}
