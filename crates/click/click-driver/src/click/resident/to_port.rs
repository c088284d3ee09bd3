//! ToPort of a resident function. Arguments and handlers are those of the element for a ring.

use super::port_access::PortAccess;
use ringway_click::arg::Args;
use ringway_click::{Class, Context, Element, Failed, Handler, PacketBurst, Pool, Signal, Task};
use ringway_elements::platform::devices;
use ringway_frame::LARGEST;

pub(super) static CLASS: Class = devices::sink(Class::new("ToPort", || Box::<ToPort>::default()));

/// Why packets are dropped.
const REASONS: [&str; 4] = ["full", "away", "too-long", "bad-offload"];
const FULL: usize = 0;
const AWAY: usize = 1;
const TOO_LONG: usize = 2;
const BAD_OFFLOAD: usize = 3;

#[derive(Default)]
pub(super) struct ToPort {
    access: PortAccess,
    task: Option<Task>,
    signal: Signal,
    frames: u64,
    bytes: u64,
    drops: [u64; REASONS.len()],
}

impl ToPort {
    /// An element that names its port by a device.
    pub fn of_device() -> Self {
        Self { access: PortAccess::of_device(), ..Self::default() }
    }

    fn send(&mut self, burst: &mut PacketBurst, pool: &Pool) {
        let Self { access, frames, bytes, drops, .. } = self;
        let Some(mut ends) = access.ends() else {
            drops[AWAY] += burst.len() as u64;
            return burst.clear();
        };
        let mut room = ends.room(burst.len());
        let count = burst.len() as u64;
        if room >= burst.len()
            && let Some(all) = ends.push_all(burst, pool)
        {
            (*frames, *bytes) = (*frames + count, *bytes + all);
            return;
        }
        let is_complete = !pool.has_offloads() || ends.takes_offloads();
        for packet in burst.drain() {
            if !is_complete && packet.has_offload() {
                let done = pool.complete(packet, |piece| match room.checked_sub(1) {
                    Some(rest) => {
                        room = rest;
                        *frames += 1;
                        *bytes += piece.len() as u64;
                        ends.push(piece.into_parcel());
                    }
                    None => drops[FULL] += 1,
                });
                drops[BAD_OFFLOAD] += u64::from(done.is_err());
            } else if packet.len() > LARGEST as usize {
                drops[TOO_LONG] += 1;
            } else if room == 0 {
                drops[FULL] += 1;
            } else {
                room -= 1;
                *frames += 1;
                *bytes += packet.len() as u64;
                ends.push(packet.into_parcel());
            }
        }
    }

    /// Number of packets that can be pulled now, 0 if that isn't known yet. `None`: the element is selected when there
    /// is room.
    fn room(&self, cx: &Context<'_>) -> Option<usize> {
        let mut ends = self.access.ends()?;
        match ends.room(cx.burst()) {
            0 if ends.wait_for_room() => None,
            0 => Some(ends.room(cx.burst())),
            room => Some(room),
        }
    }
}

impl Element for ToPort {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.access.configure(args, cx)
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.access.initialize(false, cx)?;
        if cx.input_is_pull(0) {
            let task = cx.new_task(true);
            self.signal = cx.upstream_empty_signal(0, Some(task));
            self.task = Some(task);
        }
        Ok(())
    }

    fn selected(&mut self, _: i32, _: bool, _: bool, cx: &mut Context<'_>) {
        self.task.into_iter().for_each(|task| cx.reschedule(task));
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        self.send(burst, cx.pool());
    }

    fn run_task(&mut self, task: Task, cx: &mut Context<'_>) -> bool {
        let Some(room) = self.room(cx) else { return false };
        if room == 0 {
            cx.reschedule(task);
            return false;
        }
        let room = room.min(cx.burst());
        let mut burst = PacketBurst::default();
        cx.pull(0, room, &mut burst);
        let worked = !burst.is_empty();
        if worked {
            self.send(&mut burst, cx.pool());
        }
        if worked || cx.is_active(&self.signal) {
            cx.reschedule(task);
        }
        worked
    }

    fn shares(&self) -> Option<String> {
        self.access.shares()
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::counter("count", |e: &mut Self| &mut e.frames),
            Handler::counter("byte_count", |e: &mut Self| &mut e.bytes),
            Handler::counters("drops", |e: &mut Self| &mut e.drops),
            Handler::read("drop_counts", |e: &Self| {
                let lines = REASONS.iter().zip(&e.drops).filter(|(_, count)| **count > 0);
                lines.map(|(reason, count)| format!("{reason} {count}\n")).collect::<String>()
            }),
            Handler::read("state", |e: &Self| e.access.state()),
            Handler::read("losses", |_: &Self| 0),
            Handler::button("reset_counts", |e: &mut Self, _| {
                (e.frames, e.bytes, e.drops) = (0, 0, [0; REASONS.len()]);
            }),
        ]
        .into()
    }
}
