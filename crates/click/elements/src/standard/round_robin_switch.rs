//! `RoundRobinSwitch`: sends packets to outputs in turn.
//!
//! Ports: one push input, one or more push outputs. No arguments, no handlers.
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("RoundRobinSwitch", || Box::<RoundRobinSwitch>::default()).ports("1/1-").processing("h");

#[derive(Debug, Default)]
pub struct RoundRobinSwitch {
    next: usize,
}

impl Element for RoundRobinSwitch {
    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for packet in burst.drain() {
            cx.push(self.next, packet);
            self.next = (self.next + 1) % cx.noutputs().max(1);
        }
    }
}
