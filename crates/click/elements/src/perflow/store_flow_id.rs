//! `StoreFlowID(OFFSET)`: writes the number of a packet's flow into the packet: 4 bytes, little-endian (FastClick).
//!
//! Ports: one input, one output, push or pull. Requires a FlowIPManager upstream. Packets too short for the number pass
//! unchanged.
//!
//! Arguments:
//! - `OFFSET`: offset of the number in the packet.
//!
//! No handlers.
use super::flow_space::FlowSpace;
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("StoreFlowID", || Box::<StoreFlowId>::default()).ports("1/1").metadata(Metadata::Resolve);

#[derive(Debug, Default)]
pub struct StoreFlowId {
    offset: u16,
}

impl Element for StoreFlowId {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_mp("OFFSET", &mut self.offset);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        for packet in burst.iter_mut() {
            let flow = FlowSpace::flow(packet);
            crate::packet::put(packet.data_mut(), self.offset.into(), flow.to_le_bytes());
        }
    }
}
