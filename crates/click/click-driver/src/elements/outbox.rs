//! Pulling packets and passing each to the system, which may have no room.
use ringway_click::{Context, Packet, Signal, Task, Timer};

/// Time to wait for room, in nanoseconds.
const PAUSE: u64 = 1_000_000;

/// State of pulling.
#[derive(Default)]
pub struct Outbox {
    task: Option<Task>,
    timer: Option<Timer>,
    signal: Signal,
    /// A packet that was pulled when there was no room.
    waiting: Option<Packet>,
}

impl Outbox {
    /// An outbox that pulls from input 0.
    pub fn new(cx: &mut Context<'_>) -> Outbox {
        let task = cx.new_task(true);
        let signal = cx.upstream_empty_signal(0, Some(task));
        Outbox { task: Some(task), timer: Some(cx.new_timer()), signal, waiting: None }
    }

    /// Pulls up to `most` packets for `send`, which returns a packet that can't be sent now; continues later
    /// if there may be more. Returns whether there were any.
    pub fn run(
        &mut self,
        most: usize,
        cx: &mut Context<'_>,
        mut send: impl FnMut(Packet, &mut Context<'_>) -> Option<Packet>,
    ) -> bool {
        let mut worked = false;
        for _ in 0..most {
            let next = self.waiting.take().or_else(|| cx.pull_one(0));
            let Some(packet) = next else { break };
            worked = true;
            self.waiting = send(packet, cx);
            if self.waiting.is_some() {
                if let Some(timer) = self.timer {
                    cx.set_timer_after(timer, PAUSE);
                }
                return true;
            }
        }
        if worked || cx.is_active(&self.signal) {
            self.wake(cx);
        }
        worked
    }

    /// Takes over the packet that waits in another outbox, if this one pulls. Returns it otherwise.
    pub fn take_state(&mut self, from: &mut Outbox) -> Option<Packet> {
        let waiting = from.waiting.take();
        if self.task.is_none() {
            return waiting;
        }
        self.waiting = waiting;
        None
    }

    /// Continues, since there may be room again.
    pub fn wake(&self, cx: &mut Context<'_>) {
        if let Some(task) = self.task {
            cx.reschedule(task);
        }
    }
}
