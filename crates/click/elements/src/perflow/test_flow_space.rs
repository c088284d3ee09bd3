//! `TestFlowSpace`: counts the packets of each flow in four bytes of the flow's memory, for tests (FastClick).
//!
//! Ports: one input, one output, push or pull. Requires a FlowIPManager upstream. No arguments.
//!
//! Handlers: `last` (read): the count of the last packet's flow.
use super::flow_space::{FlowSpace, KIND};
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("TestFlowSpace", || Box::<TestFlowSpace>::default()).ports("1/1");

#[derive(Debug, Default)]
pub struct TestFlowSpace {
    space: FlowSpace,
    last: u32,
}

impl Element for TestFlowSpace {
    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.space.find(cx);
        Ok(())
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for packet in burst.iter() {
            self.last =
                self.space.change(FlowSpace::flow(packet), cx, |count| *count = count.saturating_add(1));
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::read("last", |e: &Self| e.last)].into()
    }

    fn cast(&self, kind: &str) -> bool {
        kind == KIND
    }
}
