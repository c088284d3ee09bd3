//! A registered port or an end of a pipe, and its syncs.
//!
//! All that its processes have in common is in its memory (`shared.rs`) and behind a socket that stores its
//! descriptors; a `Port` is what one process keeps of that. So a handle works in a child, after exec and in a process
//! that it was passed to, where a `Port` is made again from the stored descriptors.

use crate::Result;
use crate::in_place;
use crate::monitor::{self, MONITORS, Monitors};
use crate::monitor_server::{MonitorServer, Request};
use crate::pipe::{Files, PipeEnd};
use crate::real::syscall;
use crate::region::{Place, Region, Sizes};
use crate::rings::Rings;
use crate::shared::GONE;
use crate::side::Side;
use crate::transfer::{self, RX, TX};
use ringway_host::{FdKind, Signal, descriptor_store, store_descriptors, stored_descriptors};
use ringway_ring_client::{Closing, FRAGMENTS, Ring, RingParts, Wait};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Events of poll that ask for room to send, and for frames.
const OUT: i16 = libc::POLLOUT | libc::POLLWRNORM;
const IN: i16 = libc::POLLIN | libc::POLLRDNORM;

/// How long closing waits until the port has taken what was sent.
const DRAIN: Duration = Duration::from_secs(1);
/// Syncs without a frame after which the port's socket is asked whether it is there.
const IDLE: u32 = 256;
/// What a handle watches.
const CALL: u64 = 0;
const SOCKET: u64 = 1;
const LISTENER: u64 = 2;
const MONITOR_SERVER: u64 = 3;

/// What a handle has of its port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// The number of its `netmap_if`.
    pub number: u32,
    /// The rings that it sends to and receives from.
    pub bound: [bool; 2],
    /// Frames to send are sent by a poll that does not ask for POLLOUT.
    pub sends: bool,
    /// Slots are returned, and frames received, by a poll that does not ask for POLLIN.
    pub receives: bool,
    /// It is this monitor of the port instead.
    pub monitor: Option<usize>,
}

/// What is stored about a port beside its descriptors.
const MAGIC: u64 = u64::from_le_bytes(*b"rw-port1");
const WORDS: usize = 12;
/// The memory, a pipe's listener and lock, the ring's memory, two eventfds and socket, and the eventfd of monitors.
const DESCRIPTORS: usize = 8;
/// What is stored.
const HAS_PIPE: u64 = 1;
const HAS_RING: u64 = 2;
const IS_SECOND: u64 = 4;
const HAS_WAKE: u64 = 8;
const IS_IN_PLACE: u64 = 16;
const IS_DEVICE: u64 = 32;

/// A port in this process.
#[derive(Debug)]
pub struct Port {
    /// Serves monitors of other programs, in the process that has opened the port. It is dropped first: it removes its
    /// socket by its path, which is the next program's as soon as that can open the port.
    pub monitor_server: Option<MonitorServer>,
    store: OwnedFd,
    pub rings: Rings,
    /// The ring to the fabric, or to the other end of a pipe if a program has it.
    ring: Option<Ring>,
    /// When the fabric does not use the ring's buffers any more, if these are here.
    closing: Option<Closing>,
    pipe: Option<PipeEnd>,
    /// Whether the ring is in the memory of a PCI device.
    is_device: bool,
    /// Keeps other programs from the device.
    device_lock: Option<File>,
    /// Wakes whoever waits for the port or one of its monitors, if it has had one.
    wake: Option<Signal>,
    /// Those of the sync that takes place.
    monitors: Monitors,
    /// They are removed after the descriptors above are closed.
    _files: Option<Files>,
    /// Another process made it.
    is_adopted: bool,
    /// What `ring` was made from.
    version: u32,
    /// Which process synced last is known by this.
    token: u32,
    /// One handle has it alone.
    pub is_exclusive: bool,
    /// How many handles of this process it has.
    pub handles: u32,
    sides: [Side; 2],
    idle: u32,
    /// The other end of a pipe was closed, and what it sent is not all received.
    is_leaving: bool,
    is_gone: bool,
}

/// What a descriptor of a handle has to be watched for, and when that changes.
pub type Watched = (u32, bool);

impl Port {
    fn make(store: OwnedFd, rings: Rings, mut pipe: Option<PipeEnd>) -> Result<Port> {
        let token = ringway_host::random().map_err(|_| libc::EIO)? as u32 | 1;
        let sides = [TX, RX].map(|dir| Side { slots: rings.slots(dir), ..Side::default() });
        Ok(Port {
            monitor_server: None,
            store,
            rings,
            ring: None,
            closing: None,
            _files: pipe.as_mut().and_then(PipeEnd::take_files),
            pipe,
            is_device: false,
            device_lock: None,
            wake: None,
            monitors: Monitors::default(),
            is_adopted: false,
            version: 0,
            token,
            is_exclusive: false,
            handles: 0,
            sides,
            idle: 0,
            is_leaving: false,
            is_gone: false,
        })
    }

    /// A port whose ring a fabric gave.
    pub fn of_fabric(rings: Rings, ring: Ring, memory: &OwnedFd) -> Result<Port> {
        let store = descriptor_store(true).map_err(|_| libc::EMFILE)?;
        let closing = ring.has_pool().then(|| ring.closing());
        let mut port = Port::make(store, rings, None)?;
        port.closing = closing;
        port.publish(Some((ring, memory)))?;
        Ok(port)
    }

    /// A port whose ring is in the memory of a device. Only this process uses it: the memory is mapped from files that
    /// a handle does not store.
    pub fn of_device(rings: Rings, (ring, lock): (Ring, Option<File>)) -> Result<Port> {
        let store = descriptor_store(true).map_err(|_| libc::EMFILE)?;
        let mut port = Port::make(store, rings, None)?;
        (port.is_device, port.device_lock) = (true, lock);
        port.publish(None)?;
        port.ring = Some(ring);
        Ok(port)
    }

    /// An end of a pipe. `parts`: the other one is there.
    pub fn of_pipe(rings: Rings, end: PipeEnd, parts: Option<RingParts>) -> Result<Port> {
        let store = descriptor_store(true).map_err(|_| libc::EMFILE)?;
        let mut port = Port::make(store, rings, Some(end))?;
        match parts {
            Some(parts) => {
                let memory = parts.memory.try_clone().map_err(|_| libc::EMFILE)?;
                let ring = Ring::from_parts(parts).map_err(|_| libc::ENOMEM)?;
                port.publish(Some((ring, &memory)))?;
            }
            None => port.publish(None)?,
        }
        Ok(port)
    }

    /// A port without rings.
    pub fn of_nothing(rings: Rings) -> Result<Port> {
        let store = descriptor_store(true).map_err(|_| libc::EMFILE)?;
        let mut port = Port::make(store, rings, None)?;
        port.publish(None)?;
        Ok(port)
    }

    /// Has another ring from now on, or none, and stores its descriptors for other processes.
    fn publish(&mut self, ring: Option<(Ring, &OwnedFd)>) -> Result<()> {
        let version = self.rings.state.version().wrapping_add(1);
        let is_second = ring.as_ref().is_some_and(|(ring, _)| ring.is_second());
        let Place { rings, sizes: Sizes { slots, extra, is_in_place }, first, state } = self.rings.place;
        let has = [
            (HAS_PIPE, self.pipe.is_some()),
            (HAS_RING, ring.is_some()),
            (IS_SECOND, is_second),
            (HAS_WAKE, self.wake.is_some()),
            (IS_IN_PLACE, is_in_place),
            (IS_DEVICE, self.is_device),
        ];
        let has = has.into_iter().filter(|(_, has)| *has).fold(0, |all, (bit, _)| all | bit);
        let numbers = [version, self.rings.region.buffers(), slots[0], slots[1], extra, first, state];
        // What is stored next differs from what a process stored that ended before it set the version.
        let other = ringway_host::random().map_err(|_| libc::EIO)?;
        let mut words = [MAGIC, has, rings[0], rings[1], 0, 0, 0, 0, 0, 0, 0, other];
        for (word, number) in words[4..].iter_mut().zip(numbers) {
            *word = number.into();
        }
        let bytes = bytes_of(&words);
        let mut fds = vec![self.rings.region.as_fd()];
        fds.extend(self.pipe.iter().flat_map(PipeEnd::descriptors));
        if let Some((ring, memory)) = &ring {
            fds.push(memory.as_fd());
            fds.extend([ring.kick_fd(), Some(ring.as_fd()), ring.socket()].into_iter().flatten());
        }
        fds.extend(self.wake.as_ref().map(AsFd::as_fd));
        store_descriptors(&self.store, &bytes, &fds).map_err(|_| libc::EMFILE)?;
        // Whoever sees the version finds what is stored; a process that ends before leaves the old one's ring in use.
        self.rings.state.set_version(version);
        (self.version, self.ring, self.is_leaving) = (version, ring.map(|(ring, _)| ring), false);
        self.rings.state.take(self.token);
        Ok(())
    }

    /// The port of a socket with stored descriptors. Attack: a program passes another something that looks like a
    /// handle; every number is checked, and the descriptors must be what they are said to be.
    pub fn adopt(store: OwnedFd, region: impl Fn(Identity) -> Option<Arc<Region>>) -> Result<Port> {
        let (words, mut fds) = looked_up(&store)?;
        if words[1] & IS_DEVICE != 0 {
            return Err(libc::ENODEV);
        }
        let [_, has, tx, rx, version, buffers, tx_slots, rx_slots, extra, first, state, _] = words;
        let number = |word: u64| u32::try_from(word).map_err(|_| libc::EINVAL);
        let slots = [number(tx_slots)?, number(rx_slots)?];
        let sizes = Sizes { slots, extra: number(extra)?, is_in_place: has & IS_IN_PLACE != 0 };
        let place = Place { rings: [tx, rx], sizes, first: number(first)?, state: number(state)? };
        let file = fds.next().ok_or(libc::EINVAL)?;
        let region = match identity(file.as_fd()).and_then(region) {
            Some(known) => known,
            None => Region::adopt(file, number(buffers)?)?,
        };
        let rings = Rings::adopt(region, place)?;
        let pipe = match has & HAS_PIPE {
            0 => None,
            _ => match (fds.next(), fds.next()) {
                (Some(listener), Some(lock)) => Some(PipeEnd::adopt(listener, lock)),
                _ => return Err(libc::EINVAL),
            },
        };
        let mut port = Port::make(store, rings, pipe)?;
        port.version = number(version)?;
        port.ring = ring_of(has, &mut fds, &port.rings.region)?;
        port.wake = wake_of(has, &mut fds)?;
        port.is_adopted = true;
        Ok(port)
    }

    /// Takes the ring that another process has stored.
    fn refresh(&mut self) -> Result<()> {
        let (words, mut fds) = looked_up(&self.store)?;
        for _ in 0..1 + 2 * (words[1] & HAS_PIPE) {
            drop(fds.next());
        }
        self.ring = ring_of(words[1], &mut fds, &self.rings.region)?;
        self.wake = wake_of(words[1], &mut fds)?;
        (self.version, self.is_leaving) = (words[4] as u32, false);
        Ok(())
    }

    /// Adds a monitor with these rings; its number.
    fn add_monitor(&mut self, kinds: u32, rings: &Place) -> Result<usize> {
        self.within(|port| {
            if port.wake.is_none() {
                port.add_wake()?;
            }
            monitor::add(&port.rings.state, kinds, rings)
        })
    }

    /// Stores an eventfd beside what is stored.
    fn add_wake(&mut self) -> Result<()> {
        let wake = Arc::new(ringway_host::EventFd::new().map_err(|_| libc::EMFILE)?.into_fd());
        let signal = Signal::of(wake.clone()).map_err(|_| libc::EMFILE)?;
        let (mut words, fds) = looked_up(&self.store)?;
        let version = self.version.wrapping_add(1);
        words[1] |= HAS_WAKE;
        words[4] = version.into();
        words[WORDS - 1] = ringway_host::random().map_err(|_| libc::EIO)?;
        let fds: Vec<OwnedFd> = fds.chain([wake.try_clone().map_err(|_| libc::EMFILE)?]).collect();
        let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        store_descriptors(&self.store, &bytes_of(&words), &fds).map_err(|_| libc::EMFILE)?;
        self.rings.state.set_version(version);
        (self.version, self.wake) = (version, Some(signal));
        Ok(())
    }

    /// Syncs a monitor: takes the slots that its program gives back, and what arrives at the port, if it sees that.
    fn sync_monitor(&mut self, index: usize) -> Result<bool> {
        self.within(|port| {
            let is_right = port.monitors.accept(index, now())?;
            if port.monitors.sees_arrivals(index) && !port.is_leaving {
                port.arrive()?;
            }
            Ok(is_right)
        })
    }

    /// Takes what arrives, for monitors. The port's program, which may wait, is told.
    fn arrive(&mut self) -> Result<()> {
        let Port { rings, ring: Some(ring), sides, monitors, .. } = self else { return Ok(()) };
        let before = sides[RX].tail;
        if transfer::arrive(rings, ring, &mut sides[RX], monitors).is_err() {
            return match self.broken() {
                0 => Ok(()),
                error => Err(error),
            };
        }
        if self.sides[RX].tail != before {
            now().iter().for_each(|time| self.rings.set_time(RX, *time));
            self.wake();
        }
        Ok(())
    }

    /// Wakes all that wait for the port or its monitors.
    fn wake(&self) {
        self.wake.iter().for_each(Signal::send);
    }

    /// The socket that stores its descriptors.
    pub fn store(&self) -> BorrowedFd<'_> {
        self.store.as_fd()
    }

    /// Its descriptors in this process.
    pub fn descriptors(&self) -> Vec<i32> {
        let pipe = self.pipe.as_ref().map(|pipe| (pipe.descriptors(), pipe.pending()));
        let ring = self.ring.iter().flat_map(Ring::descriptors);
        let pipe = pipe.into_iter().flat_map(|(fds, pending)| fds.into_iter().chain(pending));
        let wake = self.wake.as_ref().map(AsFd::as_fd);
        let lock = self.device_lock.as_ref().map(AsFd::as_fd);
        let server = self.monitor_server.iter().flat_map(MonitorServer::descriptors);
        let fds = [self.store()].into_iter().chain(ring).chain(pipe).chain(wake).chain(lock).chain(server);
        fds.map(|fd| fd.as_raw_fd()).chain(self.rings.region.descriptors()).collect()
    }

    /// What tells it from others, in every process.
    pub fn identity(&self) -> Option<Identity> {
        identity(self.store())
    }

    /// Makes a descriptor that watches the ring's eventfd and its socket. The eventfd is watched by its edges, so
    /// that it never has to be read.
    pub fn watch(&self) -> Result<OwnedFd> {
        let set = epoll_set()?;
        let (edge, level) = (libc::EPOLLIN | libc::EPOLLET, libc::EPOLLIN | libc::EPOLLRDHUP);
        let ring = self.ring.as_ref();
        let call = ring.map(|ring| (ring.as_fd(), edge, CALL));
        let wake = self.wake.as_ref().map(|wake| (wake.as_fd(), edge, CALL));
        let socket = ring.filter(|_| !self.is_leaving).and_then(Ring::socket);
        let listener = self.pipe.as_ref().filter(|_| ring.is_none()).map(|pipe| pipe.descriptors()[0]);
        let server = self.monitor_server.as_ref().and_then(|server| server.descriptors().next());
        let others = [(socket, SOCKET), (listener, LISTENER), (server, MONITOR_SERVER)];
        let others = others.map(|(fd, data)| fd.map(|fd| (fd, level, data)));
        for (watched, bits, data) in [call, wake].into_iter().chain(others).flatten() {
            watch(&set, watched, bits, data)?;
        }
        Ok(set)
    }

    /// When this is another value, `watch` makes another descriptor.
    pub fn watched(&self) -> Watched {
        (self.version, self.is_leaving)
    }

    /// The port is lost for good.
    fn lost(&mut self) -> i32 {
        self.is_gone = true;
        self.rings.state.set(GONE);
        libc::ENXIO
    }

    /// Runs `work` for this thread alone, with the positions that all processes share.
    fn within<T>(&mut self, work: impl FnOnce(&mut Port) -> Result<T>) -> Result<T> {
        if self.is_gone {
            return Err(libc::ENXIO);
        }
        let state = self.rings.state.clone();
        let _guard = state.lock()?;
        if state.has(GONE) {
            return Err(self.lost());
        }
        for dir in [TX, RX] {
            match state.side(dir, self.rings.slots(dir)) {
                Some(side) => self.sides[dir] = side,
                None => return Err(self.lost()),
            }
        }
        if state.version() != self.version && self.refresh().is_err() {
            return Err(self.lost());
        }
        if !state.take(self.token)
            && let Some(ring) = &mut self.ring
        {
            ring.reload();
        }
        self.meet()?;
        self.monitors = Monitors::of(&self.rings);
        let done = work(self);
        for dir in [TX, RX] {
            state.set_side(dir, &self.sides[dir]);
        }
        if std::mem::take(&mut self.monitors).publish() {
            self.wake();
        }
        done
    }

    /// Takes the ring of the program that has opened the other end of a pipe.
    fn meet(&mut self) -> Result<()> {
        if self.ring.is_none()
            && let Some((ring, memory)) = self.pipe.as_mut().and_then(PipeEnd::accept)
        {
            self.publish(Some((ring, &memory)))?;
        }
        Ok(())
    }

    /// The ring broke: a port is lost, and a pipe goes on with the next program.
    fn broken(&mut self) -> i32 {
        if self.pipe.is_none() || self.publish(None).is_err() { self.lost() } else { 0 }
    }

    /// Gives programs that have connected the handle of a monitor.
    fn serve_monitors(&mut self) {
        // Attack: programs that connect all the time, so that the port's program does nothing else.
        for _ in 0..MONITORS {
            let Some((client, request)) = self.monitor_server.as_mut().and_then(MonitorServer::accept) else {
                break;
            };
            client.answer(self.monitor_handle(request));
        }
    }

    /// Of one whose program polls, or that has connected and said nothing yet.
    fn serve_monitors_if_due(&mut self) {
        if self.monitor_server.as_mut().is_some_and(MonitorServer::is_due) {
            self.serve_monitors();
        }
    }

    fn monitor_handle(&mut self, request: Request) -> Result<OwnedFd> {
        let handle = descriptor_store(true).map_err(|_| libc::EMFILE)?;
        let (own, _) = self.store_monitor(handle.as_raw_fd(), request, b"monitor")?;
        // It is taken back when the program, to which it is sent, has closed it.
        let monitor = own.monitor.map(|index| (self.rings.place.state, index));
        self.rings.region.take_handle_back(own.number, monitor, handle.as_fd());
        Ok(handle)
    }

    /// Makes a monitor, and stores it in a handle.
    pub fn store_monitor(&mut self, handle: i32, request: Request, name: &[u8]) -> Result<(Use, Place)> {
        let (own, place) = self.make_monitor(request, name)?;
        crate::handles::store(handle, own, self, None).inspect_err(|_| self.remove_monitor(own))?;
        Ok((own, place))
    }

    /// Removes a monitor that nobody has got to know.
    pub fn remove_monitor(&mut self, own: Use) {
        let region = self.rings.region.clone();
        region.take_interface_back(own.number);
        let Some(index) = own.monitor else { return };
        let removed = self.within(|port| {
            port.rings.state.remove_monitor(index);
            Ok(())
        });
        // Another process may copy frames there, if it still has the lock.
        if removed.is_ok() {
            region.take_monitor_back((self.rings.place.state, index));
        }
    }

    /// Makes a monitor, and a `netmap_if` for its handle with this name.
    pub fn make_monitor(&mut self, request: Request, name: &[u8]) -> Result<(Use, Place)> {
        let region = self.rings.region.clone();
        // This takes back what monitors had that are closed.
        let number = region.give_interface()?;
        // Before the port's lock is taken, which the region takes, too.
        let made = monitor::free(&self.rings.state).and_then(|_| {
            let rings = region.give(monitor::room(request.slots))?;
            let added = self.add_monitor(request.kinds, &rings.place);
            Ok((added.inspect_err(|_| region.take_unused_back(rings.place))?, rings))
        });
        let (index, rings) = made.inspect_err(|_| region.take_interface_back(number))?;
        region.note_monitor((self.rings.place.state, index), rings.place);
        rings.fill_interface(number, name, [1, 1], [true; 2], false);
        Ok((Use { number, bound: [true; 2], monitor: Some(index), ..Use::default() }, rings.place))
    }

    /// NIOCTXSYNC and NIOCRXSYNC of a handle.
    pub fn sync_for(&mut self, own: Use, dir: usize) -> Result<()> {
        self.serve_monitors_if_due();
        match own.monitor {
            // A monitor sends nothing.
            Some(_) if dir == TX => Err(libc::EIO),
            Some(index) => self.sync_monitor(index).map(drop),
            None => self.sync(dir).map(drop),
        }
    }

    /// NIOCTXSYNC and NIOCRXSYNC; `false`: the program had written what can't be, and the ring was put right.
    pub fn sync(&mut self, dir: usize) -> Result<bool> {
        self.within(|port| port.sync_within(dir))
    }

    fn sync_within(&mut self, dir: usize) -> Result<bool> {
        let before = [self.sides[TX].next, self.sides[RX].tail];
        let side = &mut self.sides[dir];
        let done = match (&mut self.ring, dir) {
            _ if side.slots == 0 => Ok(true),
            (Some(ring), TX) if !self.is_leaving => {
                transfer::send(&self.rings, ring, side, &mut self.monitors)
            }
            (Some(ring), RX) => transfer::receive(&self.rings, ring, side, &mut self.monitors),
            // A pipe keeps what is sent until the other end is there.
            _ => {
                let is_right = transfer::accept(&self.rings, dir, side, &mut self.monitors);
                side.is_full = dir == TX && side.next != side.head;
                Ok(is_right)
            }
        };
        let is_right = match done {
            Ok(is_right) => is_right,
            Err(_) => match self.broken() {
                0 => true,
                error => return Err(error),
            },
        };
        if let Some(time) = now() {
            self.rings.set_time(dir, time);
        }
        let has_moved = before != [self.sides[TX].next, self.sides[RX].tail];
        self.idle = if has_moved { 0 } else { self.idle + 1 };
        if self.idle >= IDLE || self.is_leaving {
            self.look()?;
        }
        Ok(is_right)
    }

    /// Looks whether the port is still there.
    fn look(&mut self) -> Result<()> {
        self.idle = 0;
        let Some(ring) = &mut self.ring else { return Ok(()) };
        if !ring.is_hung_up() {
            return Ok(());
        }
        if self.pipe.is_none() {
            return Err(self.lost());
        }
        // What a program sent before it closed a pipe's end is received first.
        if matches!(ring.rx.frame_len(), Ok(Some(_))) {
            self.is_leaving = true;
            return Ok(());
        }
        self.publish(None).map_err(|_| self.lost())
    }

    /// Syncs for a poll, and says what is ready.
    pub fn poll(&mut self, own: Use, events: i16) -> i16 {
        self.serve_monitors_if_due();
        if let Some(index) = own.monitor {
            return self.poll_monitor(index, events);
        }
        let wants = [events & OUT != 0, events & IN != 0];
        let mut ready = 0;
        for (dir, always, bits) in [(TX, own.sends, OUT), (RX, own.receives, IN)] {
            if !own.bound[dir] || !(wants[dir] || always) {
                continue;
            }
            match self.sync(dir) {
                Ok(true) => {}
                Ok(false) | Err(_) => ready |= libc::POLLERR,
            }
            if wants[dir] && self.sides[dir].is_ready() {
                ready |= events & bits;
            }
        }
        if self.is_gone { libc::POLLERR } else { ready }
    }

    fn poll_monitor(&mut self, index: usize, events: i16) -> i16 {
        let is_right = self.sync_monitor(index);
        match is_right.and_then(|_| self.within(|port| port.monitors.is_ready(index, false))) {
            Ok(is_ready) if is_right == Ok(true) => {
                if is_ready {
                    events & IN
                } else {
                    0
                }
            }
            _ => libc::POLLERR,
        }
    }

    fn arm_monitor(&mut self, index: usize, events: i16) -> Result<bool> {
        let has_news = events & IN != 0 && self.monitors.is_ready(index, true)?;
        let arrivals = Use { bound: [false, true], ..Use::default() };
        let is_armed = !self.monitors.sees_arrivals(index) || self.arm_within(arrivals, IN)?;
        Ok(is_armed && !has_news)
    }

    /// Before sleeping: lets the port wake the handle when `events` may be ready. `false`: they may be now.
    pub fn arm(&mut self, own: Use, events: i16) -> bool {
        let armed = self.within(|port| match own.monitor {
            Some(index) => port.arm_monitor(index, events),
            None => port.arm_within(own, events),
        });
        armed.unwrap_or(false)
    }

    fn arm_within(&mut self, own: Use, events: i16) -> Result<bool> {
        let (tx, rx) = (self.sides[TX], self.sides[RX]);
        // The listener of a pipe wakes.
        let Some(ring) = &mut self.ring else { return Ok(true) };
        let is_awaited = events & OUT != 0 && !tx.is_ready() && !self.is_leaving;
        let slots = ring.tx.slots();
        let is_in_place = ring.has_pool();
        let room = if is_in_place && is_awaited { in_place::awaited_room(ring, &tx) } else { slots };
        let wait = Wait {
            rx: u32::from(events & IN != 0 && own.bound[RX] && !rx.is_full),
            tx: match (tx.is_full && (is_awaited || own.sends), is_awaited) {
                (true, _) => (slots / 4).max(FRAGMENTS as u32),
                (false, true) if is_in_place || tx.next == tx.head => room,
                _ => 0,
            },
        };
        match ring.arm(wait) {
            Ok(may_sleep) => Ok(may_sleep),
            Err(_) => {
                self.broken();
                Ok(false)
            }
        }
    }

    /// After the descriptor of `watch` was readable: takes the wake, and notes if the port is gone.
    pub fn woken(&mut self, watch: BorrowedFd<'_>) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 5];
        let (fd, at) = (watch.as_raw_fd() as u64, events.as_mut_ptr().addr() as u64);
        // SAFETY: the call writes at most as many events.
        let count = unsafe { syscall(libc::SYS_epoll_pwait, [fd, at, events.len() as u64, 0, 0, 8]) };
        let told = events.get(..usize::try_from(count).unwrap_or(0)).unwrap_or_default();
        let told_by = |wanted: &[u64]| told.iter().any(|event| wanted.contains(&{ event.u64 }));
        if told_by(&[SOCKET, LISTENER]) {
            let _ = self.within(Port::look);
        }
        if told_by(&[MONITOR_SERVER]) {
            self.serve_monitors();
        }
    }

    /// Sets how many bytes come before each frame.
    pub fn set_header_len(&mut self, len: u32) -> Result<()> {
        if !transfer::HEADERS.contains(&len) {
            return Err(libc::EINVAL);
        }
        self.rings.state.set_header_len(len);
        Ok(())
    }

    pub fn positions(&self, dir: usize) -> Side {
        self.sides[dir]
    }

    /// Whether another process made it.
    pub fn is_adopted(&self) -> bool {
        self.is_adopted
    }

    /// Before the last descriptor is closed: waits until the port has taken what was sent.
    pub fn finish(&mut self) {
        let begin = std::time::Instant::now();
        while begin.elapsed() < DRAIN && self.ring.is_some() && self.sync(TX).is_ok() {
            let is_taken = |ring: &mut Ring| ring.tx.consumed().ok() == Some(ring.tx.head());
            let has_rest = self.sides[TX].is_full || !self.ring.as_mut().is_none_or(is_taken);
            if !has_rest || self.within(Port::look).is_err() {
                break;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        if !self.is_adopted {
            self.rings.region.take_back(self.rings.place, self.store.as_fd(), self.closing.take());
        }
    }
}

fn now() -> Option<Duration> {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()
}

/// A new epoll set.
pub fn epoll_set() -> Result<OwnedFd> {
    // SAFETY: the call takes a flag.
    let fd = unsafe { syscall(libc::SYS_epoll_create1, [libc::EPOLL_CLOEXEC as u64, 0, 0, 0, 0, 0]) };
    // SAFETY: the descriptor is new.
    if fd < 0 { Err(-fd as i32) } else { Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) }) }
}

/// Adds a descriptor to a set.
pub fn watch(set: &OwnedFd, watched: BorrowedFd<'_>, bits: i32, data: u64) -> Result<()> {
    let mut event = libc::epoll_event { events: bits as u32, u64: data };
    let (add, at) = (libc::EPOLL_CTL_ADD as u64, (&raw mut event).addr() as u64);
    let arguments = [set.as_raw_fd() as u64, add, watched.as_raw_fd() as u64, at, 0, 0];
    // SAFETY: the call reads the event, which lives.
    if unsafe { syscall(libc::SYS_epoll_ctl, arguments) } < 0 { Err(libc::ENOMEM) } else { Ok(()) }
}

/// A file's device and inode.
pub type Identity = (u64, u64);

/// What tells a file from others. `None` says nothing about it, and so equals no other file's.
pub fn identity(fd: BorrowedFd<'_>) -> Option<Identity> {
    // SAFETY: zeros are a value of it.
    let mut data: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes to `data`.
    let result = unsafe { libc::fstat(fd.as_raw_fd(), &raw mut data) };
    (result == 0).then_some((data.st_dev, data.st_ino))
}

fn bytes_of(words: &[u64; WORDS]) -> [u8; WORDS * 8] {
    let mut bytes = [0; WORDS * 8];
    for (place, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
        *place = word.to_ne_bytes();
    }
    bytes
}

type Looked = ([u64; WORDS], std::vec::IntoIter<OwnedFd>);

fn looked_up(store: &OwnedFd) -> Result<Looked> {
    let mut bytes = [0; WORDS * 8];
    let (count, fds) = stored_descriptors(store, &mut bytes, DESCRIPTORS).ok_or(libc::EINVAL)?;
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_ne_bytes(*bytes);
    }
    if count != bytes.len() || words[0] != MAGIC {
        return Err(libc::EINVAL);
    }
    Ok((words, fds.into_iter()))
}

/// The eventfd of monitors, the last descriptor, if there is one.
fn wake_of(has: u64, fds: &mut impl Iterator<Item = OwnedFd>) -> Result<Option<Signal>> {
    if has & HAS_WAKE == 0 {
        return Ok(None);
    }
    let wake = fds.next().ok_or(libc::EINVAL)?;
    // Attack: it is something else, or a full eventfd that blocks whoever writes to it, which a `Signal` never does.
    if FdKind::of(wake.as_fd()) != Some(FdKind::EventFd) {
        return Err(libc::EINVAL);
    }
    Signal::of(Arc::new(wake)).map(Some).map_err(|_| libc::EINVAL)
}

/// The ring of the descriptors that are left, if there is one.
fn ring_of(has: u64, fds: &mut impl Iterator<Item = OwnedFd>, region: &Region) -> Result<Option<Ring>> {
    if has & HAS_RING == 0 {
        return Ok(None);
    }
    let [Some(memory), Some(kick), Some(call), Some(socket)] =
        [fds.next(), fds.next(), fds.next(), fds.next()]
    else {
        return Err(libc::EINVAL);
    };
    let parts = RingParts { memory, kick, call, socket: socket.into(), is_second: has & IS_SECOND != 0 };
    Ring::from_parts_with(parts, region.mapped()).map(Some).map_err(|_| libc::EINVAL)
}
