//! `PullSwitch(INPUT)`: pulls from one input, which a handler chooses.
//!
//! Ports: any number of pull inputs, one pull output. It says when its input is empty.
//!
//! Arguments:
//! - `INPUT`: the input; 0 by default, negative for none.
//!
//! Handlers: `switch` (read, write), `config` (read): the input.
use super::switch::existing;
use ringway_click::prelude::*;
use ringway_click::{Note, NoteKind, Search};

pub static CLASS: Class =
    Class::new("PullSwitch", || Box::<PullSwitch>::default()).ports("-/1").processing("l").live();

#[derive(Debug, Default)]
pub struct PullSwitch {
    input: i32,
    /// Whether it provides no empty notifier.
    silent: bool,
    note: Option<Note>,
    signals: Vec<Signal>,
}

impl PullSwitch {
    /// An element without an empty notifier.
    pub(super) fn silent() -> Self {
        Self { silent: true, ..Self::default() }
    }

    /// Updates the empty notifier.
    fn update_notifier(&self, cx: &mut Context<'_>) {
        let Some(note) = self.note else { return };
        let signal = usize::try_from(self.input).ok().and_then(|input| self.signals.get(input));
        match signal {
            Some(signal) if cx.is_active(signal) => cx.wake(note),
            _ => cx.sleep(note),
        }
    }
}

impl Element for PullSwitch {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        args.read_p("INPUT", &mut self.input);
        args.complete()?;
        if usize::try_from(self.input).is_ok_and(|input| input >= cx.ninputs()) {
            return Err(cx.error(alloc::format!("input must be < {}", cx.ninputs())));
        }
        if !self.silent {
            let note = cx.new_note(NoteKind::Empty, Search::Stop);
            if self.input < 0 {
                cx.sleep(note);
            }
            self.note = Some(note);
        }
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        if let Some(note) = self.note {
            self.signals = (0..cx.ninputs()).map(|port| cx.upstream_empty_signal_for(port, note)).collect();
        }
        Ok(())
    }

    fn pull(&mut self, _: usize, max: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        if let Ok(input) = usize::try_from(self.input) {
            cx.lend(self, |cx| cx.pull(input, max, burst));
        }
        if burst.is_empty() {
            self.update_notifier(cx);
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("switch", |e: &Self| e.input).writes(|e: &mut Self, value, cx| {
                e.input = existing(
                    cx.parse(value).map_err(|_| HandlerError::failed("syntax error"))?,
                    cx.ninputs(),
                );
                e.update_notifier(cx);
                Ok(())
            }),
            Handler::read("config", |e: &Self| e.input).calm(),
        ]
        .into()
    }
}
