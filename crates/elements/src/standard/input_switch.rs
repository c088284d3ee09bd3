//! `InputSwitch(INPUT)`: lets packets of one input through, which a handler chooses; those of others are dropped.
//!
//! Ports: any number of push inputs, one push output.
//!
//! Arguments:
//! - `INPUT`: the input; 0 by default, negative for none.
//!
//! Handlers: `switch` (read, write), `config` (read): the input; `drops` (read).
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use ringway_click::arg::Args;
use ringway_click::{Class, Context, Element, Failed, Handler, HandlerError, PacketBurst};

/// Facts.
pub static CLASS: Class =
    Class::new("InputSwitch", || Box::<InputSwitch>::default()).ports("-/1").processing("h");

/// See the module.
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
        [Handler::both("switch"), Handler::read("config").calm(), Handler::read("drops")].into()
    }

    fn read(&mut self, name: &str, _: &str, _: &mut Context<'_>) -> Result<String, HandlerError> {
        Ok(if name == "drops" { self.drops.to_string() } else { self.input.to_string() })
    }

    fn write(&mut self, _: &str, value: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        let number: i32 = cx.parse(value).map_err(|_| HandlerError::failed("syntax error"))?;
        let there = usize::try_from(number).is_ok_and(|number| number < cx.ninputs());
        self.input = if there { number } else { -1 };
        Ok(())
    }
}
