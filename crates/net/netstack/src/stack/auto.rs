//! Addresses that the network assigns: by router advertisements (RFC 4862) or by DHCP (RFC 2131).

use super::icmp::solicited;
use super::output::datagram;
use super::{Interface, Socket, Stack};
use crate::connection::ConnectionError;
use crate::net::Network;
use crate::net::dhcp::{self, Dhcp};
use crate::net::route::Cidr;
use crate::net::slaac::{self, Slaac};
use crate::settings::SECOND;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use ringway_wire::icmp::{LinkOption, v6};
use ringway_wire::{Header, Icmp, Protocol, U128, bootp};

/// The group of all routers on a link (RFC 4291, 2.7.1).
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// Bytes of a router advertisement between its first eight and its options.
const REACHABILITY: usize = 8;

impl Interface {
    /// When [`Stack::expire_auto`] has something to do.
    pub(super) fn auto_due(&self) -> Option<u64> {
        let dhcp = self.dhcp.as_ref().map(|dhcp| dhcp.due()).filter(|due| *due != u64::MAX);
        self.slaac.as_ref().and_then(|slaac| slaac.due()).into_iter().chain(dhcp).min()
    }

    /// Whether this is the solicited-node group of an address that is being verified.
    pub(super) fn is_probing(&self, group: Ipv6Addr) -> bool {
        self.slaac.as_ref().is_some_and(|slaac| slaac.is_probing(group))
    }
}

impl Stack {
    /// Has an interface configure its IPv6 addresses by itself: a link-local one, and others that routers advertise.
    pub fn enable_slaac(&mut self, now: u64, interface: usize) {
        self.advance(now);
        let delay = self.random.below(SECOND);
        if let Some(port) = self.interfaces.get_mut(interface) {
            port.slaac = Some(Box::new(Slaac::new(self.now, port.mac, delay)));
        }
    }

    /// Has an interface get its IPv4 address from a DHCP server.
    pub fn enable_dhcp(&mut self, now: u64, interface: usize) {
        self.advance(now);
        let seed = self.random.next() ^ self.secret.hash(&[9]);
        if let Some(port) = self.interfaces.get_mut(interface) {
            port.dhcp = Some(Box::new(Dhcp::new(self.now, port.mac, seed)));
        }
    }

    /// The addresses of an interface: those of its settings, and those that the network assigned.
    pub fn interface_addresses(&self, interface: usize) -> &[Cidr] {
        self.interfaces.get(interface).map_or(&[], |port| &port.addresses)
    }

    /// The name servers that a DHCP server named.
    pub fn dns_servers(&self, interface: usize) -> &[Ipv4Addr] {
        let dhcp = self.interfaces.get(interface).and_then(|port| port.dhcp.as_ref());
        dhcp.and_then(|dhcp| dhcp.lease()).map_or(&[], |lease| lease.dns.as_slice())
    }

    pub(super) fn expire_auto(&mut self, interface: usize) {
        let (now, port) = (self.now, &mut self.interfaces[interface]);
        if port.auto_due().is_none_or(|due| due > now) {
            return;
        }
        let discovery = port.slaac.as_mut().map(|slaac| slaac.expire(now)).unwrap_or_default();
        let leases = port.dhcp.as_mut().map(|dhcp| dhcp.expire(now)).unwrap_or_default();
        self.apply_discovery(interface, discovery);
        self.apply_dhcp(interface, leases);
    }

    fn apply_discovery(&mut self, interface: usize, actions: Vec<slaac::Action>) {
        let any = Cidr::new(Ipv6Addr::UNSPECIFIED, 0);
        for action in actions {
            match action {
                slaac::Action::Probe(address) => {
                    let Some(group) = solicited(address.into()) else { continue };
                    let icmp = Icmp { kind: v6::NEIGHBOR_SOLICITATION, ..Icmp::default() };
                    let target = U128::new(address.to_bits());
                    let unspecified = Ipv6Addr::UNSPECIFIED.into();
                    self.send_discovery(interface, icmp, target.bytes(), (unspecified, group.into()), None);
                }
                slaac::Action::Solicit(source) => {
                    let icmp = Icmp { kind: v6::ROUTER_SOLICITATION, ..Icmp::default() };
                    let link = self.link_option(interface, LinkOption::SOURCE);
                    self.send_discovery(interface, icmp, &link, (source.into(), ALL_ROUTERS.into()), None);
                }
                slaac::Action::Assign(cidr) => self.assign_and_announce(interface, cidr),
                slaac::Action::Deprecate(cidr) => {
                    let addresses = &mut self.interfaces[interface].addresses;
                    if let Some(at) = addresses.iter().position(|own| *own == cidr) {
                        addresses[at..].rotate_left(1);
                    }
                }
                slaac::Action::Remove(cidr) => self.unassign(interface, cidr),
                slaac::Action::AddRouter(router) => self.routes.add(any, Some(router.into()), interface),
                slaac::Action::RemoveRouter(router) => {
                    self.routes.remove(any, Some(router.into()), interface)
                }
            }
        }
    }

    fn apply_dhcp(&mut self, interface: usize, actions: Vec<dhcp::Action>) {
        let any = Cidr::new(Ipv4Addr::UNSPECIFIED, 0);
        for action in actions {
            match action {
                dhcp::Action::Send(message, way) => {
                    let (from, to) = way.unwrap_or((Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST));
                    self.send_dhcp(interface, &message, from, to);
                }
                dhcp::Action::Assign(lease) => {
                    self.assign_and_announce(interface, Cidr::new(lease.address, lease.prefix));
                    if let Some(router) = lease.router {
                        self.routes.remove(any, Some(router.into()), interface);
                        self.routes.add(any, Some(router.into()), interface);
                    }
                }
                dhcp::Action::Replace(lease) => {
                    self.forget(interface, Cidr::new(lease.address, lease.prefix));
                    if let Some(router) = lease.router {
                        self.routes.remove(any, Some(router.into()), interface);
                    }
                }
                dhcp::Action::Remove(lease) => {
                    self.unassign(interface, Cidr::new(lease.address, lease.prefix));
                    if let Some(router) = lease.router {
                        self.routes.remove(any, Some(router.into()), interface);
                    }
                }
            }
        }
    }

    fn send_dhcp(&mut self, interface: usize, message: &[u8], from: Ipv4Addr, to: Ipv4Addr) {
        let local = SocketAddr::new(from.into(), bootp::CLIENT_PORT);
        let remote = SocketAddr::new(to.into(), bootp::SERVER_PORT);
        let Some(packet) = datagram(local, remote, message) else { return };
        // A message without room is repeated.
        let _ = if from.is_unspecified() {
            let header = Network {
                source: local.ip(),
                destination: remote.ip(),
                protocol: Protocol::UDP,
                ttl: self.settings.ip_default_ttl,
                tos: 0,
                identification: 0,
                fragment: 0,
            };
            self.send_frame(interface, remote.ip(), &header, &packet)
        } else {
            self.send_packet(local.ip(), remote.ip(), Protocol::UDP, &packet)
        };
    }

    /// Adds an address. Connections to other hosts end if it, or its network's broadcast address, is theirs: what they
    /// send would go to all hosts of the network, or to ourselves (RFC 1122, 3.2.1.3).
    pub(super) fn assign(&mut self, interface: usize, cidr: Cidr) {
        if self.interfaces[interface].addresses.contains(&cidr) {
            return;
        }
        let claimed = [Some(cidr.address), cidr.broadcast()];
        let to_other = |index: &u32| match &self.slots[*index as usize].socket {
            Some(Socket::Tcp(connection)) => {
                let remote = connection.tuple.remote.ip();
                claimed.contains(&Some(remote)) && !self.is_own(connection.interface, remote)
            }
            _ => false,
        };
        let affected: Vec<u32> = (0..self.slots.len() as u32).filter(to_other).collect();
        self.interfaces[interface].addresses.push(cidr);
        self.routes.add(cidr, None, interface);
        for index in affected {
            let Some(Socket::Tcp(connection)) = &self.slots[index as usize].socket else { continue };
            if !self.is_host(connection.interface, connection.tuple.remote.ip()) {
                self.with(index, |connection, _| connection.end_with(Some(ConnectionError::Unreachable)));
            }
        }
    }

    fn assign_and_announce(&mut self, interface: usize, cidr: Cidr) {
        let is_new = !self.interfaces[interface].addresses.contains(&cidr);
        self.assign(interface, cidr);
        if is_new {
            self.announce_address(interface, cidr.address);
        }
    }

    /// Removes an address and the route to its network; connections that use it stay.
    fn forget(&mut self, interface: usize, cidr: Cidr) {
        self.interfaces[interface].addresses.retain(|own| *own != cidr);
        self.routes.remove(cidr, None, interface);
    }

    /// An address is not valid any more: connections that use it end.
    fn unassign(&mut self, interface: usize, cidr: Cidr) {
        self.forget(interface, cidr);
        for index in 0..self.slots.len() {
            if let Some(Socket::Tcp(connection)) = &self.slots[index].socket
                && connection.tuple.local.ip() == cidr.address
            {
                self.with(index as u32, |connection, _| {
                    connection.end_with(Some(ConnectionError::Unreachable));
                });
            }
        }
    }

    /// A message to the DHCP client's port. `false`: there is no client.
    pub(super) fn dhcp(&mut self, interface: usize, message: &[u8]) -> bool {
        let Some(client) = &mut self.interfaces[interface].dhcp else { return false };
        let actions = client.receive(self.now, message);
        self.apply_dhcp(interface, actions);
        true
    }

    /// A router advertisement (RFC 4861, 6.1.2).
    pub(super) fn router_advertised(&mut self, interface: usize, router: IpAddr, lifetime: u16, body: &[u8]) {
        let (IpAddr::V6(router), Some(options)) = (router, body.get(REACHABILITY..)) else { return };
        let now = self.now;
        if let Some(slaac) = &mut self.interfaces[interface].slaac
            && router.is_unicast_link_local()
        {
            let actions = slaac.advertised(now, router, lifetime, options);
            self.apply_discovery(interface, actions);
        }
    }

    /// Whether a message of another host is about an address that this one is verifying, and is answered by giving
    /// the address up (RFC 4862, 5.4.3 and 5.4.4).
    pub(super) fn claims_tentative(
        &mut self,
        interface: usize,
        target: IpAddr,
        source: IpAddr,
        kind: u8,
    ) -> bool {
        let (IpAddr::V6(target), Some(slaac)) = (target, &mut self.interfaces[interface].slaac) else {
            return false;
        };
        let tentative = slaac.is_tentative(target);
        // A solicitation from a specified address only looks for the address's owner.
        if tentative && (kind == v6::NEIGHBOR_ADVERTISEMENT || source.is_unspecified()) {
            slaac.conflict(target);
        }
        tentative
    }
}
