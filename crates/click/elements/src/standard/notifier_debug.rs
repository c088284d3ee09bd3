//! `NotifierDebug`: shows the state of notifiers.
//!
//! Ports: one input, one output, push or pull. No arguments.
//!
//! Handlers: `signal` (read): upstream's if its input is pull, otherwise downstream's: kind, word, mask and value of
//! each word of notifiers; `*` if it is active.
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("NotifierDebug", || Box::<NotifierDebug>::default()).ports("1/1");

#[derive(Debug, Default)]
pub struct NotifierDebug {
    signal: Signal,
}

impl Element for NotifierDebug {
    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.signal = match cx.input_is_pull(0) {
            true => cx.upstream_empty_signal(0, None),
            false => cx.downstream_full_signal(0, None),
        };
        Ok(())
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::read_with("signal", |e: &mut Self, _, cx| Ok(cx.router().signal_text(&e.signal)))].into()
    }
}
