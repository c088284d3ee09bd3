//! `DecIPTTL(ACTIVE, MULTICAST)`: decrements the time to live of IPv4 packets, and filters out expired packets.
//!
//! Ports: one input; one output, and optionally a push output for expired packets.
//!
//! Arguments:
//! - `ACTIVE`: whether it does so; true by default.
//! - `MULTICAST`: whether it does so for multicast packets; true by default.
//!
//! Handlers: `drops` (read); `active` (read, write). The checksum is updated (RFC 1624). Packets without a complete
//! header pass unchanged.
use crate::packet::divert;
use ringway_click::prelude::*;
use ringway_wire::Ipv4;

pub static CLASS: Class =
    Class::new("DecIPTTL", || Box::<DecIpTtl>::default()).ports("1/1-2").processing("a/ah");

#[derive(Debug, Default)]
pub struct DecIpTtl {
    active: bool,
    multicast: bool,
    drops: u64,
}

impl Element for DecIpTtl {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        (self.active, self.multicast) = (true, true);
        args.read("ACTIVE", &mut self.active);
        args.read("MULTICAST", &mut self.multicast);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        if self.active {
            divert(burst, cx, |packet, _| self.count_down(packet));
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::counter("drops", |e: &mut Self| &mut e.drops),
            Handler::field("active", |e: &mut Self| &mut e.active).checkbox().error("expected boolean"),
        ]
        .into()
    }
}

impl DecIpTtl {
    #[inline]
    fn count_down(&mut self, packet: &mut Packet) -> bool {
        let Some(header) = packet.network_mut::<Ipv4>() else { return true };
        if !self.multicast && header.destination_addr().is_multicast() {
            return true;
        }
        if header.ttl <= 1 {
            self.drops += 1;
            return false;
        }
        header.decrement_ttl();
        true
    }
}
