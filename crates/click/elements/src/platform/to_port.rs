//! ToPort, for any platform.
use super::devices::Naming;
use super::{PortAccess, PortRing, Pushed};
use ringway_click::prelude::*;

/// Why packets are dropped.
const REASONS: [&str; 3] = ["full", "away", "too-long"];
const FULL: usize = 0;
const AWAY: usize = 1;
const TOO_LONG: usize = 2;

#[derive(Clone, Copy, Default)]
struct Counts {
    frames: u64,
    bytes: u64,
    drops: [u64; REASONS.len()],
}

/// Sends packets to a port.
#[derive(Default)]
pub struct ToPort<P> {
    naming: Naming,
    access: P,
    task: Option<Task>,
    signal: Signal,
    counts: Counts,
}

impl Counts {
    /// Writes a packet to the ring. False if there is no room; nothing is counted then.
    fn put<R: PortRing>(&mut self, packet: &Packet, ring: &mut R) -> Result<bool, R::Error> {
        let data = packet.data();
        Ok(match ring.push(data, packet.offload().to_bytes())? {
            Pushed::Done => {
                self.frames += 1;
                self.bytes += data.len() as u64;
                true
            }
            Pushed::TooLong => {
                self.drops[TOO_LONG] += 1;
                true
            }
            Pushed::Full => false,
        })
    }

    fn put_all<R: PortRing>(&mut self, burst: &mut PacketBurst, ring: &mut R) -> Result<(), R::Error> {
        for packet in burst.iter() {
            if !self.put(packet, ring)? {
                self.drops[FULL] += 1;
            }
        }
        burst.clear();
        ring.sync()
    }
}

impl<P: PortAccess> ToPort<P> {
    /// An element that names its port by a device.
    pub fn of_device() -> Self {
        Self { naming: Naming::Device, ..Self::default() }
    }

    fn send(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let Some(mut ring) = self.access.ring(cx) else {
            self.counts.drops[AWAY] += burst.len() as u64;
            burst.clear();
            return;
        };
        let sent = self.counts.put_all(burst, &mut ring);
        drop(ring);
        if let Err(error) = sent {
            self.counts.drops[AWAY] += burst.len() as u64;
            burst.clear();
            self.access.lose(&error, cx);
        }
    }

    /// Number of packets that can be pulled now. If none, the port notifies us when there is room.
    fn room(&mut self, cx: &mut Context<'_>) -> usize {
        let Some(mut ring) = self.access.ring(cx) else { return 0 };
        let wanted = (cx.burst() as u32).min(ring.tx_slots());
        let mut room = ring.room(wanted);
        if matches!(room, Ok(0)) {
            room = match ring.arm_tx(wanted) {
                Ok(true) => Ok(0),
                Ok(false) => ring.room(wanted),
                Err(error) => Err(error),
            };
        }
        drop(ring);
        match room {
            Ok(room) => room.min(wanted) as usize,
            Err(error) => {
                self.access.lose(&error, cx);
                0
            }
        }
    }
}

impl<P: PortAccess> Element for ToPort<P> {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let port = self.naming.read(args, P::port_of_device);
        args.complete()?;
        port.and_then(|port| self.access.configure(&port)).map_err(|wrong| cx.error(wrong))
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.access.initialize(cx)?;
        if cx.input_is_pull(0) {
            let task = cx.new_task(false);
            self.signal = cx.upstream_empty_signal(0, Some(task));
            self.task = Some(task);
        }
        Ok(())
    }

    fn run_timer(&mut self, _: Timer, cx: &mut Context<'_>) {
        if self.access.ring(cx).is_some()
            && let Some(task) = self.task
        {
            cx.reschedule(task);
        }
    }

    fn selected(&mut self, descriptor: i32, _: bool, _: bool, cx: &mut Context<'_>) {
        self.access.selected(descriptor, cx);
        let Some(mut ring) = self.access.ring(cx) else { return };
        if let Some(task) = self.task {
            ring.disarm_tx();
            drop(ring);
            cx.reschedule(task);
        }
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        self.send(burst, cx);
    }

    fn run_task(&mut self, task: Task, cx: &mut Context<'_>) -> bool {
        // A frame of several slots may not fit; each packet has at least one slot.
        let room = self.room(cx);
        if room == 0 {
            return false;
        }
        let mut burst = PacketBurst::default();
        cx.pull(0, room, &mut burst);
        let worked = !burst.is_empty();
        if worked {
            self.send(&mut burst, cx);
        }
        if worked || cx.is_active(&self.signal) {
            cx.reschedule(task);
        }
        worked
    }

    fn cleanup(&mut self, cx: &mut Context<'_>) {
        let lost = self.counts.drops[AWAY];
        let (state, port) = (self.access.state(), self.access.shares().unwrap_or_default());
        if lost > 0 && self.counts.frames == 0 && self.access.losses() == 0 && state != "up" {
            cx.fail(format_args!("all {lost} packets were lost, since {port} never had a ring ({state})"));
        }
    }

    fn shares(&self) -> Option<String> {
        self.access.shares()
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::counter("count", |e: &mut Self| &mut e.counts.frames),
            Handler::counter("byte_count", |e: &mut Self| &mut e.counts.bytes),
            Handler::counters("drops", |e: &mut Self| &mut e.counts.drops),
            Handler::read("drop_counts", |e: &Self| {
                let lines = REASONS.iter().zip(&e.counts.drops).filter(|(_, count)| **count > 0);
                lines.map(|(reason, count)| format!("{reason} {count}\n")).collect::<String>()
            }),
            Handler::read("state", |e: &Self| e.access.state()),
            Handler::read("losses", |e: &Self| e.access.losses()),
            Handler::button("reset_counts", |e: &mut Self, _| e.counts = Counts::default()),
        ]
        .into()
    }
}
