//! Datagrams of the program: a socket of the host for each pair of addresses.

use super::Shared;
use ringway_netstack::{SECOND, SocketId};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send, socket_with,
};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

/// Most addresses that were sent to. Attack: a program that scans ports; the one that was used last the longest ago is
/// forgotten.
const MAX_BOUND: usize = 2048;
/// How long neither side may send, until the pair is forgotten (RFC 4787, REQ-5).
const IDLE_TIMEOUT: u64 = 120 * SECOND;
/// Datagrams of one socket at once.
const BATCH: usize = 64;

/// Two addresses that exchange datagrams.
#[derive(Debug)]
struct Pair {
    socket: OwnedFd,
    to: SocketAddr,
    from: SocketAddr,
    used: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Datagrams {
    all: HashMap<u64, Pair>,
    by_ends: HashMap<(SocketAddr, SocketAddr), u64>,
    /// The stack's socket for an address that the program sends to, and when it did last.
    bound: HashMap<SocketAddr, (SocketId, u64)>,
    /// Sockets of the host that may have more datagrams.
    unfinished: Vec<u64>,
}

impl Datagrams {
    /// Lets the stack take datagrams to an address.
    pub fn bind(&mut self, shared: &mut Shared, to: SocketAddr) {
        let now = shared.clock.now();
        if let Some((_, used)) = self.bound.get_mut(&to) {
            *used = now;
            return;
        }
        if self.bound.len() >= MAX_BOUND {
            let oldest = self.bound.iter().min_by_key(|(_, (_, used))| *used).map(|(to, _)| *to);
            if let Some((id, _)) = oldest.and_then(|oldest| self.bound.remove(&oldest)) {
                // It is open.
                let _ = shared.stack.close(now, id);
            }
        }
        if let Ok(id) = shared.stack.bind(to) {
            self.bound.insert(to, (id, now));
        }
    }

    #[cfg(test)]
    pub fn is_bound(&self, to: SocketAddr) -> bool {
        self.bound.contains_key(&to)
    }

    /// Sends what has arrived at a socket of the stack.
    pub fn send_all(&mut self, shared: &mut Shared, id: SocketId) {
        let Ok(to) = shared.stack.local_address(id) else { return };
        loop {
            match shared.stack.recv_from(id) {
                Ok((bytes, from)) => {
                    if let Some(pair) = self.pair(shared, to, from) {
                        // What the host's socket does not take is lost, as on a wire.
                        let _ = send(&pair.socket, &bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
                    }
                }
                // The program has refused an answer.
                Err(ringway_netstack::SocketError::Connection(_)) => {}
                Err(_) => return,
            }
        }
    }

    /// The pair of these addresses, maybe a new one.
    fn pair(&mut self, shared: &mut Shared, to: SocketAddr, from: SocketAddr) -> Option<&Pair> {
        let now = shared.clock.now();
        let key = match self.by_ends.get(&(to, from)) {
            Some(key) => *key,
            None => {
                let address = shared.host_address(to)?;
                if self.all.len() >= shared.limits.pairs {
                    self.forget_oldest();
                }
                let socket = open(address).ok()?;
                let key = shared.watch(socket.as_fd()).ok()?;
                self.all.insert(key, Pair { socket, to, from, used: now });
                self.by_ends.insert((to, from), key);
                key
            }
        };
        let pair = self.all.get_mut(&key)?;
        pair.used = now;
        Some(pair)
    }

    /// Gives the program what has come to a socket of the host.
    pub fn receive(&mut self, shared: &mut Shared, key: u64) {
        let Some(pair) = self.all.get_mut(&key) else { return };
        let Some((id, used)) = self.bound.get_mut(&pair.to) else { return };
        let now = shared.clock.now();
        (pair.used, *used) = (now, now);
        for _ in 0..BATCH {
            match recv(&pair.socket, &mut shared.buffer[..], RecvFlags::DONTWAIT) {
                // One that the stack has no room for is lost, as on a wire.
                Ok((count, _)) => _ = shared.stack.send_to(now, *id, &shared.buffer[..count], pair.from),
                Err(Errno::AGAIN) => return,
                // Such as that nobody has the port.
                Err(_) => {}
            }
        }
        // Attack: a host that sends without pause, while others wait.
        self.unfinished.push(key);
    }

    /// Receives from sockets that may have more; whether there were some.
    pub fn go_on(&mut self, shared: &mut Shared) -> bool {
        let keys = std::mem::take(&mut self.unfinished);
        keys.iter().for_each(|key| self.receive(shared, *key));
        !keys.is_empty()
    }

    fn forget_oldest(&mut self) {
        let oldest = self.all.iter().min_by_key(|(_, pair)| pair.used).map(|(key, _)| *key);
        if let Some(pair) = oldest.and_then(|key| self.all.remove(&key)) {
            self.by_ends.remove(&(pair.to, pair.from));
        }
    }

    /// Forgets what nobody has used for a while.
    pub fn sweep(&mut self, shared: &mut Shared) {
        let now = shared.clock.now();
        let is_used = |used: u64| used + IDLE_TIMEOUT > now;
        self.all.retain(|_, pair| is_used(pair.used));
        let all = &self.all;
        self.by_ends.retain(|_, key| all.contains_key(key));
        self.bound.retain(|_, (id, used)| {
            let keeps = is_used(*used);
            if !keeps {
                // It is open.
                let _ = shared.stack.close(now, *id);
            }
            keeps
        });
    }
}

/// A socket of the host that exchanges datagrams with one address.
fn open(to: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::DGRAM, flags, None)?;
    connect(&socket, &to)?;
    Ok(socket)
}
