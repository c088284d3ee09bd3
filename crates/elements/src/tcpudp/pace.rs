//! How fast sources make packets, how many, and how fast they did.
use crate::token_bucket::TokenBucket;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use ringway_click::arg::{ArgError, Args};
use ringway_click::{
    Context, Handler, HandlerError, Note, NoteKind, Packet, PacketBurst, SECOND, Search, Timer,
};

/// See the module.
#[derive(Debug)]
pub(super) struct Pace {
    /// Packets a second; 0 for as many as are asked for.
    rate: u32,
    /// Packets in all; negative for no limit.
    limit: i64,
    pub(super) active: bool,
    count: u64,
    first: u64,
    last: u64,
    bucket: TokenBucket,
    /// Asleep while none is due.
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

    /// Makes its timer. In [`ringway_click::Element::initialize`].
    pub(super) fn initialize(&mut self, cx: &mut Context<'_>) {
        self.timer = Some(cx.new_timer());
    }

    /// Whether a packet is due at this time of the steady clock; who pulls is told when the next will be.
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

    /// Makes packets while they are due, until there are so many; `make` is told how many there were before.
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

    /// Says that there will be none until [`Pace::wake`].
    pub(super) fn rest(&self, cx: &mut Context<'_>) {
        if let Some(note) = self.note {
            cx.sleep(note);
        }
    }

    /// Says that there may be some again.
    pub(super) fn wake(&self, cx: &mut Context<'_>) {
        if let Some(note) = self.note {
            cx.wake(note);
        }
    }

    /// Counts a packet that was made.
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

    /// The handlers.
    pub(super) fn handlers() -> Vec<Handler> {
        [
            Handler::read("count"),
            Handler::both("rate"),
            Handler::write("limit"),
            Handler::write("reset").button(),
            Handler::write("active").checkbox(),
        ]
        .into()
    }

    /// What they say.
    pub(super) fn text(&self, name: &str) -> String {
        if name == "count" {
            return self.count.to_string();
        }
        let took = u128::from(self.last.saturating_sub(self.first).max(1));
        match self.last {
            0 => "0".to_string(),
            _ => (u128::from(self.count) * u128::from(SECOND) / took).to_string(),
        }
    }

    /// Writes them.
    ///
    /// # Errors
    /// What is wrong with the value.
    pub(super) fn write(
        &mut self,
        name: &str,
        value: &str,
        cx: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        let wrong = |text: &'static str| move |_: ArgError| HandlerError::failed(text);
        match name {
            "rate" => {
                self.set_rate(cx.parse(value).map_err(wrong("rate parameter must be integer >= 0"))?);
            }
            "limit" => self.limit = cx.parse(value).map_err(wrong("limit parameter must be integer >= 0"))?,
            "active" => {
                self.active = cx.parse(value).map_err(wrong("active parameter must be boolean"))?;
                if self.active {
                    self.reset();
                }
            }
            _ => self.reset(),
        }
        self.wake(cx);
        Ok(())
    }
}
