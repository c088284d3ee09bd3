//! A DHCP client (RFC 2131, RFC 2132).

use super::route::Cidr;
use crate::hash::Random;
use crate::settings::SECOND;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::net::Ipv4Addr;
use ringway_wire::{Bootp, Header, MacAddress, U16, U32, bootp};

/// Time until the first and the last repetition of a message, each with up to a second more (RFC 2131, 4.1).
const FIRST_RETRY: u64 = 4 * SECOND;
const LAST_RETRY: u64 = 64 * SECOND;
/// Requests for an offer before the client starts again.
const REQUESTS: u32 = 4;
/// Time between repetitions of a renewal, at least (4.4.5).
const LEAST_RENEWAL: u64 = 60 * SECOND;
/// Name servers that are kept.
const SERVERS: usize = 3;

/// Message types (RFC 2132, 9.6).
const DISCOVER: u8 = 1;
const OFFER: u8 = 2;
const REQUEST: u8 = 3;
const ACK: u8 = 5;
const NAK: u8 = 6;

/// An address for some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub address: Ipv4Addr,
    pub prefix: u8,
    pub router: Option<Ipv4Addr>,
    pub dns: ArrayVec<Ipv4Addr, SERVERS>,
    server: Ipv4Addr,
    /// Seconds: the lease, and the times to renew and to rebind it.
    times: [u32; 3],
}

/// What follows from an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Send a message to a server: from the address and to the server, or by broadcast.
    Send(Vec<u8>, Option<(Ipv4Addr, Ipv4Addr)>),
    Assign(Lease),
    /// The same address is assigned next, with another prefix or router.
    Replace(Lease),
    Remove(Lease),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Selecting,
    Requesting(Lease),
    /// With the times of its renewal, rebinding and end.
    Bound(Lease, [u64; 3]),
}

/// The client of one interface.
#[derive(Debug)]
pub(crate) struct Dhcp {
    mac: MacAddress,
    random: Random,
    transaction: u32,
    state: State,
    /// Messages of this state.
    tries: u32,
    started: u64,
    next: u64,
}

impl Dhcp {
    pub(crate) fn new(now: u64, mac: MacAddress, seed: u64) -> Dhcp {
        let mut random = Random::new(seed);
        let transaction = random.next() as u32;
        Dhcp { mac, random, transaction, state: State::Selecting, tries: 0, started: now, next: now }
    }

    pub(crate) fn due(&self) -> u64 {
        self.next
    }

    /// The lease, if there is one.
    pub(crate) fn lease(&self) -> Option<&Lease> {
        match &self.state {
            State::Bound(lease, _) => Some(lease),
            _ => None,
        }
    }

    fn restart(&mut self, now: u64) {
        self.state = State::Selecting;
        self.transaction = self.random.next() as u32;
        (self.tries, self.started, self.next) = (0, now, now);
    }

    /// When a message is repeated.
    fn back_off(&mut self, now: u64) {
        let wait = (FIRST_RETRY << self.tries.min(4)).min(LAST_RETRY);
        self.next = now + wait + self.random.below(SECOND);
        self.tries += 1;
    }

    /// Handles what is due.
    pub(crate) fn expire(&mut self, now: u64) -> Vec<Action> {
        if now < self.next {
            return Vec::new();
        }
        match self.state.clone() {
            State::Selecting => {
                self.back_off(now);
                alloc::vec![Action::Send(self.message(now, DISCOVER, None), None)]
            }
            State::Requesting(_) if self.tries >= REQUESTS => {
                self.restart(now);
                self.expire(now)
            }
            State::Requesting(lease) => {
                self.back_off(now);
                alloc::vec![Action::Send(self.message(now, REQUEST, Some(&lease)), None)]
            }
            State::Bound(lease, [.., end]) if now >= end => {
                self.restart(now);
                alloc::vec![Action::Remove(lease)]
            }
            State::Bound(lease, [renew, rebind, end]) => {
                if self.next == renew {
                    (self.transaction, self.started) = (self.random.next() as u32, now);
                }
                let bound = if now < rebind { rebind } else { end };
                self.next = (now + ((bound - now) / 2).max(LEAST_RENEWAL)).min(bound);
                let way = (now < rebind).then_some((lease.address, lease.server));
                alloc::vec![Action::Send(self.message(now, REQUEST, None), way)]
            }
        }
    }

    /// A message; with an offer, it is requested.
    fn message(&self, now: u64, kind: u8, offer: Option<&Lease>) -> Vec<u8> {
        let mut bootp = Bootp {
            op: bootp::REQUEST,
            htype: 1,
            hlen: 6,
            xid: U32::new(self.transaction),
            secs: U16::new(((now - self.started) / SECOND).min(65_535) as u16),
            ..Bootp::EMPTY
        };
        bootp.chaddr[..6].copy_from_slice(&self.mac.0);
        match self.lease() {
            Some(lease) => bootp.ciaddr = U32::new(lease.address.to_bits()),
            // Without an address, frames to it can't be received.
            None => bootp.flags = U16::new(bootp::BROADCAST),
        }
        let mut bytes = bootp.bytes().to_vec();
        bytes.extend_from_slice(&[bootp::MESSAGE_TYPE, 1, kind]);
        bytes.extend_from_slice(&[bootp::CLIENT_IDENTIFIER, 7, 1]);
        bytes.extend_from_slice(&self.mac.0);
        if let Some(offer) = offer {
            for (option, address) in
                [(bootp::REQUESTED_ADDRESS, offer.address), (bootp::SERVER_IDENTIFIER, offer.server)]
            {
                bytes.extend_from_slice(&[option, 4]);
                bytes.extend_from_slice(&address.octets());
            }
        }
        let wanted = [bootp::SUBNET_MASK, bootp::ROUTER, bootp::DNS];
        bytes.extend_from_slice(&[bootp::PARAMETER_LIST, wanted.len() as u8]);
        bytes.extend_from_slice(&wanted);
        bytes.push(bootp::END);
        // Some servers drop shorter messages than BOOTP's.
        bytes.resize(bytes.len().max(300), 0);
        bytes
    }

    /// A server's message. Attack: another host's answer needs the transaction's random number.
    pub(crate) fn receive(&mut self, now: u64, message: &[u8]) -> Vec<Action> {
        let Some((bootp, listed)) = Bootp::parse(message) else { return Vec::new() };
        let ours = bootp.op == bootp::REPLY
            && bootp.xid.get() == self.transaction
            && bootp.chaddr.starts_with(&self.mac.0);
        let Some((kind, lease)) = read(bootp.yiaddr.get().into(), listed).filter(|_| ours) else {
            return Vec::new();
        };
        match (&self.state, kind) {
            (State::Selecting, OFFER) if self.tries > 0 => {
                let Some(lease) = lease else { return Vec::new() };
                self.state = State::Requesting(lease);
                (self.tries, self.next) = (0, now);
                self.expire(now)
            }
            (State::Requesting(_), ACK) => lease.map_or(Vec::new(), |lease| self.bind(now, lease)),
            (State::Bound(old, [renew, ..]), ACK) if now >= *renew => {
                let Some(lease) = lease else { return Vec::new() };
                let old = old.clone();
                let mut actions = self.bind(now, lease);
                if let Some(new) = self.lease() {
                    if new.address != old.address {
                        actions.insert(0, Action::Remove(old));
                    } else if (new.prefix, new.router) != (old.prefix, old.router) {
                        actions.insert(0, Action::Replace(old));
                    }
                }
                actions
            }
            (State::Requesting(_), NAK) => {
                self.restart(now);
                self.expire(now)
            }
            (State::Bound(lease, [renew, ..]), NAK) if now >= *renew => {
                let removed = Action::Remove(lease.clone());
                self.restart(now);
                [removed].into_iter().chain(self.expire(now)).collect()
            }
            _ => Vec::new(),
        }
    }

    fn bind(&mut self, now: u64, lease: Lease) -> Vec<Action> {
        let at =
            |seconds: u32| if seconds == u32::MAX { u64::MAX } else { now + u64::from(seconds) * SECOND };
        let [end, renew, rebind] = lease.times.map(at);
        let rebind = rebind.min(end);
        let renew = renew.min(rebind);
        self.state = State::Bound(lease.clone(), [renew, rebind, end]);
        (self.tries, self.next) = (0, renew);
        alloc::vec![Action::Assign(lease)]
    }
}

/// The type of a server's message, and the lease if it has one.
fn read(address: Ipv4Addr, listed: &[u8]) -> Option<(u8, Option<Lease>)> {
    let word = |kind: u8| {
        let value = bootp::option(listed, kind)?.first_chunk::<4>()?;
        Some(u32::from_be_bytes(*value))
    };
    let [kind] = *bootp::option(listed, bootp::MESSAGE_TYPE)? else { return None };
    let lease = || {
        let server = word(bootp::SERVER_IDENTIFIER)?;
        let end = word(bootp::LEASE_TIME)?.max(1);
        let share =
            |numerator: u64| if end == u32::MAX { end } else { (u64::from(end) * numerator / 8) as u32 };
        let times = [
            end,
            word(bootp::RENEWAL_TIME).unwrap_or(share(4)),
            word(bootp::REBINDING_TIME).unwrap_or(share(7)),
        ];
        let prefix = match word(bootp::SUBNET_MASK) {
            Some(mask) => mask.leading_ones() as u8,
            None => [8, 8, 16, 24][usize::from(address.octets()[0] >> 6)],
        };
        let servers = bootp::option(listed, bootp::DNS).unwrap_or_default().as_chunks::<4>().0;
        let unicast = !address.is_unspecified() && !address.is_broadcast() && !address.is_multicast();
        let unicast = unicast && Cidr::new(address, prefix).broadcast() != Some(address.into());
        (unicast && !address.is_loopback()).then(|| Lease {
            address,
            prefix,
            router: word(bootp::ROUTER).map(Ipv4Addr::from_bits),
            dns: servers.iter().take(SERVERS).map(|octets| Ipv4Addr::from(*octets)).collect(),
            server: Ipv4Addr::from_bits(server),
            times,
        })
    };
    Some((kind, lease()))
}
