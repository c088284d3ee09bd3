//! `PrioSched`: pulls from the first input that has a packet.
//!
//! Ports: any number of pull inputs, one pull output. No arguments, no handlers.
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("PrioSched", || Box::<PrioSched>::default()).ports("-/1").processing("l").flags("S0");

#[derive(Debug, Default)]
pub struct PrioSched {
    signals: Vec<Signal>,
    /// Whether all inputs are pulled regardless of their empty signals.
    asks_all: bool,
}

impl PrioSched {
    /// A scheduler that ignores the inputs' empty signals.
    pub(super) fn asking_all() -> Self {
        Self { asks_all: true, ..Self::default() }
    }
}

impl Element for PrioSched {
    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let inputs = cx.ninputs();
        let signal = |port| if self.asks_all { Signal::Busy } else { cx.upstream_empty_signal(port, None) };
        self.signals = (0..inputs).map(signal).collect();
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
