//! `StrideSwitch(TICKETS...)`: sends packets to outputs in proportion to their tickets (stride scheduling,
//! Waldspurger 1995).
//!
//! Ports: one push input, as many push outputs as there are arguments.
//!
//! Arguments:
//! - `TICKETS`: 0 to 32768, one for each output; an output with 0 gets no packets.
//!
//! Handlers: `tickets0`, `tickets1`, ... (read, write).
use super::stride::Strides;
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("StrideSwitch", || Box::<StrideSwitch>::default()).ports("1/1-").processing("h").live();

#[derive(Debug, Default)]
pub struct StrideSwitch {
    strides: Strides,
}

impl Element for StrideSwitch {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let wanted = cx.noutputs();
        self.strides = Strides::read(args, cx, wanted, "output")?;
        Ok(())
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for packet in burst.drain() {
            if let Some(output) = self.strides.after(0) {
                self.strides.turn(1);
                cx.push(output, packet);
            }
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        self.strides.handlers(|e: &mut Self| &mut e.strides)
    }
}
