//! `StoreData(OFFSET, DATA, MASK, GROW)`: overwrites bytes of packets.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `OFFSET`: offset of the bytes; negative counts from the end.
//! - `DATA`: the new bytes.
//! - `MASK`: which bits are overwritten; all by default.
//! - `GROW`: whether packets that are too short are extended; false by default.
use crate::packet::grow;
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("StoreData", || Box::<StoreData>::default()).ports("1/1").metadata(Metadata::Resolve);

/// The largest offset.
const LARGEST: i32 = 1 << 20;

#[derive(Debug, Default)]
pub struct StoreData {
    offset: i32,
    data: Vec<u8>,
    mask: Vec<u8>,
    grow: bool,
}

impl Element for StoreData {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        args.read_mp("OFFSET", &mut self.offset);
        args.read_mp("DATA", &mut self.data);
        args.read_p("MASK", &mut self.mask);
        args.read("GROW", &mut self.grow);
        args.complete()?;
        if self.mask.len() > self.data.len() {
            return Err(cx.error("MASK must not be longer than DATA"));
        }
        if self.offset > LARGEST {
            return Err(cx.error(alloc::format!("OFFSET too large, bound {LARGEST}")));
        }
        self.mask.resize(self.data.len(), u8::MAX);
        Ok(())
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        for packet in burst.iter_mut() {
            let length = packet.len();
            let start = match usize::try_from(self.offset) {
                Ok(offset) => offset,
                Err(_) => length.saturating_sub(self.offset.unsigned_abs() as usize),
            };
            let missing = (start + self.data.len()).saturating_sub(length);
            if self.grow {
                grow(packet, missing);
            }
            let Some(bytes) = packet.data_mut().get_mut(start..) else { continue };
            for ((byte, data), mask) in bytes.iter_mut().zip(&self.data).zip(&self.mask) {
                *byte = *byte & !mask | data & mask;
            }
        }
    }
}
