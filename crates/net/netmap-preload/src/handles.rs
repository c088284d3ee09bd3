//! Which descriptors of this process are handles of `/dev/netmap`. Several descriptors may be one handle (`dup`).
//!
//! A handle is a socket that stores what it has of its port and the port's own socket (`host::descriptor_store`), so
//! that the descriptor alone is enough for a process that did not open it: a child, a program after exec, and one
//! that got it by SCM_RIGHTS. Such a handle is found when the program maps it or asks it something.

use crate::Result;
use crate::csb::Csb;
use crate::monitor::MONITORS;
use crate::port::{Identity, Port, Use, Watched, epoll_set, identity, watch};
use crate::real::syscall;
use crate::region::Region;
use arrayvec::ArrayVec;
use ringway_host::{store_descriptors, stored_descriptors};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU16, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

/// Descriptors that can be handles; those with larger numbers are not given.
const DESCRIPTORS: usize = 1 << 16;
/// Handles at a time.
const HANDLES: usize = 1024;
/// What a handle stores: this, and its `Use` in two words.
const MAGIC: u64 = u64::from_le_bytes(*b"rw-hand1");
const BYTES: usize = 24;

/// A port, and what a handle has of it.
#[derive(Debug)]
pub struct Bound {
    pub port: Arc<Mutex<Port>>,
    /// The port with the host rings, if the handle has those beside the port's.
    pub host: Option<Arc<Mutex<Port>>>,
    pub own: Use,
    watch: Option<Watch>,
    pub csb: Option<Csb>,
}

/// What is watched for a handle.
#[derive(Debug)]
struct Watch {
    of: [Option<Watched>; 2],
    /// The descriptors of the ports, in their order.
    ports: Vec<OwnedFd>,
    /// One of both, if there are two.
    both: Option<OwnedFd>,
}

impl Watch {
    fn new(ports: &Ports<'_>, of: [Option<Watched>; 2]) -> Result<Watch> {
        let ports = ports.iter().map(|port| port.watch()).collect::<Result<Vec<OwnedFd>>>()?;
        let both = match ports.len() {
            2 => {
                let set = epoll_set()?;
                for (port, data) in ports.iter().zip(0..) {
                    watch(&set, port.as_fd(), libc::EPOLLIN, data)?;
                }
                Some(set)
            }
            _ => None,
        };
        Ok(Watch { of, ports, both })
    }

    fn descriptors(&self) -> impl Iterator<Item = i32> {
        self.both.iter().chain(&self.ports).map(AsRawFd::as_raw_fd)
    }
}

/// A handle's ports, of which there are one or two, for this thread alone.
type Ports<'p> = ArrayVec<MutexGuard<'p, Port>, 2>;

/// A port, for this thread alone.
pub fn lock(port: &Mutex<Port>) -> MutexGuard<'_, Port> {
    // A panic is a fault of this library; what it leaves is checked as everything else.
    port.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A port and another one, in the order of their addresses: handles may have the same two in either order.
pub fn lock_both<'p>(
    port: &'p Mutex<Port>,
    other: &'p Mutex<Port>,
) -> (MutexGuard<'p, Port>, MutexGuard<'p, Port>) {
    let is_first = std::ptr::from_ref(port) < std::ptr::from_ref(other);
    let early = (!is_first).then(|| lock(other));
    let port = lock(port);
    (port, early.unwrap_or_else(|| lock(other)))
}

impl Bound {
    pub fn new(port: Arc<Mutex<Port>>, own: Use) -> Bound {
        Bound { port, host: None, own, watch: None, csb: None }
    }

    /// With a control block, and the port of the host.
    pub fn with(self, csb: Option<Csb>, host: Option<Arc<Mutex<Port>>>) -> Bound {
        Bound { csb, host, ..self }
    }

    /// Its ports, of which there are one or two.
    fn ports(&self) -> Ports<'_> {
        match &self.host {
            Some(host) => <[_; 2]>::from(lock_both(&self.port, host)).into(),
            None => [lock(&self.port)].into_iter().collect(),
        }
    }

    /// The port, for this thread alone.
    pub fn port(&self) -> MutexGuard<'_, Port> {
        lock(&self.port)
    }

    /// The descriptor to wait for, of this process; -1: there is none.
    fn watch(&mut self) -> i32 {
        let new = {
            let ports = self.ports();
            let of = [0, 1].map(|at| ports.get(at).map(|port| port.watched()));
            let is_old = self.watch.as_ref().is_none_or(|watch| watch.of != of);
            is_old.then(|| Watch::new(&ports, of).ok())
        };
        if let Some(new) = new {
            self.watch = new;
        }
        self.watch.as_ref().and_then(|watch| watch.descriptors().next()).unwrap_or(-1)
    }
}

/// A handle.
#[derive(Debug)]
pub struct Handle {
    bound: Mutex<Option<Bound>>,
    /// How many descriptors it has; 0: it is free.
    descriptors: AtomicU32,
    /// The state of its sync kloop (`csb.rs`).
    pub sync_kloop: AtomicU32,
}

static POOL: [Handle; HANDLES] = [const {
    Handle { bound: Mutex::new(None), descriptors: AtomicU32::new(0), sync_kloop: AtomicU32::new(0) }
}; HANDLES];
/// The handle of each descriptor, from 1 on; 0: none.
static TABLE: [AtomicU16; DESCRIPTORS] = [const { AtomicU16::new(0) }; DESCRIPTORS];

/// The process whose handles these are. A child of `vfork` has its parent's memory, and must not change it.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// A port that this process has, by the path of its socket or the name of the pipe; none: it was passed.
#[derive(Debug)]
pub struct Known {
    pub path: Option<PathBuf>,
    /// Other ports of this process may have its memory.
    pub is_common: bool,
    pub identity: Option<Identity>,
    pub port: Weak<Mutex<Port>>,
    /// The identity of its memory, and the memory.
    pub region: (Option<Identity>, Weak<Region>),
}

/// The ports of this process: a second handle for a port has the same rings.
static PORTS: Mutex<Vec<Known>> = Mutex::new(Vec::new());

/// The ports that are there.
pub fn ports() -> MutexGuard<'static, Vec<Known>> {
    let mut ports = PORTS.lock().unwrap_or_else(PoisonError::into_inner);
    ports.retain(|known| known.port.strong_count() > 0 || known.region.1.strong_count() > 0);
    ports
}

/// Notes a port, and whether others may have its memory.
pub fn note(ports: &mut Vec<Known>, path: Option<PathBuf>, is_common: bool, port: &Arc<Mutex<Port>>) {
    let inner = lock(port);
    let region = &inner.rings.region;
    let region = (identity(region.as_fd()), Arc::downgrade(region));
    let (identity, port) = (inner.identity(), Arc::downgrade(port));
    ports.push(Known { path, is_common, identity, port, region });
}

impl Handle {
    /// What it has, if it is registered, for this thread alone. `fd` is one of its descriptors.
    pub fn bound(&self, fd: i32) -> MutexGuard<'_, Option<Bound>> {
        let mut bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        // A thread that uses a handle while it is closed does not take it again.
        if bound.is_none() && self.descriptors.load(SeqCst) > 0 {
            *bound = adopted(fd).ok();
        }
        bound
    }

    /// NIOCTXSYNC and NIOCRXSYNC.
    pub fn sync(&self, fd: i32, dir: usize) -> Result<()> {
        let bound = self.bound(fd);
        let bound = bound.as_ref().ok_or(libc::ENXIO)?;
        if bound.csb.is_some() {
            // The kloop does it.
            return Err(libc::EBUSY);
        }
        if !bound.own.bound[dir] {
            return Ok(());
        }
        bound.ports().iter_mut().try_for_each(|port| port.sync_for(bound.own, dir))
    }

    /// Syncs for a poll, and says what is ready.
    pub fn poll(&self, fd: i32, events: i16) -> i16 {
        let bound = self.bound(fd);
        let bound = bound.as_ref().filter(|bound| bound.csb.is_none());
        let ready = |bound: &Bound| {
            bound.ports().iter_mut().fold(0, |ready, port| ready | port.poll(bound.own, events))
        };
        bound.map_or(libc::POLLERR, ready)
    }

    /// Before sleeping; `false`: something may be ready.
    pub fn arm(&self, fd: i32, events: i16) -> bool {
        let arm = |bound: &Bound| bound.ports().iter_mut().all(|port| port.arm(bound.own, events));
        self.bound(fd).as_ref().is_none_or(arm)
    }

    /// The descriptor that the kernel waits for in place of the handle's; -1: none.
    pub fn watch(&self, fd: i32) -> i32 {
        self.bound(fd).as_mut().map_or(-1, Bound::watch)
    }

    /// After that descriptor was readable.
    pub fn woken(&self, fd: i32) {
        if let Some(bound) = self.bound(fd).as_ref()
            && let Some(watch) = &bound.watch
        {
            for (port, fd) in bound.ports().iter_mut().zip(&watch.ports) {
                port.woken(fd.as_fd());
            }
        }
    }
}

/// A descriptor of the program.
fn borrowed<'a>(fd: i32) -> Option<BorrowedFd<'a>> {
    // SAFETY: the program keeps it open during its call; if it does not, the calls fail.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}

/// Stores what a handle has of its port, and of that of the host.
pub fn store(fd: i32, own: Use, port: &Port, host: Option<&Port>) -> Result<()> {
    let socket = borrowed(fd).ok_or(libc::EBADF)?;
    let bits = [own.bound[0], own.bound[1], own.sends, own.receives];
    let monitor = own.monitor.map_or(0, |index| index as u64 + 1);
    let bits = (0..4).fold(monitor << 8, |all, bit| all | u64::from(bits[bit]) << bit);
    let mut bytes = [0; BYTES];
    for (place, word) in bytes.as_chunks_mut().0.iter_mut().zip([MAGIC, u64::from(own.number), bits]) {
        *place = word.to_ne_bytes();
    }
    let stores: Vec<BorrowedFd<'_>> = [Some(port), host].into_iter().flatten().map(Port::store).collect();
    store_descriptors(socket, &bytes, &stores).map_err(|_| libc::EMFILE)
}

/// What a descriptor stores, if it is a handle that another process, or this one before a fork, has registered.
fn adopted(fd: i32) -> Result<Bound> {
    let bound = stored(fd)?;
    for mut port in bound.ports().into_iter().filter(|_| bound.own.monitor.is_none()) {
        port.handles += 1;
    }
    Ok(bound)
}

/// The same, for a handle that is none of this process yet.
pub fn stored(fd: i32) -> Result<Bound> {
    let socket = borrowed(fd).ok_or(libc::EBADF)?;
    let mut bytes = [0; BYTES];
    let (count, fds) = stored_descriptors(socket, &mut bytes, 2).ok_or(libc::EINVAL)?;
    let [magic, number, bits] =
        [0, 1, 2].map(|index| bytes.as_chunks().0.get(index).map_or(0, |word| u64::from_ne_bytes(*word)));
    if (count, magic) != (BYTES, MAGIC) {
        return Err(libc::EINVAL);
    }
    let number = u32::try_from(number).ok().filter(|number| *number < crate::region::INTERFACES);
    let has = |bit: u32| bits & 1 << bit != 0;
    let monitor = (bits >> 8 & 0xff).checked_sub(1).map(|index| index as usize);
    let own = Use {
        number: number.ok_or(libc::EINVAL)?,
        bound: [has(0), has(1)],
        sends: has(2),
        receives: has(3),
        monitor: monitor.filter(|index| *index < MONITORS),
    };
    let mut ports = ports();
    let mut found = fds.into_iter().map(|store| port_of(&mut ports, store));
    let port = found.next().ok_or(libc::EINVAL)??;
    let host = found.next().transpose()?;
    drop(found);
    if let Some(host) = &host {
        // Attack: one port twice, whose lock would be taken twice.
        if Arc::ptr_eq(&port, host) {
            return Err(libc::EINVAL);
        }
        // A handle maps one memory.
        let (port, host) = lock_both(&port, host);
        if !Arc::ptr_eq(&port.rings.region, &host.rings.region)
            || port.rings.place.state == host.rings.place.state
        {
            return Err(libc::EINVAL);
        }
    }
    Ok(Bound { host, ..Bound::new(port, own) })
}

/// Makes a handle of this process, which has no port, a copy of one that another program gave.
pub fn become_copy(fd: i32, given: &OwnedFd) -> Result<()> {
    let get = [fd as u64, libc::F_GETFD as u64, 0, 0, 0, 0];
    // SAFETY: the call changes nothing.
    let is_closed_by_exec = unsafe { syscall(libc::SYS_fcntl, get) } & i64::from(libc::FD_CLOEXEC) != 0;
    let flags = if is_closed_by_exec { libc::O_CLOEXEC } else { 0 };
    let arguments = [given.as_raw_fd() as u64, fd as u64, flags as u64, 0, 0, 0];
    // SAFETY: the descriptor is one of this library, and the program's handle stays one.
    if unsafe { syscall(libc::SYS_dup3, arguments) } < 0 { Err(libc::EMFILE) } else { Ok(()) }
}

/// The port of a socket that stores what it needs.
fn port_of(ports: &mut Vec<Known>, store: OwnedFd) -> Result<Arc<Mutex<Port>>> {
    let found = identity(store.as_fd());
    let known = ports
        .iter()
        .find(|known| found.is_some() && known.identity == found)
        .and_then(|known| known.port.upgrade());
    if let Some(port) = known {
        return Ok(port);
    }
    let same = |known: &&Known, identity| known.region.0 == Some(identity);
    let region = |identity| {
        ports.iter().filter(|known| same(known, identity)).find_map(|known| known.region.1.upgrade())
    };
    let port = Arc::new(Mutex::new(Port::adopt(store, region)?));
    note(ports, None, false, &port);
    Ok(port)
}

fn place(fd: i32) -> Option<&'static AtomicU16> {
    TABLE.get(usize::try_from(fd).ok()?)
}

/// The handle of a descriptor.
#[inline]
pub fn get(fd: i32) -> Option<&'static Handle> {
    let number = place(fd)?.load(SeqCst);
    POOL.get(usize::from(number).checked_sub(1)?)
}

/// The handle of a descriptor, which another process may have opened.
pub fn find(fd: i32) -> Option<&'static Handle> {
    get(fd).or_else(|| {
        if crate::names::is_privileged() {
            return None;
        }
        let bound = adopted(fd).ok()?;
        begin(fd).ok()?;
        let handle = get(fd)?;
        *handle.bound.lock().unwrap_or_else(PoisonError::into_inner) = Some(bound);
        Some(handle)
    })
}

/// A new handle for a new descriptor.
pub fn begin(fd: i32) -> Result<()> {
    static PREPARED: Once = Once::new();
    // SAFETY: the functions live as long as the library, which is never unloaded.
    PREPARED.call_once(|| unsafe {
        libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child));
    });
    let place = place(fd).ok_or(libc::EMFILE)?;
    let take = |handle: &Handle| handle.descriptors.compare_exchange(0, 1, SeqCst, SeqCst).is_ok();
    let index = POOL.iter().position(take).ok_or(libc::EMFILE)?;
    POOL[index].sync_kloop.store(0, SeqCst);
    PROCESS.store(std::process::id(), SeqCst);
    place.store(index as u16 + 1, SeqCst);
    Ok(())
}

/// `new` is `old`, too, as far as it is a handle. What `new` was before is closed.
pub fn duplicated(old: i32, new: i32) {
    if old == new || new < 0 {
        return;
    }
    replaced(new);
    if let (Some(handle), Some(from), Some(to)) = (get(old), place(old), place(new))
        && PROCESS.load(SeqCst) == std::process::id()
    {
        handle.descriptors.fetch_add(1, SeqCst);
        to.store(from.load(SeqCst), SeqCst);
    }
}

/// Before a descriptor is closed. What it had is dropped after that.
pub fn closed(fd: i32) -> Option<Bound> {
    ended(fd, true)
}

/// After a descriptor became another one.
pub fn replaced(fd: i32) {
    drop(ended(fd, false));
}

fn ended(fd: i32, is_open: bool) -> Option<Bound> {
    let handle = get(fd);
    if (handle.is_none() && !crate::sets::is_used()) || PROCESS.load(SeqCst) != std::process::id() {
        return None;
    }
    crate::sets::closed(fd);
    let handle = handle?;
    if let Some(place) = place(fd) {
        place.store(0, SeqCst);
    }
    let mut bound = handle.bound.lock().unwrap_or_else(PoisonError::into_inner);
    // While the lock is held, so that another thread does not adopt what is closed.
    if handle.descriptors.fetch_sub(1, SeqCst) != 1 {
        return None;
    }
    let bound = bound.take()?;
    let mut ports = bound.ports();
    for port in ports.iter_mut().filter(|_| bound.own.monitor.is_none()) {
        port.handles = port.handles.saturating_sub(1);
        if port.handles == 0 {
            port.finish();
        }
    }
    let port = ports.first()?;
    // The number of a handle whose socket can't be watched is never given again.
    if let Some(socket) = borrowed(fd).filter(|_| is_open && !port.is_adopted()) {
        let monitor = bound.own.monitor.map(|index| (port.rings.place.state, index));
        port.rings.region.take_handle_back(bound.own.number, monitor, socket);
    }
    drop(ports);
    Some(bound)
}

/// What `before_fork` locks until the fork is over.
static FORKING: Mutex<Option<Locked>> = Mutex::new(None);
/// One thread forks at a time.
static FORK: Mutex<()> = Mutex::new(());

struct Locked {
    thread: i32,
    _ports: Option<MutexGuard<'static, Vec<Known>>>,
    _sets: Option<crate::sets::Locked>,
    held: Held,
    /// Dropped last.
    _fork: MutexGuard<'static, ()>,
}

// SAFETY: the thread that forks puts them there and takes them, in the parent and in the child.
unsafe impl Send for Locked {}

/// Handles and ports that no thread changes while the fork is made, and their descriptors.
#[derive(Default)]
struct Held {
    handles: Vec<MutexGuard<'static, Option<Bound>>>,
    ports: Vec<HeldPort>,
    descriptors: Vec<i32>,
}

struct HeldPort {
    /// Dropped before the port that it locks.
    _guard: MutexGuard<'static, Port>,
    _port: Arc<Mutex<Port>>,
}

/// How long a fork waits for threads that work with a handle or a port, or open one, and between two looks.
const FORK_WAIT: Duration = Duration::from_millis(200);
const FORK_PAUSE: Duration = Duration::from_micros(20);

/// A lock, unless its holder keeps it until `end`.
pub fn locked_by<T>(lock: &'static Mutex<T>, end: Instant) -> Option<MutexGuard<'static, T>> {
    loop {
        match lock.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() >= end => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(FORK_PAUSE),
        }
    }
}

impl Held {
    /// The handles, in the order in which other threads lock: before the list of ports. One that this thread has
    /// itself, which forks in a signal's handler, or that another one keeps for long, as while it closes it, is left
    /// out.
    fn of_handles(end: Instant) -> Held {
        let mut held = Held::default();
        for handle in POOL.iter().filter(|handle| handle.descriptors.load(SeqCst) > 0) {
            if let Some(bound) = locked_by(&handle.bound, end) {
                let watch = bound.as_ref().and_then(|bound| bound.watch.as_ref());
                held.descriptors.extend(watch.into_iter().flat_map(Watch::descriptors));
                held.handles.push(bound);
            }
        }
        held
    }

    /// The ports of the list, or else those of the handles: a thread that opens a port has the list meanwhile.
    fn add_ports(&mut self, ports: Option<&[Known]>, end: Instant) {
        let mut all: Vec<Arc<Mutex<Port>>> = match ports {
            Some(ports) => ports.iter().filter_map(|known| known.port.upgrade()).collect(),
            None => {
                let handles = self.handles.iter().filter_map(|bound| bound.as_ref());
                handles
                    .flat_map(|bound| [Some(&bound.port), bound.host.as_ref()])
                    .flatten()
                    .cloned()
                    .collect()
            }
        };
        all.sort_by_key(Arc::as_ptr);
        all.dedup_by(|one, other| Arc::ptr_eq(one, other));
        for port in all {
            // SAFETY: the `Arc` is kept beside the guard, which is dropped first.
            let lock: &'static Mutex<Port> = unsafe { &*Arc::as_ptr(&port) };
            if let Some(guard) = locked_by(lock, end) {
                self.descriptors.extend(guard.descriptors());
                self.ports.push(HeldPort { _guard: guard, _port: port });
            }
        }
    }

    /// In a child, whose handles store what it needs: closes its copies of these descriptors.
    fn abandon(self) {
        for fd in self.descriptors {
            // SAFETY: they were this library's when the fork was made, and what has them is forgotten.
            unsafe { syscall(libc::SYS_close, [fd as u64, 0, 0, 0, 0, 0]) };
        }
        std::mem::forget((self.handles, self.ports));
    }
}

extern "C" fn before_fork() {
    let end = Instant::now() + FORK_WAIT;
    let Some(fork) = locked_by(&FORK, end) else { return };
    let mut held = Held::of_handles(end);
    let (ports, sets) = (locked_by(&PORTS, end), crate::sets::lock_by(end));
    held.add_ports(ports.as_deref().map(Vec::as_slice), end);
    let locked = Locked { thread: thread(), _ports: ports, _sets: sets, held, _fork: fork };
    *FORKING.lock().unwrap_or_else(PoisonError::into_inner) = Some(locked);
}

fn thread() -> i32 {
    // SAFETY: the call takes nothing.
    unsafe { libc::gettid() }
}

/// In a child: its value is this from now on, and what was there is not dropped.
///
/// # Safety
/// The child has one thread alone, which holds no reference to the value.
pub unsafe fn renew<T>(lock: &'static Mutex<T>, value: T) {
    // SAFETY: the caller's. A `Mutex` has interior mutability, so that writing to it is allowed.
    unsafe { std::ptr::from_ref(lock).cast_mut().write(Mutex::new(value)) };
}

extern "C" fn after_fork() {
    let own = thread();
    let is_own = |locked: &mut Locked| locked.thread == own;
    let locked = FORKING.lock().unwrap_or_else(PoisonError::into_inner).take_if(is_own);
    drop(locked);
}

/// In a child, threads that it does not have may have the locks of handles and ports, in the midst of their work. It
/// forgets what they are and finds them again by their descriptors.
extern "C" fn in_child() {
    PROCESS.store(std::process::id(), SeqCst);
    // What was not locked in time may be in the midst of a change.
    let locked = FORKING.try_lock().ok().and_then(|mut locked| locked.take());
    if let Some(Locked { held, thread: _, _ports, _sets, _fork }) = locked {
        held.abandon();
    }
    // SAFETY: the child has this thread alone, which holds no reference to them.
    unsafe {
        renew(&FORKING, None);
        renew(&FORK, ());
        renew(&PORTS, Vec::new());
    }
    crate::sets::renew_if_locked();
    for handle in &POOL {
        // A free one may be locked by a thread that has just closed it.
        if handle.descriptors.load(SeqCst) > 0 || handle.bound.try_lock().is_err() {
            // SAFETY: as above.
            unsafe { renew(&handle.bound, None) };
            // The thread of its kloop is the parent's.
            handle.sync_kloop.store(0, SeqCst);
        }
    }
}
