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
                addresses.rotate_left(6);
            }
        }
    }
}
