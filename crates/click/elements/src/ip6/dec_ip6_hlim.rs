//! `DecIP6HLIM`: decrements the hop limit of IPv6 packets, and filters out expired packets.
//!
//! Ports: one input; one output, and optionally a push output for expired packets. Packets without a complete header
//! pass unchanged.
//!
//! No arguments. Handlers: `drops` (read).
use crate::packet::divert;
use ringway_click::prelude::*;
use ringway_wire::Ipv6;

pub static CLASS: Class =
    Class::new("DecIP6HLIM", || Box::<DecIp6Hlim>::default()).ports("1/1-2").processing("a/ah");

#[derive(Debug, Default)]
pub struct DecIp6Hlim {
    drops: u64,
}

impl Element for DecIp6Hlim {
    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        divert(burst, cx, |packet, _| self.count_down(packet));
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::counter("drops", |e: &mut Self| &mut e.drops)].into()
    }
}

impl DecIp6Hlim {
    fn count_down(&mut self, packet: &mut Packet) -> bool {
        let Some(header) = packet.network_mut::<Ipv6>() else { return true };
        let over = header.hop_limit <= 1;
        if over {
            self.drops += 1;
        } else {
            header.hop_limit -= 1;
        }
        !over
    }
}
