//! The C interface: arguments are converted here, and only here.

use crate::library;
use crate::machine::{File, Machine};
use libc::{
    c_char, c_int, c_long, c_uint, c_ulong, c_void, iovec, msghdr, nfds_t, sockaddr, socklen_t, ssize_t,
};
use std::ffi::CStr;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// `TCP_CM_INQ`, the same number as `TCP_INQ`.
const TCP_CM_INQ: c_int = 36;

type Address = *const sockaddr;
type Data = *mut c_void;

/// `struct packetdrill_interface`. Its first field is passed back as the first argument of each call; the library
/// does not need it, since there is one stack in a process.
#[repr(C)]
#[allow(missing_docs, reason = "the names are packetdrill's")]
pub struct Interface {
    userdata: Data,
    free: extern "C" fn(Data),
    socket: extern "C" fn(Data, c_int, c_int, c_int) -> c_int,
    bind: unsafe extern "C" fn(Data, c_int, Address, socklen_t) -> c_int,
    listen: extern "C" fn(Data, c_int, c_int) -> c_int,
    accept: unsafe extern "C" fn(Data, c_int, *mut sockaddr, *mut socklen_t) -> c_int,
    connect: unsafe extern "C" fn(Data, c_int, Address, socklen_t) -> c_int,
    read: unsafe extern "C" fn(Data, c_int, Data, usize) -> ssize_t,
    readv: unsafe extern "C" fn(Data, c_int, *const iovec, c_int) -> ssize_t,
    recv: unsafe extern "C" fn(Data, c_int, Data, usize, c_int) -> ssize_t,
    recvfrom: unsafe extern "C" fn(Data, c_int, Data, usize, c_int, *mut sockaddr, *mut socklen_t) -> ssize_t,
    recvmsg: unsafe extern "C" fn(Data, c_int, *mut msghdr, c_int) -> ssize_t,
    write: unsafe extern "C" fn(Data, c_int, *const c_void, usize) -> ssize_t,
    writev: unsafe extern "C" fn(Data, c_int, *const iovec, c_int) -> ssize_t,
    send: unsafe extern "C" fn(Data, c_int, *const c_void, usize, c_int) -> ssize_t,
    sendto: unsafe extern "C" fn(Data, c_int, *const c_void, usize, c_int, Address, socklen_t) -> ssize_t,
    sendmsg: unsafe extern "C" fn(Data, c_int, *const msghdr, c_int) -> ssize_t,
    /// Variadic in C, where at most one more argument is passed, as a register of this type.
    fcntl: extern "C" fn(Data, c_int, c_int, c_long) -> c_int,
    ioctl: unsafe extern "C" fn(Data, c_int, c_ulong, *mut c_int) -> c_int,
    close: extern "C" fn(Data, c_int) -> c_int,
    shutdown: extern "C" fn(Data, c_int, c_int) -> c_int,
    getsockopt: unsafe extern "C" fn(Data, c_int, c_int, c_int, Data, *mut socklen_t) -> c_int,
    setsockopt: unsafe extern "C" fn(Data, c_int, c_int, c_int, *const c_void, socklen_t) -> c_int,
    poll: unsafe extern "C" fn(Data, *mut libc::pollfd, nfds_t, c_int) -> c_int,
    netdev_send: unsafe extern "C" fn(Data, *const c_void, usize) -> c_int,
    netdev_receive: unsafe extern "C" fn(Data, Data, *mut usize, *mut i64) -> c_int,
    usleep: extern "C" fn(Data, c_uint) -> c_int,
    gettimeofday: unsafe extern "C" fn(Data, *mut libc::timeval, Data) -> c_int,
    epoll_create: extern "C" fn(Data, c_int) -> c_int,
    epoll_ctl: unsafe extern "C" fn(Data, c_int, c_int, c_int, *mut libc::epoll_event) -> c_int,
    epoll_wait: unsafe extern "C" fn(Data, c_int, *mut libc::epoll_event, c_int, c_int) -> c_int,
    pipe: unsafe extern "C" fn(Data, *mut c_int) -> c_int,
    splice: unsafe extern "C" fn(Data, c_int, *mut i64, c_int, *mut i64, usize, c_uint) -> ssize_t,
}

/// What packetdrill calls first.
///
/// # Safety
/// `flags` is null or a C string, `interface` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetdrill_interface_init(flags: *const c_char, interface: *mut Interface) {
    let flags = if flags.is_null() {
        String::new()
    } else {
        // SAFETY: the caller's promise.
        unsafe { CStr::from_ptr(flags) }.to_string_lossy().into_owned()
    };
    library::start(&flags);
    let functions = Interface {
        userdata: std::ptr::null_mut(),
        free,
        socket,
        bind,
        listen,
        accept,
        connect,
        read,
        readv,
        recv,
        recvfrom,
        recvmsg,
        write,
        writev,
        send,
        sendto,
        sendmsg,
        fcntl,
        ioctl,
        close: close_socket,
        shutdown,
        getsockopt: get_option,
        setsockopt,
        poll,
        netdev_send,
        netdev_receive,
        usleep,
        gettimeofday,
        epoll_create,
        epoll_ctl,
        epoll_wait,
        pipe,
        splice,
    };
    // SAFETY: the caller's promise.
    unsafe { interface.write(functions) };
}

/// C's convention: -1 and `errno`.
fn answer<T: TryInto<ssize_t>>(result: Result<T, i32>) -> ssize_t {
    match result {
        Ok(value) => value.try_into().unwrap_or(ssize_t::MAX),
        Err(error) => {
            // SAFETY: the location is valid for the calling thread.
            unsafe { *libc::__errno_location() = error };
            -1
        }
    }
}

fn call(call: impl FnOnce(&mut Machine) -> Result<i32, i32>) -> c_int {
    answer(library::with(call).unwrap_or(Err(libc::EBADF))) as c_int
}

/// Bytes of the caller.
///
/// # Safety
/// `len` bytes at `at` are valid.
unsafe fn bytes<'a>(at: *const c_void, len: usize) -> &'a [u8] {
    if at.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(at.cast(), len) }
}

/// Bytes of the caller, to be written.
///
/// # Safety
/// `len` bytes at `at` are valid and not used otherwise.
unsafe fn bytes_mut<'a>(at: Data, len: usize) -> &'a mut [u8] {
    if at.is_null() || len == 0 {
        return &mut [];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(at.cast(), len) }
}

/// The bytes of a vector, joined.
///
/// # Safety
/// The vector and its bytes are valid.
unsafe fn gather(vector: *const iovec, count: usize) -> Vec<u8> {
    let mut joined = Vec::new();
    for place in 0..count {
        // SAFETY: the caller's promise.
        let piece = unsafe { &*vector.add(place) };
        // SAFETY: the caller's promise.
        joined.extend_from_slice(unsafe { bytes(piece.iov_base, piece.iov_len) });
    }
    joined
}

/// Writes to the bytes of a vector.
///
/// # Safety
/// The vector and its bytes are valid.
unsafe fn scatter(vector: *const iovec, count: usize, mut from: &[u8]) {
    for place in 0..count {
        // SAFETY: the caller's promise.
        let piece = unsafe { &*vector.add(place) };
        // SAFETY: the caller's promise.
        let to = unsafe { bytes_mut(piece.iov_base, piece.iov_len) };
        let len = to.len().min(from.len());
        to[..len].copy_from_slice(&from[..len]);
        from = &from[len..];
    }
}

/// A socket address; `Ok(None)`: `AF_UNSPEC` or null.
///
/// # Safety
/// `len` bytes at `address` are valid, unless it is null.
unsafe fn address(address: Address, len: socklen_t) -> Result<Option<SocketAddr>, i32> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { bytes(address.cast(), len as usize) };
    let Some((family, rest)) = bytes.split_first_chunk::<2>() else { return Ok(None) };
    let port = rest.first_chunk::<2>().map(|port| u16::from_be_bytes(*port));
    match i32::from(u16::from_ne_bytes(*family)) {
        libc::AF_UNSPEC => Ok(None),
        libc::AF_INET => {
            let ip = rest.get(2..6).and_then(|ip| <[u8; 4]>::try_from(ip).ok());
            let (Some(ip), Some(port)) = (ip, port) else { return Err(libc::EINVAL) };
            Ok(Some((Ipv4Addr::from(ip), port).into()))
        }
        libc::AF_INET6 => {
            let ip = rest.get(6..22).and_then(|ip| <[u8; 16]>::try_from(ip).ok());
            let (Some(ip), Some(port)) = (ip, port) else { return Err(libc::EINVAL) };
            Ok(Some((Ipv6Addr::from(ip).to_canonical(), port).into()))
        }
        _ => Err(libc::EAFNOSUPPORT),
    }
}

/// Writes a socket address.
///
/// # Safety
/// `to` is null, or `len` bytes at it are valid.
unsafe fn put_address(from: SocketAddr, v6: bool, to: *mut sockaddr, len: *mut socklen_t) {
    if to.is_null() || len.is_null() {
        return;
    }
    let port = from.port().to_be_bytes();
    let mut raw = Vec::new();
    match (from, v6) {
        (SocketAddr::V4(v4), false) => {
            raw.extend((libc::AF_INET as u16).to_ne_bytes());
            raw.extend(port);
            raw.extend(v4.ip().octets());
            raw.resize(16, 0);
        }
        _ => {
            let ip = match from {
                SocketAddr::V4(v4) => v4.ip().to_ipv6_mapped(),
                SocketAddr::V6(v6) => *v6.ip(),
            };
            raw.extend((libc::AF_INET6 as u16).to_ne_bytes());
            raw.extend(port);
            raw.extend([0; 4]);
            raw.extend(ip.octets());
            raw.extend([0; 4]);
        }
    }
    // SAFETY: the caller's promise.
    let room = unsafe { bytes_mut(to.cast(), *len as usize) };
    let count = room.len().min(raw.len());
    room[..count].copy_from_slice(&raw[..count]);
    // SAFETY: the caller's promise.
    unsafe { *len = raw.len() as socklen_t };
}

extern "C" fn free(_: Data) {
    library::stop();
}

extern "C" fn socket(_: Data, domain: c_int, kind: c_int, _protocol: c_int) -> c_int {
    if kind & 0xf != libc::SOCK_STREAM || ![libc::AF_INET, libc::AF_INET6].contains(&domain) {
        return answer::<i32>(Err(libc::EPROTONOSUPPORT)) as c_int;
    }
    call(|machine| Ok(machine.open(domain == libc::AF_INET6, kind & libc::SOCK_NONBLOCK != 0)))
}

unsafe extern "C" fn bind(_: Data, fd: c_int, to: Address, len: socklen_t) -> c_int {
    // SAFETY: as `bind(2)`.
    match unsafe { address(to, len) } {
        Ok(Some(local)) => call(|machine| machine.bind(fd, local)),
        Ok(None) => answer::<i32>(Err(libc::EINVAL)) as c_int,
        Err(error) => answer::<i32>(Err(error)) as c_int,
    }
}

extern "C" fn listen(_: Data, fd: c_int, backlog: c_int) -> c_int {
    call(|machine| machine.listen(fd, backlog))
}

/// Whether calls on a socket block.
fn blocks(fd: c_int, flags: c_int) -> impl Fn(&mut Machine) -> bool {
    move |machine| {
        flags & libc::MSG_DONTWAIT == 0 && machine.socket(fd).is_ok_and(|socket| !socket.nonblocking)
    }
}

unsafe extern "C" fn accept(_: Data, fd: c_int, to: *mut sockaddr, len: *mut socklen_t) -> c_int {
    let accepted = library::wait(None, blocks(fd, 0), |machine| {
        let v6 = machine.socket(fd)?.v6;
        machine.accept(fd).map(|(fd, peer)| (fd, peer, v6))
    });
    let result = accepted.map(|(fd, peer, v6)| {
        // SAFETY: as `accept(2)`.
        unsafe { put_address(peer, v6, to, len) };
        fd
    });
    answer(result) as c_int
}

unsafe extern "C" fn connect(_: Data, fd: c_int, to: Address, len: socklen_t) -> c_int {
    // SAFETY: as `connect(2)`.
    let remote = match unsafe { address(to, len) } {
        Ok(remote) => remote,
        Err(error) => return answer::<i32>(Err(error)) as c_int,
    };
    let mut first = true;
    let result = library::wait(None, blocks(fd, 0), |machine| {
        let begins = machine.socket(fd)?.stream().is_err();
        let result = machine.connect(fd, remote);
        let nonblocking = machine.socket(fd)?.nonblocking;
        match result {
            Err(libc::EAGAIN) if nonblocking && begins => Err(libc::EINPROGRESS),
            Err(libc::EAGAIN) if nonblocking => Err(libc::EALREADY),
            Err(libc::EAGAIN) => {
                first = false;
                Err(libc::EAGAIN)
            }
            other => other,
        }
    });
    answer(result) as c_int
}

/// Whether a buffer is missing.
fn is_absent<T>(buffer: *const T, len: usize) -> bool {
    buffer.is_null() && len > 0
}

/// Receives into new memory.
fn receive(fd: c_int, len: usize, flags: c_int) -> Result<Vec<u8>, i32> {
    let mut into = vec![0; len];
    let count = library::wait(None, blocks(fd, flags), |machine| machine.receive(fd, &mut into, flags))?;
    into.truncate(count);
    Ok(into)
}

unsafe extern "C" fn read(data: Data, fd: c_int, to: Data, len: usize) -> ssize_t {
    // SAFETY: as `read(2)`.
    unsafe { recv(data, fd, to, len, 0) }
}

unsafe extern "C" fn readv(_: Data, fd: c_int, vector: *const iovec, count: c_int) -> ssize_t {
    let count = count.max(0) as usize;
    // SAFETY: as `readv(2)`.
    let len = (0..count).map(|place| unsafe { (*vector.add(place)).iov_len }).sum();
    let result = receive(fd, len, 0).map(|bytes| {
        // SAFETY: as `readv(2)`.
        unsafe { scatter(vector, count, &bytes) };
        bytes.len()
    });
    answer(result)
}

unsafe extern "C" fn recv(_: Data, fd: c_int, to: Data, len: usize, flags: c_int) -> ssize_t {
    if is_absent(to, len) && flags & libc::MSG_TRUNC == 0 {
        return answer::<i32>(Err(libc::EFAULT));
    }
    let result = receive(fd, len, flags).map(|from| {
        if !to.is_null() && flags & libc::MSG_TRUNC == 0 {
            // SAFETY: as `recv(2)`.
            let room = unsafe { bytes_mut(to, len) };
            room[..from.len()].copy_from_slice(&from);
        }
        from.len()
    });
    answer(result)
}

unsafe extern "C" fn recvfrom(
    data: Data,
    fd: c_int,
    to: Data,
    len: usize,
    flags: c_int,
    _from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    if !from_len.is_null() {
        // SAFETY: as `recvfrom(2)`; a stream has no sender.
        unsafe { *from_len = 0 };
    }
    // SAFETY: as `recvfrom(2)`.
    unsafe { recv(data, fd, to, len, flags) }
}

unsafe extern "C" fn recvmsg(data: Data, fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: as `recvmsg(2)`.
    let message = unsafe { &mut *message };
    if flags & libc::MSG_ERRQUEUE != 0 {
        // SAFETY: as `recvmsg(2)`.
        return answer(unsafe { receive_error(fd, message) });
    }
    // SAFETY: as `recvmsg(2)`.
    let count = unsafe { readv(data, fd, message.msg_iov, message.msg_iovlen as c_int) };
    let inq = library::with(|machine| machine.inq(fd)).flatten();
    (message.msg_namelen, message.msg_flags) = (0, 0);
    let control = match inq.filter(|_| count >= 0) {
        Some(inq) => control(libc::SOL_TCP, TCP_CM_INQ, &inq.to_ne_bytes()),
        None => Vec::new(),
    };
    // SAFETY: as `recvmsg(2)`.
    unsafe { put_control(message, &control) };
    count
}

/// A control message: `struct cmsghdr` and its data, padded.
fn control(level: c_int, kind: c_int, data: &[u8]) -> Vec<u8> {
    let mut bytes = (16 + data.len()).to_ne_bytes().to_vec();
    bytes.extend([level, kind].map(i32::to_ne_bytes).as_flattened());
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// Writes control messages, as far as there is room.
///
/// # Safety
/// The room is that of `recvmsg(2)`.
unsafe fn put_control(message: &mut msghdr, control: &[u8]) {
    // SAFETY: as the caller says.
    let room = unsafe { bytes_mut(message.msg_control, message.msg_controllen) };
    let len = room.len().min(control.len());
    room[..len].copy_from_slice(&control[..len]);
    message.msg_controllen = len;
}

/// Receives a notification from the queue of errors, which never blocks.
///
/// # Safety
/// As [`put_control`].
unsafe fn receive_error(fd: c_int, message: &mut msghdr) -> Result<usize, i32> {
    let (level, kind, data) = library::wait(None, |_| false, |machine| machine.next_error(fd))?;
    (message.msg_namelen, message.msg_flags) = (0, libc::MSG_ERRQUEUE);
    // SAFETY: as the caller says.
    unsafe { put_control(message, &control(level, kind, &data)) };
    Ok(0)
}

/// Sends all bytes, or as many as have room.
fn transmit(fd: c_int, bytes: &[u8], flags: c_int, remote: Option<SocketAddr>) -> ssize_t {
    let mut done = 0;
    let fast = flags & libc::MSG_FASTOPEN != 0;
    let result = library::wait(None, blocks(fd, flags), |machine| {
        let waits = !blocks(fd, flags)(machine);
        let is_new = machine.socket(fd)?.stream().is_err();
        match fast {
            true => match machine.send_fast(fd, bytes, &mut done, remote, flags) {
                Err(libc::EAGAIN) if waits && done > 0 => Ok(done),
                Err(libc::EAGAIN) if waits && is_new => Err(libc::EINPROGRESS),
                Err(libc::EAGAIN) if waits && machine.is_connecting(fd) => Err(libc::EALREADY),
                other => other,
            },
            false => match machine.send(fd, bytes, &mut done, flags) {
                // Nothing goes with the SYN, so the handshake comes first.
                Err(libc::EAGAIN) if waits && is_new && bytes.is_empty() => Err(libc::EINPROGRESS),
                other => other,
            },
        }
    });
    let result = match result {
        Err(libc::EAGAIN) if done > 0 => Ok(done),
        other => other,
    };
    if flags & libc::MSG_ZEROCOPY != 0 && done > 0 {
        // The descriptor exists, since bytes were taken from it.
        library::with(|machine| machine.note_zerocopy(fd));
    }
    answer(result)
}

unsafe extern "C" fn write(data: Data, fd: c_int, from: *const c_void, len: usize) -> ssize_t {
    // SAFETY: as `write(2)`.
    unsafe { send(data, fd, from, len, 0) }
}

unsafe extern "C" fn writev(_: Data, fd: c_int, vector: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: as `writev(2)`.
    let joined = unsafe { gather(vector, count.max(0) as usize) };
    transmit(fd, &joined, 0, None)
}

unsafe extern "C" fn send(_: Data, fd: c_int, from: *const c_void, len: usize, flags: c_int) -> ssize_t {
    if is_absent(from, len) {
        return answer::<i32>(Err(libc::EFAULT));
    }
    // SAFETY: as `send(2)`.
    transmit(fd, unsafe { bytes(from, len) }, flags, None)
}

unsafe extern "C" fn sendto(
    _: Data,
    fd: c_int,
    from: *const c_void,
    len: usize,
    flags: c_int,
    to: Address,
    to_len: socklen_t,
) -> ssize_t {
    if is_absent(from, len) {
        return answer::<i32>(Err(libc::EFAULT));
    }
    // SAFETY: as `sendto(2)`.
    match unsafe { address(to, to_len) } {
        // SAFETY: as `sendto(2)`.
        Ok(remote) => transmit(fd, unsafe { bytes(from, len) }, flags, remote),
        Err(error) => answer::<i32>(Err(error)),
    }
}

unsafe extern "C" fn sendmsg(_: Data, fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: as `sendmsg(2)`.
    let message = unsafe { &*message };
    // SAFETY: as `sendmsg(2)`.
    let joined = unsafe { gather(message.msg_iov, message.msg_iovlen) };
    // SAFETY: as `sendmsg(2)`.
    match unsafe { address(message.msg_name.cast(), message.msg_namelen) } {
        Ok(remote) => transmit(fd, &joined, flags, remote),
        Err(error) => answer::<i32>(Err(error)),
    }
}

extern "C" fn fcntl(_: Data, fd: c_int, command: c_int, argument: c_long) -> c_int {
    call(|machine| {
        let socket = machine.socket(fd)?;
        match command {
            libc::F_GETFL => Ok(libc::O_RDWR | if socket.nonblocking { libc::O_NONBLOCK } else { 0 }),
            libc::F_SETFL => {
                socket.nonblocking = argument as c_int & libc::O_NONBLOCK != 0;
                Ok(0)
            }
            _ => Err(libc::EINVAL),
        }
    })
}

unsafe extern "C" fn ioctl(_: Data, fd: c_int, request: c_ulong, value: *mut c_int) -> c_int {
    call(|machine| {
        if request != libc::FIONREAD {
            return Err(libc::EINVAL);
        }
        let unread = machine.unread(fd)?;
        // SAFETY: as `ioctl(2)` with `FIONREAD`.
        unsafe { *value = unread };
        Ok(0)
    })
}

extern "C" fn close_socket(_: Data, fd: c_int) -> c_int {
    call(|machine| {
        if let Ok(File::Kernel(inner)) = machine.file(fd) {
            // SAFETY: the descriptor is ours, and is forgotten below.
            unsafe { libc::close(*inner) };
        }
        machine.close(fd)
    })
}

extern "C" fn shutdown(_: Data, fd: c_int, how: c_int) -> c_int {
    call(|machine| machine.shutdown(fd, how))
}

unsafe extern "C" fn get_option(
    _: Data,
    fd: c_int,
    level: c_int,
    name: c_int,
    to: Data,
    len: *mut socklen_t,
) -> c_int {
    call(|machine| {
        let value = machine.option(fd, level, name)?;
        // SAFETY: as `getsockopt(2)`.
        let room = unsafe { bytes_mut(to, *len as usize) };
        let count = room.len().min(value.len());
        room[..count].copy_from_slice(&value[..count]);
        // SAFETY: as `getsockopt(2)`.
        unsafe { *len = count as socklen_t };
        Ok(0)
    })
}

unsafe extern "C" fn setsockopt(
    _: Data,
    fd: c_int,
    level: c_int,
    name: c_int,
    from: *const c_void,
    len: socklen_t,
) -> c_int {
    // SAFETY: as `setsockopt(2)`.
    let value = unsafe { bytes(from, len as usize) };
    call(|machine| machine.set_option(fd, level, name, value))
}

unsafe extern "C" fn poll(_: Data, fds: *mut libc::pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: as `poll(2)`.
    let fds = unsafe { std::slice::from_raw_parts_mut(fds, count as usize) };
    let wanted: Vec<(i32, i16)> = fds.iter().map(|fd| (fd.fd, fd.events)).collect();
    let mut found = vec![0; wanted.len()];
    let result =
        library::wait(library::limit(timeout), |_| timeout != 0, |machine| machine.poll(&wanted, &mut found));
    for (fd, found) in fds.iter_mut().zip(found) {
        fd.revents = found;
    }
    answer(or_none(result)) as c_int
}

/// Nothing is ready.
fn or_none(result: Result<i32, i32>) -> Result<i32, i32> {
    match result {
        Err(libc::EAGAIN) => Ok(0),
        other => other,
    }
}

unsafe extern "C" fn netdev_send(_: Data, from: *const c_void, len: usize) -> c_int {
    // SAFETY: packetdrill passes a packet.
    let packet = unsafe { bytes(from, len) };
    call(|machine| {
        machine.deliver(packet);
        Ok(0)
    })
}

unsafe extern "C" fn netdev_receive(_: Data, to: Data, len: *mut usize, micros: *mut i64) -> c_int {
    let (at, packet) = library::next_packet().unwrap_or_default();
    // SAFETY: packetdrill passes a buffer and its length.
    let room = unsafe { bytes_mut(to, *len) };
    let count = room.len().min(packet.len());
    room[..count].copy_from_slice(&packet[..count]);
    // SAFETY: packetdrill passes places for both results. A length of 0: no packet came.
    unsafe { (*len, *micros) = (count, at) };
    0
}

extern "C" fn usleep(_: Data, micros: c_uint) -> c_int {
    library::sleep(u64::from(micros) * 1000);
    0
}

unsafe extern "C" fn gettimeofday(_: Data, to: *mut libc::timeval, _zone: Data) -> c_int {
    let micros = library::clock();
    // SAFETY: as `gettimeofday(2)`.
    unsafe { *to = libc::timeval { tv_sec: micros / 1_000_000, tv_usec: micros % 1_000_000 } };
    0
}

extern "C" fn epoll_create(_: Data, _size: c_int) -> c_int {
    call(|machine| Ok(machine.epoll_create()))
}

unsafe extern "C" fn epoll_ctl(
    _: Data,
    epfd: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut libc::epoll_event,
) -> c_int {
    // SAFETY: as `epoll_ctl(2)`.
    let event = (!event.is_null()).then(|| unsafe { ((*event).events, (*event).u64) });
    call(|machine| machine.epoll_ctl(epfd, operation, fd, event))
}

unsafe extern "C" fn epoll_wait(
    _: Data,
    epfd: c_int,
    events: *mut libc::epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    let ready = library::wait(
        library::limit(timeout),
        |_| timeout != 0,
        |machine| machine.epoll_wait(epfd, most.max(0) as usize),
    );
    let result = ready.map(|ready| {
        for (place, &(events_now, data)) in ready.iter().enumerate() {
            // SAFETY: as `epoll_wait(2)`: there is room for `most` events.
            unsafe { *events.add(place) = libc::epoll_event { events: events_now, u64: data } };
        }
        ready.len() as i32
    });
    answer(or_none(result)) as c_int
}

unsafe extern "C" fn pipe(_: Data, fds: *mut c_int) -> c_int {
    let mut ends = [0; 2];
    // SAFETY: there is room for two descriptors.
    if unsafe { libc::pipe(ends.as_mut_ptr()) } != 0 {
        return -1;
    }
    call(|machine| {
        for (place, end) in ends.into_iter().enumerate() {
            let fd = machine.add(File::Kernel(end));
            // SAFETY: as `pipe(2)`.
            unsafe { *fds.add(place) = fd };
        }
        Ok(0)
    })
}

fn kernel(fd: c_int) -> Option<c_int> {
    library::with(|machine| match machine.file(fd) {
        Ok(File::Kernel(inner)) => Some(*inner),
        _ => None,
    })?
}

/// From a socket to a pipe or back, with a copy.
unsafe extern "C" fn splice(
    _: Data,
    from: c_int,
    _from_at: *mut i64,
    to: c_int,
    _to_at: *mut i64,
    len: usize,
    flags: c_uint,
) -> ssize_t {
    let mut buffer = vec![0; len];
    let wait = if flags & libc::SPLICE_F_NONBLOCK != 0 { libc::MSG_DONTWAIT } else { 0 };
    match (kernel(from), kernel(to)) {
        (None, Some(pipe)) => match receive(from, len, wait) {
            // SAFETY: the buffer has as many bytes.
            Ok(bytes) => unsafe { libc::write(pipe, bytes.as_ptr().cast(), bytes.len()) },
            Err(error) => answer::<i32>(Err(error)),
        },
        (Some(pipe), None) => {
            // SAFETY: the buffer has as many bytes.
            let count = unsafe { libc::read(pipe, buffer.as_mut_ptr().cast(), len) };
            buffer.truncate(count.max(0) as usize);
            transmit(to, &buffer, wait, None)
        }
        _ => answer::<i32>(Err(libc::EINVAL)),
    }
}

/// The C library's function, for sockets of this library too.
///
/// # Safety
/// As `getsockopt(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    to: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    if Machine::owns(fd) {
        // SAFETY: the caller's promise.
        return unsafe { get_option(std::ptr::null_mut(), fd, level, name, to, len) };
    }
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, name, to, len) as c_int }
}

/// The C library's function, for sockets of this library too.
///
/// # Safety
/// As `close(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    if Machine::owns(fd) {
        return close_socket(std::ptr::null_mut(), fd);
    }
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_close, fd) as c_int }
}

/// The C library's function, for sockets of this library too.
///
/// # Safety
/// As `sendfile(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile(to: c_int, from: c_int, at: *mut i64, len: usize) -> ssize_t {
    if !Machine::owns(to) {
        // SAFETY: the caller's promise.
        return unsafe { libc::syscall(libc::SYS_sendfile, to, from, at, len) as ssize_t };
    }
    let mut buffer = vec![0; len];
    // SAFETY: the buffer has as many bytes; `at` is null or valid.
    let count = unsafe {
        if at.is_null() {
            libc::read(from, buffer.as_mut_ptr().cast(), len)
        } else {
            libc::pread(from, buffer.as_mut_ptr().cast(), len, *at)
        }
    };
    buffer.truncate(count.max(0) as usize);
    let sent = transmit(to, &buffer, 0, None);
    if sent > 0 && !at.is_null() {
        // SAFETY: `at` is valid.
        unsafe { *at += sent as i64 };
    }
    sent
}
