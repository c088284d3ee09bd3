//! `RoundRobinSched`: pulls from each input in turn.
//!
//! Ports: any number of pull inputs, one pull output. No arguments, no handlers. Inputs that signal that they are
//! empty are not pulled.
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("RoundRobinSched", || Box::<RoundRobinSched>::default())
    .ports("-/1")
    .processing("l")
    .flags("S0");

#[derive(Debug, Default)]
pub struct RoundRobinSched {
    next: usize,
    signals: Vec<Signal>,
    /// Whether all inputs are pulled regardless of their empty signals.
    asks_all: bool,
}

impl RoundRobinSched {
    /// A scheduler that ignores the inputs' empty signals.
    pub(super) fn asking_all() -> Self {
        Self { asks_all: true, ..Self::default() }
    }
}

impl Element for RoundRobinSched {
    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let inputs = cx.ninputs();
        let signal = |port| if self.asks_all { Signal::Busy } else { cx.upstream_empty_signal(port, None) };
        self.signals = (0..inputs).map(signal).collect();
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
