//! `Clipboard(RANGE...)`: copies bytes of packets at input 0 into those at input 1.
//!
//! Ports: two inputs and the outputs of the same numbers, push or pull. Packets at input 1 that are too short for
//! a range keep what they have there.
//!
//! Arguments:
//! - `RANGE`: `OFFSET/LENGTH`, in bytes.
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("Clipboard", || Box::<Clipboard>::default())
    .ports("2/2")
    .flow("#/#")
    .metadata(Metadata::Resolve)
    .live();

/// Maximum number of bytes in all, and the maximum offset.
const LARGEST: usize = 1 << 16;

#[derive(Debug, Default)]
pub struct Clipboard {
    ranges: Vec<(usize, usize)>,
    bytes: Vec<u8>,
}

impl Clipboard {
    fn copy(&mut self, packet: &[u8]) {
        self.bytes.clear();
        for (offset, length) in &self.ranges {
            let found = packet.get(*offset..offset + length);
            match found {
                Some(found) => self.bytes.extend_from_slice(found),
                None => self.bytes.extend(core::iter::repeat_n(0, *length)),
            }
        }
    }

    fn paste(&self, packet: &mut [u8]) {
        let mut from = 0;
        for (offset, length) in &self.ranges {
            let bytes = self.bytes.get(from..from + length);
            if let (Some(to), Some(bytes)) = (packet.get_mut(*offset..offset + length), bytes) {
                to.copy_from_slice(bytes);
            }
            from += length;
        }
    }

    fn pass(&mut self, port: usize, burst: &mut PacketBurst) {
        for packet in burst.iter_mut() {
            if port == 0 {
                self.copy(packet.data());
            } else {
                self.paste(packet.data_mut());
            }
        }
    }
}

impl Element for Clipboard {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        for text in args.take_rest() {
            let parsed = text.split_once('/').and_then(|(offset, length)| {
                Some((offset.trim().parse::<usize>().ok()?, length.trim().parse::<usize>().ok()?))
            });
            // Attack: ranges that ask for more memory than there is.
            match parsed.filter(|(offset, length)| *offset <= LARGEST && *length <= LARGEST) {
                Some(range) => self.ranges.push(range),
                None => return Err(cx.error(alloc::format!("bad range '{text}'"))),
            }
        }
        let bytes: usize = self.ranges.iter().map(|(_, length)| length).sum();
        if bytes > LARGEST {
            return Err(cx.error("ranges too long"));
        }
        self.bytes = alloc::vec![0; bytes];
        args.complete()
    }

    fn push(&mut self, port: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        self.pass(port, burst);
        cx.push_burst(port, burst);
    }

    fn pull(&mut self, port: usize, max: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        cx.lend(self, |cx| cx.pull(port, max, burst));
        self.pass(port, burst);
    }
}
