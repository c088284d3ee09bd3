//! `RoundRobinSched`: pulls from each input in turn.
//!
//! Ports: any number of pull inputs, one pull output. No arguments, no handlers. Inputs that say they are empty are
//! not asked.
use crate::{Class, Context, Element, Failed, PacketBurst, Signal};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Facts.
pub static CLASS: Class = Class::new("RoundRobinSched", || Box::<RoundRobinSched>::default())
    .ports("-/1")
    .processing("l")
    .flags("S0");

/// Pulls in turn.
#[derive(Debug, Default)]
pub struct RoundRobinSched {
    next: usize,
    signals: Vec<Signal>,
}

impl Element for RoundRobinSched {
    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.signals = (0..cx.ninputs()).map(|port| cx.upstream_empty_signal(port, None)).collect();
        Ok(())
    }

    fn pull(&mut self, _: usize, max: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let inputs = self.signals.len();
        let mut in_vain = 0;
        while burst.len() < max && in_vain < inputs {
            let input = self.next;
            let before = burst.len();
            if cx.is_active(&self.signals[input]) {
                cx.pull(input, 1, burst);
            }
            self.next = (input + 1) % inputs;
            in_vain = if burst.len() > before { 0 } else { in_vain + 1 };
        }
    }
}
