//! A function: a Click configuration between ring ports, controlled by the monitor over a channel.

mod build;
mod clock;
mod listener;
mod platform;
mod ports;
#[cfg(test)]
mod tests;

pub use crate::monitor::Monitor;
pub use build::registry;
pub use platform::Map;

use crate::channel::{Channel, ToMonitor};
use crate::clock::GuestTime;
use crate::role::{Machine, Resumed};
use crate::start::FunctionStart;
use crate::stock::Net;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use build::Builder;
use core::cell::RefCell;
use ringway_click::{Class, Driver, Interest, Router, Turn, drive, sort};
use ringway_elements::platform::Uses;
use ringway_ring::Broken;

/// How often a busy router's ports and channel are looked at, in nanoseconds; if time stands still, also after a number
/// of turns.
const BUSY: u64 = 20_000;
const TURNS: u32 = 4096;
/// Shortest sleep in nanoseconds: the exit takes as long.
const SHORTEST: u64 = 20_000;
/// Longest sleep in microseconds.
const SLEEP: u64 = 1_000_000;
/// Sleeps until the last messages were taken, before a guest that can't run ends anyway.
const LAST_SLEEPS: u32 = 100;

/// What a guest of a function has of its machine.
pub struct Host<M> {
    /// Its machine.
    pub machine: M,
    /// Notifies the monitor of messages.
    pub notify: Box<dyn FnMut()>,
    /// Reads the counter of ticks.
    pub ticks: fn() -> u64,
    /// How memory that the monitor names is reached.
    pub map: Map,
}

/// Why a function ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionEnd {
    /// The function's configuration stopped.
    Stopped,
    /// Its configuration can't run; the monitor knows why.
    Wrong,
}

/// Runs a function until it ends. `nets`: the devices of its ports, if the machine has them; `classes`: those that it
/// has besides the project's.
pub fn run<M: Machine + 'static>(
    host: Host<M>,
    monitor: Monitor,
    nets: Vec<Net<'static>>,
    start: FunctionStart,
    classes: &[&'static Class],
) -> FunctionEnd {
    let uses = Uses { ports: start.ports.clone(), devices: start.devices.clone() };
    platform::begin(monitor, uses.clone(), nets, &start.handlers, host.map);
    let time = GuestTime::new(host.ticks, start.hz, (host.ticks)(), start.wall);
    let (ticks, hz, place) = (host.ticks, start.hz, start.channel);
    let platform = Rc::new(RefCell::new(Platform { host, time, place, looked: 0, turns: 0, broken: false }));
    let begun = ticks();
    let builder = Builder::new(start, uses, classes);
    let known = ticks();
    match builder.parse().and_then(|graph| Ok((ticks(), builder.first(graph, time, ticks)?))) {
        Ok((read, router)) => {
            let stages = [known - begun, read - known, ticks() - read];
            let microseconds = |ticks: u64| (u128::from(ticks) * 1_000_000 / u128::from(hz.max(1))) as u32;
            platform::with(|platform| platform.send(&ToMonitor::Up(stages.map(microseconds))));
            drive(&Rc::new(RefCell::new(router)), &platform);
            platform.borrow_mut().wait_for_monitor();
            FunctionEnd::Stopped
        }
        Err(why) => {
            platform::with(|platform| platform.wrong(why.trim_end()));
            platform.borrow_mut().wait_for_monitor();
            FunctionEnd::Wrong
        }
    }
}

/// The channel, the clock and the ports.
struct Platform<M> {
    host: Host<M>,
    time: GuestTime,
    /// Address of the channel's memory, and its bytes.
    place: [u64; 2],
    /// Time of the last look at the ports and the channel.
    looked: u64,
    turns: u32,
    /// The monitor violated the channel's rules.
    broken: bool,
}

impl<M: Machine> Platform<M> {
    /// Exchanges messages; stops the router if the channel can't be used. Whether messages came.
    fn exchange(&mut self) -> bool {
        let exchanged = platform::with(|platform| Ok((platform.receive()?, platform.monitor.flush()?)));
        match exchanged {
            None => false,
            Some(Ok((came, notify))) => {
                if notify {
                    (self.host.notify)();
                }
                came
            }
            Some(Err(Broken::Index | Broken::Buffer)) => {
                self.broken = true;
                false
            }
        }
    }

    /// Lets the monitor take the snapshot that it waits for.
    fn snapshot(&mut self, router: &mut Router) {
        if !platform::with(|platform| core::mem::take(&mut platform.snapshot)).unwrap_or_default() {
            return;
        }
        let resumed = self.host.machine.snapshot();
        if resumed == Resumed::Same {
            return;
        }
        if let Resumed::Clone(generation) = resumed {
            // Before the first frame: it has no ring yet.
            platform::with(|platform| platform.generation = generation);
            router.reseed(generation);
        }
        let [address, len] = self.place;
        let Some(channel) = (self.host.map)(address, len).and_then(|region| Channel::attach(region).ok())
        else {
            self.broken = true;
            return;
        };
        platform::with(|platform| platform.begin_clone(channel));
        // Connections end before the monitor opens others with their numbers: after their last input, and without
        // their output.
        for _ in 0..4 {
            self.select(router);
        }
    }

    /// Reports ready descriptors; whether there were any.
    fn report(&mut self, router: &mut Router) -> bool {
        self.exchange();
        self.snapshot(router);
        if self.broken {
            router.set_runcount(-i64::from(i32::MAX));
            return true;
        }
        let any = self.select(router);
        // Answers go at once; what comes is for the next look.
        self.exchange() || any
    }

    /// Tells elements of what is ready; whether anything was.
    fn select(&mut self, router: &mut Router) -> bool {
        let mut interests: Vec<Interest> = router.interests().to_vec();
        sort::by_number(&mut interests, |interest| interest.descriptor.abs_diff(i32::MIN).into());
        let mut any = false;
        for same in interests.chunk_by(|one, other| one.descriptor == other.descriptor) {
            let descriptor = same[0].descriptor;
            let (readable, writable) =
                platform::with(|platform| platform.is_ready(descriptor)).unwrap_or_default();
            let wanted = |interest: &Interest| interest.readable && readable || interest.writable && writable;
            if same.iter().any(wanted) {
                router.selected(descriptor, readable, writable);
                any = true;
            }
        }
        any
    }

    fn arm(&mut self) -> Result<bool, Broken> {
        platform::with(|platform| platform.monitor.arm()).unwrap_or(Ok(true))
    }

    /// Sleeps for so long, or until the monitor or a port notifies the guest.
    fn sleep(&mut self, nanoseconds: u64) {
        match self.arm() {
            Ok(true) => self.host.machine.park((nanoseconds.div_ceil(1000)).min(SLEEP) as u32),
            Ok(false) => {}
            Err(_) => self.broken = true,
        }
        platform::with(|platform| platform.monitor.disarm());
    }

    /// Waits until the monitor has taken the last messages.
    fn wait_for_monitor(&mut self) {
        for _ in 0..LAST_SLEEPS {
            self.exchange();
            let waiting = platform::with(|platform| platform.monitor.waiting());
            if self.broken || waiting == Some(0) {
                return;
            }
            self.sleep(SLEEP * 1000 / u64::from(LAST_SLEEPS));
        }
    }
}

impl<M: Machine> Driver for Platform<M> {
    fn now(&mut self) -> u64 {
        self.time.now()
    }

    fn look(&mut self, _: &mut Router) {}

    fn poll(&mut self, router: &mut Router) {
        self.report(router);
    }

    fn rest(&mut self, router: &mut Router, turn: Turn) {
        let sleep = match turn {
            Turn::Stopped => return,
            Turn::Busy => {
                self.turns = self.turns.wrapping_add(1);
                let now = router.turn_began();
                if now.abs_diff(self.looked) >= BUSY || self.turns.is_multiple_of(TURNS) {
                    self.looked = now;
                    self.report(router);
                }
                return;
            }
            Turn::Idle => SLEEP * 1000,
            Turn::IdleUntil(when) => {
                let now = router.clock().steady();
                router.clock().machine_time(when.saturating_sub(now))
            }
        };
        // Ports were armed by their elements: what came before is seen here, what comes later ends the sleep.
        if !self.report(router) && sleep >= SHORTEST {
            self.sleep(sleep);
        }
    }
}
