//! Registering: the handle of a program gets a port, an end of a pipe, or memory alone.

use crate::csb::Csb;
use crate::handles::{self, Bound, Handle, Known};
use crate::pipe::{self, PipeEnd, PipeName};
use crate::port::{Port, Use};
use crate::region::{INTERFACE_RINGS, Region, Sizes};
use crate::rings::Rings;
use crate::{Result, names};
use libc::c_int;
use ringway_host::Mapping;
use ringway_ring_client::{PendingRing, Ring, RingError, RingOptions};
use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Slots of a ring if the program names no number, and the numbers that it may name.
const SLOTS: u32 = 1024;
const SLOTS_RANGE: (u32, u32) = (64, 4096);
/// Extra buffers; a program that asks for more gets these.
const EXTRA: u32 = 1 << 16;
/// How long a port may need to give its ring.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Modes.
pub const ALL: u32 = 1;
pub const ONE: u32 = 4;
pub const FIRST_END: u32 = 5;
pub const SECOND_END: u32 = 6;
const NOTHING: u32 = 7;

/// Flags of a request to register.
const MONITORS: u64 = 0x100 | 0x200 | 0x400;
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
        Use { number: 0, bound: self.bound(), sends, receives }
    }

    fn sizes(&self) -> Result<Sizes> {
        let slots = self.slots.map(|slots| match slots {
            0 => SLOTS,
            slots => slots.clamp(SLOTS_RANGE.0, SLOTS_RANGE.1),
        });
        if self.flags & MONITORS != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        match self.mode {
            // All rings of the port, or one of them: there is one.
            ALL => {}
            ONE if self.ring == 0 => {}
            _ => return Err(libc::EINVAL),
        }
        if self.bound() == [false; 2] {
            return Err(libc::EINVAL);
        }
        Ok(Sizes { slots, extra: self.extra.min(EXTRA) })
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
    Pipe(PipeName<'n>),
}

impl Target<'_> {
    fn of(name: &str) -> Result<Target<'_>> {
        match pipe::name(name) {
            Some(name) => Ok(Target::Pipe(name?)),
            None => Ok(Target::Fabric(names::socket(name)?)),
        }
    }

    fn key(&self, name: &str) -> PathBuf {
        match self {
            Target::Fabric(path) => path.clone(),
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
    let mut ports = handles::ports();
    let (port, is_known) = if wanted.mode == NOTHING {
        (nothing(&ports, wanted)?, false)
    } else {
        let target = Target::of(&wanted.name)?;
        let sizes = wanted.sizes()?;
        let key = target.key(&wanted.name);
        let same = |known: &&Known| known.path.as_ref() == Some(&key);
        match ports.iter().filter(same).find_map(|known| known.port.upgrade()) {
            Some(port) => (port, true),
            None => {
                let port = Arc::new(Mutex::new(open(&ports, &target, wanted, sizes)?));
                handles::note(&mut ports, Some(key), &port);
                (port, false)
            }
        }
    };
    let mut own = wanted.own();
    let answer = share(fd, &port, is_known, wanted, &mut own)?;
    let mut new = Bound::new(port, own);
    new.csb = csb;
    *bound = Some(new);
    Ok(answer)
}

/// Lets a handle have a port.
fn share(fd: c_int, port: &Mutex<Port>, is_known: bool, wanted: &Wanted, own: &mut Use) -> Result<Answer> {
    let mut port = port.lock().unwrap_or_else(PoisonError::into_inner);
    let is_exclusive = wanted.flags & EXCLUSIVE != 0;
    if is_known && port.handles > 0 && (port.is_exclusive || is_exclusive) {
        return Err(libc::EBUSY);
    }
    let (rings, bound, counts) = match wanted.mode {
        NOTHING => (wanted.rings, [false; 2], wanted.slots),
        _ => ([1, 1], wanted.bound(), port.rings.place.sizes.slots),
    };
    let region = port.rings.region.clone();
    own.number = region.give_interface()?;
    own.bound = bound;
    if let Err(error) = handles::store(fd, *own, &port) {
        region.take_interface_back(own.number, None);
        return Err(error);
    }
    port.is_exclusive = is_exclusive;
    port.handles += 1;
    // The extra buffers are the first handle's.
    let extra = if is_known { 0 } else { port.rings.place.sizes.extra };
    let name = wanted.name.as_bytes();
    let offset = port.rings.fill_interface(own.number, name, rings.map(u32::from), bound, extra > 0);
    let id = if wanted.mode == NOTHING && wanted.memory != 0 { wanted.memory } else { region.id() };
    Ok(Answer { offset, bytes: region.bytes(), slots: counts, rings, extra, id })
}

/// Memory that this process has made, by netmap's number of it.
fn known_region(ports: &[Known], is_it: impl Fn(&Known, &Region) -> bool) -> Option<Arc<Region>> {
    ports.iter().find_map(|known| known.region.1.upgrade().filter(|region| is_it(known, region)))
}

/// Room for a port's rings: in the memory that the program names, in that of the port whose pipe it is, or in new one.
fn room(ports: &[Known], target: &Target<'_>, wanted: &Wanted, sizes: Sizes) -> Result<Rings> {
    let named = known_region(ports, |_, region| region.id() == wanted.memory);
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
    if let Some(rings) = named.or_else(parent).and_then(|region| region.give(sizes).ok()) {
        return Ok(rings);
    }
    new_region(ports, sizes)?.give(sizes)
}

fn new_region(ports: &[Known], sizes: Sizes) -> Result<Arc<Region>> {
    Region::new(sizes, |id| known_region(ports, |_, region| region.id() == id).is_some())
}

/// Connects to a port, or opens an end of a pipe.
fn open(ports: &[Known], target: &Target<'_>, wanted: &Wanted, sizes: Sizes) -> Result<Port> {
    match target {
        Target::Fabric(path) => {
            let (ring, memory) = connect(path)?;
            Port::of_fabric(room(ports, target, wanted, sizes)?, ring, &memory)
        }
        Target::Pipe(name) => {
            let (end, parts) = PipeEnd::open(*name, names::pipes())?;
            Port::of_pipe(room(ports, target, wanted, sizes)?, end, parts)
        }
    }
}

/// The ring of a socket, and its memory.
fn connect(path: &Path) -> Result<(Ring, OwnedFd)> {
    let file = RefCell::new(None);
    let map = |memory: &OwnedFd| {
        *file.borrow_mut() = memory.try_clone().ok();
        Ok(Mapping::sealed(memory)?.region())
    };
    let pending = PendingRing::connect(path, RingOptions::default()).map_err(|error| errno(&error))?;
    let ring = pending.ring_by(Some(TIMEOUT), &map).map_err(|error| errno(&error))?;
    Ok((ring, file.into_inner().ok_or(libc::EMFILE)?))
}

/// Memory without a port.
fn nothing(ports: &[Known], wanted: &Wanted) -> Result<Arc<Mutex<Port>>> {
    if wanted.rings.map(usize::from).iter().sum::<usize>() + 2 > INTERFACE_RINGS {
        return Err(libc::ENOMEM);
    }
    let sizes = Sizes { slots: [0, 0], extra: wanted.extra.min(EXTRA) };
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
    if !wanted.name.is_empty() {
        let target = Target::of(&wanted.name)?;
        let (key, ports) = (target.key(&wanted.name), handles::ports());
        id = known_region(&ports, |known, _| known.path.as_ref() == Some(&key))
            .map_or(0, |region| region.id());
    }
    let all = Wanted { mode: ALL, slots: wanted.slots, ..Wanted::default() };
    let sizes = all.sizes()?;
    Ok(Answer { offset: 0, bytes: sizes.bytes(), slots: sizes.slots, rings: [1, 1], extra: 0, id })
}
