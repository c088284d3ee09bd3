//! `EtherMirror`: swaps source and destination of Ethernet frames.
//!
//! Ports: one input, one output, push or pull. Frames too short for both addresses pass unchanged.
//!
//! No arguments, no handlers.
use crate::packet::put;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("EtherMirror", || Box::<EtherMirror>::default()).ports("1/1");

#[derive(Debug, Default)]
pub struct EtherMirror;

impl Element for EtherMirror {
    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        for packet in burst.iter_mut() {
            if let Some(addresses) = packet.data_mut().first_chunk_mut::<12>() {
                swap(addresses);
            }
        }
    }
}

/// The last six bytes before the first six, by three overlapping writes: a rotation in memory waits for its own
/// writes, and shifting two words into one takes longer.
#[inline]
fn swap(addresses: &mut [u8; 12]) {
    let [a, b, c, d, e, f, ..] = *addresses;
    let Some(last) = addresses.last_chunk() else { return };
    let front = u64::from_le_bytes(*last).rotate_right(16).to_le_bytes();
    put(addresses, 0, front);
    put(addresses, 6, [a, b, c, d]);
    put(addresses, 10, [e, f]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_swapped() {
        let mut addresses = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
        swap(&mut addresses);
        assert_eq!(addresses, [7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 5, 6]);
    }
}
