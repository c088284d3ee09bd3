//! `StaticPullSwitch(INPUT)`: pulls from one fixed input.
//!
//! Ports: any number of pull inputs, one pull output. No handlers.
//!
//! Arguments:
//! - `INPUT`: the input; negative for none.
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("StaticPullSwitch", || Box::<StaticPullSwitch>::default()).ports("-/1").processing("l");

#[derive(Debug, Default)]
pub struct StaticPullSwitch {
    input: i32,
}

impl Element for StaticPullSwitch {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        args.read_mp("INPUT", &mut self.input);
        args.complete()?;
        if usize::try_from(self.input).is_ok_and(|input| input >= cx.ninputs()) {
            let text = alloc::format!("input must be < {}", cx.ninputs());
            return Err(cx.error(text));
        }
        Ok(())
    }

    fn pull(&mut self, _: usize, max: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        if let Ok(input) = usize::try_from(self.input) {
            cx.pull(input, max, burst);
        }
    }
}
