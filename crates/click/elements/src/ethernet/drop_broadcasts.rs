//! `DropBroadcasts`: drops packets that arrived as link-level broadcasts or multicasts.
//!
//! Ports: one input; one output, and optionally a push output for those packets.
//!
//! No arguments. Handlers: `drops` (read).
use crate::packet::divert_counting;
use ringway_click::PacketType;
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("DropBroadcasts", || Box::<DropBroadcasts>::default()).ports("1/1-2").processing("a/ah");

#[derive(Debug, Default)]
pub struct DropBroadcasts {
    drops: u64,
}

impl Element for DropBroadcasts {
    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let first = self.drops == 0;
        divert_counting(burst, cx, &mut self.drops, |packet, _| {
            !matches!(packet.notes().packet_type, PacketType::Broadcast | PacketType::Multicast)
        });
        if first && self.drops > 0 {
            let name = cx.declaration();
            cx.chatter(format_args!("{name}: dropped a broadcast"));
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::counter("drops", |e: &mut Self| &mut e.drops)].into()
    }
}
