//! `Suppressor`: leads each input to the output of the same number, unless it is suppressed.
//!
//! Ports: as many inputs as outputs, each pair push or pull. No arguments.
//!
//! Handlers: `active0`, `active1`, ... (read, write), one for each pair: false to drop what is pushed and give nothing
//! when pulled; `reset` (write): all are active again.
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use ringway_click::arg::Args;
use ringway_click::{Class, Context, Element, Failed, Handler, HandlerError, PacketBurst};

/// Facts.
pub static CLASS: Class = Class::new("Suppressor", || Box::<Suppressor>::default()).ports("-/=").flow("#/#");

/// See the module.
#[derive(Debug, Default)]
pub struct Suppressor {
    active: Vec<bool>,
}

impl Suppressor {
    fn of_handler(&mut self, name: &str) -> Result<&mut bool, HandlerError> {
        let port: Option<usize> = name.strip_prefix("active").and_then(|port| port.parse().ok());
        port.and_then(|port| self.active.get_mut(port)).ok_or_else(|| HandlerError::missing(name))
    }
}

impl Element for Suppressor {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.active = alloc::vec![true; cx.ninputs()];
        args.complete()
    }

    fn push(&mut self, port: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        if self.active.get(port) == Some(&true) {
            cx.push_burst(port, burst);
        }
        burst.clear();
    }

    fn pull(&mut self, port: usize, max: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        if self.active.get(port) == Some(&true) {
            cx.pull(port, max, burst);
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        let ports =
            (0..self.active.len()).map(|port| Handler::both("").named(format!("active{port}")).checkbox());
        ports.chain([Handler::write("reset").button()]).collect()
    }

    fn read(&mut self, name: &str, _: &str, _: &mut Context<'_>) -> Result<String, HandlerError> {
        Ok(self.of_handler(name)?.to_string())
    }

    fn write(&mut self, name: &str, value: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        if name == "reset" {
            self.active.fill(true);
            return Ok(());
        }
        let active = cx.parse(value).map_err(|_| HandlerError::failed("syntax error"))?;
        *self.of_handler(name)? = active;
        Ok(())
    }
}
