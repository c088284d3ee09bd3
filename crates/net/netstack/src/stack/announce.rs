//! Announcements of own addresses: ARP's (RFC 5227, 3) and unsolicited neighbour advertisements (RFC 4861, 7.2.6).

use super::{Interface, Stack};
use crate::settings::SECOND;
use core::net::{IpAddr, Ipv6Addr};
use ringway_wire::{Arp, MacAddress, U32, arp};

/// How often an address is announced, and the time between (`ANNOUNCE_NUM` and `ANNOUNCE_INTERVAL` of RFC 5227).
const TIMES: u8 = 2;
const INTERVAL: u64 = 2 * SECOND;
/// The group of all nodes on a link (RFC 4291, 2.7.1).
pub(super) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// An own address that is announced again.
#[derive(Debug)]
pub(super) struct Announcement {
    address: IpAddr,
    next: u64,
    left: u8,
}

impl Interface {
    /// When [`Stack::expire_announcements`] has something to do.
    pub(super) fn announcement_due(&self) -> Option<u64> {
        self.announcements.iter().map(|announcement| announcement.next).min()
    }
}

impl Stack {
    /// Tells the link that the addresses of an interface are at its link-layer address, now and once more after two
    /// seconds. Hosts and switches that know another one, since a program was started again or is at another
    /// port, follow at once. To be called when an interface starts and when its device is back; addresses that the
    /// network assigns are announced without it.
    pub fn announce(&mut self, now: u64, interface: usize) {
        self.advance(now);
        let count = self.interfaces.get(interface).map_or(0, |port| port.addresses.len());
        for number in 0..count {
            self.announce_address(interface, self.interfaces[interface].addresses[number].address);
        }
    }

    /// Attack: routers and DHCP servers that assign an address again and again. There is one announcement for
    /// each address, and as few addresses as the interface may have.
    pub(super) fn announce_address(&mut self, interface: usize, address: IpAddr) {
        if address.is_loopback() || address.is_unspecified() {
            return;
        }
        let announcements = &mut self.interfaces[interface].announcements;
        announcements.retain(|announcement| announcement.address != address);
        announcements.push(Announcement { address, next: self.now, left: TIMES });
        self.expire_announcements(interface);
    }

    pub(super) fn expire_announcements(&mut self, interface: usize) {
        let now = self.now;
        if self.interfaces[interface].announcement_due().is_none_or(|due| due > now) {
            return;
        }
        let mut announcements = core::mem::take(&mut self.interfaces[interface].announcements);
        announcements.retain_mut(|announcement| {
            if !self.interfaces[interface].has(announcement.address) {
                return false;
            }
            if announcement.next <= now {
                self.send_announcement(interface, announcement.address);
                (announcement.next, announcement.left) = (now + INTERVAL, announcement.left - 1);
            }
            announcement.left > 0
        });
        self.interfaces[interface].announcements = announcements;
    }

    fn send_announcement(&mut self, interface: usize, address: IpAddr) {
        match address {
            IpAddr::V4(own) => {
                let request = Arp {
                    sender_hardware: self.interfaces[interface].mac,
                    sender_protocol: U32::new(own.to_bits()),
                    target_protocol: U32::new(own.to_bits()),
                    ..Arp::new(arp::REQUEST)
                };
                self.enqueue_arp(interface, MacAddress::BROADCAST, &request);
            }
            IpAddr::V6(_) => self.advertise(interface, address, ALL_NODES.into(), None),
        }
    }
}
