//! `CheckCRC32`: passes packets whose last 4 bytes are the CRC added by `SetCRC32`, and removes it.
//!
//! Ports: one input; one output, and optionally a push output for all others.
//!
//! Handlers: `drops` (read).
use super::crc32;
use crate::packet::divert_counting;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("CheckCRC32", || Box::<CheckCrc32>::default())
    .ports("1/1-2")
    .processing("a/ah")
    .metadata(Metadata::Resolve);

#[derive(Debug, Default)]
pub struct CheckCrc32 {
    drops: u64,
}

impl Element for CheckCrc32 {
    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        divert_counting(burst, cx, &mut self.drops, |packet, _| {
            let split = packet.data().split_last_chunk::<4>();
            let good =
                split.is_some_and(|(data, crc)| crc32::update(u32::MAX, data) == u32::from_ne_bytes(*crc));
            if good {
                packet.take(4);
            }
            good
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::counter("drops", |e: &mut Self| &mut e.drops)].into()
    }
}
