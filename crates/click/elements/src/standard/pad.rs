//! `Pad(LENGTH, ZERO)`: zero-pads packets.
//!
//! Ports: one input, one output, push or pull. Packets that can't be extended that far are dropped.
//!
//! Arguments:
//! - `LENGTH`: minimum length in bytes; by default the captured length plus the extra length annotation.
//! - `ZERO`: accepted without effect; added bytes are always zero.
use crate::packet::grow;
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("Pad", || Box::<Pad>::default()).ports("1/1").metadata(Metadata::Resolve).live();

/// Maximum number of bytes added.
const LARGEST: usize = 1 << 20;

#[derive(Debug, Default)]
pub struct Pad {
    length: Option<u32>,
}

impl Element for Pad {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        let mut zero = true;
        args.read_p("LENGTH", &mut self.length);
        args.read("ZERO", &mut zero);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.retain(|packet| {
            let length = packet.len();
            let missing = match self.length {
                Some(wanted) => (wanted as usize).saturating_sub(length),
                None => packet.notes().u32(Annotations::EXTRA_LENGTH) as usize,
            };
            packet.notes_mut().set_u32(Annotations::EXTRA_LENGTH, 0);
            // Attack: an extra length made up by a trace file.
            missing <= LARGEST && grow(packet, missing)
        });
    }
}
