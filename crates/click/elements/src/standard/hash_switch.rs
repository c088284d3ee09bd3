//! `HashSwitch(OFFSET, LENGTH)`: sends packets to an output chosen by a hash of some of their bytes, so that packets
//! with equal bytes take the same output.
//!
//! Ports: one push input, one or more push outputs.
//!
//! Arguments:
//! - `OFFSET`: offset of these bytes.
//! - `LENGTH`: their number. Shorter packets go to output 0.
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("HashSwitch", || Box::<HashSwitch>::default()).ports("1/1-").processing("h");

#[derive(Debug, Default)]
pub struct HashSwitch {
    offset: u32,
    length: u32,
}

/// FNV-1a, 32 bits.
fn hash(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

impl Element for HashSwitch {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        args.read_mp("OFFSET", &mut self.offset);
        args.read_mp("LENGTH", &mut self.length);
        args.complete()?;
        if self.length == 0 { Err(cx.error("LENGTH must be > 0")) } else { Ok(()) }
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let (offset, length) = (self.offset as usize, self.length as usize);
        for packet in burst.drain() {
            let bytes = packet.data().get(offset..).and_then(|bytes| bytes.get(..length));
            // The high half decides: FNV's low bits depend on the low bits of the bytes alone.
            let output = bytes.map_or(0, |bytes| (u64::from(hash(bytes)) * cx.noutputs() as u64) >> 32);
            cx.push(output as usize, packet);
        }
    }
}
