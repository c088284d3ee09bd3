//! `DelayShaper(DELAY)`: gives a packet no earlier than DELAY after its timestamp, which becomes the time it leaves.
//!
//! Ports: one pull input, one pull output. The output signals whether packets are available.
//!
//! Arguments:
//! - `DELAY`: a time.
//!
//! Handlers: `delay` (read, write).
use crate::departures::Departures;
use ringway_click::arg::Nanoseconds;
use ringway_click::prelude::*;
use ringway_click::{Interval, Note, NoteKind, Search};

pub static CLASS: Class =
    Class::new("DelayShaper", || Box::<DelayShaper>::default()).ports("1/1").processing("l");

#[derive(Debug, Default)]
pub struct DelayShaper {
    delay: u64,
    departures: Departures,
    /// With the moment of the steady clock from which it may leave.
    held: Option<(u64, Packet)>,
    timer: Option<Timer>,
    note: Option<Note>,
    signal: Signal,
}

impl Element for DelayShaper {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut delay = Nanoseconds::default();
        args.read_mp("DELAY", &mut delay);
        args.complete()?;
        self.delay = delay.0;
        self.note = Some(cx.new_note(NoteKind::Empty, Search::Stop));
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.timer = Some(cx.new_timer());
        if let Some(note) = self.note {
            self.signal = cx.upstream_empty_signal_for(0, note);
        }
        Ok(())
    }

    fn pull(&mut self, _: usize, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let (Some(note), Some(timer)) = (self.note, self.timer) else { return };
        if self.held.is_none() {
            self.held = cx.lend(self, |cx| cx.pull_one(0)).map(|packet| {
                let (_, when) = self.departures.of(packet.timestamp(), self.delay, cx);
                (when, packet)
            });
        }
        match self.held.take() {
            Some((when, mut packet)) if when <= cx.steady() => {
                packet.set_timestamp(cx.now());
                burst.push(packet);
            }
            Some((when, packet)) => {
                cx.set_timer(timer, when);
                cx.sleep(note);
                self.held = Some((when, packet));
            }
            None if !cx.is_active(&self.signal) => cx.sleep(note),
            None => {}
        }
    }

    fn run_timer(&mut self, _: Timer, cx: &mut Context<'_>) {
        if let Some(note) = self.note {
            cx.wake(note);
        }
    }

    fn take_state(&mut self, from: &mut dyn Element, cx: &mut Context<'_>) {
        let Some(from) = from.downcast_mut::<Self>() else { return };
        // The packet waits until the time that it was given.
        (self.held, self.departures) = (from.held.take(), core::mem::take(&mut from.departures));
        if let (Some((when, _)), Some(timer)) = (&self.held, self.timer) {
            cx.set_timer(timer, *when);
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::read("delay", |e: &Self| Interval(e.delay))
            .calm()
            .writes(|e: &mut Self, value, cx| {
                e.delay = cx.parse::<Nanoseconds>(value)?.0;
                Ok(())
            })
            .error("delay must be a timestamp")]
        .into()
    }
}
