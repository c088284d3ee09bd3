//! `PullTee(N)`: passes pulled packets on, and pushes a copy of each to every other output.
//!
//! Ports: one pull input; one pull output, then any number of push outputs.
//!
//! Arguments:
//! - `N`: required number of outputs.
use super::tee::read_outputs;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("PullTee", || Box::new(PullTee)).ports("1/1-").processing("l/lh");

#[derive(Debug)]
pub struct PullTee;

impl Element for PullTee {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        read_outputs(args, cx)
    }

    fn pull(&mut self, _: usize, max: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        cx.pull(0, max, burst);
        for packet in burst.iter() {
            for port in 1..cx.noutputs() {
                cx.push(port, packet.clone());
            }
        }
    }
}
