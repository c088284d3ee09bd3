//! The C interface of `ringway-sockets`: POSIX's calls on sockets with the prefix `ringway_`, and their errno values.
//!
//! `clients/stack/ringway-stack.h` describes the interface, and the Makefile beside it links `libringway-stack.so`.
//! A number that is not one of this library's, a null pointer or a length that no memory has is an error. So is every
//! call of a child after `fork`: its parent's threads, which the stack needs, are not in it. A panic would be a fault
//! of this library; it is EIO, and unwinds no further.
//!
//! Read `socket.rs` first; this file has the conversions, and all of the crate's `unsafe`.

mod address;
mod network;
mod option;
mod poll;
mod socket;
mod table;
mod watch;

use socket::Socket;
use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_short, c_uint, c_void};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;
use table::Entry;

/// A result with an errno.
type Result<T> = std::result::Result<T, c_int>;

/// How long [`ringway_close`] of a network waits for peers to acknowledge what was sent.
const DRAIN: Duration = Duration::from_secs(5);
/// Bytes of one call, as in Linux: longer ones are cut.
const MOST: usize = 0x7fff_f000;

/// The process that uses the library; 0: none yet.
static OWNER: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static ERROR: RefCell<CString> = RefCell::default();
}

/// Calls, and tells an error as C expects it.
fn guarded<T: From<i8>>(call: impl FnOnce() -> Result<T>) -> T {
    let own = std::process::id();
    let owner = OWNER.load(Relaxed);
    let result = match owner == 0 || owner == own {
        true => catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(libc::EIO)),
        false => Err(libc::ENETDOWN),
    };
    result.unwrap_or_else(|error| {
        // SAFETY: the C library's pointer to this thread's errno.
        unsafe { *libc::__errno_location() = error };
        (-1).into()
    })
}

/// The bytes that a pointer and a length name.
///
/// # Safety
/// If `data` is not null, it has `len` readable bytes.
unsafe fn bytes<'a>(data: *const c_void, len: usize) -> Result<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    if data.is_null() || !is_memory(data, len) {
        return Err(libc::EFAULT);
    }
    // SAFETY: the caller's; a slice is at most isize::MAX bytes.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), len.min(MOST)) })
}

/// The memory that a pointer and a length name.
///
/// # Safety
/// If `data` is not null, it has `len` writable bytes, which no other thread uses meanwhile.
unsafe fn memory<'a>(data: *mut c_void, len: usize) -> Result<&'a mut [u8]> {
    if len == 0 {
        return Ok(&mut []);
    }
    if data.is_null() || !is_memory(data, len) {
        return Err(libc::EFAULT);
    }
    // SAFETY: the caller's; a slice is at most isize::MAX bytes.
    Ok(unsafe { std::slice::from_raw_parts_mut(data.cast(), len.min(MOST)) })
}

/// Whether a process's part of the address space can have this many bytes from there, on any processor.
fn is_memory(data: *const c_void, len: usize) -> bool {
    data.addr().checked_add(len).is_some_and(|end| end <= 1 << 56)
}

/// # Safety
/// As [`bytes`].
unsafe fn read_address(address: *const c_void, len: c_uint, family: c_int) -> Result<SocketAddr> {
    if address.is_null() {
        return Err(libc::EFAULT);
    }
    if len as usize > size_of::<libc::sockaddr_storage>() {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller's.
    address::parse(unsafe { bytes(address, len as usize)? }, family)
}

/// Writes a value into as many bytes as there are, and `len`.
///
/// # Safety
/// `len` is null or writable; if neither is null, `out` has `*len` writable bytes.
unsafe fn write_value(value: &[u8], out: *mut c_void, len: *mut c_uint, told: usize) -> Result<()> {
    if out.is_null() || len.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: the caller's.
    let room = unsafe { len.read_unaligned() } as usize;
    if room > i32::MAX as usize {
        return Err(libc::EINVAL);
    }
    let count = room.min(value.len());
    // SAFETY: the caller's, for no more than `room` bytes.
    unsafe { memory(out, count)? }.copy_from_slice(&value[..count]);
    // SAFETY: the caller's.
    unsafe { len.write_unaligned(told.max(count) as c_uint) };
    Ok(())
}

/// # Safety
/// As [`write_value`]; nothing is written if `out` is null.
unsafe fn write_address(address: SocketAddr, out: *mut c_void, len: *mut c_uint) -> Result<()> {
    if out.is_null() {
        return Ok(());
    }
    let value = address::bytes(address);
    // SAFETY: the caller's.
    unsafe { write_value(&value, out, len, value.len()) }
}

/// # Safety
/// `text` is null or ends with 0.
unsafe fn text<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller's.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

/// A network on a port.
///
/// # Safety
/// The pointers are null or name strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_network(
    path: *const c_char,
    addresses: *const c_char,
    settings: *const c_char,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's.
        let [path, addresses, settings] = unsafe { [text(path), text(addresses), text(settings)] };
        let (Some(path), Some(addresses)) = (path, addresses) else { return Err(libc::EFAULT) };
        let words = [Some(addresses), settings].map(|text| text.unwrap_or_default().to_string_lossy());
        match network::open(OsStr::from_bytes(path.to_bytes()).as_ref(), &words[0], &words[1]) {
            Ok(network) => {
                OWNER.store(std::process::id(), Relaxed);
                Ok(table::insert(Entry::Network(network)))
            }
            Err(error) => {
                ERROR.with(|last| *last.borrow_mut() = CString::new(error).unwrap_or_default());
                Err(libc::EINVAL)
            }
        }
    })
}

/// Why this thread's last [`ringway_network`] failed.
#[unsafe(no_mangle)]
pub extern "C" fn ringway_network_error() -> *const c_char {
    ERROR.with(|last| last.borrow().as_ptr())
}

/// `socket` on a network.
#[unsafe(no_mangle)]
pub extern "C" fn ringway_socket(network: c_int, family: c_int, kind: c_int, protocol: c_int) -> c_int {
    guarded(|| {
        let socket = Socket::new(&table::network(network)?, family, kind)?;
        let own = if socket.kind == libc::SOCK_STREAM { libc::IPPROTO_TCP } else { libc::IPPROTO_UDP };
        if protocol != 0 && protocol != own {
            return Err(libc::EPROTONOSUPPORT);
        }
        Ok(table::insert(Entry::Socket(Arc::new(socket))))
    })
}

/// `bind`.
///
/// # Safety
/// `address` is null or has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_bind(socket: c_int, address: *const c_void, len: c_uint) -> c_int {
    guarded(|| {
        let socket = table::socket(socket)?;
        // SAFETY: the caller's.
        socket.bind(unsafe { read_address(address, len, socket.family)? }).map(|()| 0)
    })
}

/// `listen`.
#[unsafe(no_mangle)]
pub extern "C" fn ringway_listen(socket: c_int, backlog: c_int) -> c_int {
    guarded(|| table::socket(socket)?.listen(backlog).map(|()| 0))
}

/// `accept4`.
///
/// # Safety
/// `address` is null or has `*len` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_accept4(
    socket: c_int,
    address: *mut c_void,
    len: *mut c_uint,
    flags: c_int,
) -> c_int {
    guarded(|| {
        let socket = table::socket(socket)?;
        if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
            return Err(libc::EINVAL);
        }
        if !address.is_null() && len.is_null() {
            return Err(libc::EFAULT);
        }
        let (accepted, peer) = socket.accept(flags)?;
        // SAFETY: the caller's.
        unsafe { write_address(peer, address, len)? };
        Ok(table::insert(Entry::Socket(Arc::new(accepted))))
    })
}

/// `accept`.
///
/// # Safety
/// As [`ringway_accept4`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_accept(socket: c_int, address: *mut c_void, len: *mut c_uint) -> c_int {
    // SAFETY: the caller's.
    unsafe { ringway_accept4(socket, address, len, 0) }
}

/// `connect`.
///
/// # Safety
/// `address` is null or has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_connect(socket: c_int, address: *const c_void, len: c_uint) -> c_int {
    guarded(|| {
        let socket = table::socket(socket)?;
        // SAFETY: the caller's.
        socket.connect(unsafe { read_address(address, len, socket.family)? }).map(|()| 0)
    })
}

/// `send`.
///
/// # Safety
/// `data` is null or has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_send(socket: c_int, data: *const c_void, len: usize, flags: c_int) -> isize {
    guarded(|| {
        let socket = table::socket(socket)?;
        // SAFETY: the caller's.
        socket.send(unsafe { bytes(data, len)? }, flags).map(|count| count as isize)
    })
}

/// `sendto`.
///
/// # Safety
/// `data` is null or has `len` bytes, `address` is null or has `address_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_sendto(
    socket: c_int,
    data: *const c_void,
    len: usize,
    flags: c_int,
    address: *const c_void,
    address_len: c_uint,
) -> isize {
    guarded(|| {
        let socket = table::socket(socket)?;
        // SAFETY: the caller's.
        let data = unsafe { bytes(data, len)? };
        let sent = if address.is_null() {
            socket.send(data, flags)
        } else {
            // SAFETY: the caller's.
            socket.send_to(data, flags, unsafe { read_address(address, address_len, socket.family)? })
        };
        sent.map(|count| count as isize)
    })
}

/// `recvfrom`.
///
/// # Safety
/// `data` is null or has `len` writable bytes, `address` is null or has `*address_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_recvfrom(
    socket: c_int,
    data: *mut c_void,
    len: usize,
    flags: c_int,
    address: *mut c_void,
    address_len: *mut c_uint,
) -> isize {
    guarded(|| {
        let socket = table::socket(socket)?;
        if !address.is_null() && address_len.is_null() {
            return Err(libc::EFAULT);
        }
        // SAFETY: the caller's.
        let (count, from) = socket.receive(unsafe { memory(data, len)? }, flags)?;
        match from {
            // SAFETY: the caller's.
            Some(from) => unsafe { write_address(from, address, address_len)? },
            // SAFETY: the caller's; a stream's bytes have no sender.
            None if !address.is_null() => unsafe { address_len.write_unaligned(0) },
            None => {}
        }
        Ok(count as isize)
    })
}

/// `recv`.
///
/// # Safety
/// `data` is null or has `len` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_recv(socket: c_int, data: *mut c_void, len: usize, flags: c_int) -> isize {
    // SAFETY: the caller's.
    unsafe { ringway_recvfrom(socket, data, len, flags, std::ptr::null_mut(), std::ptr::null_mut()) }
}

/// `poll` of this library's sockets.
///
/// # Safety
/// `list` is null or has `count` entries, which no other thread uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_poll(list: *mut libc::pollfd, count: libc::nfds_t, timeout: c_int) -> c_int {
    guarded(|| {
        let count = usize::try_from(count).ok().filter(|count| *count <= 1 << 20).ok_or(libc::EINVAL)?;
        if count > 0
            && (list.is_null()
                || !list.is_aligned()
                || !is_memory(list.cast(), count * size_of::<libc::pollfd>()))
        {
            return Err(libc::EFAULT);
        }
        let list = match count {
            0 => &mut [],
            // SAFETY: the caller's; neither null nor between two entries.
            _ => unsafe { std::slice::from_raw_parts_mut(list, count) },
        };
        poll::poll(list, timeout)
    })
}

/// A descriptor of the kernel for the program's own poll loop: readable once the socket is ready for one of `events`.
#[unsafe(no_mangle)]
pub extern "C" fn ringway_pollfd(socket: c_int, events: c_short) -> c_int {
    guarded(|| Ok(table::socket(socket)?.arm(events)?.as_fd().as_raw_fd()))
}

/// `setsockopt`.
///
/// # Safety
/// `value` is null or has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_setsockopt(
    socket: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: c_uint,
) -> c_int {
    guarded(|| {
        let socket = table::socket(socket)?;
        if len > 4096 {
            return Err(libc::EINVAL);
        }
        if value.is_null() {
            return Err(libc::EFAULT);
        }
        // SAFETY: the caller's.
        option::set(&socket, level, name, unsafe { bytes(value, len as usize)? }).map(|()| 0)
    })
}

/// `getsockopt`.
///
/// # Safety
/// `value` is null or has `*len` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_getsockopt(
    socket: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut c_uint,
) -> c_int {
    guarded(|| {
        let socket = table::socket(socket)?;
        if value.is_null() || len.is_null() {
            return Err(libc::EFAULT);
        }
        let found = option::get(&socket, level, name)?;
        // SAFETY: the caller's.
        unsafe { write_value(&found, value, len, 0)? };
        Ok(0)
    })
}

/// `getsockname`.
///
/// # Safety
/// `address` is null or has `*len` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_getsockname(socket: c_int, address: *mut c_void, len: *mut c_uint) -> c_int {
    guarded(|| {
        let value = address::bytes(table::socket(socket)?.local()?);
        // SAFETY: the caller's.
        unsafe { write_value(&value, address, len, value.len())? };
        Ok(0)
    })
}

/// `getpeername`.
///
/// # Safety
/// As [`ringway_getsockname`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_getpeername(socket: c_int, address: *mut c_void, len: *mut c_uint) -> c_int {
    guarded(|| {
        let value = address::bytes(table::socket(socket)?.peer()?);
        // SAFETY: the caller's.
        unsafe { write_value(&value, address, len, value.len())? };
        Ok(0)
    })
}

/// O_NONBLOCK of `fcntl`: 1 sets it, 0 clears it.
#[unsafe(no_mangle)]
pub extern "C" fn ringway_set_nonblocking(socket: c_int, nonblocking: c_int) -> c_int {
    guarded(|| {
        table::socket(socket)?.nonblocking.store(nonblocking != 0, Relaxed);
        Ok(0)
    })
}

/// `shutdown`.
#[unsafe(no_mangle)]
pub extern "C" fn ringway_shutdown(socket: c_int, how: c_int) -> c_int {
    guarded(|| table::socket(socket)?.shutdown(how).map(|()| 0))
}

/// `close` of a socket or a network; of a network after its peers have acknowledged what was sent.
#[unsafe(no_mangle)]
pub extern "C" fn ringway_close(number: c_int) -> c_int {
    guarded(|| {
        if let Entry::Network(network) = table::remove(number)? {
            network.drain(DRAIN).map_err(|error| socket::errno(&error))?;
        }
        Ok(0)
    })
}
