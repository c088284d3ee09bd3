//! `StaticSwitch(OUTPUT)`: sends packets to one output for good.
//!
//! Ports: one push input, any number of push outputs. No handlers.
//!
//! Arguments:
//! - `OUTPUT`: the output; negative to drop packets.
use crate::arg::Args;
use crate::{Class, Context, Element, Failed, PacketBurst};
use alloc::boxed::Box;

/// Facts.
pub static CLASS: Class =
    Class::new("StaticSwitch", || Box::<StaticSwitch>::default()).ports("1/-").processing("h");

/// See the module.
#[derive(Debug, Default)]
pub struct StaticSwitch {
    output: i32,
}

impl Element for StaticSwitch {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        args.read_mp("OUTPUT", &mut self.output);
        args.complete()?;
        if usize::try_from(self.output).is_ok_and(|output| output >= cx.noutputs()) {
            let text = alloc::format!("output must be < {}", cx.noutputs());
            return Err(cx.error(text));
        }
        Ok(())
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        match usize::try_from(self.output) {
            Ok(output) => cx.push_burst(output, burst),
            Err(_) => burst.clear(),
        }
    }
}
