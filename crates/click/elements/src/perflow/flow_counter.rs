//! `FlowCounter`: counts flows, and the packets of each flow (FastClick).
//!
//! Ports: one input, one output, push or pull. Requires a FlowIPManager upstream. No arguments.
//!
//! Handlers: `count`: flows so far; `open`: current flows; `average`, `median`: packets per current flow; `dump`: the
//! number of current flows for each number of packets (read).
use super::flow_space::{FlowSpace, KIND};
use ringway_click::prelude::*;
use ringway_click::sort;

pub static CLASS: Class = Class::new("FlowCounter", || Box::<FlowCounter>::default()).ports("1/1");

#[derive(Debug, Default)]
pub struct FlowCounter {
    space: FlowSpace,
    flows: u64,
}

impl FlowCounter {
    /// The packet counts of current flows, ascending.
    fn lengths(&self, cx: &Context<'_>) -> Vec<u32> {
        let mut lengths: Vec<u32> = self.space.all(cx).into_iter().filter(|length| *length > 0).collect();
        sort::by_number(&mut lengths, |length| u64::from(*length));
        lengths
    }

    fn dump(&self, cx: &Context<'_>) -> String {
        let lengths = self.lengths(cx);
        let same = lengths.chunk_by(|one, other| one == other);
        same.map(|flows| format!("{}: {}\n", flows[0], flows.len())).collect()
    }
}

impl Element for FlowCounter {
    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.space.find(cx);
        Ok(())
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for packet in burst.iter() {
            let count =
                self.space.change(FlowSpace::flow(packet), cx, |count| *count = count.saturating_add(1));
            self.flows += u64::from(count == 1);
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("count", |e: &Self| e.flows),
            Handler::read_with("open", |e: &mut Self, _, cx| Ok(e.space.live(cx).to_string())),
            Handler::read_with("average", |e: &mut Self, _, cx| {
                let lengths = e.lengths(cx);
                let sum: u64 = lengths.iter().map(|length| u64::from(*length)).sum();
                Ok((sum / (lengths.len().max(1) as u64)).to_string())
            }),
            Handler::read_with("median", |e: &mut Self, _, cx| {
                let lengths = e.lengths(cx);
                Ok(lengths.get(lengths.len() / 2).copied().unwrap_or(0).to_string())
            }),
            Handler::read_with("dump", |e: &mut Self, _, cx| Ok(e.dump(cx))),
        ]
        .into()
    }

    fn cast(&self, kind: &str) -> bool {
        kind == KIND
    }
}
