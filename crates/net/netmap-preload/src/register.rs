//! Registering: the handle of a program gets a port, an end of a pipe, or memory alone.

use crate::csb::Csb;
use crate::handles::{self, Bound, Handle, Known};
use crate::monitor;
use crate::monitor_server::{self, MonitorServer, Request};
use crate::pipe::{self, PipeEnd, PipeName};
use crate::port::{Port, Use};
use crate::region::{BUFFER, EXTRA, INTERFACE_RINGS, Region, Sizes};
use crate::rings::Rings;
use crate::{Result, names};
use libc::c_int;
use ringway_host::Mapping;
use ringway_ring_client::{PendingRing, Ring, RingError, RingOptions};
use std::cell::RefCell;
use std::fs::{File, TryLockError};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Slots of a ring if the program names no number, and the numbers that it may name.
const SLOTS: u32 = 1024;
const SLOTS_RANGE: (u32, u32) = (64, 4096);
/// How long a port may need to give its ring.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Modes.
pub const ALL: u32 = 1;
const HOST: u32 = 2;
pub const ALL_AND_HOST: u32 = 3;
pub const ONE: u32 = 4;
pub const FIRST_END: u32 = 5;
pub const SECOND_END: u32 = 6;
const NOTHING: u32 = 7;
const ONE_OF_HOST: u32 = 8;

/// Behind the name of a port: the port that has the rings of its host.
const HOST_SUFFIX: &str = "-host";

/// Flags of a request to register.
const MONITOR_SENT: u64 = 0x100;
const MONITOR_RECEIVED: u64 = 0x200;
const MONITOR_ZERO_COPY: u64 = 0x400;
pub const EXCLUSIVE: u64 = 0x800;
const RX_ONLY: u64 = 0x2000;
const TX_ONLY: u64 = 0x4000;
pub const DO_RX_POLL: u64 = 0x1_0000;
pub const NO_TX_POLL: u64 = 0x2_0000;

/// What a program asks for when it registers a port.
#[derive(Debug, Default)]
pub struct Wanted {
    pub name: String,
    pub mode: u32,
    pub ring: u16,
    pub flags: u64,
    pub slots: [u32; 2],
    /// How many rings; only memory alone has others than one.
    pub rings: [u16; 2],
    pub extra: u32,
    pub memory: u16,
    /// The addresses of its CSB.
    pub csb: Option<[u64; 2]>,
}

impl Wanted {
    fn bound(&self) -> [bool; 2] {
        [self.flags & RX_ONLY == 0, self.flags & TX_ONLY == 0]
    }

    fn own(&self) -> Use {
        let (sends, receives) = (self.flags & NO_TX_POLL == 0, self.flags & DO_RX_POLL != 0);
        Use { number: 0, bound: self.bound(), sends, receives, monitor: None }
    }

    /// What a monitor gets copies of; 0: it is none. One that asks for no copies gets copies of both directions, at the
    /// times of netmap's.
    fn monitored(&self) -> u32 {
        let is_zero_copy = self.flags & MONITOR_ZERO_COPY != 0;
        let has = |flag| self.flags & flag != 0 || is_zero_copy;
        let received = if is_zero_copy { monitor::RECEIVED | monitor::RETURNED } else { monitor::RECEIVED };
        [(MONITOR_SENT, monitor::SENT), (MONITOR_RECEIVED, received)]
            .into_iter()
            .filter(|(flag, _)| has(*flag))
            .fold(0, |all, (_, kind)| all | kind)
    }

    fn sizes(&self) -> Result<Sizes> {
        let slots = self.slots.map(|slots| match slots {
            0 => SLOTS,
            slots => slots.clamp(SLOTS_RANGE.0, SLOTS_RANGE.1),
        });
        match self.mode {
            // All rings of the port or of its host, or one of them: there is one.
            ALL | HOST | ALL_AND_HOST => {}
            ONE | ONE_OF_HOST if self.ring == 0 => {}
            _ => return Err(libc::EINVAL),
        }
        if self.bound() == [false; 2] {
            return Err(libc::EINVAL);
        }
        Ok(Sizes { slots, extra: self.extra.min(EXTRA), is_in_place: false })
    }
}

/// What a program is answered when it has registered a port, or asks about one.
#[derive(Debug)]
pub struct Answer {
    pub offset: u64,
    pub bytes: u64,
    pub slots: [u32; 2],
    pub rings: [u16; 2],
    pub extra: u32,
    pub id: u16,
}

fn errno(error: &RingError) -> c_int {
    match error {
        RingError::Connect { error, .. } if error.kind() == std::io::ErrorKind::PermissionDenied => {
            libc::EACCES
        }
        RingError::TimedOut | RingError::Refused(_) => libc::EBUSY,
        RingError::Connect { .. } | RingError::Unreachable(_) | RingError::Closed => libc::ENXIO,
        _ => libc::EIO,
    }
}

/// What a name means, and what tells it from others in this process.
enum Target<'n> {
    Fabric(PathBuf),
    Device(PathBuf),
    Pipe(PipeName<'n>),
}

impl Target<'_> {
    fn of(name: &str) -> Result<Target<'_>> {
        match pipe::name(name) {
            Some(name) => Ok(Target::Pipe(name?)),
            None => match (names::socket(name), names::device(name)) {
                (Err(libc::ENXIO), Some(device)) => Ok(Target::Device(device)),
                (socket, _) => Ok(Target::Fabric(socket?)),
            },
        }
    }

    /// What its rings have in their memory: with a fabric's port these are the buffers of its ring, too.
    fn sizes(&self, wanted: &Wanted) -> Result<Sizes> {
        Ok(Sizes { is_in_place: matches!(self, Target::Fabric(_)), ..wanted.sizes()? })
    }

    /// Whether the port may have the memory of other ports of its fabric, or of other devices: a fabric gets the
    /// memory. VALE ports have memory of their own.
    fn is_common(&self, name: &str) -> bool {
        !matches!(self, Target::Pipe(_)) && !name.starts_with("vale")
    }

    fn key(&self, name: &str) -> PathBuf {
        match self {
            Target::Fabric(path) | Target::Device(path) => path.clone(),
            Target::Pipe(_) => name.into(),
        }
    }
}

/// Registers a port.
pub fn register(fd: c_int, handle: &Handle, wanted: &Wanted) -> Result<Answer> {
    let mut bound = handle.bound(fd);
    if bound.is_some() {
        return Err(libc::EBUSY);
    }
    let csb = match wanted.csb {
        Some(_) if wanted.flags & EXCLUSIVE == 0 => return Err(libc::EINVAL),
        Some(at) => Some(Csb::new(at, wanted.bound())?),
        None => None,
    };
    if wanted.monitored() != 0 {
        let (new, answer) = observe(fd, wanted)?;
        *bound = Some(new);
        return Ok(answer);
    }
    let mut ports = handles::ports();
    if wanted.mode == NOTHING {
        let port = nothing(&ports, wanted)?;
        let mut own = wanted.own();
        let answer = share(fd, (&port, false), None, wanted, &mut own)?;
        *bound = Some(Bound::new(port, own).with(csb, None));
        return Ok(answer);
    }
    let host = match wanted.mode {
        ALL_AND_HOST if csb.is_some() => return Err(libc::EOPNOTSUPP),
        HOST | ONE_OF_HOST | ALL_AND_HOST => Some(host_name(wanted)?),
        _ => None,
    };
    let name = host.as_ref().filter(|_| wanted.mode != ALL_AND_HOST).unwrap_or(&wanted.name);
    let (port, is_known) = find(&mut ports, name, wanted, wanted.memory)?;
    let host = match host.filter(|_| wanted.mode == ALL_AND_HOST) {
        Some(host) => {
            let memory = handles::lock(&port).rings.region.id();
            Some(find(&mut ports, &host, wanted, memory)?)
        }
        None => None,
    };
    let mut own = wanted.own();
    let answer = share(fd, (&port, is_known), host.as_ref(), wanted, &mut own)?;
    *bound = Some(Bound::new(port, own).with(csb, host.map(|(host, _)| host)));
    Ok(answer)
}

/// A port, and whether this process had it before.
type Found = (Arc<Mutex<Port>>, bool);

/// The port of a name, which is opened if this process does not have it; its rings are in the memory of this number.
fn find(ports: &mut Vec<Known>, name: &str, wanted: &Wanted, memory: u16) -> Result<Found> {
    let target = Target::of(name)?;
    let sizes = target.sizes(wanted)?;
    let key = target.key(name);
    let same = |known: &&Known| known.path.as_ref() == Some(&key);
    if let Some(port) = ports.iter().filter(same).find_map(|known| known.port.upgrade()) {
        return Ok((port, true));
    }
    let mut port = open(ports, (&target, name), memory, sizes)?;
    // Without it other programs have no monitors.
    port.monitor_server = MonitorServer::bind(&names::pipes(), &key).ok();
    let port = Arc::new(Mutex::new(port));
    handles::note(ports, Some(key), target.is_common(name), &port);
    Ok((port, false))
}

/// The name of the port with the rings of a port's host. Pipes, and ports without one, have no such rings.
fn host_name(wanted: &Wanted) -> Result<String> {
    let name = format!("{}{HOST_SUFFIX}", wanted.name);
    if pipe::name(&name).is_some() {
        return Err(libc::EINVAL);
    }
    names::socket(&wanted.name)?;
    match names::socket(&name) {
        Ok(_) => Ok(name),
        Err(libc::ENXIO) => Err(libc::EINVAL),
        Err(error) => Err(error),
    }
}

/// Lets a handle be a monitor of a port that this process has, or another program of this user.
fn observe(fd: c_int, wanted: &Wanted) -> Result<(Bound, Answer)> {
    if wanted.csb.is_some() {
        return Err(libc::EOPNOTSUPP);
    }
    let key = Target::of(&wanted.name)?.key(&wanted.name);
    let Sizes { slots: [_, slots], .. } = wanted.sizes()?;
    let request = Request { kinds: wanted.monitored(), slots };
    let same = |known: &&Known| known.path.as_ref() == Some(&key);
    let port = handles::ports().iter().filter(same).find_map(|known| known.port.upgrade());
    match port {
        Some(port) => {
            let (own, place) = handles::lock(&port).store_monitor(fd, request, wanted.name.as_bytes())?;
            let bound = Bound::new(port, own);
            let answer = monitor_answer(&bound, place.sizes.slots);
            Ok((bound, answer))
        }
        None => {
            let given = monitor_server::ask(&names::pipes(), &key, request)?;
            let bound = handles::stored(given.as_raw_fd())?;
            let slots = {
                let port = bound.port();
                let index = bound.own.monitor.ok_or(libc::EIO)?;
                monitor::rings(&port.rings.region, &port.rings.state, index)?.place.sizes.slots
            };
            let answer = monitor_answer(&bound, slots);
            // Until here the program's handle is as it was.
            handles::become_copy(fd, &given)?;
            Ok((bound, answer))
        }
    }
}

fn monitor_answer(bound: &Bound, slots: [u32; 2]) -> Answer {
    let region = bound.port().rings.region.clone();
    let offset = Region::interface_at(bound.own.number);
    Answer { offset, bytes: region.bytes(), slots, rings: [1, 1], extra: 0, id: region.id() }
}

/// Lets a handle have a port, and the one of its host beside it.
fn share(
    fd: c_int,
    (port, is_known): (&Mutex<Port>, bool),
    host: Option<&Found>,
    wanted: &Wanted,
    own: &mut Use,
) -> Result<Answer> {
    let (mut port, mut host) = match host {
        Some((host, is_known)) => {
            let (port, host) = handles::lock_both(port, host);
            (port, Some((host, *is_known)))
        }
        None => (handles::lock(port), None),
    };
    let is_exclusive = wanted.flags & EXCLUSIVE != 0;
    let is_taken =
        |port: &Port, is_known| is_known && port.handles > 0 && (port.is_exclusive || is_exclusive);
    if is_taken(&port, is_known) || host.as_ref().is_some_and(|(host, is_known)| is_taken(host, *is_known)) {
        return Err(libc::EBUSY);
    }
    if host.as_ref().is_some_and(|(host, _)| host.rings.region.id() != port.rings.region.id()) {
        // A handle maps one memory.
        return Err(libc::EBUSY);
    }
    let (rings, bound, counts) = match wanted.mode {
        NOTHING => (wanted.rings, [false; 2], wanted.slots),
        _ => ([1, 1], wanted.bound(), port.rings.place.sizes.slots),
    };
    let region = port.rings.region.clone();
    own.number = region.give_interface()?;
    own.bound = bound;
    if let Err(error) = handles::store(fd, *own, &port, host.as_ref().map(|(host, _)| &**host)) {
        region.take_interface_back(own.number);
        return Err(error);
    }
    for port in [Some(&mut *port), host.as_mut().map(|(host, _)| &mut **host)].into_iter().flatten() {
        port.is_exclusive = is_exclusive;
        port.handles += 1;
    }
    // The extra buffers are the first handle's.
    let extra = if is_known { 0 } else { port.rings.place.sizes.extra };
    let name = wanted.name.as_bytes();
    let offset = port.rings.fill_interface(own.number, name, rings.map(u32::from), bound, extra > 0);
    match &host {
        Some((host, _)) => host.rings.fill_host_interface(own.number, bound),
        None if matches!(wanted.mode, HOST | ONE_OF_HOST) => port.rings.move_to_host(own.number, bound),
        None => {}
    }
    let id = if wanted.mode == NOTHING && wanted.memory != 0 { wanted.memory } else { region.id() };
    Ok(Answer { offset, bytes: region.bytes(), slots: counts, rings, extra, id })
}

/// Memory that this process has made, of the ports that it is asked of.
fn known_regions(
    ports: &[Known],
    is_it: impl Fn(&Known, &Region) -> bool,
) -> impl Iterator<Item = Arc<Region>> {
    ports.iter().filter_map(move |known| known.region.1.upgrade().filter(|region| is_it(known, region)))
}

/// The first of these.
fn known_region(ports: &[Known], is_it: impl Fn(&Known, &Region) -> bool) -> Option<Arc<Region>> {
    known_regions(ports, is_it).next()
}

/// The run directory of a port's socket, or the folder of devices.
fn home(path: &Path) -> Option<&Path> {
    let folder = path.parent()?;
    if folder.ends_with("switches") { folder.parent() } else { Some(folder) }
}

/// Room for a port's rings: in the memory that the program names, in that of the port whose pipe it is, in that of
/// another port unless it is a VALE port, as with netmap, or in new one.
fn room(ports: &[Known], (target, name): (&Target<'_>, &str), memory: u16, sizes: Sizes) -> Result<Rings> {
    let named = known_region(ports, |_, region| region.id() == memory);
    let parent = || {
        let Target::Pipe(name) = target else { return None };
        let path = names::socket(name.parent).ok();
        let is_parent = |known: &Known| match &known.path {
            path if path.is_none() => false,
            of if *of == path => true,
            of => of
                .as_ref()
                .and_then(|of| pipe::name(of.to_str()?)?.ok())
                .is_some_and(|of| of.parent == name.parent),
        };
        known_region(ports, |known, _| is_parent(known))
    };
    // Former ones may be full.
    let common = || {
        let key = target.key(name);
        let has_same_home = |known: &Known| known.path.as_deref().map(home) == Some(home(&key));
        let may_have =
            |known: &Known, _: &Region| known.is_common && target.is_common(name) && has_same_home(known);
        let mut all = known_regions(ports, may_have);
        all.find_map(|region| region.give(sizes).ok())
    };
    let given = match named.or_else(parent) {
        Some(region) => region.give(sizes).ok(),
        None => common(),
    };
    if let Some(rings) = given {
        return Ok(rings);
    }
    new_region(ports, sizes)?.give(sizes)
}

fn new_region(ports: &[Known], sizes: Sizes) -> Result<Arc<Region>> {
    Region::new(sizes, |id| known_region(ports, |_, region| region.id() == id).is_some())
}

/// Connects to a port, or opens an end of a pipe.
fn open(ports: &[Known], (target, name): (&Target<'_>, &str), memory: u16, sizes: Sizes) -> Result<Port> {
    let room = || room(ports, (target, name), memory, sizes);
    match target {
        Target::Fabric(path) => {
            let rings = room()?;
            let (region, place) = (rings.region.clone(), rings.place);
            // If the fabric has given a ring that this process can't use, it may still write there: the room is lost.
            let give_back = |error: &Failed| {
                if !error.is_given {
                    region.take_unused_back(place);
                }
            };
            let (ring, file) = connect(path, &rings).inspect_err(give_back).map_err(|error| error.errno)?;
            Port::of_fabric(rings, ring, &file)
        }
        Target::Device(path) => {
            let rings = room()?;
            let (region, place) = (rings.region.clone(), rings.place);
            let opened = device(path).inspect_err(|_| region.take_unused_back(place))?;
            Port::of_device(rings, opened)
        }
        Target::Pipe(name) => {
            let (end, parts) = PipeEnd::open(*name, names::pipes())?;
            Port::of_pipe(room()?, end, parts)
        }
    }
}

/// Why there is no ring, and whether the fabric may have given one.
struct Failed {
    errno: c_int,
    is_given: bool,
}

/// The ring of a socket, and its memory. Its buffers are those of netmap's rings.
fn connect(path: &Path, rings: &Rings) -> std::result::Result<(Ring, OwnedFd), Failed> {
    let file = RefCell::new(None);
    let map = |memory: &OwnedFd| {
        *file.borrow_mut() = memory.try_clone().ok();
        Ok(Mapping::sealed(memory)?.region())
    };
    let slots = rings.place.sizes.ring_slots();
    let before = |errno| Failed { errno, is_given: false };
    let after = |errno| Failed { errno, is_given: true };
    let options = RingOptions { slots, slot_size: BUFFER, ..RingOptions::default() };
    let pool = rings.region.pool(rings.place).ok_or(before(libc::ENOMEM))?;
    let pending =
        PendingRing::connect_with_pool(path, options, pool).map_err(|error| before(errno(&error)))?;
    let ring = pending.ring_by(Some(TIMEOUT), &map).map_err(|error| match error {
        RingError::Refused(_) | RingError::Unsuitable(_) => before(errno(&error)),
        _ => after(errno(&error)),
    })?;
    // A fabric that means other buffers by the same numbers.
    let is_as_asked = [ring.tx.slots(), ring.rx.slots()] == slots && ring.slot_size() == BUFFER;
    if ring.has_pool() && !is_as_asked {
        return Err(after(libc::EIO));
    }
    Ok((ring, file.into_inner().ok_or(after(libc::EMFILE))?))
}

/// The ring in a device's memory, and what keeps the device from other programs.
fn device(path: &Path) -> Result<(Ring, Option<File>)> {
    let failed = |error: std::io::Error| error.raw_os_error().unwrap_or(libc::EIO);
    // A program that opens the device takes it from the one before. Only who may use the device can lock this file; who
    // may not has it by vfio, which one program has at a time.
    let lock = match File::options().read(true).write(true).open(path.join("resource2")) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => None,
        lock => Some(lock.map_err(failed)?),
    };
    match lock.as_ref().map(File::try_lock) {
        None | Some(Ok(())) => {}
        Some(Err(TryLockError::WouldBlock)) => return Err(libc::EBUSY),
        Some(Err(TryLockError::Error(error))) => return Err(failed(error)),
    }
    Ok((Ring::open_device(path).map_err(|error| errno(&error))?, lock))
}

/// Memory without a port.
fn nothing(ports: &[Known], wanted: &Wanted) -> Result<Arc<Mutex<Port>>> {
    if wanted.rings.map(usize::from).iter().sum::<usize>() + 2 > INTERFACE_RINGS {
        return Err(libc::ENOMEM);
    }
    let sizes = Sizes { slots: [0, 0], extra: wanted.extra.min(EXTRA), is_in_place: false };
    let named = known_region(ports, |_, region| region.id() == wanted.memory);
    let region = match named {
        Some(region) => region,
        None => new_region(ports, sizes)?,
    };
    Ok(Arc::new(Mutex::new(Port::of_nothing(region.give(sizes)?)?)))
}

/// What is known about a port that is not registered: its rings are made when it is. Without a name, nothing of a port.
pub fn about(wanted: &Wanted) -> Result<Answer> {
    let mut id = 0;
    let all = Wanted { mode: ALL, slots: wanted.slots, ..Wanted::default() };
    let mut sizes = all.sizes()?;
    if !wanted.name.is_empty() {
        let target = Target::of(&wanted.name)?;
        sizes = target.sizes(&all)?;
        let (key, ports) = (target.key(&wanted.name), handles::ports());
        id = known_region(&ports, |known, _| known.path.as_ref() == Some(&key))
            .map_or(0, |region| region.id());
    }
    Ok(Answer { offset: 0, bytes: sizes.bytes(), slots: sizes.slots, rings: [1, 1], extra: 0, id })
}

#[cfg(test)]
mod tests {
    use super::*;
    use monitor::{RECEIVED, RETURNED, SENT};

    #[test]
    fn flags_say_what_a_poll_syncs() {
        let synced = |flags| {
            let own = Wanted { flags, ..Wanted::default() }.own();
            [own.sends, own.receives]
        };
        assert_eq!([0, NO_TX_POLL].map(synced), [[true, false], [false, false]]);
        assert_eq!([DO_RX_POLL, NO_TX_POLL | DO_RX_POLL].map(synced), [[true, true], [false, true]]);
    }

    #[test]
    fn a_monitor_without_a_copy_has_both_directions() {
        let kinds = |flags| Wanted { flags, ..Wanted::default() }.monitored();
        assert_eq!((kinds(0), kinds(MONITOR_SENT), kinds(MONITOR_RECEIVED)), (0, SENT, RECEIVED));
        for flags in [0, MONITOR_SENT, MONITOR_RECEIVED] {
            assert_eq!(kinds(MONITOR_ZERO_COPY | flags), SENT | RECEIVED | RETURNED);
        }
    }
}
