//! `Hub`: sends a copy of each packet to every output except the one with the number of its input.
//!
//! Ports: the same number of push inputs and push outputs. No arguments, no handlers.
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("Hub", || Box::<Hub>::default()).ports("-/=").processing("h").flow("#/[^#]");

#[derive(Debug, Default)]
pub struct Hub;

impl Element for Hub {
    fn push(&mut self, port: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let last = (0..cx.noutputs()).rev().find(|output| *output != port);
        for packet in burst.drain() {
            let Some(last) = last else { continue };
            for output in (0..last).filter(|output| *output != port) {
                cx.push(output, packet.clone());
            }
            cx.push(last, packet);
        }
    }
}
