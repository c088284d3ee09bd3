//! Options of sockets.

use super::abi::{
    AF_INET, AF_INET6, Errno, IPPROTO_IPV6, IPPROTO_TCP, IPPROTO_UDP, SOCK_DGRAM, SOCK_STREAM, option,
};
use super::files::File;
use super::socket::Socket;
use super::{Calls, Reply};
use crate::network::BUFFER;
use core::time::Duration;
use ringway_netstack::MS;
use ringway_tiny::Machine;

impl<M: Machine> Calls<M> {
    /// `setsockopt`, of a value at an address with a length.
    pub(super) fn set_option(&mut self, file: &File, level: u64, name: u64, [at, len]: [u64; 2]) -> Reply {
        let (level, name) = (u64::from(level as u32), u64::from(name as u32));
        let is_time =
            level == option::SOL_SOCKET && [option::SO_RCVTIMEO, option::SO_SNDTIMEO].contains(&name);
        let least = if is_time { 16 } else { 4 };
        if (len as i32) < least {
            return Err(Errno::Invalid.into());
        }
        let value = self.ram.word(at)?;
        match (level, name) {
            (option::SOL_SOCKET, option::SO_RCVTIMEO | option::SO_SNDTIMEO) => {
                let time = Some(self.timeval(at)?).filter(|time| !time.is_zero());
                let place = usize::from(name == option::SO_SNDTIMEO);
                file.socket(|socket| {
                    socket.waits[place] = time;
                    Ok(())
                })?;
            }
            (option::SOL_SOCKET, option::SO_LINGER) => {
                // Whether closing waits, which it does not here, and how many seconds: none is a reset.
                let resets = value != 0 && self.ram.word(at.wrapping_add(4))? == 0;
                file.socket(|socket| {
                    socket.resets = resets;
                    Ok(())
                })?;
            }
            _ => file.socket(|socket| set(socket, level, name, value))?,
        }
        Ok(0)
    }

    /// `getsockopt`, to an address with room for a length.
    pub(super) fn get_option(&mut self, file: &File, level: u64, name: u64, [at, len_at]: [u64; 2]) -> Reply {
        let (level, name) = (u64::from(level as u32), u64::from(name as u32));
        let room = i32::from_le_bytes(self.ram.array(len_at)?);
        let room = usize::try_from(room).map_err(|_| Errno::Invalid)?;
        let mut bytes = [0; 16];
        let len = file.socket(|socket| {
            let mut put = |numbers: [u64; 2], size: usize| {
                for (number, out) in numbers.iter().zip(bytes.chunks_exact_mut(size)) {
                    out.copy_from_slice(&number.to_le_bytes()[..size]);
                }
                2 * size
            };
            match (level, name) {
                (option::SOL_SOCKET, option::SO_RCVTIMEO | option::SO_SNDTIMEO) => {
                    let time =
                        socket.waits[usize::from(name == option::SO_SNDTIMEO)].unwrap_or(Duration::ZERO);
                    Ok(put([time.as_secs(), time.subsec_micros().into()], 8))
                }
                (option::SOL_SOCKET, option::SO_LINGER) => Ok(put([socket.resets.into(), 0], 4)),
                _ => {
                    let value = get(socket, level, name)?;
                    put([value, 0], 4);
                    Ok(4)
                }
            }
        })?;
        let len = len.min(room);
        self.ram.write(at, &bytes[..len])?;
        Ok(self.ram.write(len_at, &(len as u32).to_le_bytes()).map(|()| 0)?)
    }
}

fn set(socket: &mut Socket, level: u64, name: u64, value: u32) -> Result<(), Errno> {
    let (is_set, is_stream) = (value != 0, socket.is_stream());
    match (level, name) {
        // Addresses can be used again at once, and the buffers are the network's.
        (
            option::SOL_SOCKET,
            option::SO_REUSEADDR
            | option::SO_REUSEPORT
            | option::SO_BROADCAST
            | option::SO_SNDBUF
            | option::SO_RCVBUF,
        ) => return Ok(()),
        (option::SOL_SOCKET, option::SO_KEEPALIVE) => socket.options.so_keepalive = is_set,
        (IPPROTO_IPV6, option::IPV6_V6ONLY) if socket.is_v6 => {
            socket.only_v6 = is_set;
            return Ok(());
        }
        (IPPROTO_TCP, option::TCP_NODELAY) if is_stream => socket.options.tcp_nodelay = is_set,
        (IPPROTO_TCP, option::TCP_CORK) if is_stream => socket.options.tcp_cork = is_set,
        (IPPROTO_TCP, option::TCP_USER_TIMEOUT) if is_stream => {
            socket.options.tcp_user_timeout = u64::from(value) * MS;
        }
        _ => return Err(Errno::NoOption),
    }
    socket.apply()
}

fn get(socket: &mut Socket, level: u64, name: u64) -> Result<u64, Errno> {
    let is_stream = socket.is_stream();
    Ok(match (level, name) {
        (option::SOL_SOCKET, option::SO_ERROR) => socket.take_error().map_or(0, |errno| errno as u64),
        (option::SOL_SOCKET, option::SO_TYPE) => {
            if is_stream {
                SOCK_STREAM
            } else {
                SOCK_DGRAM
            }
        }
        (option::SOL_SOCKET, option::SO_PROTOCOL) => {
            if is_stream {
                IPPROTO_TCP
            } else {
                IPPROTO_UDP
            }
        }
        (option::SOL_SOCKET, option::SO_DOMAIN) => if socket.is_v6 { AF_INET6 } else { AF_INET }.into(),
        (option::SOL_SOCKET, option::SO_ACCEPTCONN) => socket.is_listener().into(),
        (option::SOL_SOCKET, option::SO_SNDBUF | option::SO_RCVBUF) => BUFFER as u64,
        (option::SOL_SOCKET, option::SO_REUSEADDR | option::SO_REUSEPORT | option::SO_BROADCAST) => 1,
        (option::SOL_SOCKET, option::SO_KEEPALIVE) => socket.options.so_keepalive.into(),
        (IPPROTO_IPV6, option::IPV6_V6ONLY) if socket.is_v6 => socket.only_v6.into(),
        (IPPROTO_TCP, option::TCP_NODELAY) if is_stream => socket.options.tcp_nodelay.into(),
        (IPPROTO_TCP, option::TCP_CORK) if is_stream => socket.options.tcp_cork.into(),
        (IPPROTO_TCP, option::TCP_USER_TIMEOUT) if is_stream => socket.options.tcp_user_timeout / MS,
        _ => return Err(Errno::NoOption),
    })
}
