//! Stateless address autoconfiguration of IPv6 (RFC 4862), and routers that advertise themselves (RFC 4861, 6.3).

use super::route::Cidr;
use crate::settings::SECOND;
use alloc::vec::Vec;
use core::net::Ipv6Addr;
use ringway_wire::icmp::options;
use ringway_wire::{MacAddress, Prefix};

/// Time after the probe of an address until it is used (RFC 4861's RETRANS_TIMER).
const RETRANS: u64 = SECOND;
/// Router solicitations, and the time between them (RFC 4861, 10).
const MAX_RTR_SOLICITATIONS: u32 = 3;
const RTR_SOLICITATION_INTERVAL: u64 = 4 * SECOND;
/// Addresses of an interface. Attack: advertisements of many prefixes (Linux's `max_addresses`).
const ADDRESSES: usize = 16;
/// Attack: an advertisement with a short lifetime would remove addresses (RFC 4862, 5.5.3 e).
const TWO_HOURS: u64 = 7200 * SECOND;
const LINK_LOCAL: u64 = 0xfe80 << 48;

/// What follows from an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Ask whether another host has the address (5.4.2).
    Probe(Ipv6Addr),
    /// Ask for routers, from this address.
    Solicit(Ipv6Addr),
    Assign(Cidr),
    /// Use other addresses for new connections.
    Deprecate(Cidr),
    Remove(Cidr),
    AddRouter(Ipv6Addr),
    RemoveRouter(Ipv6Addr),
}

#[derive(Clone, Copy, Debug)]
struct Auto {
    address: Ipv6Addr,
    /// On-link prefix: 64, or 128 if the network is not on the link.
    prefix: u8,
    /// Until when other hosts may say that the address is theirs.
    tentative: Option<u64>,
    is_probed: bool,
    preferred: Option<u64>,
    valid: u64,
}

impl Auto {
    fn cidr(&self) -> Cidr {
        Cidr::new(self.address, self.prefix)
    }

    fn due(&self) -> u64 {
        self.tentative.or(self.preferred).unwrap_or(u64::MAX).min(self.valid)
    }
}

/// The state of one interface.
#[derive(Debug)]
pub(crate) struct Slaac {
    identifier: u64,
    /// The link-local address first.
    addresses: Vec<Auto>,
    router: Option<(Ipv6Addr, u64)>,
    solicitations: u32,
    solicit_at: Option<u64>,
}

/// A lifetime in seconds, which may be infinite, as a time.
fn until(now: u64, seconds: u32) -> u64 {
    if seconds == u32::MAX { u64::MAX } else { now + u64::from(seconds) * SECOND }
}

impl Slaac {
    /// Begins after a delay, which should be random and at most a second (RFC 4862, 5.4.2).
    pub(crate) fn new(now: u64, mac: MacAddress, delay: u64) -> Slaac {
        let [a, b, c, d, e, f] = mac.0;
        // RFC 4291, appendix A.
        let identifier = u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
        let mut new =
            Slaac { identifier, addresses: Vec::new(), router: None, solicitations: 0, solicit_at: None };
        new.add(now + delay, LINK_LOCAL, 64, None, u64::MAX);
        new
    }

    fn add(&mut self, at: u64, network: u64, prefix: u8, preferred: Option<u64>, valid: u64) {
        let address = (u128::from(network) << 64 | u128::from(self.identifier)).into();
        let tentative = Some(at);
        self.addresses.push(Auto { address, prefix, tentative, is_probed: false, preferred, valid });
    }

    /// Whether an address is being verified.
    pub(crate) fn is_tentative(&self, address: Ipv6Addr) -> bool {
        self.addresses.iter().any(|auto| auto.address == address && auto.tentative.is_some())
    }

    /// Whether this is the solicited-node group of an address that is being verified (RFC 4291, 2.7.1).
    pub(crate) fn is_probing(&self, group: Ipv6Addr) -> bool {
        let solicited = |auto: &Auto| 0xff02 << 112 | 0x1_ff00_0000 | auto.address.to_bits() & 0xff_ffff;
        self.addresses.iter().any(|auto| auto.tentative.is_some() && solicited(auto) == group.to_bits())
    }

    /// Another host has a tentative address: it is given up (RFC 4862, 5.4.5).
    pub(crate) fn conflict(&mut self, address: Ipv6Addr) {
        let local = self.addresses.first().is_some_and(|auto| auto.address == address);
        self.addresses.retain(|auto| auto.address != address);
        if local {
            // No address of this interface identifier can be unique.
            self.addresses.clear();
        }
    }

    pub(crate) fn due(&self) -> Option<u64> {
        let router = self.router.map(|(_, until)| until);
        let addresses = self.addresses.iter().map(Auto::due);
        addresses.chain(router).chain(self.solicit_at).min().filter(|due| *due != u64::MAX)
    }

    /// Handles what is due.
    pub(crate) fn expire(&mut self, now: u64) -> Vec<Action> {
        let mut actions = Vec::new();
        let mut is_ready = false;
        for auto in &mut self.addresses {
            match auto.tentative.filter(|at| *at <= now) {
                Some(_) if !auto.is_probed => {
                    (auto.is_probed, auto.tentative) = (true, Some(now + RETRANS));
                    actions.push(Action::Probe(auto.address));
                }
                Some(_) => {
                    auto.tentative = None;
                    actions.push(Action::Assign(auto.cidr()));
                    is_ready |= auto.address.is_unicast_link_local();
                }
                None => {}
            }
            // Attack: an address that is deprecated before it is verified must not be due again and again.
            if auto.tentative.is_none() && auto.preferred.is_some_and(|at| at <= now) {
                auto.preferred = None;
                actions.push(Action::Deprecate(auto.cidr()));
            }
        }
        self.addresses.retain(|auto| {
            if auto.valid <= now {
                actions.push(Action::Remove(auto.cidr()));
            }
            auto.valid > now
        });
        if let Some((router, _)) = self.router.take_if(|(_, until)| *until <= now) {
            actions.push(Action::RemoveRouter(router));
        }
        if is_ready {
            self.solicit_at = Some(now);
        }
        if self.solicit_at.is_some_and(|at| at <= now) {
            self.solicitations += 1;
            let again = self.solicitations < MAX_RTR_SOLICITATIONS;
            self.solicit_at = again.then_some(now + RTR_SOLICITATION_INTERVAL);
            actions.extend(self.addresses.first().map(|auto| Action::Solicit(auto.address)));
        }
        actions
    }

    /// A router advertisement from a link-local address; `lifetime` in seconds is that as a default router.
    pub(crate) fn advertised(
        &mut self,
        now: u64,
        router: Ipv6Addr,
        lifetime: u16,
        listed: &[u8],
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.addresses.first().is_none_or(|auto| auto.tentative.is_some()) {
            return actions;
        }
        self.solicit_at = None;
        let known = self.router.map(|(known, _)| known);
        if lifetime > 0 && known.is_none_or(|known| known == router) {
            self.router = Some((router, now + u64::from(lifetime) * SECOND));
            actions.extend(known.is_none().then_some(Action::AddRouter(router)));
        } else if lifetime == 0 && known == Some(router) {
            self.router = None;
            actions.push(Action::RemoveRouter(router));
        }
        for option in options(listed).map_while(|option| option) {
            if let Some(prefix) = Prefix::parse(option) {
                self.prefix(now, prefix);
            }
        }
        actions
    }

    /// RFC 4862, 5.5.3.
    fn prefix(&mut self, now: u64, prefix: &Prefix) {
        let network = (prefix.prefix.get() >> 64) as u64;
        let (valid, preferred) = (prefix.valid_lifetime.get(), prefix.preferred_lifetime.get());
        let used = prefix.flags & Prefix::AUTONOMOUS != 0 && prefix.prefix_length == 64 && preferred <= valid;
        // Attack: an own address that is a group's would be the source of what is sent.
        let is_group = network >> 56 == 0xff;
        if !used || is_group || network >> 54 == LINK_LOCAL >> 54 {
            return;
        }
        let (preferred, until) = (Some(until(now, preferred)), until(now, valid));
        let same = |auto: &&mut Auto| (auto.address.to_bits() >> 64) as u64 == network;
        if let Some(auto) = self.addresses.iter_mut().find(same) {
            auto.preferred = preferred;
            if until > now + TWO_HOURS || until > auto.valid {
                auto.valid = until;
            } else if auto.valid > now + TWO_HOURS {
                auto.valid = now + TWO_HOURS;
            }
        } else if valid > 0 && self.addresses.len() < ADDRESSES {
            let len = if prefix.flags & Prefix::ON_LINK != 0 { 64 } else { 128 };
            self.add(now, network, len, preferred, until);
        }
    }
}
