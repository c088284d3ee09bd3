//! `MoveData(DST_OFFSET, SRC_OFFSET, LENGTH, GROW)`: copies bytes within packets (FastClick).
//!
//! Ports: one input, one output, push or pull. Packets that don't contain all source bytes pass unchanged.
//!
//! Arguments:
//! - `DST_OFFSET`, `SRC_OFFSET`: offsets of destination and source.
//! - `LENGTH`: number of bytes.
//! - `GROW`: whether packets too short for the destination are extended; otherwise they pass unchanged. True by
//!   default.
use crate::packet::{bounded, grow};
use ringway_click::arg::MANDATORY_POSITIONAL;
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("MoveData", || Box::<MoveData>::default()).ports("1/1").metadata(Metadata::Resolve);

/// The largest offset and length. Attack: a configuration that makes packets longer than memory allows.
const LARGEST: i128 = 1 << 16;

#[derive(Debug, Default)]
pub struct MoveData {
    to: usize,
    from: usize,
    length: usize,
    grow: bool,
}

impl Element for MoveData {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        self.grow = true;
        args.read_with("DST_OFFSET", MANDATORY_POSITIONAL, &mut self.to, bounded(0, LARGEST));
        args.read_with("SRC_OFFSET", MANDATORY_POSITIONAL, &mut self.from, bounded(0, LARGEST));
        args.read_with("LENGTH", MANDATORY_POSITIONAL, &mut self.length, bounded(0, LARGEST));
        args.read("GROW", &mut self.grow);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        let (source, end) = (self.from..self.from + self.length, self.to + self.length);
        for packet in burst.iter_mut().filter(|packet| packet.len() >= source.end) {
            let missing = end.saturating_sub(packet.len());
            if missing == 0 || self.grow && grow(packet, missing) {
                packet.data_mut().copy_within(source.clone(), self.to);
            }
        }
    }
}
