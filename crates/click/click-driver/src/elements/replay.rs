//! Replaying a file: emits its packets, optionally at their times.
use ringway_click::arg::{Args, Fixed};
use ringway_click::{
    BEHIND, Context, Element, Handler, HandlerError, Note, NoteKind, Packet, PacketBurst, Search, Task, Timer,
};
use std::num::NonZeroUsize;

/// The probability 1, in 28 bits.
pub(super) const CERTAIN: u32 = 1 << 28;

/// Reads `SAMPLE`, the probability with which a packet is emitted.
pub(super) fn read_sample(args: &mut Args, cx: &mut Context<'_>) -> u32 {
    let mut sample = Fixed::<28>(CERTAIN);
    args.read("SAMPLE", &mut sample);
    match sample.0 {
        0 => cx.warning("SAMPLE probability is 0; emitting no packets"),
        CERTAIN.. if sample.0 > CERTAIN => cx.warning("SAMPLE probability reduced to 1"),
        _ => {}
    }
    sample.0.min(CERTAIN)
}

/// Whether to emit the next packet.
pub(super) fn is_sampled(sample: u32, cx: &mut Context<'_>) -> bool {
    sample >= CERTAIN || cx.random() & (CERTAIN - 1) < sample
}

/// Source of packets.
pub(super) trait Records {
    /// The next packet, which may not be due yet; `None` at the end.
    fn next_record(&mut self, cx: &mut Context<'_>) -> Option<Packet>;
}

/// Emits packets, at their times if configured.
#[derive(Default)]
pub(super) struct Replay {
    /// Whether packets are emitted.
    pub(super) active: bool,
    /// Whether they keep their intervals in time.
    pub(super) timing: bool,
    /// Packets pushed per turn of its task; the router's burst if none.
    pub(super) burst: Option<NonZeroUsize>,
    /// Whether the driver is stopped at the end.
    pub(super) stop: bool,
    /// A packet that is not due yet.
    waiting: Option<Packet>,
    /// Difference between packets' times and the steady clock.
    offset: Option<i64>,
    task: Option<Task>,
    timer: Option<Timer>,
    note: Option<Note>,
}

impl Replay {
    /// Call in the element's `configure`.
    pub(super) fn configure(&mut self, cx: &mut Context<'_>) {
        self.note = Some(cx.new_note(NoteKind::Empty, Search::Stop));
    }

    /// Call in its `initialize`.
    pub(super) fn initialize(&mut self, cx: &mut Context<'_>) {
        if cx.output_is_push(0) {
            self.task = Some(cx.new_task(self.active));
        }
        self.timer = Some(cx.new_timer());
    }

    /// The next packet to emit; `None` if it is not due, or there is none: then the puller may sleep.
    pub(super) fn next(&mut self, records: &mut impl Records, cx: &mut Context<'_>) -> Option<Packet> {
        let packet = self.waiting.take().or_else(|| records.next_record(cx));
        let Some(packet) = packet else {
            self.sleep(cx);
            if std::mem::take(&mut self.stop) {
                cx.stop();
            }
            return None;
        };
        self.when_due(packet, cx)
    }

    /// A packet that was not due when it was read.
    pub(super) fn take_waiting(&mut self) -> Option<Packet> {
        self.waiting.take()
    }

    /// Returns a packet if it is due, else keeps it until then; the puller may sleep.
    pub(super) fn when_due(&mut self, packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        if self.timing && !self.is_due(packet.timestamp(), cx) {
            self.waiting = Some(packet);
            return None;
        }
        Some(packet)
    }

    /// Sets the clock so that a packet of this time is due now.
    pub(super) fn begin_at(&mut self, time: u64, cx: &mut Context<'_>) {
        self.offset = Some((cx.steady() as i64).wrapping_sub(time as i64));
    }

    /// Continues at the position of another replay.
    pub(super) fn take_state(&mut self, from: &mut Self) {
        (self.waiting, self.offset) = (from.waiting.take(), from.offset);
    }

    /// Whether a packet is due. If not, the timer wakes the element.
    fn is_due(&mut self, time: u64, cx: &mut Context<'_>) -> bool {
        let (now, time) = (cx.steady() as i64, time as i64);
        let offset = *self.offset.get_or_insert(now.wrapping_sub(time));
        let due = time.wrapping_add(offset);
        if now >= due {
            if now.wrapping_sub(due) > BEHIND as i64 {
                // The rest of the packets is later by as much.
                self.offset = Some(now.wrapping_sub(time));
            }
            return true;
        }
        if let Some(timer) = self.timer {
            cx.set_timer(timer, due as u64);
        }
        self.sleep(cx);
        false
    }

    pub(super) fn sleep(&self, cx: &mut Context<'_>) {
        if let Some(note) = self.note {
            cx.sleep(note);
        }
    }

    /// The handlers `active` and `stop` of an element with a replay.
    pub(super) fn handlers<E: Element>(replay: fn(&mut E) -> &mut Self) -> [Handler; 2] {
        let active = Handler::read_with("active", move |e: &mut E, _, _| Ok(replay(e).active.to_string()));
        let active = active.writes(move |e: &mut E, value, cx| {
            let active = cx.parse(value).map_err(|_| HandlerError::failed("type mismatch"))?;
            replay(e).set_active(active, cx);
            Ok(())
        });
        let stop = Handler::button("stop", move |e: &mut E, cx| {
            replay(e).set_active(false, cx);
            cx.stop();
        });
        [active.checkbox(), stop]
    }

    /// Starts or stops emitting.
    pub(super) fn set_active(&mut self, active: bool, cx: &mut Context<'_>) {
        self.active = active;
        match (self.task, self.note) {
            (Some(task), _) if active => cx.reschedule(task),
            (_, Some(note)) if active => cx.wake(note),
            _ => self.sleep(cx),
        }
    }

    pub(super) fn read_burst(&mut self, args: &mut Args) {
        let mut burst = None::<u32>;
        args.read("BURST", &mut burst);
        self.burst = burst.and_then(|burst| NonZeroUsize::new(burst as usize));
    }

    /// Packets to push per turn.
    pub(super) fn burst(&self, cx: &Context<'_>) -> usize {
        self.burst.map_or(cx.burst(), NonZeroUsize::get)
    }

    /// Continues when a packet is due.
    pub(super) fn run_timer(&mut self, cx: &mut Context<'_>) {
        if self.active {
            self.set_active(true, cx);
        }
    }

    /// Pushes packets from `next` to output 0.
    pub(super) fn run_task(
        &mut self,
        task: Task,
        cx: &mut Context<'_>,
        mut next: impl FnMut(&mut Self, &mut Context<'_>) -> Option<Packet>,
    ) -> bool {
        if !self.active {
            return false;
        }
        for _ in 0..self.burst(cx) {
            let Some(packet) = next(self, cx) else { return false };
            cx.push(0, packet);
        }
        cx.reschedule(task);
        true
    }

    /// Pulls up to `max` packets from `next`.
    pub(super) fn pull(
        &mut self,
        max: usize,
        burst: &mut PacketBurst,
        cx: &mut Context<'_>,
        mut next: impl FnMut(&mut Self, &mut Context<'_>) -> Option<Packet>,
    ) {
        for _ in 0..if self.active { max } else { 0 } {
            let Some(packet) = next(self, cx) else { break };
            burst.push(packet);
        }
    }
}
