//! `CompareBlock(FWD_WEIGHT, REV_WEIGHT, THRESH)`: selects packets of senders that send much more than they receive.
//!
//! Ports: one push input, two push outputs.
//!
//! Arguments:
//! - `FWD_WEIGHT`, `REV_WEIGHT`: factors for the rate annotations before they are compared.
//! - `THRESH`: if neither rate is above it, the packet is not selected.
//!
//! A packet goes to output 1 if its weighted forward rate is above its weighted reverse rate, and one of the rates is
//! above THRESH; otherwise to output 0. The rates are the annotations FWD_RATE and REV_RATE. Handlers: `fwd_weight`,
//! `rev_weight`, `thresh` (read, write).
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("CompareBlock", || Box::<CompareBlock>::default()).ports("1/2").processing("h");

#[derive(Debug, Default)]
pub struct CompareBlock {
    forward: u32,
    reverse: u32,
    threshold: u32,
}

impl CompareBlock {
    fn stands_out(&self, forward: u32, reverse: u32) -> bool {
        let (weighted, other) =
            (u64::from(self.forward) * u64::from(forward), u64::from(self.reverse) * u64::from(reverse));
        weighted > other && forward.max(reverse) > self.threshold
    }
}

impl Element for CompareBlock {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_mp("FWD_WEIGHT", &mut self.forward);
        args.read_mp("REV_WEIGHT", &mut self.reverse);
        args.read_mp("THRESH", &mut self.threshold);
        args.complete()
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        cx.scatter(burst, |_, packet| {
            let notes = packet.notes();
            let out = self.stands_out(notes.u32(Annotations::FWD_RATE), notes.u32(Annotations::REV_RATE));
            Some(usize::from(out))
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::field("fwd_weight", |e: &mut Self| &mut e.forward),
            Handler::field("rev_weight", |e: &mut Self| &mut e.reverse),
            Handler::field("thresh", |e: &mut Self| &mut e.threshold),
        ]
        .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_high_and_asymmetric_rates_are_blocked() {
        let block = CompareBlock { forward: 5, reverse: 2, threshold: 100 };
        assert!(block.stands_out(101, 0) && block.stands_out(50, 120));
        assert!(!block.stands_out(100, 0) && !block.stands_out(50, 125) && !block.stands_out(0, u32::MAX));
    }
}
