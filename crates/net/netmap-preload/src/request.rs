//! netmap's requests: `struct nmreq` of old programs, and `struct nmreq_header` with its bodies.

use crate::csb::{self, Csb};
use crate::fields::Fields;
use crate::handles::Handle;
use crate::options::{self, Options};
use crate::region::{Region, Sizes};
use crate::register::{
    ALL, ALL_AND_HOST, Answer, DO_RX_POLL, FIRST_END, NO_TX_POLL, ONE, SECOND_END, Wanted, about, register,
};
use crate::{Result, handles, names, pipe, vale};
use libc::{c_int, c_ulong, c_void};
use std::time::Duration;

/// Codes of requests.
pub const TXSYNC: u32 = 0x6994;
pub const RXSYNC: u32 = 0x6995;
pub const CONTROL: u32 = 0xc058_6997;
pub const INFO: u32 = 0xc03c_6991;
pub const REGISTER: u32 = 0xc03c_6992;

/// Whether a request is one of netmap's.
pub fn is_one(code: c_ulong) -> bool {
    [TXSYNC, RXSYNC, CONTROL, INFO, REGISTER].contains(&(code as u32))
}

/// The version that is answered, and those that are accepted.
const API: u32 = 14;
const APIS: std::ops::RangeInclusive<u32> = 11..=15;

/// NIOCREGIF and NIOCGINFO.
///
/// # Safety
/// `at` is null or points to a `struct nmreq`.
pub unsafe fn old(fd: c_int, handle: &Handle, at: *mut c_void, is_info: bool) -> Result<()> {
    // SAFETY: the caller's.
    let fields = unsafe { Fields::new(at) }?;
    let version = fields.u32(16);
    fields.put(16, API.to_ne_bytes());
    if !APIS.contains(&version) && (is_info || version < *APIS.start()) {
        return Err(libc::EINVAL);
    }
    let name = fields.name::<16>(0)?;
    match fields.u16(42) {
        0 => {}
        // A persistent port has no host rings, so that `NETMAP_BDG_HOST` adds none.
        1 if !is_info => return vale::attach(&name),
        2 if !is_info => return vale::detach(&name),
        6 if !is_info => return vale::create(&name),
        7 if !is_info => return vale::remove(&name),
        5 => return set_header_len(fd, handle, &name, u32::from(fields.u16(44))),
        12 => {
            let len = header_len(fd, handle, &name)? as u16;
            fields.put(44, len.to_ne_bytes());
            return Ok(());
        }
        _ => return Err(libc::EOPNOTSUPP),
    }
    let wanted = old_wanted(fields, name);
    let answer = match is_info {
        true => about(&wanted)?,
        false => register(fd, handle, &wanted)?,
    };
    fields.put(20, (answer.offset as u32).to_ne_bytes());
    fields.put(24, (answer.bytes as u32).to_ne_bytes());
    fields.put(28, answer.slots[0].to_ne_bytes());
    fields.put(32, answer.slots[1].to_ne_bytes());
    for (at, rings) in [36, 38].into_iter().zip(answer.rings) {
        fields.put(at, rings.to_ne_bytes());
    }
    fields.put(46, answer.id.to_ne_bytes());
    if !is_info {
        fields.put(48, answer.extra.to_ne_bytes());
    }
    Ok(())
}

/// What a `struct nmreq` asks for.
fn old_wanted(fields: Fields, mut name: String) -> Wanted {
    let (ringid, flags) = (fields.u16(40), fields.u32(52));
    let (mut mode, ring) = (flags & 0xf, ringid & 0xfff);
    if mode == 0 {
        // Programs before the modes: a single ring, those of the host, or all.
        mode = match (ringid & 0x4000 != 0, ringid & 0x2000 != 0) {
            (true, _) => ONE,
            (false, true) => 2,
            _ => ALL,
        };
    }
    if let FIRST_END | SECOND_END = mode {
        // Programs before pipes had names.
        name = format!("{name}{}{ring}", if mode == FIRST_END { '{' } else { '}' });
        mode = ALL;
    }
    let mut flags = u64::from(flags & !0xf);
    for (bit, flag) in [(0x1000, NO_TX_POLL), (0x8000, DO_RX_POLL)] {
        flags |= if ringid & bit != 0 { flag } else { 0 };
    }
    let (slots, rings) = ([fields.u32(28), fields.u32(32)], [fields.u16(36), fields.u16(38)]);
    let (extra, memory) = (fields.u32(48), fields.u16(46));
    Wanted { name, mode, ring, flags, slots, rings, extra, memory, csb: None }
}

/// The length of a header before each frame of a port.
fn header_len(fd: c_int, handle: &Handle, name: &str) -> Result<u32> {
    with_port(fd, handle, name, |port| Ok(port.rings.state.header_len()))
}

fn set_header_len(fd: c_int, handle: &Handle, name: &str, len: u32) -> Result<()> {
    match with_port(fd, handle, name, |port| port.set_header_len(len)) {
        // No program has a header, unless it asks for one.
        Err(libc::ENXIO) if len == 0 => Ok(()),
        done => done,
    }
}

/// The port that a handle has, or that this process has by its name.
fn with_port<T>(
    fd: c_int,
    handle: &Handle,
    name: &str,
    work: impl FnOnce(&mut crate::port::Port) -> Result<T>,
) -> Result<T> {
    if let Some(bound) = handle.bound(fd).as_ref() {
        return work(&mut bound.port());
    }
    let path = names::socket(name)?;
    let ports = handles::ports();
    let known = ports.iter().find(|known| known.path.as_ref() == Some(&path));
    let port = known.and_then(|known| known.port.upgrade()).ok_or(libc::ENXIO)?;
    work(&mut handles::lock(&port))
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
    let kind = header.u16(2);
    let may = |option| match kind {
        1 | 15 => options::of_register(option),
        13 => options::of_kloop(option),
        _ => false,
    };
    // SAFETY: the caller's.
    let Options { csb, eventfds } = unsafe { options::read(header, may) }?;
    // SAFETY: the caller's.
    let body = || unsafe { Fields::new(header.u64(80) as *mut c_void) };
    match kind {
        1 => new_register(fd, handle, body()?, name, csb),
        2 => port_info(body()?, name),
        5 => vale_list(header, body()?, &name),
        6 => set_header_len(fd, handle, &name, body()?.u32(0)),
        7 => {
            let (body, len) = (body()?, header_len(fd, handle, &name).or_else(|_| known(&name).map(|()| 0))?);
            body.put(0, len.to_ne_bytes());
            Ok(())
        }
        12 => pools_info(fd, handle, body()?, &name),
        13 => {
            let pause = Duration::from_micros(body()?.u32(0).into());
            csb::run(handle, fd, pause, eventfds)
        }
        14 => csb::stop(handle, fd),
        15 => enable_csb(fd, handle, csb.ok_or(libc::EINVAL)?),
        3 => vale_attach(body()?, &name),
        4 => vale::detach(&name),
        8 => vale::create(&name),
        9 => vale::remove(&name),
        // A switch is polled by its workers, and by nobody else.
        _ => Err(libc::EOPNOTSUPP),
    }
}

/// Puts a port on a switch. It has memory when a program registers it; the number that is answered is that of none.
fn vale_attach(body: Fields, name: &str) -> Result<()> {
    // All rings, or those and the host rings, of which a persistent port has none.
    if ![ALL, ALL_AND_HOST].contains(&body.u32(36)) || body.u16(34) != 0 {
        return Err(libc::EINVAL);
    }
    vale::attach(name)?;
    if body.u16(32) == 0 {
        body.put(32, u16::MAX.to_ne_bytes());
    }
    Ok(())
}

/// Whether there is a port of this name.
fn known(name: &str) -> Result<()> {
    about(&Wanted { name: name.into(), mode: ALL, ..Wanted::default() }).map(drop)
}

fn new_register(fd: c_int, handle: &Handle, body: Fields, name: String, csb: Option<[u64; 2]>) -> Result<()> {
    let wanted = Wanted {
        name,
        mode: body.u32(36),
        ring: body.u16(34),
        flags: body.u64(48),
        slots: [body.u32(16), body.u32(20)],
        rings: [body.u16(24), body.u16(26)],
        extra: body.u32(40),
        memory: body.u16(32),
        csb,
    };
    let answer = register(fd, handle, &wanted)?;
    body.put(0, answer.offset.to_ne_bytes());
    body.put(8, answer.bytes.to_ne_bytes());
    answer_rings(body, 16, &answer);
    body.put(40, answer.extra.to_ne_bytes());
    Ok(())
}

fn port_info(body: Fields, name: String) -> Result<()> {
    let answer = about(&Wanted { name, mode: ALL, ..Wanted::default() })?;
    body.put(0, answer.bytes.to_ne_bytes());
    answer_rings(body, 8, &answer);
    Ok(())
}

/// Slots, rings, host rings and the number of the memory, which two requests have in this order.
fn answer_rings(body: Fields, at: usize, answer: &Answer) {
    body.put(at, answer.slots[0].to_ne_bytes());
    body.put(at + 4, answer.slots[1].to_ne_bytes());
    for (ring, count) in [answer.rings[0], answer.rings[1], 1, 1].into_iter().enumerate() {
        body.put(at + 8 + 2 * ring, count.to_ne_bytes());
    }
    body.put(at + 16, answer.id.to_ne_bytes());
}

/// The port of a name, or the next one from the indices of the body on.
fn vale_list(header: Fields, body: Fields, name: &str) -> Result<()> {
    let switches = vale::list();
    let (switch, port) = if name.is_empty() {
        let from = (usize::from(body.u16(0)), body.u32(4) as usize);
        let (switch, port, found) = vale::next(&switches, from)?;
        let mut text = [0; 64];
        let len = found.len().min(63);
        text[..len].copy_from_slice(&found.as_bytes()[..len]);
        header.put(8, text);
        (switch, port)
    } else {
        vale::find(&switches, name)?
    };
    body.put(0, (switch as u16).to_ne_bytes());
    body.put(4, (port as u32).to_ne_bytes());
    Ok(())
}

/// The memory of a handle's port, or that which a port would get.
fn pools_info(fd: c_int, handle: &Handle, body: Fields, name: &str) -> Result<()> {
    let bound = handle.bound(fd);
    let (bytes, buffers, id) = match bound.as_ref() {
        Some(bound) => {
            let region = bound.port().rings.region.clone();
            (region.bytes(), region.buffers(), region.id())
        }
        None if name.is_empty() => return Err(libc::ENXIO),
        None => {
            let answer = about(&Wanted { name: name.into(), mode: ALL, ..Wanted::default() })?;
            let sizes = Sizes { slots: answer.slots, extra: 0, is_in_place: pipe::name(name).is_none() };
            (sizes.bytes(), sizes.all_buffers(), answer.id)
        }
    };
    body.put(0, bytes.to_ne_bytes());
    body.put(8, id.to_ne_bytes());
    for (kind, (offset, count, size)) in Region::pools(buffers).into_iter().enumerate() {
        let at = 16 + 16 * kind;
        body.put(at, offset.to_ne_bytes());
        body.put(at + 8, count.to_ne_bytes());
        body.put(at + 12, size.to_ne_bytes());
    }
    Ok(())
}

/// Positions come by a CSB from now on, for a handle that has its port alone.
fn enable_csb(fd: c_int, handle: &Handle, at: [u64; 2]) -> Result<()> {
    let mut bound = handle.bound(fd);
    let bound = bound.as_mut().ok_or(libc::ENXIO)?;
    if bound.csb.is_some() {
        return Err(libc::EBUSY);
    }
    if !bound.port().is_exclusive {
        return Err(libc::EINVAL);
    }
    bound.csb = Some(Csb::new(at, bound.own.bound)?);
    Ok(())
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
