//! `MarkIPCE(FORCE)`: sets the congestion experienced mark of IPv4 packets (RFC 3168), and drops packets of flows
//! without ECN support.
//!
//! Ports: one input, one output, push or pull. Packets without a complete header pass unchanged.
//!
//! Arguments:
//! - `FORCE`: marks all packets, drops none; false by default.
//!
//! Handlers: `drops` (read). The checksum is updated.
use crate::packet::ipv4_mut;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("MarkIPCE", || Box::<MarkIpCe>::default()).ports("1/1");

#[derive(Debug, Default)]
pub struct MarkIpCe {
    force: bool,
    drops: u64,
}

impl Element for MarkIpCe {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_p("FORCE", &mut self.force);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.retain(|packet| {
            let Some(header) = ipv4_mut(packet) else { return true };
            if header.tos & 3 == 0 && !self.force {
                self.drops += 1;
                return false;
            }
            header.set_tos(header.tos | 3);
            true
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::counter("drops", |e: &mut Self| &mut e.drops)].into()
    }
}
