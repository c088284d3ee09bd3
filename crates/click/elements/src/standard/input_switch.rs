//! `InputSwitch(INPUT)`: passes packets of one input, which a handler selects; packets of other inputs are dropped.
//!
//! Ports: any number of push inputs, one push output.
//!
//! Arguments:
//! - `INPUT`: the input; 0 by default, negative for none.
//!
//! Handlers: `switch` (read, write), `config` (read): the input; `drops` (read).
use super::switch::existing;
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("InputSwitch", || Box::<InputSwitch>::default()).ports("-/1").processing("h").live();

#[derive(Debug, Default)]
pub struct InputSwitch {
    input: i32,
    drops: u64,
}

impl Element for InputSwitch {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        args.read_p("INPUT", &mut self.input);
        args.complete()?;
        if usize::try_from(self.input).is_ok_and(|input| input >= cx.ninputs()) {
            return Err(cx.error(alloc::format!("input must be < {}", cx.ninputs())));
        }
        Ok(())
    }

    fn push(&mut self, port: usize, burst: &mut PacketBurst, _: &mut Context<'_>) {
        if usize::try_from(self.input) != Ok(port) {
            self.drops += burst.len() as u64;
            burst.clear();
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("switch", |e: &Self| e.input).writes(|e: &mut Self, value, cx| {
                e.input = existing(
                    cx.parse(value).map_err(|_| HandlerError::failed("syntax error"))?,
                    cx.ninputs(),
                );
                Ok(())
            }),
            Handler::read("config", |e: &Self| e.input).calm(),
            Handler::counter("drops", |e: &mut Self| &mut e.drops),
        ]
        .into()
    }
}
