//! `StrideSched(TICKETS...)`: pulls from inputs in proportion to their tickets (stride scheduling,
//! Waldspurger 1995).
//!
//! Ports: as many pull inputs as there are arguments, one pull output.
//!
//! Arguments:
//! - `TICKETS`: 0 to 32768, one for each input; an input with 0 is never pulled.
//!
//! Handlers: `tickets0`, `tickets1`, ... (read, write).
use super::stride::Strides;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("StrideSched", || Box::<StrideSched>::default())
    .ports("1-/1")
    .processing("l")
    .flags("S0")
    .live();

#[derive(Debug, Default)]
pub struct StrideSched {
    strides: Strides,
    signals: Vec<Signal>,
}

impl StrideSched {
    fn one(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) -> bool {
        let before = burst.len();
        let mut tried = 0;
        while let Some(input) = self.strides.after(tried).filter(|_| burst.len() == before) {
            if cx.is_active(&self.signals[input]) {
                cx.pull(input, 1, burst);
            }
            tried += 1;
        }
        self.strides.turn(tried);
        burst.len() > before
    }
}

impl Element for StrideSched {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let wanted = cx.ninputs();
        self.strides = Strides::read(args, cx, wanted, "input")?;
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.signals = (0..cx.ninputs()).map(|input| cx.upstream_empty_signal(input, None)).collect();
        Ok(())
    }

    fn pull(&mut self, _: usize, max: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        while burst.len() < max && self.one(burst, cx) {}
    }

    fn handlers(&self) -> Vec<Handler> {
        self.strides.handlers(|e: &mut Self| &mut e.strides)
    }
}
