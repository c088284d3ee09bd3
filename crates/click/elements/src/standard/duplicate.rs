//! `Duplicate(N)`: sends a full copy of each packet to every output (FastClick).
//!
//! Copies made by Tee share their data until one of them is modified.
//!
//! Ports: one push input, any number of push outputs.
//!
//! Arguments:
//! - `N`: required number of outputs.
use super::tee::read_outputs;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("Duplicate", || Box::new(Duplicate)).ports("1/1-").processing("h");

#[derive(Debug)]
pub struct Duplicate;

impl Element for Duplicate {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        read_outputs(args, cx)
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let last = cx.noutputs() - 1;
        for packet in burst.drain() {
            for port in 0..last {
                let mut copy = packet.clone();
                copy.make_unique();
                cx.push(port, copy);
            }
            cx.push(last, packet);
        }
    }
}
