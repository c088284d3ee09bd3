//! `EtherMirror`: swaps source and destination of Ethernet frames.
//!
//! Ports: one input, one output, push or pull. Frames too short for both addresses pass unchanged.
//!
//! No arguments, no handlers.
use crate::{Class, Context, Element, PacketBurst};
use alloc::boxed::Box;

/// Facts.
pub static CLASS: Class = Class::new("EtherMirror", || Box::<EtherMirror>::default()).ports("1/1");

/// Swaps addresses.
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

/// The last six bytes before the first six, by registers: a rotation in memory waits for its own writes.
#[inline]
fn swap(addresses: &mut [u8; 12]) {
    let (front, [.., a, b, c, d]) = (addresses.first_chunk(), *addresses);
    let low = front.map_or(0, |front| u64::from_le_bytes(*front));
    let high = u32::from_le_bytes([a, b, c, d]);
    let swapped = low >> 48 | u64::from(high) << 16 | low << 48;
    if let Some(front) = addresses.first_chunk_mut() {
        *front = swapped.to_le_bytes();
    }
    if let Some(back) = addresses.last_chunk_mut() {
        *back = ((low >> 16) as u32).to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_change_places() {
        let mut addresses = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
        swap(&mut addresses);
        assert_eq!(addresses, [7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 5, 6]);
    }
}
