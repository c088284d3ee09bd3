//! `StoreTimestamp(OFFSET, TAIL)`: writes packets' timestamps into their data: seconds and nanoseconds, 4 bytes each,
//! in network byte order.
//!
//! Ports: one input, one output, push or pull. Packets that can't be extended are dropped.
//!
//! Arguments, one of them:
//! - `OFFSET`: offset of the timestamp; shorter packets are extended.
//! - `TAIL`: true to append it.
//!
//! Handlers: `drops` (read).
use crate::packet::{grow, put, retain_counting};
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("StoreTimestamp", || Box::<StoreTimestamp>::default())
    .ports("1/1")
    .metadata(Metadata::Resolve);

/// Maximum offset. Attack: a configuration that makes packets larger than memory.
const MOST: u32 = 1 << 16;

#[derive(Debug, Default)]
pub struct StoreTimestamp {
    /// `None` to append.
    offset: Option<usize>,
    drops: u64,
}

impl StoreTimestamp {
    fn store(&self, packet: &mut Packet) -> bool {
        let at = self.offset.unwrap_or(packet.len());
        let missing = (at + 8).saturating_sub(packet.len());
        if !grow(packet, missing) {
            return false;
        }
        let time = packet.timestamp();
        let data = packet.data_mut();
        put(data, at, ((time / SECOND) as u32).to_be_bytes());
        put(data, at + 4, ((time % SECOND) as u32).to_be_bytes());
        true
    }
}

impl Element for StoreTimestamp {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let (mut offset, mut tail) = (0u32, false);
        let given = args.read("OFFSET", &mut offset);
        args.read("TAIL", &mut tail);
        args.complete()?;
        if given == tail {
            return Err(cx.error("must specify exactly one of 'OFFSET' and 'TAIL'"));
        }
        if offset > MOST {
            return Err(cx.error(alloc::format!("OFFSET too large, bound {MOST}")));
        }
        self.offset = given.then_some(offset as usize);
        Ok(())
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        let mut drops = 0;
        retain_counting(burst, &mut drops, |packet| self.store(packet));
        self.drops += drops;
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::counter("drops", |e: &mut Self| &mut e.drops)].into()
    }
}
