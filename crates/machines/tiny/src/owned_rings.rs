//! A driver of cards whose descriptors say who owns them, a bit in the first word: [`Rtl8139`](crate::Rtl8139) and
//! [`Pcnet`](crate::Pcnet) have the rest of it. Doorbells go by a register or by the shared block, if the card has one.

use crate::card_memory::{AHEAD, BUFFER, CardMemory, RX, TX};
use crate::e1000::Registers;
use crate::net_device::{NetDevice, NetDeviceError, copy_in, copy_out, keep};
use crate::settings::Settings;
use core::marker::PhantomData;
use core::sync::atomic::{Ordering, fence};
use ringway_mem::{OwnedSpan, Region, Words};
use ringway_nic::csb;

/// The word by which the monitor is told to unmask the pin at once.
const EDGE: usize = 1;
/// Bytes of the check sequence behind a received frame.
const CRC: usize = 4;

/// What such a card's registers and descriptors are.
pub trait Chip {
    /// The bit of a descriptor's first word while the card owns it.
    const OWN: u64;
    /// Whether it has the shared block.
    const HAS_CSB: bool;

    /// The number of descriptors of its rings for a wish.
    fn slots(wanted: u32) -> u32;

    /// Resets and starts the card; its receive descriptors are given to it already.
    fn start<R: Registers>(
        registers: &mut R,
        memory: &CardMemory,
        settings: &Settings,
    ) -> Result<(), NetDeviceError>;

    /// Makes a descriptor the driver's own, with the buffer that it has.
    fn describe(memory: &CardMemory, ring: usize, index: u32);

    /// Gives a frame of `len` bytes to the card.
    fn send(memory: &CardMemory, index: u32, len: usize);

    /// Gives a receive descriptor to the card.
    fn give(memory: &CardMemory, index: u32);

    /// The length, with the check sequence, of the frame in a descriptor that the card returned. `None`: it is one in
    /// several buffers, or with an error.
    fn received(memory: &CardMemory, index: u32) -> Option<usize>;

    /// Tells the card that there are frames to send.
    fn ring<R: Registers>(registers: &mut R);

    /// The same of a card with a shared block, which only has to be woken.
    fn kick<R: Registers>(registers: &mut R) {
        Self::ring(registers);
    }

    /// Clears the causes of interrupts by one write, and reads a register: writes may be posted, and a cause that is
    /// set before the write arrives has no interrupt, so the driver must look at the rings after that.
    fn clear<R: Registers>(registers: &mut R);
}

/// A card with its rings.
#[derive(Debug)]
pub struct OwnedRings<C, R> {
    registers: R,
    /// The words for interrupts.
    interrupt: OwnedSpan,
    memory: CardMemory,
    combine: bool,
    csb: bool,
    /// The next transmit descriptor to fill, and the first that is not known to be sent.
    tail: u32,
    clean: u32,
    /// Frames that were not announced. The card may have sent some of them, since it sees that it owns them.
    unannounced: u32,
    /// A transmit interrupt is expected.
    expects: bool,
    /// The next receive descriptor.
    next: u32,
    /// The card was asked for interrupts by the shared block, and the number of that request.
    armed: bool,
    request: u32,
    buffer: [u8; BUFFER],
    chip: PhantomData<fn(C)>,
}

impl<C: Chip, R: Registers> OwnedRings<C, R> {
    /// Resets the card and starts it. `interrupt`: the words that the monitor sets and reads.
    pub fn new(registers: R, interrupt: Region, settings: &Settings) -> Result<Self, NetDeviceError> {
        let &Settings { slots, combine, csb, .. } = settings;
        let csb = csb && C::HAS_CSB;
        let memory = CardMemory::new(C::slots(slots)).ok_or(NetDeviceError::Layout)?;
        let interrupt = keep(interrupt).ok_or(NetDeviceError::Layout)?;
        for index in 0..memory.slots {
            [TX, RX].iter().for_each(|ring| C::describe(&memory, *ring, index));
            C::give(&memory, index);
        }
        if csb {
            // Causes are in the block, so nobody clears them.
            Words::<u32>::new(interrupt.span()).iter().for_each(|words| words.store(EDGE, 1));
            memory.store(csb::GUEST_CSB_ON, 1);
        }
        let mut registers = registers;
        C::start(&mut registers, &memory, settings)?;
        let (tail, clean, unannounced, next, request) = (0, 0, 0, 0, 0);
        let (expects, armed, buffer, chip) = (false, false, [0; BUFFER], PhantomData);
        Ok(OwnedRings {
            registers,
            interrupt,
            memory,
            combine,
            csb,
            tail,
            clean,
            unannounced,
            expects,
            next,
            armed,
            request,
            buffer,
            chip,
        })
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
            Words::<u32>::new(self.interrupt.span()).iter().for_each(|words| words.store(0, 0));
            if !self.csb {
                // Clears the causes: the pin is asserted for the next ones only.
                C::clear(&mut self.registers);
            }
            self.expects = false;
            self.reclaim();
        }
    }

    /// Finds out which frames were sent.
    fn reclaim(&mut self) {
        while self.clean != self.tail && self.memory.word(TX, self.clean, 0) & C::OWN == 0 {
            self.clean = self.memory.after(self.clean);
        }
    }

    fn has_frame(&self) -> bool {
        self.memory.word(RX, self.next, 0) & C::OWN == 0
    }
}

impl<C: Chip, R: Registers> NetDevice for OwnedRings<C, R> {
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
            C::send(&self.memory, self.tail, len);
            self.tail = self.memory.after(self.tail);
        }
        self.unannounced += count;
        Ok(count)
    }

    fn receive(&mut self, count: u32, each: &mut dyn FnMut(&[u8])) -> Result<u32, NetDeviceError> {
        self.interrupted();
        let mut received = 0;
        // Attack: a card that returns every descriptor again and again.
        for _ in 0..count.min(self.memory.slots - 1) {
            if !self.has_frame() {
                break;
            }
            if let Some(len) = C::received(&self.memory, self.next) {
                // Attack: a length beyond the buffer, or less than that of the check sequence.
                let len = len.saturating_sub(CRC).min(BUFFER);
                let ahead = self.memory.ahead(self.next);
                self.memory.part(self.memory.buffer_at(RX, ahead), BUFFER).prefetch();
                let span = self.memory.part(self.memory.buffer_at(RX, self.next), len);
                copy_out(span.as_span(), &mut self.buffer[..len]);
                each(&self.buffer[..len]);
                received += 1;
            }
            C::give(&self.memory, self.next);
            self.next = self.memory.after(self.next);
        }
        Ok(received)
    }

    fn publish(&mut self) -> u32 {
        if self.unannounced == 0 || self.combine && self.expects {
            return 0;
        }
        self.unannounced = 0;
        if self.combine {
            // A card that has sent all frames by itself sends no interrupt for the doorbell.
            self.reclaim();
            if self.clean == self.tail {
                return 0;
            }
        }
        if self.csb {
            // The card sets its flag, then looks at the descriptor; the driver gives the descriptor away, then looks at
            // the flag.
            fence(Ordering::SeqCst);
            if self.memory.load(csb::HOST_NEED_TXKICK) == 0 {
                return 0;
            }
            C::kick(&mut self.registers);
        } else {
            self.expects = true;
            C::ring(&mut self.registers);
        }
        1
    }

    fn pending(&mut self) -> Result<u32, NetDeviceError> {
        self.interrupted();
        self.reclaim();
        Ok(self.memory.distance(self.clean, self.tail))
    }

    fn arm(&mut self, room: bool) -> Result<bool, NetDeviceError> {
        if !self.csb {
            return Ok(!self.is_interrupted());
        }
        // An interrupt for a former request may be on its way; the number tells it from one for this request.
        self.request = self.request.wrapping_add(1).max(1);
        self.memory.store(csb::GUEST_REQUEST, self.request);
        self.memory.ask_for_interrupts(room, true);
        self.armed = true;
        // The driver sets its flags, then looks at the rings; the card fills them, then looks at the flags.
        fence(Ordering::SeqCst);
        self.reclaim();
        if self.has_frame() || room && self.memory.room(self.clean, self.tail) > 0 {
            return Ok(false);
        }
        Ok(self.memory.load(csb::HOST_ANSWERED) != self.request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Role;
    use crate::{Pcnet, Rtl8139};
    use alloc::rc::Rc;
    use alloc::vec::Vec;
    use core::cell::RefCell;

    /// The registers of a card that does nothing by itself, and the accesses to them. Reads give `answer`.
    #[derive(Clone, Default)]
    struct Silent {
        log: Rc<RefCell<Vec<(u32, u32)>>>,
        answer: u32,
    }

    impl Registers for Silent {
        fn read(&mut self, _offset: u32) -> u32 {
            self.answer
        }
        fn write(&mut self, offset: u32, value: u32) {
            self.log.borrow_mut().push((offset, value));
        }
    }

    type Parts<C> = (OwnedRings<C, Silent>, Silent, OwnedSpan);

    /// A card; what reads give during its start, and settings.
    fn card<C: Chip>(answer: u32, settings: Settings) -> Parts<C> {
        let (registers, interrupt) = (Silent { answer, ..Silent::default() }, Region::private(0, 0, 16));
        let settings = Settings { role: Role::Send, ..settings };
        let card = OwnedRings::new(registers.clone(), interrupt.clone(), &settings).unwrap();
        (card, registers, keep(interrupt).unwrap())
    }

    fn rtl8139(slots: u32, combine: bool, csb: bool) -> Parts<Rtl8139> {
        card(0, Settings { slots, combine, csb, ..Settings::default() })
    }

    /// Reads show a chip that is initialized.
    fn pcnet(slots: u32, combine: bool) -> Parts<Pcnet> {
        card(1 << 8 | 1 << 2, Settings { slots, combine, ..Settings::default() })
    }

    fn send<C: Chip>(card: &mut OwnedRings<C, Silent>, count: u32) -> (u32, u32) {
        let sent = card.send(count, 64, &mut |position, bytes| bytes.fill(position as u8)).unwrap();
        (sent, card.publish())
    }

    fn receive<C: Chip>(card: &mut OwnedRings<C, Silent>) -> Vec<usize> {
        let mut frames = Vec::new();
        card.receive(64, &mut |bytes| frames.push(bytes.len())).unwrap();
        frames
    }

    /// What a card without a block does with frames: how many doorbells, and when.
    fn sends_and_clears<C: Chip>((mut card, registers, interrupt): Parts<C>) {
        registers.log.take();
        assert_eq!(send(&mut card, 5), (5, 1));
        let doorbell = registers.log.take();
        assert_eq!(doorbell.len(), 1, "one write announces all");
        assert_eq!(send(&mut card, 99), (10, 0), "one descriptor stays free; an interrupt is expected");
        let return_to = |card: &OwnedRings<C, Silent>, index: u32| {
            card.memory.describe(TX, index, 0, card.memory.word(TX, index, 0) & !C::OWN);
        };
        (0..6).for_each(|index| return_to(&card, index));
        Words::<u32>::new(interrupt.span()).unwrap().store(0, 1);
        assert_eq!((card.pending(), registers.log.take().len()), (Ok(9), 1), "one write clears all causes");
        assert_eq!((send(&mut card, 99), registers.log.take()), ((6, 1), doorbell));
        assert_eq!(card.arm(false), Ok(true));
        Words::<u32>::new(interrupt.span()).unwrap().store(0, 1);
        assert_eq!(card.arm(false), Ok(false), "it would sleep over an interrupt");
    }

    #[test]
    fn frames_that_the_card_sent_unannounced_are_not_waited_for() {
        let (mut card, registers, _interrupt) = pcnet(16, true);
        registers.log.take();
        assert_eq!(card.send(5, 60, &mut |_, _| {}), Ok(5));
        for index in 0..5 {
            card.memory.describe(TX, index, 0, card.memory.word(TX, index, 0) & !Pcnet::OWN);
        }
        assert_eq!((card.publish(), registers.log.take()), (0, [].to_vec()), "no interrupt would answer it");
        assert_eq!((send(&mut card, 1), registers.log.take().len()), ((1, 1), 1), "no interrupt is expected");
    }

    #[test]
    fn frames_are_announced_by_one_write_and_causes_cleared_by_one() {
        sends_and_clears(rtl8139(16, true, false));
        sends_and_clears(pcnet(16, true));
    }

    #[test]
    fn a_shared_block_replaces_doorbells_that_nobody_asks_for() {
        let (mut card, registers, interrupt) = rtl8139(16, false, true);
        registers.log.take();
        assert_eq!((send(&mut card, 5), registers.log.take()), ((5, 0), [].to_vec()));
        card.memory.store(csb::HOST_NEED_TXKICK, 1);
        assert_eq!((send(&mut card, 1), registers.log.take().len()), ((1, 1), 1));
        let words = || Words::<u32>::new(interrupt.span()).unwrap();
        assert_eq!(words().load(EDGE), 1);
        words().store(0, 1);
        assert_eq!((card.pending(), words().load(0)), (Ok(6), 0));
        assert!(registers.log.take().is_empty(), "nobody clears causes");
    }

    #[test]
    fn requests_for_interrupts_are_counted() {
        let (mut card, ..) = rtl8139(16, false, true);
        assert_eq!(card.arm(true), Ok(false), "there is room");
        assert_eq!(card.arm(false), Ok(true));
        assert_eq!((card.memory.load(csb::GUEST_REQUEST), card.memory.load(csb::GUEST_NEED_RXKICK)), (2, 1));
        card.memory.store(csb::HOST_ANSWERED, 2);
        assert_eq!(card.arm(false), Ok(true), "that was the former request");
        card.memory.store(csb::HOST_ANSWERED, 4);
        assert_eq!(card.arm(false), Ok(false), "it was answered meanwhile");
        card.memory.describe(RX, 0, 0, 3 << 28 | 68);
        assert_eq!(card.arm(false), Ok(false), "a frame is there");
        assert_eq!((receive(&mut card), card.memory.load(csb::GUEST_NEED_RXKICK)), ([64].to_vec(), 0));
    }

    #[test]
    fn lengths_and_endless_frames_of_a_hostile_card_are_bounded() {
        let (mut card, ..) = rtl8139(16, false, false);
        let whole = 3 << 28;
        let words = [0x1fff | whole, whole, 68 | 1 << 29, 68 | whole | 1 << 20, 68 | whole];
        (0..).zip(words).for_each(|(index, word)| card.memory.describe(RX, index, 0, word));
        assert_eq!(receive(&mut card), [BUFFER, 0, 64]);
        // Attack: a card that returns every descriptor again and again.
        for _ in 0..3 {
            (0..16).for_each(|index| card.memory.describe(RX, index, 0, whole | 64));
            assert_eq!(receive(&mut card).len(), 15);
        }
        let (mut card, ..) = pcnet(16, false);
        let whole = 3 << 56;
        let words = [(whole, 0xfff), (whole, 0), (1 << 57, 68), (whole | 1 << 62, 68), (whole, 68)];
        for (index, (first, second)) in (0..).zip(words) {
            card.memory.describe(RX, index, 0, first);
            card.memory.describe(RX, index, 1, second);
        }
        assert_eq!(receive(&mut card), [BUFFER, 0, 64]);
    }
}
