//! `NumberPacket(OFFSET, NET_ORDER)`: writes a counter into packets, 8 bytes.
//!
//! Ports: one input, one output, push or pull. Packets that are too short are extended.
//!
//! Arguments:
//! - `OFFSET`: offset of the counter; 40 by default.
//! - `NET_ORDER`: whether it is big-endian, otherwise little-endian; false by default.
//!
//! Handlers: `count` (read), `reset` (write).
use crate::packet::grow;
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("NumberPacket", || Box::<NumberPacket>::default()).ports("1/1").metadata(Metadata::Resolve);

#[derive(Debug, Default)]
pub struct NumberPacket {
    offset: u16,
    big_endian: bool,
    count: u64,
}

impl Element for NumberPacket {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        self.offset = 40;
        args.read_p("OFFSET", &mut self.offset);
        args.read("NET_ORDER", &mut self.big_endian);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        let range = usize::from(self.offset)..usize::from(self.offset) + 8;
        burst.retain(|packet| {
            let missing = range.end.saturating_sub(packet.len());
            if !grow(packet, missing) {
                return false;
            }
            if let Some(place) = packet.data_mut().get_mut(range.clone()) {
                let count = self.count;
                let bytes = if self.big_endian { count.to_be_bytes() } else { count.to_le_bytes() };
                place.copy_from_slice(&bytes);
            }
            self.count += 1;
            true
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::read("count", |e: &Self| e.count), Handler::button("reset", |e: &mut Self, _| e.count = 0)]
            .into()
    }
}
