//! Functions that share a thread with other work: the data path's.
//!
//! The thread calls [`Resident::turn`] again and again, for a bounded part of the function's work each time. Building a
//! configuration takes long, and so is separate ([`Build`]): it lets the thread go on every now and then. Frames pass
//! through queues ([`ringway_port::frame_queue`]) instead of rings; FromPort and ToPort are of their own.
mod ends;
mod from_port;
mod port_access;
mod to_port;

use super::builder::{self, Builder, Reader};
use super::host::Libraries;
use super::{Machine, function_registry};
use crate::elements;
use crate::inherited::{self, Inherited};
use ends::Ends;
use ringway_click::{
    Breath, Class, Clock, Console, LOOK, Progress, Rebuild, Registry, Replacement, Router, Turn,
};
use ringway_elements::platform::{Uses, devices};
use ringway_frame::packet::PACKET;
use ringway_host::{PollFd, poll};
use ringway_port::frame_queue::{Inside, QUEUE_FRAMES};
use ringway_spec::Function;
use std::cell::RefCell;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// This crate's classes that a resident function may use.
const PORTS: [&str; 2] = [from_port::CLASS.name, to_port::CLASS.name];
/// The classes for devices of existing configurations.
static DEVICES: [Class; devices::COUNT] = devices::classes(
    || Box::new(from_port::FromPort::of_device()),
    || Box::new(to_port::ToPort::of_device()),
);
/// How often descriptors of connections are polled, in nanoseconds of the router's time.
const CONNECTIONS: u64 = 1_000_000;

/// Whether a class is this crate's, and no port.
pub(super) fn needs_system(class: &str) -> bool {
    let is_port = PORTS.contains(&class) || DEVICES.iter().any(|device| device.name == class);
    !is_port && elements::CLASSES.iter().any(|own| own.name == class)
}

/// The classes of resident functions.
pub(super) fn resident_registry() -> Registry {
    let mut registry = function_registry();
    registry.add(&[&from_port::CLASS, &to_port::CLASS]);
    registry.add(&DEVICES.each_ref());
    registry
}

/// What a resident function is started with.
pub struct Seat {
    /// The queues of its ports, in the order of its ports.
    pub ports: Vec<Arc<Inside>>,
    /// The ControlSocket's place, and the socket by which its connections come.
    pub handlers: (String, UnixStream),
    /// Makes its console.
    pub console: Box<dyn Fn() -> Box<dyn Console>>,
    /// Nanoseconds for which it polls its ports after the last frame.
    pub spin: u64,
}

/// A configuration that is built while the function's current one, if any, keeps running.
pub struct Build {
    replacement: Replacement,
    ends: Vec<Rc<RefCell<Ends>>>,
    inherited: Inherited,
}

/// A built configuration, or the errors, one per line.
pub struct Built {
    rebuild: Box<dyn Rebuild>,
    router: Result<Router, String>,
    ends: Vec<Rc<RefCell<Ends>>>,
    inherited: Inherited,
}

/// A running function.
pub struct Resident {
    router: Router,
    /// Replaced routers, disposed of in steps.
    retired: Vec<Router>,
    ends: Vec<Rc<RefCell<Ends>>>,
    /// `None` while a replacement is built.
    inherited: Option<Inherited>,
    /// When descriptors were last polled.
    looked: u64,
}

/// What a function does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The function has more to do immediately.
    Busy,
    /// Nothing before this many nanoseconds have passed, unless it is woken.
    Idle(Option<u64>),
    /// Nothing before this many nanoseconds have passed, unless it is woken or [`Resident::poll`] finds frames, which
    /// don't wake it.
    Polls(Option<u64>),
    /// The function has stopped by itself.
    Stopped,
    /// Its packets need more than its memory.
    Greedy,
}

impl Build {
    /// The first configuration of `function`.
    pub fn first(function: &Function, seat: Seat) -> Build {
        let Seat { ports, handlers, console, spin } = seat;
        let (place, callers) = handlers;
        let frame_queues = QUEUE_FRAMES * 2 * ports.len() * PACKET;
        let memory = usize::try_from(function.memory).unwrap_or(usize::MAX).max(frame_queues);
        let builder = Builder {
            reader: Reader {
                registry: resident_registry(),
                variables: function.parameters.clone(),
                libraries: Libraries::None,
                sockets: vec![format!("UNIX, {}", ringway_click_lang::config::quote(place.as_bytes()))],
            },
            uses: Some(Uses { ports: function.ports.clone(), devices: function.devices.clone() }),
            burst: function.burst as usize,
            console,
            resident: Some(builder::Resident { title: function.title().into(), memory }),
        };
        let ends = |(number, inside)| Rc::new(RefCell::new(Ends::new(number, inside, spin)));
        let clock = Clock::Real(Box::new(Machine::default()));
        Build {
            replacement: Replacement::first(function.configuration.text.clone(), Box::new(builder), clock),
            ends: ports.into_iter().enumerate().map(ends).collect(),
            inherited: Inherited {
                ports: function.ports.clone(),
                devices: function.devices.clone(),
                callers: Some((place, callers)),
                ..Inherited::default()
            },
        }
    }

    /// Builds it; `breath` lets the thread go on every now and then, or ends building.
    pub fn run(self, breath: Breath) -> Built {
        let Build { replacement, ends, inherited } = self;
        let build = || ends::with(&ends, || replacement.build(breath));
        let ((rebuild, router), inherited) = inherited::with(Some(inherited), build);
        Built { rebuild, router, ends, inherited: inherited.unwrap_or_default() }
    }
}

impl Built {
    /// The function with its first configuration, whose clock is the processor's, `ticks`.
    ///
    /// # Errors
    /// The errors of the configuration, one line each.
    pub fn start(self, ticks: fn() -> u64) -> Result<Resident, String> {
        let Built { rebuild, router, ends, inherited } = self;
        let mut router = router?;
        router.allow_profile(ticks);
        router.allow_reconfigure(rebuild);
        Ok(Resident { router, retired: Vec::new(), ends, inherited: Some(inherited), looked: 0 })
    }
}

impl Resident {
    /// A replacement to build, if one was requested by the handler `hotconfig`.
    pub fn replacement(&mut self) -> Option<Build> {
        self.inherited.as_ref()?;
        let replacement = self.router.replacement()?;
        let inherited = self.inherited.take().unwrap_or_default();
        Some(Build { replacement, ends: self.ends.clone(), inherited })
    }

    /// Takes a replacement over in one of the next turns, and answers its requester.
    pub fn replaced(&mut self, built: Built) {
        let Built { rebuild, router, ends: _, inherited } = built;
        self.inherited = Some(inherited);
        self.router.replaced(rebuild, router);
    }

    /// Looks for frames in the queues that don't wake the function. Returns whether any were found, and whether it must
    /// poll on.
    pub fn poll(&mut self, now: u64) -> (bool, bool) {
        self.ends.iter().fold((false, false), |(found, polls), ends| {
            let mut ends = ends.borrow_mut();
            (ends.poll(now) | found, ends.polls() | polls)
        })
    }

    /// Reports frames in those queues to FromPort.
    fn begin(&mut self, now: u64) {
        for ends in &self.ends {
            let (descriptor, found) = {
                let mut ends = ends.borrow_mut();
                ends.now = now;
                (ends.descriptor, ends.found())
            };
            if found {
                self.router.selected(descriptor, true, false);
            }
        }
    }

    /// Runs about `tasks` tasks, and the timers that are due. `now` is on the machine's clock.
    pub fn turn(&mut self, tasks: usize, now: u64) -> Next {
        self.begin(now);
        let turn = self.router.turn_of(tasks);
        let flushed = self.flush();
        if self.router.pool().is_over_limit() {
            return Next::Greedy;
        }
        if let Some(successor) = self.successor() {
            self.retired.push(std::mem::replace(&mut self.router, successor));
            return Next::Busy;
        }
        if let Some(old) = self.retired.last_mut() {
            if old.dispose() == Progress::Done {
                self.retired.pop();
            }
            return if turn == Turn::Stopped { Next::Stopped } else { Next::Busy };
        }
        let now = self.router.turn_began();
        let has_connections = self.descriptors().nth(1).is_some();
        if has_connections && now.saturating_sub(self.looked) >= CONNECTIONS {
            self.look();
            return Next::Busy;
        }
        let due = match turn {
            Turn::Stopped => return Next::Stopped,
            Turn::Busy => return Next::Busy,
            _ if !flushed => return Next::Busy,
            Turn::IdleUntil(when) => Some(self.router.clock().machine_time(when.saturating_sub(now))),
            Turn::Idle => None,
        };
        let look = has_connections.then_some(CONNECTIONS);
        // A function that is suspended can be told from one that sleeps.
        let due = due.into_iter().chain(look).chain([LOOK]).min();
        if self.ends.iter().any(|ends| ends.borrow().polls()) { Next::Polls(due) } else { Next::Idle(due) }
    }

    /// The router that takes over, if there is one.
    fn successor(&mut self) -> Option<Router> {
        if !self.router.is_replaced() {
            return None;
        }
        // Elements that take over may open what the configuration names.
        let inherited = self.inherited.take();
        let (successor, inherited) =
            inherited::with(inherited, || ends::with(&self.ends, || self.router.successor()));
        self.inherited = inherited;
        successor
    }

    /// Passes on what ToPort sent; `false` if it must be called again.
    fn flush(&mut self) -> bool {
        let pool = self.router.pool();
        let waiting = self.ends.iter().filter(|ends| !ends.borrow_mut().flush(pool)).count();
        waiting == 0
    }

    /// Call when its doorbell rang: looks at its queues and descriptors.
    pub fn notified(&mut self) {
        for ends in &self.ends {
            let (descriptor, (frames, room)) = {
                let mut ends = ends.borrow_mut();
                (ends.descriptor, ends.ready())
            };
            if frames || room {
                self.router.selected(descriptor, frames, room);
            }
        }
        self.look();
    }

    fn descriptors(&self) -> impl Iterator<Item = PollFd> {
        let interests = self.router.interests().iter().filter(|interest| interest.descriptor >= 0);
        interests.map(|interest| PollFd {
            descriptor: interest.descriptor,
            readable: interest.readable,
            writable: interest.writable,
        })
    }

    /// Polls the descriptors of its connections.
    fn look(&mut self) {
        self.looked = self.router.turn_began();
        let mut watched: Vec<PollFd> = self.descriptors().collect();
        poll(&mut watched, Duration::ZERO);
        for ready in watched.into_iter().filter(|watched| watched.readable || watched.writable) {
            self.router.selected(ready.descriptor, ready.readable, ready.writable);
        }
    }
}
