//! `SizeHistogram(LEAST)`: counts packets by their lengths.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `LEAST`: shorter packets are not counted; 0 by default.
//!
//! Handlers: `histogram` (read): for each power of two, a line with the number of packets shorter than it and at
//! least as long as the previous one; `reset` (write).
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use ringway_click::arg::Args;
use ringway_click::{Class, Context, Element, Failed, Handler, PacketBurst};

/// The element's class.
pub static CLASS: Class = Class::new("SizeHistogram", || Box::<SizeHistogram>::default()).ports("1/1");

/// Counts packets.
#[derive(Debug, Default)]
pub struct SizeHistogram {
    least: u32,
    /// Number of packets by the number of bits of their length.
    counts: [u64; 32],
}

impl SizeHistogram {
    fn histogram(&self) -> String {
        let counted = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        counted.map(|(bits, count)| format!("<{} {count}\n", 1u64 << bits)).collect()
    }
}

impl Element for SizeHistogram {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_p("LEAST", &mut self.least);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        for packet in burst.iter_mut() {
            let length = packet.len() as u32;
            if length >= self.least {
                let bits = (u32::BITS - length.leading_zeros()) as usize;
                self.counts[bits.min(31)] += 1;
            }
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        vec![
            Handler::read("histogram", Self::histogram),
            Handler::button("reset", |e: &mut Self, _| e.counts = [0; 32]),
        ]
    }
}
