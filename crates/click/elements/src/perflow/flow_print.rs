//! `FlowPrint`: prints the flow and the number of consecutive packets of a flow in a burst (FastClick).
//!
//! Ports: one input, one output, push or pull. Requires a FlowIPManager upstream. No arguments, no handlers.
use super::flow_space::FlowSpace;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("FlowPrint", || Box::new(FlowPrint)).ports("1/1");

#[derive(Debug)]
pub struct FlowPrint;

impl Element for FlowPrint {
    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let mut packets = burst.iter().map(FlowSpace::flow).peekable();
        while let Some(flow) = packets.next() {
            let mut count = 1;
            while packets.next_if_eq(&flow).is_some() {
                count += 1;
            }
            let name = cx.declaration();
            cx.chatter(format_args!("{name}: {count} packets from flow {flow}. Count : {count}"));
        }
    }
}
