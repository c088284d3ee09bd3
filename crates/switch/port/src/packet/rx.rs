//! Frames to the interface: the transmit ring of the socket.

use super::{Ring, Shared};
use ringway_frame::{Burst, Caps, HEAD, Lost, Needs, Offload, Reason, RxQueue};
use ringway_host::{TX_SLOT, TX_SLOTS, packet_kick, tap_knows_uso, tx_slot};
use ringway_mem::{Turn, Words};
use std::os::fd::AsFd;

/// An Ethernet header and two VLAN tags.
const FRAMING: u32 = 14 + 8;
/// Offsets in a slot (`struct tpacket3_hdr`), in bytes.
const CAPTURED: usize = 12;
const LENGTH: usize = 16;
const STATUS: usize = 20;
/// In the first slot, the number of the one that is filled next, for a data process that goes on: the kernel uses this
/// field only for received frames.
const POSITION: usize = 24;
/// The frame's offload header, at which its data begin.
const DATA: usize = 48;
/// A slot that we may fill.
const FREE: u32 = 0;
/// A slot that the kernel is to send.
const READY: u32 = 1;
/// Nanoseconds after which frames that the kernel could not take yet are offered again.
const RETRY: u64 = 50_000;

pub(super) struct PacketRx {
    shared: Shared,
    /// Number of the interface that the positions are of.
    number: u64,
    /// The slot that is filled next.
    head: usize,
    /// Slots that are filled, but not shown to the kernel yet.
    filled: usize,
    /// Slots before `head` that were shown and may still have to be sent.
    waiting: usize,
    due: Option<u64>,
    offloads: Needs,
}

impl PacketRx {
    pub fn new(shared: Shared) -> PacketRx {
        let tcp = Needs::CSUM.with(Needs::TSO4).with(Needs::TSO6).with(Needs::ECN);
        // The kernel reads these headers as it does a TAP's.
        let offloads = if tap_knows_uso() { tcp.with(Needs::USO) } else { tcp };
        PacketRx { shared, number: 0, head: 0, filled: 0, waiting: 0, due: None, offloads }
    }

    /// The ring, whose positions are known from now on.
    fn ring<'t>(&mut self, turn: &'t Turn<'_>) -> Option<&'t Ring> {
        let (ring, _, number) = self.shared.ring(turn)?;
        if number != self.number {
            (self.number, self.filled, self.due) = (number, 0, None);
            self.head = resume(ring);
            // A former data process may have ended before it made the kernel send.
            self.waiting = TX_SLOTS;
            self.kick(turn, ring);
        }
        Some(ring)
    }

    /// Makes the kernel send, and notes whether it must be asked again.
    fn kick(&mut self, turn: &Turn<'_>, ring: &Ring) {
        if !packet_kick(ring.socket.as_fd()) {
            self.withdraw(ring);
        }
        // The kernel takes slots in order.
        let is_left = self.waiting > 0 && status(ring, before(self.head, 1)) == READY;
        if !is_left {
            self.waiting = 0;
        }
        self.due = is_left.then(|| turn.now + RETRY);
    }

    /// Takes frames back that the kernel did not take: the interface is down, and they would be old when it is up.
    #[cold]
    fn withdraw(&mut self, ring: &Ring) {
        let mut dropped = 0;
        while self.waiting > 0 && status(ring, before(self.head, 1)) == READY {
            self.head = before(self.head, 1);
            set_status(ring, self.head, FREE);
            (self.waiting, dropped) = (self.waiting - 1, dropped + 1);
        }
        self.waiting = 0;
        self.shared.counters.drop_rx(Reason::Down, dropped);
    }
}

fn before(slot: usize, count: usize) -> usize {
    (slot + TX_SLOTS - count) % TX_SLOTS
}

fn words(ring: &Ring, slot: usize) -> Option<Words<'_, u32>> {
    Words::new(ring.span(tx_slot(slot % TX_SLOTS), DATA)?)
}

#[inline]
fn status(ring: &Ring, slot: usize) -> u32 {
    words(ring, slot).map_or(u32::MAX, |words| words.load_acquire(STATUS / 4))
}

#[inline]
fn set_status(ring: &Ring, slot: usize, status: u32) {
    if let Some(words) = words(ring, slot) {
        words.store_release(STATUS / 4, status);
    }
}

/// The slot that is filled next, after a former data process: it may have shown further slots than it noted.
fn resume(ring: &Ring) -> usize {
    let noted = words(ring, 0).map_or(0, |words| words.load(POSITION / 4) as usize % TX_SLOTS);
    let shown = (0..TX_SLOTS).take_while(|count| status(ring, noted + count) == READY).count();
    (noted + shown) % TX_SLOTS
}

impl RxQueue for PacketRx {
    fn caps(&mut self, turn: &Turn<'_>) -> Option<Caps> {
        let (_, page, _) = self.shared.ring(turn)?;
        page.has_carrier().then(|| Caps { offloads: self.offloads, largest: page.mtu() + FRAMING })
    }

    fn reserve(&mut self, turn: &Turn<'_>, _burst: &Burst<'_>, which: &[u16]) -> usize {
        let Some(ring) = self.ring(turn) else { return which.len() };
        let from = self.head + self.filled;
        let most = which.len().min(TX_SLOTS - self.filled);
        let free = |count: &usize| status(ring, from + count) == FREE;
        (0..most).take_while(free).count()
    }

    fn put(&mut self, turn: &Turn<'_>, burst: &Burst<'_>, which: &[u16]) -> Lost {
        let Some(ring) = self.ring(turn) else {
            return Lost::count(&self.shared.counters, Reason::Down, burst, which);
        };
        let mut lost = Lost::default();
        for (place, &frame) in which.iter().enumerate() {
            let meta = burst.meta(usize::from(frame));
            let len = meta.len as usize;
            let slot = (self.head + self.filled) % TX_SLOTS;
            let space = ring.span(tx_slot(slot) + DATA, TX_SLOT - DATA);
            let Some(space) = space.filter(|space| Offload::LEN + len <= space.len()) else {
                lost += Lost::count(&self.shared.counters, Reason::Long, burst, &which[place..=place]);
                continue;
            };
            space.write_at(0, meta.offload.to_bytes());
            burst.copy_to(usize::from(frame), space.split(Offload::LEN).1.split(len.max(HEAD)).0);
            if let Some(words) = words(ring, slot) {
                words.store(CAPTURED / 4, (Offload::LEN + len) as u32);
                words.store(LENGTH / 4, (Offload::LEN + len) as u32);
            }
            self.filled += 1;
        }
        lost
    }

    fn publish(&mut self, turn: &Turn<'_>) {
        let Some(ring) = self.ring(turn) else { return };
        for _ in 0..self.filled {
            set_status(ring, self.head, READY);
            self.head = (self.head + 1) % TX_SLOTS;
        }
        self.waiting = (self.waiting + self.filled).min(TX_SLOTS);
        if self.filled > 0
            && let Some(words) = words(ring, 0)
        {
            words.store(POSITION / 4, self.head as u32);
        }
        self.filled = 0;
        if self.waiting > 0 {
            self.kick(turn, ring);
        }
    }

    fn next_due(&self) -> Option<u64> {
        self.due
    }
}
