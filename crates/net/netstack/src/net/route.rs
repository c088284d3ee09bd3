//! Addresses with prefixes, and routes.

use crate::stack::RouteEntry;
use alloc::vec::Vec;
use core::net::IpAddr;

/// An address and the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    /// The address.
    pub address: IpAddr,
    /// Length of the prefix in bits.
    pub prefix: u8,
}

impl Cidr {
    /// `address/prefix`; a longer prefix than the address counts as its length.
    pub fn new(address: impl Into<IpAddr>, prefix: u8) -> Cidr {
        let address = address.into();
        Cidr { address, prefix: prefix.min(if address.is_ipv4() { 32 } else { 128 }) }
    }

    /// Whether an address is in the network.
    pub fn contains(&self, other: IpAddr) -> bool {
        match (self.address, other) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                let differ = a.to_bits() ^ b.to_bits();
                u32::from(self.prefix) <= differ.leading_zeros()
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                let differ = a.to_bits() ^ b.to_bits();
                u32::from(self.prefix) <= differ.leading_zeros()
            }
            _ => false,
        }
    }

    /// The broadcast address of an IPv4 network with more than two addresses.
    pub fn broadcast(&self) -> Option<IpAddr> {
        match self.address {
            IpAddr::V4(address) if self.prefix < 31 => {
                Some(IpAddr::V4((address.to_bits() | u32::MAX >> self.prefix).into()))
            }
            _ => None,
        }
    }
}

/// A text is not an address with a prefix. `Debug` is the same sentence, which a `main` that returns it prints.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an address with a prefix is needed, such as 10.0.0.2/24 or fd00::2/64")]
pub struct CidrError;

impl core::fmt::Debug for CidrError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(self, out)
    }
}

impl core::str::FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Cidr, CidrError> {
        let (address, prefix) = text.split_once('/').ok_or(CidrError)?;
        let address: IpAddr = address.parse().map_err(|_| CidrError)?;
        // `u8` would accept a sign and leading zeros.
        let is_plain = prefix == "0" || prefix.starts_with(|first: char| ('1'..='9').contains(&first));
        let prefix: u8 = prefix.parse().ok().filter(|_| is_plain).ok_or(CidrError)?;
        if prefix > if address.is_ipv4() { 32 } else { 128 } {
            Err(CidrError)
        } else {
            Ok(Cidr { address, prefix })
        }
    }
}

/// Where packets to a network go.
#[derive(Clone, Copy, Debug)]
struct Route {
    network: Cidr,
    /// The next hop; `None`: the destination itself.
    gateway: Option<IpAddr>,
    interface: usize,
}

/// The interface and the neighbour through which a packet leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hop {
    pub interface: usize,
    pub next: IpAddr,
}

/// Routes, the longest prefix first.
#[derive(Debug, Default)]
pub(crate) struct Routes(Vec<Route>);

impl Routes {
    pub(crate) fn add(&mut self, network: Cidr, gateway: Option<IpAddr>, interface: usize) {
        let at = self.0.partition_point(|route| route.network.prefix > network.prefix);
        self.0.insert(at, Route { network, gateway, interface });
    }

    pub(crate) fn remove(&mut self, network: Cidr, gateway: Option<IpAddr>, interface: usize) {
        self.0
            .retain(|route| (route.network, route.gateway, route.interface) != (network, gateway, interface));
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = RouteEntry> {
        let entry = |route: &Route| {
            let Route { network, gateway, interface } = *route;
            RouteEntry { network, gateway, interface }
        };
        self.0.iter().map(entry)
    }

    /// The way to a destination, by a route without a gateway or with a usable one.
    pub(crate) fn find(&self, destination: IpAddr, is_usable: impl Fn(usize, IpAddr) -> bool) -> Option<Hop> {
        let leads = |route: &&Route| {
            route.network.contains(destination)
                && route.gateway.is_none_or(|gateway| is_usable(route.interface, gateway))
        };
        let route = self.0.iter().find(leads)?;
        Some(Hop { interface: route.interface, next: route.gateway.unwrap_or(destination) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_one_form() {
        for good in ["10.0.0.2/24", "10.0.0.2/0", "fd00::2/128"] {
            assert!(good.parse::<Cidr>().is_ok(), "{good}");
        }
        for wrong in
            ["010.0.0.2/24", "10.0.0.2/024", "10.0.0.2/+24", "10.0.0.2/33", "10.0.0.2", "fd00::2/129", "/"]
        {
            let error = wrong.parse::<Cidr>().unwrap_err();
            assert!(alloc::format!("{error:?}").contains("such as 10.0.0.2/24"), "{wrong}");
        }
    }

    #[test]
    fn the_longest_prefix_wins() {
        let mut routes = Routes::default();
        let gateway: IpAddr = [10, 0, 0, 254].into();
        routes.add(Cidr::new([0, 0, 0, 0], 0), Some(gateway), 0);
        routes.add(Cidr::new([10, 0, 0, 1], 24), None, 1);
        let find =
            |address: [u8; 4]| routes.find(address.into(), |_, _| true).map(|hop| (hop.interface, hop.next));
        assert_eq!(find([10, 0, 0, 7]), Some((1, [10, 0, 0, 7].into())));
        assert_eq!(find([10, 0, 1, 7]), Some((0, gateway)));
        assert_eq!(routes.find("fe80::1".parse().unwrap(), |_, _| true), None);
        assert_eq!(routes.find([10, 0, 1, 7].into(), |_, _| false), None);
        assert_eq!(Cidr::new([10, 0, 0, 1], 24).broadcast(), Some([10, 0, 0, 255].into()));
    }
}
