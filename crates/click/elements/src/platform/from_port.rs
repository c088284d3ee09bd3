//! FromPort, for any platform.
use super::devices::Naming;
use super::{PortAccess, PortRing};
use ringway_click::HEADROOM;
use ringway_click::arg::Nanoseconds;
use ringway_click::prelude::*;
use ringway_frame::Offload;
use ringway_ring::Received;

/// Nanoseconds of polling after the last frame.
const SPIN: u64 = 50_000;
/// Nanoseconds for which frames wait at most, once their port is up, until all others are: a frame that started the
/// program then finds the port by which it leaves.
const START_TIMEOUT: u64 = 500_000_000;
/// Nanoseconds between two looks at the other ports meanwhile.
const LOOK: u64 = 100_000;

/// Whether frames are taken.
#[derive(Clone, Copy, Default)]
enum Stage {
    /// The port is away.
    #[default]
    Away,
    /// Once other ports are up, or at this time.
    Waiting(u64),
    Open,
}

/// Receives the frames that a port sends.
#[derive(Default)]
pub struct FromPort<P> {
    naming: Naming,
    access: P,
    offloads: bool,
    spin: u64,
    timestamp: bool,
    task: Option<Task>,
    stage: Stage,
    /// Expires when the element looks at the other ports.
    look: Option<Timer>,
    /// Time since which no frame has arrived.
    idle: Option<u64>,
    count: u64,
    bytes: u64,
    drops: u64,
}

impl<P: PortAccess> FromPort<P> {
    /// An element that names its port by a device.
    pub fn of_device() -> Self {
        Self { naming: Naming::Device, ..Self::default() }
    }

    /// Takes a burst of frames off the ring. Frames too long for a packet are counted.
    fn take(
        ring: &mut P::Ring<'_>,
        offloads: bool,
        burst: &mut PacketBurst,
        cx: &mut Context<'_>,
    ) -> Result<u64, P::Error> {
        let mut drops = 0;
        let most = cx.burst();
        while burst.len() < most {
            let Some(length) = ring.frame_len()? else { break };
            let Some(mut packet) = cx.make_packet(HEADROOM, length, 0) else {
                ring.pop(&mut [])?;
                drops += 1;
                continue;
            };
            let Some(Received { len, whole, offload }) = ring.pop(packet.data_mut())? else { break };
            // Attack: a slot that changes between two reads.
            if len != length || whole != length {
                drops += 1;
                continue;
            }
            if offloads && packet.set_offload(Offload::from_bytes(&offload)).is_err() {
                drops += 1;
                continue;
            }
            burst.push(packet);
        }
        ring.sync()?;
        Ok(drops)
    }

    /// Whether the port's frames are to be taken; if not, a timer or a descriptor signals when to try again.
    #[cold]
    fn opens(&mut self, cx: &mut Context<'_>) -> bool {
        if self.access.ring(cx).is_none() {
            self.stage = Stage::Away;
            return false;
        }
        let now = cx.steady();
        let end = match self.stage {
            Stage::Away => now.saturating_add(START_TIMEOUT),
            Stage::Waiting(end) => end,
            Stage::Open => return true,
        };
        if now >= end || self.access.are_all_up() {
            self.stage = Stage::Open;
            return true;
        }
        self.stage = Stage::Waiting(end);
        if let Some(look) = self.look {
            cx.set_timer_after(look, LOOK);
        }
        false
    }

    /// Sleeps until the port notifies us, if no frames arrived for a while.
    fn rest(&mut self, task: Task, cx: &mut Context<'_>) {
        let now = cx.coarse_now();
        let since = *self.idle.get_or_insert(now);
        if now.saturating_sub(since) < self.spin {
            cx.reschedule(task);
            return;
        }
        let Some(mut ring) = self.access.ring(cx) else { return };
        let armed = ring.arm_rx();
        drop(ring);
        match armed {
            Ok(true) => {}
            Ok(false) => cx.reschedule(task),
            Err(error) => self.access.lose(&error, cx),
        }
    }
}

impl<P: PortAccess> Element for FromPort<P> {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut spin = Nanoseconds(SPIN);
        self.timestamp = true;
        args.read("OFFLOADS", &mut self.offloads);
        args.read("SPIN", &mut spin);
        args.read("TIMESTAMP", &mut self.timestamp);
        let port = self.naming.read(args, P::port_of_device);
        args.complete()?;
        self.spin = spin.0;
        port.and_then(|port| self.access.configure(&port)).map_err(|wrong| cx.error(wrong))
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.task = Some(cx.new_task(false));
        self.look = Some(cx.new_timer());
        self.access.prefer_offloads(self.offloads);
        self.access.initialize(cx)
    }

    fn run_timer(&mut self, _: Timer, cx: &mut Context<'_>) {
        self.access.want_offloads(self.offloads, cx);
        if self.access.ring(cx).is_some()
            && let Some(task) = self.task
        {
            cx.reschedule(task);
        }
    }

    fn selected(&mut self, descriptor: i32, _: bool, _: bool, cx: &mut Context<'_>) {
        self.access.selected(descriptor, cx);
        let Some(mut ring) = self.access.ring(cx) else {
            self.stage = Stage::Away;
            return;
        };
        ring.disarm_rx();
        drop(ring);
        self.idle = None;
        if let Some(task) = self.task {
            cx.reschedule(task);
        }
    }

    fn run_task(&mut self, task: Task, cx: &mut Context<'_>) -> bool {
        if !matches!(self.stage, Stage::Open) && !self.opens(cx) {
            return false;
        }
        let mut burst = PacketBurst::default();
        let offloads = self.offloads;
        let Some(mut ring) = self.access.ring(cx) else {
            self.stage = Stage::Away;
            return false;
        };
        let taken = Self::take(&mut ring, offloads, &mut burst, cx);
        drop(ring);
        match taken {
            Ok(drops) => self.drops += drops,
            Err(error) => self.access.lose(&error, cx),
        }
        if burst.is_empty() {
            self.rest(task, cx);
            return false;
        }
        self.idle = None;
        self.count += burst.len() as u64;
        let time = if self.timestamp { cx.packet_time() } else { 0 };
        for packet in burst.iter_mut() {
            self.bytes += packet.len() as u64;
            packet.set_timestamp(time);
        }
        cx.push_burst(0, &mut burst);
        cx.reschedule(task);
        true
    }

    fn shares(&self) -> Option<String> {
        self.access.shares()
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::counter("count", |e: &mut Self| &mut e.count),
            Handler::counter("byte_count", |e: &mut Self| &mut e.bytes),
            Handler::counter("drops", |e: &mut Self| &mut e.drops),
            Handler::read("state", |e: &Self| e.access.state()),
            Handler::read("losses", |e: &Self| e.access.losses()),
            Handler::button("reset_counts", |e: &mut Self, _| (e.count, e.bytes, e.drops) = (0, 0, 0)),
        ]
        .into()
    }
}
