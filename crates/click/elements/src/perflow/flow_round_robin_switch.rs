//! `FlowRoundRobinSwitch`: sends each new flow to the next output, and all packets of a flow to the same output
//! (FastClick).
//!
//! Ports: one push input, one or more push outputs. Requires a FlowIPManager upstream; without one, each packet counts
//! as a flow. No arguments, no handlers.
use super::flow_space::{FlowSpace, KIND};
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("FlowRoundRobinSwitch", || Box::<FlowRoundRobinSwitch>::default())
    .ports("1/1-")
    .processing("h");

#[derive(Debug, Default)]
pub struct FlowRoundRobinSwitch {
    space: FlowSpace,
    next: u32,
}

impl Element for FlowRoundRobinSwitch {
    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.space.find(cx);
        Ok(())
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let outputs = cx.noutputs() as u32;
        for packet in burst.drain() {
            let next = &mut self.next;
            // The output's number plus 1; 0 for a new flow.
            let output = self.space.change(FlowSpace::flow(&packet), cx, |output| {
                if *output == 0 {
                    *next = *next % outputs + 1;
                    *output = *next;
                }
            });
            cx.push((output as usize).saturating_sub(1), packet);
        }
    }

    fn cast(&self, kind: &str) -> bool {
        kind == KIND
    }
}
