//! The memory that a program maps: netmap's `netmap_if`s, rings and buffers, of a port and its pipes. Behind it, states
//! that only this library maps (`shared.rs`).

use crate::Result;
use crate::port::{epoll_set, watch};
use crate::real::syscall;
use crate::rings::Rings;
use crate::shared::{STATE, State};
use ringway_host::{Mapping, memfd};
use ringway_mem::{Hint, Memory, SpanMut, Words};
use ringway_ring_client::{BufferPool, Closing, Pool};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a buffer.
pub const BUFFER: u32 = 2048;
/// Buffers 0 and 1 are in no slot and no list; netmap uses them itself.
pub const RESERVED: u32 = 2;
const PAGE: u64 = 4096;
/// Bytes of a `netmap_if`, and how many there are at the beginning, one for each handle.
pub const INTERFACE: u64 = 256;
pub const INTERFACES: u32 = 64;
/// Rings that a `netmap_if` has room for.
pub const INTERFACE_RINGS: usize = (INTERFACE as usize - 56) / 8;
/// Where rings begin, and bytes for them: two of 4096 slots, and those of as many pipes as there are handles.
pub const RINGS_AT: u64 = INTERFACE * INTERFACES as u64;
pub const RINGS_BYTES: u64 = 4 << 20;
const BUFFERS_AT: u64 = RINGS_AT + RINGS_BYTES;
/// Buffers for pipes, monitors and further ports, or fewer if there would be more than [`BUFFERS_MOST`]. They are those
/// of 22 pipes with 1024 slots, since `lb -p 20` has its pipes in the memory of its port. An unused buffer has no page.
const SPARE: u32 = 22 * 2 * 1024;
/// Most extra buffers; a program that asks for more gets these.
pub const EXTRA: u32 = 1 << 14;
/// Most buffers: slots of a port's ring have 16 bits for a buffer's number. Attack: the number comes with a descriptor
/// that a program was given.
const BUFFERS_MOST: u32 = 1 << 16;
const _: () = assert!(RESERVED + 4 * 4096 + EXTRA < BUFFERS_MOST);
/// Bytes before the slots of a ring, and bytes of a slot.
pub const RING_HEADER: u64 = 256;
pub const SLOT: u64 = 16;

/// How large the parts of a port are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Slots of the rings to send and to receive.
    pub slots: [u32; 2],
    /// Buffers in no slot.
    pub extra: u32,
    /// The slots of the port's own ring have their buffers here, too, so that no frame is copied.
    pub is_in_place: bool,
}

impl Sizes {
    fn ring(self, dir: usize) -> u64 {
        (RING_HEADER + SLOT * u64::from(self.slots[dir])).next_multiple_of(PAGE)
    }

    pub fn buffers(self) -> u32 {
        self.slots[0] + self.slots[1] + self.extra + self.ring_slots().iter().sum::<u32>()
    }

    /// Slots of the port's own ring whose buffers are here: at least as many as netmap's, so that there is room for
    /// what those have.
    pub fn ring_slots(self) -> [u32; 2] {
        if self.is_in_place { self.slots.map(u32::next_power_of_two) } else { [0; 2] }
    }

    /// Bytes that a program maps for a port of these sizes and its pipes.
    pub fn bytes(self) -> u64 {
        mapped_bytes(self.all_buffers())
    }

    /// All buffers of the memory that is made for such a port.
    pub fn all_buffers(self) -> u32 {
        (RESERVED + self.buffers() + SPARE).min(BUFFERS_MOST)
    }
}

fn mapped_bytes(buffers: u32) -> u64 {
    BUFFERS_AT + u64::from(buffers) * u64::from(BUFFER)
}

/// Offset of the states: on a page of their own, since a program may map the last page of the buffers as a whole.
fn states_at(buffers: u32) -> u64 {
    mapped_bytes(buffers).next_multiple_of(PAGE)
}

/// Where a port's rings are, its first buffer and its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub rings: [u64; 2],
    pub sizes: Sizes,
    pub first: u32,
    pub state: u32,
}

impl Place {
    /// The number of the first buffer of the port's own ring.
    pub fn ring_buffer(self) -> u32 {
        self.first + self.sizes.slots[0] + self.sizes.slots[1] + self.sizes.extra
    }

    /// Whether a buffer belongs to this port.
    #[inline]
    pub fn has_buffer(self, buf_idx: u32) -> bool {
        buf_idx.wrapping_sub(self.first) < self.sizes.buffers()
    }
}

/// What is given to ports. Only the process that made the memory gives.
#[derive(Debug)]
struct Given {
    rings: u64,
    first: u32,
    states: u32,
    /// A bit for each `netmap_if`.
    interfaces: u64,
    /// Places that nobody has.
    free: Vec<Place>,
    /// Those of the monitors of all ports.
    monitors: Vec<(MonitorKey, Place)>,
    left: Left,
    /// The places of ports that are closed while their fabric may still write received frames there.
    closing: Vec<(Place, Closing)>,
}

/// The number of a port's state, and that of a monitor of the port.
pub type MonitorKey = (u32, usize);

impl Given {
    /// Whether a fabric may still write to the buffers of a place.
    fn is_closing(&mut self, place: Place) -> bool {
        self.closing.retain(|(_, closing)| !closing.is_over());
        self.closing.iter().any(|(other, _)| *other == place)
    }

    /// The place of a monitor that its port does not have any more is free.
    fn end_monitor(&mut self, key: MonitorKey) {
        let ended = self.monitors.extract_if(.., |(other, _)| *other == key);
        self.free.extend(ended.map(|(_, place)| place));
    }
}

/// What this process does not have any more. Another one has it as long as there is the socket that stores it.
#[derive(Debug, Default)]
struct Left {
    /// An epoll set of these sockets. The kernel removes a socket when its last descriptor is closed, in whichever
    /// process or message it is.
    sockets: Option<OwnedFd>,
    parts: Vec<(u64, Part)>,
    next: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Place(Place),
    Interface(u32),
    /// A monitor. Its place is known here: what the port's state says of it others may have written.
    Monitor(MonitorKey, Place),
}

/// The number of a socket that is gone.
const GONE: u64 = 0;

/// Most parts at a time: a state for each place, and the `netmap_if`s.
const PARTS: usize = 2 * INTERFACES as usize;

impl Left {
    /// Parts are left, whose socket is open yet.
    fn add(&mut self, parts: impl IntoIterator<Item = Part>, socket: BorrowedFd<'_>) -> Result<()> {
        // One that was passed back and is left again is known with its socket.
        let is_new = |part: &Part| !self.parts.iter().any(|(_, other)| other == part);
        let parts: Vec<Part> = parts.into_iter().filter(is_new).collect();
        if parts.is_empty() {
            return Ok(());
        }
        let sockets = match self.sockets.take() {
            Some(sockets) => sockets,
            None => epoll_set()?,
        };
        self.next += 1;
        // A socket that stores something is readable.
        let added = watch(&sockets, socket, libc::EPOLLIN | libc::EPOLLOUT, self.next);
        self.sockets = Some(sockets);
        // What can't be watched is never given again.
        added.map(|()| self.parts.extend(parts.into_iter().map(|part| (self.next, part))))
    }

    /// The parts that nobody has any more.
    fn take(&mut self) -> Vec<Part> {
        let Some(sockets) = self.sockets.as_ref().filter(|_| !self.parts.is_empty()) else {
            return Vec::new();
        };
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; PARTS];
        let (fd, at) = (sockets.as_raw_fd() as u64, events.as_mut_ptr().addr() as u64);
        // SAFETY: the call writes at most as many events.
        let count = unsafe { syscall(libc::SYS_epoll_pwait, [fd, at, PARTS as u64, 0, 0, 8]) };
        let Some(events) = usize::try_from(count).ok().and_then(|count| events.get(..count)) else {
            return Vec::new();
        };
        let is_there = |id: u64| events.iter().any(|event| event.u64 == id);
        self.parts.extract_if(.., |(id, _)| !is_there(*id)).map(|(_, part)| part).collect()
    }
}

/// The memory.
#[derive(Debug)]
pub struct Region {
    file: OwnedFd,
    memory: Memory,
    buffers: u32,
    /// netmap's number of the memory: another one for each memory of the host, as far as 16 bits tell.
    id: u16,
    given: Option<Mutex<Given>>,
}

impl Region {
    /// New memory for a port of these sizes, and its pipes. `is_taken` says which numbers this process has already.
    pub fn new(sizes: Sizes, is_taken: impl Fn(u16) -> bool) -> Result<Arc<Region>> {
        let buffers = sizes.all_buffers();
        let bytes = states_at(buffers) + STATE * u64::from(INTERFACES);
        for _ in 0..16 {
            let file = memfd("ringway-netmap", bytes as usize).map_err(|_| libc::ENOMEM)?;
            let mut region = Region::of(file, buffers)?;
            if is_taken(region.id) {
                continue;
            }
            let (free, monitors, left) = (Vec::new(), Vec::new(), Left::default());
            let (rings, first, states, interfaces) = (RINGS_AT, RESERVED, 0, 0);
            let closing = Vec::new();
            let given = Given { rings, first, states, interfaces, free, monitors, left, closing };
            region.given = Some(Mutex::new(given));
            return Ok(Arc::new(region));
        }
        Err(libc::ENOMEM)
    }

    /// The memory of another process.
    pub fn adopt(file: OwnedFd, buffers: u32) -> Result<Arc<Region>> {
        if !(RESERVED..=BUFFERS_MOST).contains(&buffers) {
            return Err(libc::EINVAL);
        }
        Ok(Arc::new(Region::of(file, buffers)?))
    }

    fn of(file: OwnedFd, buffers: u32) -> Result<Region> {
        let mapping = Mapping::sealed(&file).map_err(|_| libc::ENOMEM)?;
        let memory = Memory::new(vec![mapping.region()]).map_err(|_| libc::ENOMEM)?;
        let len = memory.regions().first().map_or(0, |region| region.len);
        if states_at(buffers) + STATE * u64::from(INTERFACES) > len {
            return Err(libc::EINVAL);
        }
        let data = std::fs::File::from(file.try_clone().map_err(|_| libc::EMFILE)?);
        let inode = data.metadata().map_err(|_| libc::EIO)?.ino();
        let id = (inode % (u64::from(u16::MAX) - 2)) as u16 + 2;
        Ok(Region { file, memory, buffers, id, given: None })
    }

    /// The descriptor to map.
    pub fn raw_fd(&self) -> i32 {
        self.file.as_raw_fd()
    }

    pub fn id(&self) -> u16 {
        self.id
    }

    pub fn buffers(&self) -> u32 {
        self.buffers
    }

    /// Bytes that a program may map.
    pub fn bytes(&self) -> u64 {
        mapped_bytes(self.buffers)
    }

    /// Offset of the states, and the end of what a program may map.
    pub fn states_at(&self) -> u64 {
        states_at(self.buffers)
    }

    /// Offset of a `netmap_if`.
    pub fn interface_at(number: u32) -> u64 {
        u64::from(number) * INTERFACE
    }

    /// Offset of the buffers.
    pub fn buffers_at(&self) -> u64 {
        BUFFERS_AT
    }

    /// The whole memory.
    pub fn mapped(&self) -> Option<ringway_mem::Region> {
        self.memory.regions().first().cloned()
    }

    /// The buffers as those of a port's ring at a place.
    pub fn pool(&self, place: Place) -> Option<Pool<'_>> {
        let numbers = BufferPool { at: BUFFERS_AT, buffers: self.buffers, first: place.ring_buffer() };
        let region = self.mapped().filter(|_| place.sizes.is_in_place)?;
        Some(Pool { file: self.as_fd(), region, place: numbers })
    }

    /// Offset, number and size of each kind of object: `netmap_if`s, rings, buffers.
    pub fn pools(buffers: u32) -> [(u64, u32, u32); 3] {
        let ring = (RING_HEADER + SLOT * 4096) as u32;
        [
            (0, INTERFACES, INTERFACE as u32),
            (RINGS_AT, (RINGS_BYTES / u64::from(ring)) as u32, ring),
            (BUFFERS_AT, buffers, BUFFER),
        ]
    }

    pub fn span(&self, at: u64, len: u32) -> SpanMut<'_> {
        self.memory.span_mut(at, len, &mut Hint::default()).unwrap_or(SpanMut::of(&mut []))
    }

    pub fn put<const N: usize>(&self, at: u64, bytes: [u8; N]) {
        self.span(at, N as u32).write_at(0, bytes);
    }

    pub fn load(&self, at: u64) -> u32 {
        Words::<u32>::new(self.span(at, 4)).map_or(0, |words| words.load_acquire(0))
    }

    pub fn store(&self, at: u64, value: u32) {
        if let Some(words) = Words::<u32>::new(self.span(at, 4)) {
            words.store_release(0, value);
        }
    }

    /// Whether there is a buffer of this length.
    #[inline]
    pub fn has_buffer(&self, buf_idx: u32, len: u32) -> bool {
        (RESERVED..self.buffers).contains(&buf_idx) && len <= BUFFER
    }

    /// The first bytes of a buffer. Attack: `None` for a number or a length that no buffer has.
    #[inline]
    pub fn buffer(&self, buf_idx: u32, len: u32) -> Option<SpanMut<'_>> {
        self.has_buffer(buf_idx, len)
            .then(|| self.span(BUFFERS_AT + u64::from(buf_idx) * u64::from(BUFFER), len))
    }

    fn given(&self) -> Result<std::sync::MutexGuard<'_, Given>> {
        let given = self.given.as_ref().ok_or(libc::ENOMEM)?;
        Ok(given.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes what nobody has any more.
    fn settle(self: &Arc<Region>, given: &mut Given) {
        for part in given.left.take() {
            match part {
                Part::Place(place) if given.is_closing(place) => given.left.parts.push((GONE, part)),
                Part::Place(place) => given.free.push(place),
                Part::Interface(number) => given.interfaces &= !(1 << number),
                Part::Monitor(key, _) => {
                    let Some(state) = self.state(key.0) else { continue };
                    // Until the lock is free, its room is not given to another one.
                    match state.lock() {
                        Ok(_guard) => state.remove_monitor(key.1),
                        Err(_) => {
                            given.left.parts.push((GONE, part));
                            continue;
                        }
                    }
                    given.end_monitor(key);
                }
            }
        }
    }

    /// Room for one more port.
    pub fn give(self: &Arc<Region>, sizes: Sizes) -> Result<Rings> {
        let mut given = self.given()?;
        self.settle(&mut given);
        // Buffers that a program has given to slots of other rings are theirs. Nobody knows where extra ones are.
        let has_buffers =
            |place| Rings::adopt(self.clone(), place).is_ok_and(|rings| rings.has_own_buffers());
        let is_fit = |place: &Place| place.sizes == sizes && sizes.extra == 0 && has_buffers(*place);
        if let Some(at) = given.free.iter().position(is_fit) {
            let place = given.free.swap_remove(at);
            drop(given);
            return Rings::new(self.clone(), place);
        }
        let rings = [given.rings, given.rings + sizes.ring(0)];
        let (end, first) = (rings[1] + sizes.ring(1), given.first);
        let is_full = end > RINGS_AT + RINGS_BYTES || sizes.buffers() > self.buffers - first;
        if is_full || given.states >= INTERFACES {
            return Err(libc::ENOMEM);
        }
        let place = Place { rings, sizes, first, state: given.states };
        (given.rings, given.first) = (end, first + sizes.buffers());
        given.states += 1;
        drop(given);
        Rings::new(self.clone(), place)
    }

    /// Takes back room that nobody has got to know.
    pub fn take_unused_back(&self, place: Place) {
        if let Ok(mut given) = self.given() {
            given.free.push(place);
        }
    }

    /// A monitor has this place.
    pub fn note_monitor(&self, key: MonitorKey, place: Place) {
        if let Ok(mut given) = self.given() {
            given.monitors.push((key, place));
        }
    }

    /// Takes back the room of a monitor that the port does not have any more.
    pub fn take_monitor_back(&self, key: MonitorKey) {
        if let Ok(mut given) = self.given() {
            given.end_monitor(key);
        }
    }

    /// Takes a port's room back, as soon as nobody has the port's socket, and the fabric has closed its ring.
    pub fn take_back(&self, place: Place, socket: BorrowedFd<'_>, closing: Option<Closing>) {
        if let Ok(mut given) = self.given() {
            given.closing.retain(|(other, _)| *other != place);
            given.closing.extend(closing.map(|closing| (place, closing)));
            let _ = given.left.add([Part::Place(place)], socket);
        }
    }

    /// Descriptors that only this process uses.
    pub fn descriptors(&self) -> Vec<i32> {
        let given = self.given.as_ref().and_then(|given| given.try_lock().ok());
        let sockets = given.and_then(|given| given.left.sockets.as_ref().map(AsRawFd::as_raw_fd));
        [self.raw_fd()].into_iter().chain(sockets).collect()
    }

    /// The number of a free `netmap_if`.
    pub fn give_interface(self: &Arc<Region>) -> Result<u32> {
        let mut given = self.given()?;
        self.settle(&mut given);
        let number = given.interfaces.trailing_ones();
        if number >= INTERFACES {
            return Err(libc::ENOMEM);
        }
        given.interfaces |= 1 << number;
        Ok(number)
    }

    /// Takes back a `netmap_if` of a handle that was not made.
    pub fn take_interface_back(&self, number: u32) {
        if let Ok(mut given) = self.given() {
            given.interfaces &= !(1 << number);
        }
    }

    /// Takes back a handle's `netmap_if`, and its monitor, as soon as nobody has the handle.
    pub fn take_handle_back(&self, number: u32, monitor: Option<MonitorKey>, handle: BorrowedFd<'_>) {
        if let Ok(mut given) = self.given() {
            let found = given.monitors.iter().find(|(key, _)| Some(*key) == monitor);
            let monitor = found.map(|(key, place)| Part::Monitor(*key, *place));
            let _ = given.left.add([Part::Interface(number)].into_iter().chain(monitor), handle);
        }
    }

    /// A state of this memory.
    pub fn state(&self, number: u32) -> Option<State> {
        let at = states_at(self.buffers) + STATE * u64::from(number);
        if number < INTERFACES { State::new(self.memory.regions().first()?, at) } else { None }
    }

    /// Whether a place lies within this memory. Attack: it came with a descriptor that a program was given.
    pub fn has(&self, place: &Place) -> bool {
        let end = RINGS_AT + RINGS_BYTES;
        let fits = |dir: usize| {
            let at = place.rings[dir];
            let len = RING_HEADER + SLOT * u64::from(place.sizes.slots[dir]);
            (RINGS_AT..end).contains(&at) && at.is_multiple_of(PAGE) && len <= end - at
        };
        let Sizes { slots, extra, .. } = place.sizes;
        let is_sane = slots.into_iter().all(|slots| slots <= 4096) && extra <= EXTRA;
        // So small, their sum does not overflow.
        let last = || place.sizes.buffers().checked_add(place.first);
        is_sane && fits(0) && fits(1) && last().is_some_and(|last| last <= self.buffers)
    }
}

impl AsFd for Region {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
