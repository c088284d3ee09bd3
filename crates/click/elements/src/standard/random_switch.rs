//! `RandomSwitch`: sends each packet to a random output, with equal probabilities.
//!
//! Ports: one push input, one or more push outputs. No arguments, no handlers.
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("RandomSwitch", || Box::<RandomSwitch>::default()).ports("1/1-").processing("h");

#[derive(Debug, Default)]
pub struct RandomSwitch;

impl Element for RandomSwitch {
    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for packet in burst.drain() {
            let output = cx.random_between(0, cx.noutputs().saturating_sub(1) as u32);
            cx.push(output as usize, packet);
        }
    }
}
