//! `SimplePullSwitch(INPUT)`: pulls from one input, which a handler chooses; it says nothing of whether it is empty.
//!
//! Ports: any number of pull inputs, one pull output.
//!
//! Arguments:
//! - `INPUT`: the input; 0 by default, negative for none.
//!
//! Handlers: `switch` (read, write), `config` (read): the input.
use crate::arg::Args;
use crate::{Class, Context, Element, Failed, Handler, HandlerError, PacketBurst};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Facts.
pub static CLASS: Class =
    Class::new("SimplePullSwitch", || Box::<SimplePullSwitch>::default()).ports("-/1").processing("l");

/// See the module.
#[derive(Debug, Default)]
pub struct SimplePullSwitch {
    input: i32,
}

impl Element for SimplePullSwitch {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        args.read_p("INPUT", &mut self.input);
        args.complete()?;
        if usize::try_from(self.input).is_ok_and(|input| input >= cx.ninputs()) {
            return Err(cx.error(alloc::format!("input must be < {}", cx.ninputs())));
        }
        Ok(())
    }

    fn pull(&mut self, _: usize, max: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        if let Ok(input) = usize::try_from(self.input) {
            cx.pull(input, max, burst);
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::both("switch"), Handler::read("config").calm()].into()
    }

    fn read(&mut self, _: &str, _: &str, _: &mut Context<'_>) -> Result<String, HandlerError> {
        Ok(self.input.to_string())
    }

    fn write(&mut self, _: &str, value: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        let number: i32 = cx.parse(value).map_err(|_| HandlerError::failed("syntax error"))?;
        let there = usize::try_from(number).is_ok_and(|number| number < cx.ninputs());
        self.input = if there { number } else { -1 };
        Ok(())
    }
}
