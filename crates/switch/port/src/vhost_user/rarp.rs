//! The frame that announces a guest's new location to switches after live migration (RFC 903; vhost-user protocol,
//! `SEND_RARP`).

use ringway_wire::{Arp, EtherType, Ethernet, Header, MacAddress, arp};
use std::sync::atomic::{AtomicU64, Ordering};

/// Minimum length of an Ethernet frame without its frame check sequence.
const LEN: usize = 60;

/// A guest's announcement, which is sent once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rarp {
    /// Unique to this announcement; never 0.
    pub(super) serial: u64,
    pub(super) frame: [u8; LEN],
}

impl Rarp {
    /// A RARP request of the guest with this address for its own protocol address.
    pub(super) fn of(address: [u8; 6]) -> Rarp {
        static SERIAL: AtomicU64 = AtomicU64::new(1);
        let mut frame = [0; LEN];
        let source = MacAddress(address);
        let ethernet = Ethernet { destination: MacAddress::BROADCAST, source, ethertype: EtherType::RARP };
        let request = Arp::new(arp::REVERSE_REQUEST);
        let request = Arp { sender_hardware: source, target_hardware: source, ..request };
        let headers = [ethernet.bytes(), request.bytes()].concat();
        frame[..headers.len()].copy_from_slice(&headers);
        Rarp { serial: SERIAL.fetch_add(1, Ordering::Relaxed), frame }
    }
}
