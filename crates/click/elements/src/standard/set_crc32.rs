//! `SetCRC32`: appends a CRC of 4 bytes to packets, for `CheckCRC32`.
//!
//! Ports: one input, one output, push or pull. Packets that can't be extended are dropped.
use super::crc32;
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("SetCRC32", || Box::<SetCrc32>::default()).ports("1/1").metadata(Metadata::Resolve);

#[derive(Debug, Default)]
pub struct SetCrc32;

impl Element for SetCrc32 {
    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.retain(|packet| {
            let crc = crc32::update(u32::MAX, packet.data());
            let grown = packet.put(4);
            if grown && let Some(place) = packet.data_mut().last_chunk_mut::<4>() {
                *place = crc.to_ne_bytes();
            }
            grown
        });
    }
}
