//! `getsockopt` and `setsockopt` with the numbers of Linux.

use crate::Result;
use crate::network::algorithm;
use crate::socket::Socket;
use std::ffi::c_int;
use std::sync::atomic::Ordering::Relaxed;

const NANOSECONDS: u64 = 1_000_000_000;

fn number(value: &[u8]) -> Result<c_int> {
    value.first_chunk().map(|bytes| c_int::from_ne_bytes(*bytes)).ok_or(libc::EINVAL)
}

/// Nanoseconds of a `struct timeval`; 0: no limit.
fn time(value: &[u8]) -> Result<u64> {
    let (seconds, rest) = value.split_first_chunk().ok_or(libc::EINVAL)?;
    let micros = rest.first_chunk().ok_or(libc::EINVAL)?;
    let (seconds, micros) = (i64::from_ne_bytes(*seconds), i64::from_ne_bytes(*micros));
    if !(0..1_000_000).contains(&micros) {
        return Err(libc::EDOM);
    }
    // A negative time is none, as in Linux.
    let seconds = seconds.max(0) as u64;
    Ok(seconds.saturating_mul(NANOSECONDS).saturating_add(micros as u64 * 1000))
}

/// Changes an option.
pub fn set(socket: &Socket, level: c_int, name: c_int, value: &[u8]) -> Result<()> {
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => socket.timeouts[0].store(time(value)?, Relaxed),
        (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => socket.timeouts[1].store(time(value)?, Relaxed),
        // Nothing keeps an address from being bound again, and every IPv6 socket serves IPv6 alone.
        (libc::SOL_SOCKET, libc::SO_REUSEADDR) => drop(number(value)?),
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) if number(value)? != 0 => {}
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => {
            let on = number(value)? != 0;
            socket.set_option(|options| options.so_keepalive = on)?;
        }
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => {
            let on = number(value)? != 0;
            socket.set_option(|options| options.tcp_nodelay = on)?;
        }
        (libc::IPPROTO_TCP, libc::TCP_CORK) => {
            let on = number(value)? != 0;
            socket.set_option(|options| options.tcp_cork = on)?;
        }
        (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => {
            let name = value.split(|byte| *byte == 0).next().unwrap_or_default();
            socket.set_congestion(algorithm(name).ok_or(libc::ENOENT)?)?;
        }
        _ => return Err(libc::ENOPROTOOPT),
    }
    Ok(())
}

/// The value of an option.
pub fn get(socket: &Socket, level: c_int, name: c_int) -> Result<Vec<u8>> {
    let time = |nanoseconds: u64| {
        let parts = [nanoseconds / NANOSECONDS, nanoseconds % NANOSECONDS / 1000];
        parts.map(u64::to_ne_bytes).concat()
    };
    let is_stream = socket.kind == libc::SOCK_STREAM;
    let number = match (level, name) {
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO) => return Ok(time(socket.timeouts[0].load(Relaxed))),
        (libc::SOL_SOCKET, libc::SO_SNDTIMEO) => return Ok(time(socket.timeouts[1].load(Relaxed))),
        (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => {
            return Ok([socket.congestion().linux_name().as_bytes(), &[0]].concat());
        }
        (libc::SOL_SOCKET, libc::SO_ERROR) => socket.take_error(),
        (libc::SOL_SOCKET, libc::SO_TYPE) => socket.kind,
        (libc::SOL_SOCKET, libc::SO_DOMAIN) => socket.family,
        (libc::SOL_SOCKET, libc::SO_PROTOCOL) if is_stream => libc::IPPROTO_TCP,
        (libc::SOL_SOCKET, libc::SO_PROTOCOL) => libc::IPPROTO_UDP,
        (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => socket.is_listening().into(),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => socket.options().so_keepalive.into(),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => socket.options().tcp_nodelay.into(),
        (libc::IPPROTO_TCP, libc::TCP_CORK) => socket.options().tcp_cork.into(),
        _ => return Err(libc::ENOPROTOOPT),
    };
    Ok(number.to_ne_bytes().to_vec())
}
