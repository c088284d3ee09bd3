//! `getsockopt` and `setsockopt`.

use super::calls::Reply;
use super::stream::errno;
use super::table::{Key, Kind, Socket};
use super::{Agent, info};
use ringway_host::{Call, read_memory, write_memory};
use ringway_netstack::SocketOptions;
use ringway_netstack::congestion::Algorithm;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;

/// Most bytes of an option's value. Attack: a program that names a huge one.
const MAX_VALUE_LEN: usize = 256;

const SOCKET: i32 = 1;
const IP: i32 = 0;
const TCP: i32 = 6;
const IPV6: i32 = 41;
const SO_REUSEADDR: (i32, i32) = (SOCKET, 2);
const SO_TYPE: (i32, i32) = (SOCKET, 3);
const SO_ERROR: (i32, i32) = (SOCKET, 4);
const SO_SNDBUF: (i32, i32) = (SOCKET, 7);
const SO_RCVBUF: (i32, i32) = (SOCKET, 8);
const SO_KEEPALIVE: (i32, i32) = (SOCKET, 9);
const SO_LINGER: (i32, i32) = (SOCKET, 13);
const SO_PEERCRED: (i32, i32) = (SOCKET, 17);
const SO_REUSEPORT: (i32, i32) = (SOCKET, 15);
const SO_ACCEPTCONN: (i32, i32) = (SOCKET, 30);
const SO_PROTOCOL: (i32, i32) = (SOCKET, 38);
const SO_DOMAIN: (i32, i32) = (SOCKET, 39);
const SO_MAX_PACING_RATE: (i32, i32) = (SOCKET, 47);
const TCP_NODELAY: (i32, i32) = (TCP, 1);
const TCP_MAXSEG: (i32, i32) = (TCP, 2);
const TCP_CORK: (i32, i32) = (TCP, 3);
const TCP_SYNCNT: (i32, i32) = (TCP, 7);
const TCP_INFO: (i32, i32) = (TCP, 11);
const TCP_CONGESTION: (i32, i32) = (TCP, 13);
const TCP_USER_TIMEOUT: (i32, i32) = (TCP, 18);
const TCP_NOTSENT_LOWAT: (i32, i32) = (TCP, 25);
const IPV6_V6ONLY: (i32, i32) = (IPV6, 26);

/// Options that the kernel's own socket serves: `SO_RCVTIMEO` and `SO_SNDTIMEO`, in both forms.
const KERNEL: &[(i32, i32)] = &[(SOCKET, 20), (SOCKET, 21), (SOCKET, 66), (SOCKET, 67)];

/// `SO_PEERCRED` of a socket with a network between: no process, user or group. The UNIX socket's would be the agent's,
/// and a peer would seem to be the user who runs the program.
const NO_CREDENTIALS: [i32; 3] = [0, -1, -1];

/// Options that take effect, with their defaults.
const EFFECTIVE: &[((i32, i32), i32)] = &[
    (SO_REUSEADDR, 0),
    (SO_REUSEPORT, 0),
    (SO_KEEPALIVE, 0),
    (TCP_NODELAY, 0),
    (TCP_MAXSEG, 0),
    (TCP_CORK, 0),
    (TCP_SYNCNT, 6),
    (TCP_USER_TIMEOUT, 0),
    (TCP_NOTSENT_LOWAT, 0),
    (IPV6_V6ONLY, 0),
];

/// Options that are stored and returned, and change nothing: their effect is one of speed, or belongs to another layer.
const STORED: &[((i32, i32), i32)] = &[
    ((SOCKET, 1), 0),
    ((SOCKET, 5), 0),
    ((SOCKET, 6), 0),
    (SO_SNDBUF, 87_040),
    (SO_RCVBUF, 131_072),
    ((SOCKET, 10), 0),
    ((SOCKET, 12), 0),
    ((SOCKET, 18), 1),
    ((SOCKET, 29), 0),
    ((SOCKET, 46), 0),
    // TCP_KEEPIDLE, KEEPINTVL, KEEPCNT, LINGER2, DEFER_ACCEPT, WINDOW_CLAMP, QUICKACK.
    ((TCP, 4), 7200),
    ((TCP, 5), 75),
    ((TCP, 6), 9),
    ((TCP, 8), 60),
    ((TCP, 9), 0),
    ((TCP, 10), 0),
    ((TCP, 12), 1),
    // IP_TOS, TTL, MTU_DISCOVER, RECVERR, FREEBIND, BIND_ADDRESS_NO_PORT.
    ((IP, 1), 0),
    ((IP, 2), 64),
    ((IP, 10), 1),
    ((IP, 11), 0),
    ((IP, 15), 0),
    ((IP, 24), 0),
    // IPV6_UNICAST_HOPS, MTU_DISCOVER, RECVERR, TCLASS.
    ((IPV6, 16), 64),
    ((IPV6, 23), 1),
    ((IPV6, 25), 0),
    ((IPV6, 67), 0),
];

/// Options that say who else may listen at an address.
const LISTENING: [(i32, i32); 3] = [SO_REUSEADDR, SO_REUSEPORT, IPV6_V6ONLY];

/// The options that a program has set.
#[derive(Clone, Debug, Default)]
pub struct OptionValues(BTreeMap<(i32, i32), Vec<u8>>);

impl OptionValues {
    fn number(&self, option: (i32, i32)) -> Option<i32> {
        let bytes = self.0.get(&option)?;
        Some(
            bytes
                .first_chunk()
                .map_or_else(|| bytes.first().map_or(0, |b| i32::from(*b)), |word| i32::from_ne_bytes(*word)),
        )
    }

    fn is_on(&self, option: (i32, i32)) -> bool {
        self.number(option).is_some_and(|value| value != 0)
    }

    pub fn reuses_address(&self) -> bool {
        self.is_on(SO_REUSEADDR)
    }

    pub fn reuses_port(&self) -> bool {
        self.is_on(SO_REUSEPORT)
    }

    /// Whether a socket of IPv6 does not serve IPv4.
    pub fn is_v6_only(&self) -> bool {
        self.is_on(IPV6_V6ONLY)
    }

    /// The options that say who else may listen at an address, as bits.
    pub fn listen_flags(&self) -> u64 {
        let bit = |(number, option): (usize, &(i32, i32))| u64::from(self.is_on(*option)) << number;
        LISTENING.iter().enumerate().map(bit).sum()
    }

    /// The options with such bits.
    pub fn of_listen_flags(flags: u64) -> OptionValues {
        let is_on = |(number, _): &(usize, _)| flags >> number & 1 != 0;
        let set = LISTENING.iter().enumerate().filter(is_on);
        OptionValues(set.map(|(_, option)| (*option, 1_i32.to_ne_bytes().to_vec())).collect())
    }

    /// Those of a connection whose listener is gone: it does not keep others from its port.
    pub fn of_accepted() -> OptionValues {
        OptionValues([(SO_REUSEADDR, 1_i32.to_ne_bytes().to_vec())].into())
    }

    /// `SO_LINGER` with no time: a close resets.
    pub fn resets_at_close(&self) -> bool {
        self.0
            .get(&SO_LINGER)
            .is_some_and(|linger| linger.first() != Some(&0) && linger[4..].iter().all(|b| *b == 0))
    }

    pub fn congestion(&self) -> Option<Algorithm> {
        algorithm(self.0.get(&TCP_CONGESTION)?)
    }

    /// What the stack is to listen at for an address: IPv6's unspecified one stands for IPv4's too.
    pub fn addresses(&self, local: SocketAddr, v6: bool) -> Vec<SocketAddr> {
        let both = v6 && local.is_ipv6() && local.ip().is_unspecified() && !self.is_v6_only();
        let four = SocketAddr::from((Ipv4Addr::UNSPECIFIED, local.port()));
        [local].into_iter().chain(both.then_some(four)).collect()
    }

    /// The stack's options.
    pub fn socket_options(&self) -> SocketOptions {
        let positive = |option| self.number(option).and_then(|value| u64::try_from(value).ok());
        let pacing = self.0.get(&SO_MAX_PACING_RATE).map(|bytes| match bytes.first_chunk() {
            Some(word) => u64::from_ne_bytes(*word),
            None => bytes.first_chunk().map_or(u64::MAX, |word| match u32::from_ne_bytes(*word) {
                u32::MAX => u64::MAX,
                rate => rate.into(),
            }),
        });
        SocketOptions {
            tcp_nodelay: self.is_on(TCP_NODELAY),
            tcp_cork: self.is_on(TCP_CORK),
            so_keepalive: self.is_on(SO_KEEPALIVE),
            tcp_user_timeout: positive(TCP_USER_TIMEOUT).unwrap_or(0) * ringway_netstack::MS,
            so_max_pacing_rate: pacing.unwrap_or(u64::MAX),
            tcp_maxseg: positive(TCP_MAXSEG).unwrap_or(0),
            tcp_syncnt: positive(TCP_SYNCNT).unwrap_or(0) as u32,
            tcp_notsent_lowat: positive(TCP_NOTSENT_LOWAT).unwrap_or(0) as usize,
            ..SocketOptions::default()
        }
    }
}

/// Linux has one `bbr`.
pub fn algorithm(name: &[u8]) -> Option<Algorithm> {
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Algorithm::from_linux_name(std::str::from_utf8(name).ok()?)
}

fn is_of(socket: &Socket, option: (i32, i32)) -> bool {
    option.0 != TCP || !matches!(socket.kind, Kind::Datagrams(_))
}

impl Agent {
    /// `setsockopt`.
    pub(super) fn set_option(&mut self, call: &Call, key: Key) -> Result<Reply, Errno> {
        let [_, level, name, at, len, ..] = call.arguments;
        let option = (level as i32, name as i32);
        if KERNEL.contains(&option) {
            return Ok(Reply::Resume);
        }
        let mut value = vec![0; (len as u32 as usize).min(MAX_VALUE_LEN)];
        if read_memory(call.thread, at, &mut value)? < value.len() {
            return Err(Errno::FAULT);
        }
        self.trap.check_waiting(call.id)?;
        let socket = self.table.get_mut(key).ok_or(Errno::BADF)?;
        let known = EFFECTIVE.iter().chain(STORED).any(|(known, _)| *known == option);
        let other = [SO_LINGER, SO_MAX_PACING_RATE, TCP_CONGESTION].contains(&option);
        if !(known || other) || !is_of(socket, option) {
            self.report.unserved(option);
            return Err(Errno::NOPROTOOPT);
        }
        match option {
            TCP_CONGESTION if algorithm(&value).is_none() => return Err(Errno::NOENT),
            SO_LINGER if value.len() < 8 => return Err(Errno::INVAL),
            SO_LINGER => value.truncate(8),
            TCP_CONGESTION => {}
            _ if value.len() < 4 && option.0 != IP => return Err(Errno::INVAL),
            // Linux doubles what it is told, for its own needs.
            SO_SNDBUF | SO_RCVBUF => {
                let asked = value.first_chunk().map_or(0, |word| i32::from_ne_bytes(*word));
                value = asked.clamp(2304, 4 << 20).saturating_mul(2).to_ne_bytes().to_vec();
            }
            SO_MAX_PACING_RATE => value.truncate(8),
            _ => value.truncate(4),
        }
        socket.options.0.insert(option, value);
        self.apply(key, option)?;
        Ok(Reply::Value(0))
    }

    /// Lets a connection, or a listener, have an option that has changed.
    fn apply(&mut self, key: Key, option: (i32, i32)) -> Result<(), Errno> {
        let now = self.host.now();
        let socket = self.table.get(key).ok_or(Errno::BADF)?;
        let ids = match &socket.kind {
            Kind::Stream(stream) => vec![stream.tcp],
            Kind::Listening(listening) => listening.listeners.clone(),
            _ => return Ok(()),
        };
        let stack = self.host.stack();
        for id in ids {
            match (option, &socket.kind) {
                (TCP_CONGESTION, Kind::Stream(_)) => {
                    let algorithm = socket.options.congestion().ok_or(Errno::NOENT)?;
                    stack.set_congestion(now, id, algorithm).map_err(errno)?;
                }
                _ => stack.set_options(now, id, socket.options.socket_options()).map_err(errno)?,
            }
        }
        Ok(())
    }

    /// `getsockopt`.
    pub(super) fn option(&mut self, call: &Call, key: Key, socket: &OwnedFd) -> Result<Reply, Errno> {
        let [_, level, name, at, len_at, ..] = call.arguments;
        let option = (level as i32, name as i32);
        if KERNEL.contains(&option) {
            return Ok(Reply::Resume);
        }
        let mut room = [0; 4];
        if read_memory(call.thread, len_at, &mut room)? < room.len() {
            return Err(Errno::FAULT);
        }
        let room = usize::try_from(i32::from_ne_bytes(room)).map_err(|_| Errno::INVAL)?;
        self.trap.check_waiting(call.id)?;
        if option == SO_ERROR && !self.has_connected(key, socket)? {
            return Ok(Reply::Wait(key));
        }
        let value = self.value(key, option)?;
        let len = value.len().min(room);
        write_memory(call.thread, at, &value[..len])?;
        write_memory(call.thread, len_at, &(len as u32).to_ne_bytes())?;
        Ok(Reply::Value(0))
    }

    fn value(&mut self, key: Key, option: (i32, i32)) -> Result<Vec<u8>, Errno> {
        let socket = self.table.get_mut(key).ok_or(Errno::BADF)?;
        let is_udp = matches!(socket.kind, Kind::Datagrams(_));
        let number = |value: i32| Ok(value.to_ne_bytes().to_vec());
        match option {
            SO_ERROR => number(socket.error.take().map_or(0, Errno::raw_os_error)),
            SO_TYPE => number(if is_udp { 2 } else { 1 }),
            SO_DOMAIN => number(if socket.v6 { 10 } else { 2 }),
            SO_PROTOCOL => number(if is_udp { 17 } else { TCP }),
            SO_PEERCRED => Ok(NO_CREDENTIALS.iter().flat_map(|id| id.to_ne_bytes()).collect()),
            SO_ACCEPTCONN => number(matches!(socket.kind, Kind::Listening(_)).into()),
            TCP_INFO if !is_udp => {
                let Kind::Stream(stream) = &socket.kind else { return Ok(info::closed()) };
                let info = self.host.stack().info(stream.tcp).map_err(errno)?;
                Ok(info::encode(&info))
            }
            TCP_MAXSEG if !is_udp => {
                let Kind::Stream(stream) = &socket.kind else { return number(536) };
                let info = self.host.stack().info(stream.tcp).map_err(errno)?;
                number(info.tcpi_snd_mss as i32)
            }
            TCP_CONGESTION if !is_udp => {
                let name = socket.options.congestion().unwrap_or(self.congestion).name();
                let mut name = name.as_bytes().to_vec();
                name.resize(16, 0);
                Ok(name)
            }
            SO_LINGER => Ok(socket.options.0.get(&option).cloned().unwrap_or_else(|| vec![0; 8])),
            _ if !is_of(socket, option) => {
                self.report.unserved(option);
                Err(Errno::NOPROTOOPT)
            }
            _ => {
                if let Some(value) = socket.options.0.get(&option) {
                    return Ok(value.clone());
                }
                let known = EFFECTIVE.iter().chain(STORED).find(|(known, _)| *known == option);
                if known.is_none() {
                    self.report.unserved(option);
                }
                known.map_or(Err(Errno::NOPROTOOPT), |(_, default)| number(*default))
            }
        }
    }
}
