//! netmap's requests: `struct nmreq` of old programs, and `struct nmreq_header` with its bodies.

use crate::handles::{Bound, Handle};
use crate::port::{Port, Use};
use crate::region::{INTERFACES, Region, Sizes};
use crate::{Result, names};
use libc::{c_int, c_void};
use ringway_ring_client::{PendingRing, RingError, RingOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// Codes of requests.
pub const TXSYNC: u32 = 0x6994;
pub const RXSYNC: u32 = 0x6995;
pub const CONTROL: u32 = 0xc058_6997;
pub const INFO: u32 = 0xc03c_6991;
pub const REGISTER: u32 = 0xc03c_6992;

/// The version that is answered, and those that are accepted.
const API: u32 = 14;
const APIS: std::ops::RangeInclusive<u32> = 11..=15;
/// Slots of a ring if the program names no number, and the numbers that it may name.
const SLOTS: u32 = 1024;
const SLOTS_RANGE: (u32, u32) = (64, 4096);
/// Extra buffers; a program that asks for more gets these.
const EXTRA: u32 = 1 << 16;
/// How long a port may need to give its ring.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Options of a request that are read. Attack: a list without an end.
const OPTIONS: usize = 64;

/// Flags of a request to register.
const MONITORS: u64 = 0x100 | 0x200 | 0x400;
const EXCLUSIVE: u64 = 0x800;
const RX_ONLY: u64 = 0x2000;
const TX_ONLY: u64 = 0x4000;
const DO_RX_POLL: u64 = 0x1_0000;
const NO_TX_POLL: u64 = 0x2_0000;

/// A pointer of the program to a request.
#[derive(Clone, Copy)]
struct Fields(*mut u8);

impl Fields {
    /// # Safety
    /// It points to as much as its program promises by the code of the request, or is null.
    unsafe fn new(at: *mut c_void) -> Result<Fields> {
        if at.is_null() { Err(libc::EFAULT) } else { Ok(Fields(at.cast())) }
    }

    fn get<const N: usize>(self, at: usize) -> [u8; N] {
        // SAFETY: within the request, by the promise of `new`.
        unsafe { self.0.add(at).cast::<[u8; N]>().read_unaligned() }
    }

    fn put<const N: usize>(self, at: usize, bytes: [u8; N]) {
        // SAFETY: as above.
        unsafe { self.0.add(at).cast::<[u8; N]>().write_unaligned(bytes) };
    }

    fn u16(self, at: usize) -> u16 {
        u16::from_ne_bytes(self.get(at))
    }

    fn u32(self, at: usize) -> u32 {
        u32::from_ne_bytes(self.get(at))
    }

    fn u64(self, at: usize) -> u64 {
        u64::from_ne_bytes(self.get(at))
    }

    fn name<const N: usize>(self, at: usize) -> Result<String> {
        let bytes: [u8; N] = self.get(at);
        let end = bytes.iter().position(|byte| *byte == 0).ok_or(libc::EINVAL)?;
        String::from_utf8(bytes[..end].to_vec()).map_err(|_| libc::ENXIO)
    }
}

/// What a program asks for when it registers a port.
struct Wanted {
    name: String,
    mode: u32,
    ring: u16,
    flags: u64,
    slots: [u32; 2],
    extra: u32,
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
            1 => {}
            4 if self.ring == 0 => {}
            5 | 6 => return Err(libc::EOPNOTSUPP),
            _ => return Err(libc::EINVAL),
        }
        if self.bound() == [false; 2] {
            return Err(libc::EINVAL);
        }
        Ok(Sizes { slots, extra: self.extra.min(EXTRA) })
    }
}

/// The ports of this process: a second handle for a port has the same rings.
static PORTS: Mutex<Vec<(PathBuf, Weak<Mutex<Port>>)>> = Mutex::new(Vec::new());

/// What a program is answered when it has registered a port, or asks about one.
struct Answer {
    offset: u64,
    sizes: Sizes,
    id: u16,
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

/// Registers a port, and lets the handle's descriptor watch it.
fn register(fd: c_int, handle: &Handle, wanted: &Wanted) -> Result<Answer> {
    let mut bound = handle.bound();
    if bound.is_some() {
        return Err(libc::EBUSY);
    }
    let path = names::socket(&wanted.name)?;
    let sizes = wanted.sizes()?;
    let mut ports = PORTS.lock().unwrap_or_else(PoisonError::into_inner);
    ports.retain(|(_, port)| port.strong_count() > 0);
    let known = ports.iter().find(|(other, _)| *other == path).and_then(|(_, port)| port.upgrade());
    let is_known = known.is_some();
    let port = match known {
        Some(port) => port,
        None => Arc::new(Mutex::new(connect(&path, sizes)?)),
    };
    let mut new = Bound { port, own: wanted.own() };
    let answer = {
        let mut port = new.port.lock().unwrap_or_else(PoisonError::into_inner);
        if is_known && (port.is_exclusive || wanted.flags & EXCLUSIVE != 0) {
            return Err(libc::EBUSY);
        }
        port.is_exclusive = wanted.flags & EXCLUSIVE != 0;
        let number = (0..INTERFACES).find(|number| port.numbers & 1 << number == 0).ok_or(libc::ENOMEM)?;
        port.let_watch(fd)?;
        port.numbers |= 1 << number;
        new.own.number = number;
        let offset = port.region.fill_interface(number, wanted.name.as_bytes(), wanted.bound(), !is_known);
        let sizes = port.region.sizes();
        // The extra buffers are the first handle's.
        Answer {
            offset,
            sizes: Sizes { extra: if is_known { 0 } else { sizes.extra }, ..sizes },
            id: port.id,
        }
    };
    if !is_known {
        ports.push((path, Arc::downgrade(&new.port)));
    }
    *bound = Some(new);
    Ok(answer)
}

/// The port of a socket. The number of its memory is that of no other one of this process.
fn connect(path: &Path, sizes: Sizes) -> Result<Port> {
    static NUMBER: AtomicU16 = AtomicU16::new(2);
    let pending = PendingRing::connect(path, RingOptions::default()).map_err(|error| errno(&error))?;
    let ring = pending.ring(Some(TIMEOUT)).map_err(|error| errno(&error))?;
    Ok(Port::new(ring, Region::new(sizes)?, NUMBER.fetch_add(1, Relaxed).max(2)))
}

/// NIOCREGIF and NIOCGINFO.
///
/// # Safety
/// `at` is null or points to a `struct nmreq`.
pub unsafe fn old(fd: c_int, handle: &Handle, at: *mut c_void, is_info: bool) -> Result<()> {
    // SAFETY: the caller's.
    let fields = unsafe { Fields::new(at) }?;
    let version = fields.u32(16);
    fields.put(16, API.to_ne_bytes());
    if !APIS.contains(&version) {
        return Err(libc::EINVAL);
    }
    let name = fields.name::<16>(0)?;
    match fields.u16(42) {
        0 => {}
        // The length of a header before each frame: there is none.
        5 if fields.u16(44) == 0 => return Ok(()),
        12 => {
            fields.put(44, 0_u16.to_ne_bytes());
            return Ok(());
        }
        _ => return Err(libc::EOPNOTSUPP),
    }
    let (ringid, flags) = (fields.u16(40), fields.u32(52));
    let mut wanted = Wanted {
        name,
        mode: flags & 0xf,
        ring: ringid & 0xfff,
        flags: u64::from(flags & !0xf),
        slots: [fields.u32(28), fields.u32(32)],
        extra: fields.u32(48),
    };
    if wanted.mode == 0 {
        // Programs before the modes: a single ring, those of the host, or all.
        wanted.mode = match (ringid & 0x4000 != 0, ringid & 0x2000 != 0) {
            (true, _) => 4,
            (false, true) => 2,
            _ => 1,
        };
    }
    for (bit, flag) in [(0x1000, NO_TX_POLL), (0x8000, DO_RX_POLL)] {
        wanted.flags |= if ringid & bit != 0 { flag } else { 0 };
    }
    let Answer { offset, sizes, id } = match is_info {
        true => about(&wanted)?,
        false => register(fd, handle, &wanted)?,
    };
    fields.put(20, (offset as u32).to_ne_bytes());
    fields.put(24, (sizes.bytes() as u32).to_ne_bytes());
    fields.put(28, sizes.slots[0].to_ne_bytes());
    fields.put(32, sizes.slots[1].to_ne_bytes());
    for at in [36, 38] {
        fields.put(at, 1_u16.to_ne_bytes());
    }
    fields.put(46, id.to_ne_bytes());
    if !is_info {
        fields.put(48, sizes.extra.to_ne_bytes());
    }
    Ok(())
}

/// What is known about a port that is not registered: its rings are made when it is. Without a name, nothing of a port.
fn about(wanted: &Wanted) -> Result<Answer> {
    if !wanted.name.is_empty() {
        names::socket(&wanted.name)?;
    }
    let all = Wanted { name: String::new(), mode: 1, flags: 0, extra: 0, ..*wanted };
    Ok(Answer { offset: 0, sizes: all.sizes()?, id: 0 })
}

/// Every option of a request is refused, and says so.
fn refuse_options(header: Fields) -> Result<()> {
    let mut next = header.u64(72);
    if next == 0 {
        return Ok(());
    }
    for _ in 0..OPTIONS {
        // SAFETY: an option has 24 bytes, by the program's promise.
        let Ok(option) = (unsafe { Fields::new(next as *mut c_void) }) else { break };
        option.put(12, (libc::EOPNOTSUPP as u32).to_ne_bytes());
        next = option.u64(0);
    }
    Err(libc::EOPNOTSUPP)
}

/// NIOCCTRL.
///
/// # Safety
/// `at` is null or points to a `struct nmreq_header`, and that to the body of the request and to its options.
pub unsafe fn control(fd: c_int, handle: &Handle, at: *mut c_void) -> Result<()> {
    // SAFETY: the caller's.
    let header = unsafe { Fields::new(at) }?;
    let version = u32::from(header.u16(0));
    header.put(0, (API as u16).to_ne_bytes());
    if !(14..=15).contains(&version) {
        return Err(libc::EINVAL);
    }
    let name = header.name::<64>(8)?;
    refuse_options(header)?;
    // SAFETY: the caller's.
    let body = || unsafe { Fields::new(header.u64(80) as *mut c_void) };
    match header.u16(2) {
        1 => {
            let body = body()?;
            let wanted = Wanted {
                name,
                mode: body.u32(36),
                ring: body.u16(34),
                flags: body.u64(48),
                slots: [body.u32(16), body.u32(20)],
                extra: body.u32(40),
            };
            let Answer { offset, sizes, id } = register(fd, handle, &wanted)?;
            body.put(0, offset.to_ne_bytes());
            body.put(8, sizes.bytes().to_ne_bytes());
            answer_rings(body, 16, sizes, id);
            body.put(40, sizes.extra.to_ne_bytes());
        }
        2 => {
            let body = body()?;
            let wanted = Wanted { name, mode: 1, ring: 0, flags: 0, slots: [0; 2], extra: 0 };
            let Answer { sizes, id, .. } = about(&wanted)?;
            body.put(0, sizes.bytes().to_ne_bytes());
            answer_rings(body, 8, sizes, id);
        }
        // The length of a header before each frame: there is none.
        6 if body()?.u32(0) == 0 => {}
        7 => body()?.put(0, 0_u32.to_ne_bytes()),
        _ => return Err(libc::EOPNOTSUPP),
    }
    Ok(())
}

/// Slots, rings, rings of the host and the number of the memory, which two requests have in this order.
fn answer_rings(body: Fields, at: usize, sizes: Sizes, id: u16) {
    body.put(at, sizes.slots[0].to_ne_bytes());
    body.put(at + 4, sizes.slots[1].to_ne_bytes());
    for ring in 0..4 {
        body.put(at + 8 + 2 * ring, 1_u16.to_ne_bytes());
    }
    body.put(at + 16, id.to_ne_bytes());
}

/// What a program asks of an interface that is a ring port: the largest packet.
///
/// # Safety
/// `at` is null or points to a `struct ifreq`.
pub unsafe fn largest_packet(at: *mut c_void) -> Result<()> {
    // SAFETY: the caller's.
    let fields = unsafe { Fields::new(at) }?;
    names::socket(&fields.name::<16>(0)?)?;
    fields.put(16, 1500_u32.to_ne_bytes());
    Ok(())
}
