//! `PrioSched`: pulls from the first input that has a packet.
//!
//! Ports: any number of pull inputs, one pull output. No arguments, no handlers.
use crate::{Class, Context, Element, Failed, PacketBurst, Signal};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Facts.
pub static CLASS: Class =
    Class::new("PrioSched", || Box::<PrioSched>::default()).ports("-/1").processing("l").flags("S0");

/// See the module.
#[derive(Debug, Default)]
pub struct PrioSched {
    signals: Vec<Signal>,
}

impl Element for PrioSched {
    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.signals = (0..cx.ninputs()).map(|port| cx.upstream_empty_signal(port, None)).collect();
        Ok(())
    }

    fn pull(&mut self, _: usize, max: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for (input, signal) in self.signals.iter().enumerate() {
            if burst.len() < max && cx.is_active(signal) {
                cx.pull(input, max - burst.len(), burst);
            }
        }
    }
}
