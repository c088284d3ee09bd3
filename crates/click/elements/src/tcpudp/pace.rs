//! Rate limit, total limit and rate measurement of sources.
use crate::token_bucket::TokenBucket;
use ringway_click::prelude::*;
use ringway_click::{Note, NoteKind, Search};

#[derive(Debug)]
pub(super) struct Pace {
    /// Packets per second; 0 for no limit.
    rate: u32,
    /// Total number of packets; negative for no limit.
    limit: i64,
    pub(super) active: bool,
    /// Asks the driver to stop once the limit is reached.
    pub(super) stop: bool,
    count: u64,
    first: u64,
    last: u64,
    bucket: TokenBucket,
    /// Sleeps while no packet is due.
    note: Option<Note>,
    timer: Option<Timer>,
}

impl Default for Pace {
    fn default() -> Self {
        let bucket = TokenBucket::new(0, 1);
        Self {
            rate: 0,
            limit: -1,
            active: true,
            stop: false,
            count: 0,
            first: 0,
            last: 0,
            bucket,
            note: None,
            timer: None,
        }
    }
}

impl Pace {
    /// Reads RATE and LIMIT.
    pub(super) fn read_arguments(&mut self, args: &mut Args, cx: &mut Context<'_>) {
        self.note = Some(cx.new_note(NoteKind::Empty, Search::Stop));
        let mut rate = 0u32;
        args.read_mp("RATE", &mut rate);
        args.read_mp("LIMIT", &mut self.limit);
        self.set_rate(rate);
    }

    fn set_rate(&mut self, rate: u32) {
        self.rate = rate;
        self.bucket = TokenBucket::new(rate, (rate / 100).max(1));
        self.bucket.set(1);
    }

    /// Whether the limit is reached.
    pub(super) fn is_done(&self) -> bool {
        u64::try_from(self.limit).is_ok_and(|limit| self.count >= limit)
    }

    /// Creates the timer. In [`ringway_click::Element::initialize`].
    pub(super) fn initialize(&mut self, cx: &mut Context<'_>) {
        self.timer = Some(cx.new_timer());
    }

    /// Whether a packet is due at this time of the steady clock; if not, sleeps until the next one is due.
    pub(super) fn is_due(&mut self, now: u64, cx: &mut Context<'_>) -> bool {
        self.bucket.refill(now);
        if self.active && (self.rate == 0 || self.bucket.remove_if(1)) {
            return true;
        }
        self.rest(cx);
        if let (true, Some(timer), Some(wait)) = (self.active, self.timer, self.bucket.time_until(1)) {
            cx.set_timer_after(timer, wait);
        }
        false
    }

    /// Generates due packets until the burst has `max` packets; `make` gets the number of packets generated before.
    pub(super) fn fill(
        &mut self,
        max: usize,
        burst: &mut PacketBurst,
        cx: &mut Context<'_>,
        mut make: impl FnMut(u64, &mut Context<'_>) -> Option<Packet>,
    ) {
        let now = cx.steady();
        while burst.len() < max {
            if self.is_done() {
                if core::mem::take(&mut self.stop) {
                    cx.stop();
                }
                return self.rest(cx);
            }
            if !self.is_due(now, cx) {
                return;
            }
            let Some(packet) = make(self.count, cx) else { return };
            self.made(now);
            burst.push(packet);
        }
    }

    /// Signals that there are no packets until [`Pace::wake`].
    pub(super) fn rest(&self, cx: &mut Context<'_>) {
        if let Some(note) = self.note {
            cx.sleep(note);
        }
    }

    /// Signals that packets may be available again.
    pub(super) fn wake(&self, cx: &mut Context<'_>) {
        if let Some(note) = self.note {
            cx.wake(note);
        }
    }

    /// Counts a generated packet.
    pub(super) fn made(&mut self, now: u64) {
        if self.count == 0 {
            self.first = now;
        }
        self.count += 1;
        if self.is_done() {
            self.last = now;
        }
    }

    pub(super) fn reset(&mut self) {
        (self.count, self.first, self.last) = (0, 0, 0);
    }

    /// Packets per second, between the first and the last packet.
    fn measured_rate(&self) -> u128 {
        let took = u128::from(self.last.saturating_sub(self.first).max(1));
        if self.last == 0 { 0 } else { u128::from(self.count) * u128::from(SECOND) / took }
    }

    /// The handlers of an element with a [`Pace`].
    pub(super) fn handlers<E: Element>(pace: fn(&mut E) -> &mut Self) -> [Handler; 5] {
        let rate = Handler::read_with("rate", move |e: &mut E, _, _| Ok(pace(e).measured_rate().to_string()));
        let limit = Handler::write("limit", move |e: &mut E, value, cx| {
            pace(e).limit = cx.parse(value)?;
            Ok(())
        });
        let active = Handler::write("active", move |e: &mut E, value, cx| {
            pace(e).active = cx.parse(value)?;
            if pace(e).active {
                pace(e).reset();
            }
            Ok(())
        });
        let handlers = [
            Handler::read_with("count", move |e: &mut E, _, _| Ok(pace(e).count.to_string())),
            rate.writes(move |e: &mut E, value, cx| {
                pace(e).set_rate(cx.parse(value)?);
                Ok(())
            })
            .error("rate parameter must be integer >= 0"),
            limit.error("limit parameter must be integer >= 0"),
            Handler::button("reset", move |e: &mut E, _| pace(e).reset()),
            active.checkbox().error("active parameter must be boolean"),
        ];
        handlers.map(|handler| handler.then(move |e: &mut E, cx| pace(e).wake(cx)))
    }
}
