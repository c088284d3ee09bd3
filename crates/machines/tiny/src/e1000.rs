//! A driver of e1000 cards: rings in the guest's own memory, doorbells by registers or by the shared block.
//!
//! There is no interrupt controller. The monitor sets a word of the guest's memory when the card interrupts; the driver
//! looks at it before it uses the rings, and sleeps only while it is not set.

use crate::card_memory::{AHEAD, BUFFER, CardMemory, DESCRIPTOR, RX, TX};
use crate::net_device::{NetDevice, NetDeviceError, copy_in, copy_out, keep};
use crate::settings::Settings;
use core::sync::atomic::{Ordering, fence};
use ringway_mem::{OwnedSpan, Region, Words};
use ringway_nic::e1000::{csb, registers as register};

const CTRL_RST: u32 = 1 << 26;
const CTRL_SLU: u32 = 1 << 6;
/// Enabled, broadcast accepted, CRC stripped.
const RCTL: u32 = 1 << 1 | 1 << 15 | 1 << 26;
/// Enabled, short frames padded.
const TCTL: u32 = 1 << 1 | 1 << 3;
/// Frame sent; few receive descriptors left; frame received.
const INTERRUPTS: u32 = 1 | 1 << 4 | 1 << 7;
/// Command of a transmit descriptor: end of packet, insert CRC; report status.
const COMMAND: u64 = (1 | 1 << 1) << 24;
const REPORT: u64 = 1 << 27;
/// Status of a descriptor: done; of a received one: end of packet, error.
const DONE: u64 = 1 << 32;
const END: u64 = 1 << 33;
const ERROR: u64 = 1 << 47;

/// The word with the offset of a register that the monitor writes when the guest sleeps; its value follows.
const DEFERRED: usize = 2;

/// Receive descriptors that are given back at once.
const GIVE: u32 = 16;

/// How a card's registers are accessed.
pub trait Registers {
    /// Reads a register.
    fn read(&mut self, offset: u32) -> u32;
    /// Writes a register.
    fn write(&mut self, offset: u32, value: u32);
}

/// Registers at an address, where the monitor serves each access or has mapped the card's memory.
#[derive(Debug)]
pub struct Mapped(OwnedSpan);

impl Mapped {
    /// The registers in `region`.
    pub fn new(region: Region) -> Result<Mapped, NetDeviceError> {
        Ok(Mapped(keep(region).ok_or(NetDeviceError::Layout)?))
    }
}

impl Registers for Mapped {
    fn read(&mut self, offset: u32) -> u32 {
        Words::new(self.0.span()).map_or(0, |words: Words<'_, u32>| words.load_acquire(offset as usize / 4))
    }

    fn write(&mut self, offset: u32, value: u32) {
        if let Some(words) = Words::<u32>::new(self.0.span()) {
            words.store_release(offset as usize / 4, value);
        }
    }
}

/// A card with its rings.
#[derive(Debug)]
pub struct E1000<R> {
    registers: R,
    /// The words for interrupts and for a deferred register write.
    interrupt: OwnedSpan,
    memory: CardMemory,
    combine: bool,
    csb: bool,
    defer: bool,
    /// The next transmit descriptor to fill, the first that is not known to be done, and the tail that the card knows.
    tail: u32,
    clean: u32,
    known_tail: u32,
    /// A transmit interrupt is expected.
    expects: bool,
    /// The next receive descriptor, and the first that was not given back.
    next: u32,
    given: u32,
    /// The card was asked for interrupts by the shared block, and the number of that request.
    armed: bool,
    request: u32,
    buffer: [u8; BUFFER],
}

impl<R: Registers> E1000<R> {
    /// Resets the card and starts it. `interrupt`: the word that the monitor sets.
    pub fn new(registers: R, interrupt: Region, settings: &Settings) -> Result<E1000<R>, NetDeviceError> {
        let &Settings { slots, combine, csb, defer, mac, .. } = settings;
        let memory = CardMemory::new(slots).ok_or(NetDeviceError::Layout)?;
        let interrupt = keep(interrupt).ok_or(NetDeviceError::Layout)?;
        let mut card = E1000 {
            registers,
            interrupt,
            memory,
            combine,
            csb,
            defer,
            tail: 0,
            clean: 0,
            known_tail: 0,
            expects: false,
            next: 0,
            given: 0,
            armed: false,
            request: 0,
            buffer: [0; BUFFER],
        };
        card.start(mac)?;
        Ok(card)
    }

    fn start(&mut self, mac: [u8; 6]) -> Result<(), NetDeviceError> {
        let base = self.memory.base;
        self.registers.write(register::CTRL, CTRL_RST);
        let control = self.registers.read(register::CTRL);
        if control & CTRL_RST != 0 {
            return Err(NetDeviceError::Reset);
        }
        self.registers.write(register::IMC, u32::MAX);
        self.registers.write(register::CTRL, control | CTRL_SLU);
        let [a, b, c, d, e, f] = mac;
        self.registers.write(register::RA, u32::from_le_bytes([a, b, c, d]));
        self.registers.write(register::RA + 4, u32::from_le_bytes([e, f, 0, 0x80]));
        for index in 0..self.memory.slots {
            for ring in [TX, RX] {
                self.memory.describe(ring, index, 0, base + self.memory.buffer_at(ring, index) as u64);
            }
        }
        for (ring, registers) in [(TX, register::TDBAL), (RX, register::RDBAL)] {
            let address = base + self.memory.ring_at(ring) as u64;
            let len = self.memory.slots * DESCRIPTOR as u32;
            // Base, length, head, tail.
            for (offset, value) in
                [(0, address as u32), (4, (address >> 32) as u32), (8, len), (0x10, 0), (0x18, 0)]
            {
                self.registers.write(registers + offset, value);
            }
        }
        if self.csb {
            self.memory.store(csb::GUEST_RDT, self.memory.slots - 1);
            self.memory.store(csb::GUEST_CSB_ON, 1);
            self.registers.write(register::CSBAH, (base >> 32) as u32);
            self.registers.write(register::CSBAL, base as u32);
        }
        self.registers.write(register::RCTL, RCTL);
        self.registers.write(register::RDT, self.memory.slots - 1);
        self.registers.write(register::TCTL, TCTL);
        self.registers.write(register::IMS, INTERRUPTS);
        Ok(())
    }

    /// The second word of a descriptor: length, command and status.
    fn status(&self, ring: usize, index: u32) -> u64 {
        self.memory.word(ring, index, 1)
    }

    /// Whether the card interrupted and the driver has not looked yet.
    fn is_interrupted(&self) -> bool {
        Words::new(self.interrupt.span()).is_some_and(|words: Words<'_, u32>| words.load_acquire(0) != 0)
    }

    /// Handles an interrupt, if there was one.
    fn interrupted(&mut self) {
        if core::mem::take(&mut self.armed) {
            self.memory.ask_for_interrupts(false, false);
        }
        if self.is_interrupted() {
            if let Some(words) = Words::<u32>::new(self.interrupt.span()) {
                words.store(0, 0);
            }
            if !self.csb {
                // Clears the causes: the card interrupts for the next ones only.
                self.registers.read(register::ICR);
            }
            self.expects = false;
            self.reclaim();
        }
    }

    /// Finds out which descriptors are done.
    fn reclaim(&mut self) {
        if self.csb {
            let head = self.memory.load(csb::HOST_TDH);
            // Attack: a head outside the ring, or beyond the frames that are sent.
            if head < self.memory.slots
                && self.memory.distance(self.clean, head) <= self.memory.distance(self.clean, self.known_tail)
            {
                self.clean = head;
            }
            return;
        }
        let mut clean = self.clean;
        while clean != self.tail && self.status(TX, clean) & DONE != 0 {
            clean = self.memory.after(clean);
        }
        self.clean = clean;
    }

    /// Tells the card about filled descriptors; returns how many registers it wrote.
    fn ring_tx(&mut self) -> u32 {
        if self.tail == self.known_tail || self.combine && self.expects {
            return 0;
        }
        self.known_tail = self.tail;
        if self.csb {
            self.memory.store(csb::GUEST_TDT, self.tail);
            // The card sets its flag, then looks at the tail; the driver stores the tail, then looks at the flag.
            fence(Ordering::SeqCst);
            if self.memory.load(csb::HOST_NEED_TXKICK) == 0 {
                return 0;
            }
        } else {
            self.expects = true;
        }
        if !self.deferred() {
            // A shared block has the tail; a write that only wakes may take a shorter way.
            let doorbell = if self.csb { register::CSBTXKICK } else { register::TDT };
            self.registers.write(doorbell, self.tail);
        }
        1
    }

    /// Writes a doorbell that waits for the guest's sleep.
    fn ring_deferred(&mut self) {
        let words = Words::<u32>::new(self.interrupt.span()).filter(|_| self.defer);
        let waits = words.is_some_and(|words| words.load(DEFERRED) != 0);
        if waits {
            words.iter().for_each(|words| words.store(DEFERRED, 0));
            self.registers.write(register::TDT, self.known_tail);
        }
    }

    /// Leaves the transmit doorbell to the exit with which the guest sleeps; `false`: it is due now, since the guest
    /// has not slept after the one before.
    fn deferred(&self) -> bool {
        let Some(words) = Words::<u32>::new(self.interrupt.span()).filter(|_| self.defer) else {
            return false;
        };
        let is_free = words.load(DEFERRED) == 0;
        if is_free {
            words.store(DEFERRED + 1, self.tail);
        }
        words.store_release(DEFERRED, if is_free { register::TDT } else { 0 });
        is_free
    }

    /// Gives descriptors back to the card; returns how many registers it wrote.
    fn ring_rx(&mut self) -> u32 {
        let taken = self.memory.distance(self.given, self.next);
        // Without a shared block each doorbell is an exit, so several descriptors share one, as with Linux's driver.
        let least = if self.csb { 1 } else { GIVE.min(self.memory.slots / 2) };
        if taken < least {
            return 0;
        }
        self.given = self.next;
        // The descriptor before the next one is the last that the card may use.
        let last = self.next.checked_sub(1).unwrap_or(self.memory.slots - 1);
        if self.csb {
            self.memory.store(csb::GUEST_RDT, last);
            fence(Ordering::SeqCst);
            if self.memory.load(csb::HOST_NEED_RXKICK) == 0 {
                return 0;
            }
        }
        self.registers.write(register::RDT, last);
        1
    }

    /// Whether a descriptor asks for a report: each, or two in a ring if the shared block has the head.
    fn reports(&self, index: u32) -> bool {
        !self.csb || (index + 1).is_multiple_of(self.memory.slots / 2)
    }
}

impl<R: Registers> NetDevice for E1000<R> {
    fn send(
        &mut self,
        count: u32,
        len: usize,
        fill: &mut dyn FnMut(u32, &mut [u8]),
    ) -> Result<u32, NetDeviceError> {
        self.interrupted();
        if self.memory.room(self.clean, self.tail) < count {
            self.reclaim();
        }
        // A frame longer than a buffer is cut to its size.
        let (count, len) = (count.min(self.memory.room(self.clean, self.tail)), len.min(BUFFER));
        for position in 0..count {
            if position + AHEAD < count {
                let ahead = self.memory.ahead(self.tail);
                self.memory.part(self.memory.buffer_at(TX, ahead), len).prefetch_write();
            }
            fill(position, &mut self.buffer[..len]);
            copy_in(&self.buffer[..len], self.memory.part(self.memory.buffer_at(TX, self.tail), len));
            let report = if self.reports(self.tail) { REPORT } else { 0 };
            self.memory.describe(TX, self.tail, 1, len as u64 | COMMAND | report);
            self.tail = self.memory.after(self.tail);
        }
        Ok(count)
    }

    fn receive(&mut self, count: u32, each: &mut dyn FnMut(&[u8])) -> Result<u32, NetDeviceError> {
        self.interrupted();
        let mut received = 0;
        for _ in 0..count.min(self.memory.slots - 1) {
            let word = self.status(RX, self.next);
            if word & DONE == 0 {
                break;
            }
            // A frame in several buffers, or with an error, is not for this driver.
            if word & (END | ERROR) == END {
                // Attack: a length beyond the buffer.
                let len = usize::from(word as u16).min(BUFFER);
                let ahead = self.memory.ahead(self.next);
                self.memory.part(self.memory.buffer_at(RX, ahead), BUFFER).prefetch();
                let span = self.memory.part(self.memory.buffer_at(RX, self.next), len);
                copy_out(span.as_span(), &mut self.buffer[..len]);
                each(&self.buffer[..len]);
                received += 1;
            }
            self.memory.describe(RX, self.next, 1, 0);
            self.next = self.memory.after(self.next);
        }
        Ok(received)
    }

    fn publish(&mut self) -> u32 {
        self.ring_rx() + self.ring_tx()
    }

    fn pending(&mut self) -> Result<u32, NetDeviceError> {
        self.interrupted();
        // The guest waits for the card, perhaps without sleeping.
        self.ring_deferred();
        self.reclaim();
        Ok(self.memory.distance(self.clean, self.tail))
    }

    fn arm(&mut self, room: bool) -> Result<bool, NetDeviceError> {
        if self.csb {
            // An interrupt for a former request may be on its way; the number tells it from one for this request.
            self.request = self.request.wrapping_add(1).max(1);
            self.memory.store(csb::GUEST_REQUEST, self.request);
            self.memory.ask_for_interrupts(room, true);
            self.armed = true;
            // The driver sets its flags, then looks at the rings; the card fills them, then looks at the flags.
            fence(Ordering::SeqCst);
            self.reclaim();
            if self.status(RX, self.next) & DONE != 0 || room && self.memory.room(self.clean, self.tail) > 0 {
                return Ok(false);
            }
            return Ok(self.memory.load(csb::HOST_ANSWERED) != self.request);
        }
        Ok(!self.is_interrupted())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Role;
    use alloc::rc::Rc;
    use alloc::vec::Vec;
    use core::cell::RefCell;

    /// The registers of a card that does nothing by itself.
    #[derive(Clone, Default)]
    struct Silent(Rc<RefCell<Vec<(u32, u32)>>>);

    impl Registers for Silent {
        fn read(&mut self, offset: u32) -> u32 {
            self.0.borrow_mut().push((offset, 0));
            0
        }
        fn write(&mut self, offset: u32, value: u32) {
            self.0.borrow_mut().push((offset, value));
        }
    }

    impl Silent {
        /// Accesses to a register since the last call.
        fn values(&self, register: u32) -> Vec<u32> {
            let all = core::mem::take(&mut *self.0.borrow_mut());
            all.into_iter().filter(|(offset, _)| *offset == register).map(|(_, value)| value).collect()
        }
    }

    const SLOTS: u32 = 8;

    fn card(combine: bool, csb: bool) -> (E1000<Silent>, Silent, OwnedSpan) {
        card_of(Settings { combine, csb, ..Settings::default() })
    }

    fn card_of(settings: Settings) -> (E1000<Silent>, Silent, OwnedSpan) {
        let (registers, interrupt) = (Silent::default(), Region::private(0, 0, 16));
        let settings = Settings { role: Role::Send, slots: SLOTS, ..settings };
        let card = E1000::new(registers.clone(), interrupt.clone(), &settings).unwrap();
        registers.values(0);
        (card, registers, keep(interrupt).unwrap())
    }

    fn send(card: &mut E1000<Silent>, count: u32) -> u32 {
        let sent = card.send(count, 64, &mut |position, bytes| bytes.fill(position as u8)).unwrap();
        card.publish();
        sent
    }

    fn receive(card: &mut E1000<Silent>) -> Vec<usize> {
        let mut frames = Vec::new();
        card.receive(64, &mut |bytes| frames.push(bytes.len())).unwrap();
        frames
    }

    #[test]
    fn sent_frames_lie_in_the_ring_until_the_card_is_done() {
        let (mut card, registers, _) = card(false, false);
        assert_eq!((send(&mut card, 5), registers.values(register::TDT)), (5, [5].to_vec()));
        assert_eq!((send(&mut card, 5), registers.values(register::TDT)), (2, [7].to_vec()));
        assert_eq!((send(&mut card, 5), registers.values(register::TDT)), (0, [].to_vec()));
        assert_eq!(card.status(TX, 4), 64 | COMMAND | REPORT);
        let mut bytes = [0; 65];
        card.memory.part(card.memory.buffer_at(TX, 4), 65).as_span().read(&mut bytes);
        assert_eq!((bytes[..64] == [4; 64], bytes[64]), (true, 0));
        (0..3).for_each(|index| card.memory.describe(TX, index, 1, DONE));
        assert_eq!((send(&mut card, 5), registers.values(register::TDT)), (3, [2].to_vec()));
    }

    #[test]
    fn doorbells_wait_for_an_expected_interrupt() {
        let (mut card, registers, interrupt) = card(true, false);
        for _ in 0..3 {
            assert_eq!(send(&mut card, 1), 1);
        }
        assert_eq!(registers.values(register::TDT), [1]);
        assert!(card.arm(true).unwrap());
        Words::<u32>::new(interrupt.span()).unwrap().store(0, 1);
        assert!(!card.arm(true).unwrap(), "it would sleep over an interrupt");
        card.memory.describe(TX, 0, 1, DONE);
        assert_eq!((send(&mut card, 1), card.clean), (1, 1));
        let log = registers.0.take();
        assert_eq!(log, [(register::ICR, 0), (register::TDT, 4)]);
    }

    #[test]
    fn a_shared_block_replaces_doorbells_that_nobody_asks_for() {
        let (mut card, registers, _) = card(false, true);
        send(&mut card, 3);
        assert_eq!((card.memory.load(csb::GUEST_TDT), registers.values(register::TDT)), (3, [].to_vec()));
        card.memory.store(csb::HOST_NEED_TXKICK, 1);
        send(&mut card, 1);
        assert_eq!(
            (card.memory.load(csb::GUEST_TDT), registers.values(register::CSBTXKICK)),
            (4, [4].to_vec())
        );
        // Attack: heads that were never sent, or outside the ring.
        for head in [5, 7, 8, u32::MAX] {
            card.memory.store(csb::HOST_TDH, head);
            card.reclaim();
            assert_eq!(card.clean, 0, "{head}");
        }
        card.memory.store(csb::HOST_TDH, 4);
        assert_eq!(send(&mut card, 99), 7);
        assert!(card.arm(true).unwrap());
        assert_eq!(
            (card.memory.load(csb::GUEST_NEED_TXKICK), card.memory.load(csb::GUEST_NEED_RXKICK)),
            (1, 1)
        );
        card.memory.describe(RX, 0, 1, 64 | DONE | END);
        assert_eq!(card.memory.load(csb::GUEST_REQUEST), 1);
        assert!(!card.arm(true).unwrap(), "a frame is there");
        assert_eq!(receive(&mut card), [64]);
        assert_eq!(
            (card.memory.load(csb::GUEST_NEED_TXKICK), card.memory.load(csb::GUEST_NEED_RXKICK)),
            (0, 0)
        );
    }

    #[test]
    fn a_doorbell_waits_for_the_guests_sleep_or_for_the_next_one() {
        let (mut card, registers, interrupt) = card_of(Settings { defer: true, ..Settings::default() });
        let words = || Words::<u32>::new(interrupt.span()).unwrap();
        let left = || [2, 3].map(|word| words().load(word));
        send(&mut card, 1);
        assert_eq!((left(), registers.values(register::TDT)), ([register::TDT, 1], [].to_vec()));
        send(&mut card, 2);
        assert_eq!((left()[0], registers.values(register::TDT)), (0, [3].to_vec()));
        // The guest slept, and the monitor wrote the register.
        send(&mut card, 1);
        assert_eq!(left(), [register::TDT, 4]);
        words().store(2, 0);
        send(&mut card, 1);
        assert_eq!((left(), registers.values(register::TDT)), ([register::TDT, 5], [].to_vec()));
        card.pending().unwrap();
        assert_eq!((left()[0], registers.values(register::TDT)), (0, [5].to_vec()));
        card.pending().unwrap();
        assert_eq!(registers.values(register::TDT), []);
    }

    #[test]
    fn requests_for_interrupts_are_counted_and_icr_is_not_read() {
        let (mut card, registers, interrupt) = card(false, true);
        let word = || Words::<u32>::new(interrupt.span()).unwrap();
        for number in 1..4 {
            // An interrupt for the former request, which came late.
            word().store(0, 1);
            assert!(card.arm(false).unwrap(), "it is no answer to this request");
            assert_eq!(card.memory.load(csb::GUEST_REQUEST), number);
            card.memory.store(csb::HOST_ANSWERED, number);
            assert_eq!(receive(&mut card), [0; 0]);
            assert_eq!(word().load(0), 0);
        }
        // The card answers between the request and the look at the rings.
        card.memory.store(csb::HOST_ANSWERED, 4);
        assert!(!card.arm(false).unwrap());
        assert_eq!(registers.0.take(), []);
    }

    #[test]
    fn lengths_and_endless_frames_of_a_hostile_card_are_bounded() {
        let (mut card, registers, _) = card(false, false);
        let words = [65535 | DONE | END, 64 | DONE, 64 | DONE | END | ERROR, DONE | END];
        (0..).zip(words).for_each(|(index, word)| card.memory.describe(RX, index, 1, word));
        assert_eq!(receive(&mut card), [BUFFER, 0]);
        card.publish();
        assert_eq!(registers.values(register::RDT), [3]);
        // Attack: a card that claims every descriptor again and again.
        for _ in 0..3 {
            (0..SLOTS).for_each(|index| card.memory.describe(RX, index, 1, 60 | DONE | END));
            assert_eq!(receive(&mut card).len(), SLOTS as usize - 1);
        }
        assert_eq!(send(&mut card, 99), SLOTS - 1);
        (0..SLOTS).for_each(|index| card.memory.describe(TX, index, 1, u64::MAX));
        assert_eq!(send(&mut card, 99), SLOTS - 1);
    }
}
