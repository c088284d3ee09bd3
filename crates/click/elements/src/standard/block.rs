//! `Block(THRESH)`: sends packets whose forward rate annotation is above a threshold to output 1.
//!
//! Ports: one input, two push outputs.
//!
//! Arguments:
//! - `THRESH`: the threshold, in the unit of the annotation; 0 passes everything.
//!
//! Handlers: `thresh` (read, write).
use crate::packet::divert;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("Block", || Box::<Block>::default()).ports("1/2").processing("h");

#[derive(Debug, Default)]
pub struct Block {
    threshold: u32,
}

impl Element for Block {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_mp("THRESH", &mut self.threshold);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        if self.threshold > 0 {
            let most = self.threshold;
            divert(burst, cx, |packet, _| packet.notes().u32(Annotations::FWD_RATE) <= most);
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::field("thresh", |e: &mut Self| &mut e.threshold).error("THRESH must be a number")].into()
    }
}
