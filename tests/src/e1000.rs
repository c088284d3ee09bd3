//! A driver of e1000 cards, on a [`Card`]: it sends frames, and sleeps until an interrupt reports received ones.
use crate::card::Card;
use crate::sleeper::Failure;
use ringway_mem::Pairs;
use ringway_vfio_user::pci;
use std::time::Duration;

/// Registers (Intel 8254x software developer's manual, 13.4).
mod register {
    pub const CTRL: u64 = 0x0000;
    pub const ICR: u64 = 0x00c0;
    pub const IMS: u64 = 0x00d0;
    pub const IMC: u64 = 0x00d8;
    pub const RCTL: u64 = 0x0100;
    pub const TCTL: u64 = 0x0400;
    pub const RDBAL: u64 = 0x2800;
    pub const RDT: u64 = 0x2818;
    pub const TDBAL: u64 = 0x3800;
    pub const TDT: u64 = 0x3818;
    pub const RAL: u64 = 0x5400;
}

const CTRL_RST: u32 = 1 << 26;
const CTRL_SLU: u32 = 1 << 6;
/// Enabled, broadcast accepted, CRC stripped.
const RCTL: u32 = 1 << 1 | 1 << 15 | 1 << 26;
/// Enabled, short frames padded.
const TCTL: u32 = 1 << 1 | 1 << 3;
/// Frames received; few descriptors left; overrun; frames sent.
const INTERRUPTS: u32 = 1 << 7 | 1 << 4 | 1 << 6 | 1;
/// Command of a transmit descriptor: end of packet, insert CRC, report status.
const COMMAND: u64 = (1 | 1 << 1) << 24 | REPORT;
const REPORT: u64 = 1 << 27;
/// Command of a context or data descriptor.
const EXTENDED: u64 = 1 << 29;
/// Status of a descriptor: done.
const DONE: u64 = 1 << 32;

/// Descriptors of a ring.
const DESCRIPTORS: u16 = 32;
const BUFFER: u64 = 2048;
/// Addresses of rings and buffers.
const RX_RING: u64 = 0x1000;
const TX_RING: u64 = 0x2000;
const RX_BUFFERS: u64 = 0x1_0000;
const TX_BUFFERS: u64 = 0x3_0000;

/// The driver of a card.
pub struct E1000 {
    card: Card,
    /// The next descriptor to fill, and the first that is not known to be done.
    tx: (u16, u16),
    /// The next descriptor to look at.
    rx: u16,
}

impl E1000 {
    /// Resets a card and starts it with an interrupt type of [`pci`].
    pub fn start(mut card: Card, mac: [u8; 6], interrupts: u32) -> Result<E1000, Failure> {
        // Memory accesses and bus mastering.
        card.set_config(4, &[6, 0])?;
        card.write(register::CTRL, CTRL_RST)?;
        if card.read(register::CTRL)? & CTRL_RST != 0 {
            return Err("the card stays in reset".into());
        }
        card.write(register::IMC, u32::MAX)?;
        let control = card.read(register::CTRL)?;
        card.write(register::CTRL, control | CTRL_SLU)?;
        let [a, b, c, d, e, f] = mac;
        card.write(register::RAL, u32::from_le_bytes([a, b, c, d]))?;
        card.write(register::RAL + 4, u32::from_le_bytes([e, f, 0, 0x80]))?;
        for (base, ring) in [(register::TDBAL, TX_RING), (register::RDBAL, RX_RING)] {
            // Base, length, head, tail.
            for (offset, value) in
                [(0, ring as u32), (4, 0), (8, u32::from(DESCRIPTORS) * 16), (0x10, 0), (0x18, 0)]
            {
                card.write(base + offset, value)?;
            }
        }
        card.set_msi(interrupts == pci::MSI)?;
        card.enable_interrupts(interrupts)?;
        let driver = E1000 { card, tx: (0, 0), rx: 0 };
        driver.post_all()
    }

    /// Posts receive buffers, and enables both rings.
    fn post_all(mut self) -> Result<E1000, Failure> {
        let (rx, tx) = (self.ring(RX_RING)?, self.ring(TX_RING)?);
        for index in 0..DESCRIPTORS.into() {
            rx.set_first(index, RX_BUFFERS + index as u64 * BUFFER);
            rx.set_second(index, 0);
            tx.set_second(index, 0);
        }
        self.card.write(register::TCTL, TCTL)?;
        self.card.write(register::RCTL, RCTL)?;
        self.card.write(register::RDT, u32::from(DESCRIPTORS) - 1)?;
        self.card.write(register::IMS, INTERRUPTS)?;
        // The posted writes have arrived when this is answered.
        self.card.read(register::CTRL)?;
        Ok(self)
    }

    /// Resets its card and starts again.
    pub fn restart(self, mac: [u8; 6], interrupts: u32) -> Result<E1000, Failure> {
        E1000::start(self.card, mac, interrupts)
    }

    /// Its card.
    pub fn card(&mut self) -> &mut Card {
        &mut self.card
    }

    fn ring(&self, at: u64) -> Result<Pairs<'_>, Failure> {
        let span = self.card.span(at, u32::from(DESCRIPTORS) * 16)?;
        Pairs::new(span, DESCRIPTORS).ok_or_else(|| "a misaligned ring".into())
    }

    /// Sends a frame; waits while the ring is full.
    pub fn send(&mut self, frame: &[u8], bound: Duration) -> Result<(), Failure> {
        self.send_as(frame, frame.len() as u64 | COMMAND, bound)
    }

    /// Sends a frame with offloads: the words of a context descriptor, and the upper bits of the data descriptor's
    /// second word: its command, its options, and a VLAN tag.
    pub fn send_with(
        &mut self,
        frame: &[u8],
        context: [u64; 2],
        asked: u64,
        bound: Duration,
    ) -> Result<(), Failure> {
        self.wait_for_room(2, bound)?;
        let ring = self.ring(TX_RING)?;
        ring.set_first(self.tx.0.into(), context[0]);
        ring.release_second(self.tx.0.into(), context[1] | EXTENDED | REPORT);
        self.tx.0 = next(self.tx.0);
        self.send_as(frame, frame.len() as u64 | 1 << 20 | EXTENDED | COMMAND | asked, bound)
    }

    /// Waits until `count` descriptors are free.
    fn wait_for_room(&mut self, count: u16, bound: Duration) -> Result<(), Failure> {
        loop {
            self.reclaim()?;
            let (tail, clean) = self.tx;
            if (clean + DESCRIPTORS - tail - 1) % DESCRIPTORS >= count {
                return Ok(());
            }
            self.sleep(bound)?;
        }
    }

    fn send_as(&mut self, frame: &[u8], command: u64, bound: Duration) -> Result<(), Failure> {
        self.wait_for_room(1, bound)?;
        let slot = usize::from(self.tx.0);
        let at = TX_BUFFERS + slot as u64 * BUFFER;
        if self.card.span(at, BUFFER as u32)?.write(frame) < frame.len() {
            return Err("the frame is too long".into());
        }
        let ring = self.ring(TX_RING)?;
        ring.set_first(slot, at);
        ring.release_second(slot, command);
        self.tx.0 = next(self.tx.0);
        self.card.write(register::TDT, self.tx.0.into())
    }

    fn reclaim(&mut self) -> Result<(), Failure> {
        let (tail, mut clean) = self.tx;
        let ring = self.ring(TX_RING)?;
        while clean != tail && ring.second(clean.into()) & DONE != 0 {
            clean = next(clean);
        }
        self.tx.1 = clean;
        Ok(())
    }

    /// Waits for frames, at most for `bound`, and takes all of them.
    pub fn receive(&mut self, bound: Duration) -> Result<Vec<Vec<u8>>, Failure> {
        loop {
            let mut frames = Vec::new();
            let ring = self.ring(RX_RING)?;
            let mut slot = self.rx;
            while ring.second(slot.into()) & DONE != 0 {
                let len = ring.second(slot.into()) as u16;
                let mut frame = vec![0; len.into()];
                let buffer = self.card.span(RX_BUFFERS + u64::from(slot) * BUFFER, BUFFER as u32)?;
                if buffer.as_span().read(&mut frame) < frame.len() {
                    return Err("a frame longer than its buffer".into());
                }
                frames.push(frame);
                ring.set_second(slot.into(), 0);
                slot = next(slot);
            }
            if frames.is_empty() {
                self.sleep(bound)?;
                continue;
            }
            self.rx = slot;
            // The descriptor before the next one is the last that is posted.
            let last = (slot + DESCRIPTORS - 1) % DESCRIPTORS;
            self.card.write(register::RDT, last.into())?;
            return Ok(frames);
        }
    }

    /// Waits for an interrupt; a driver that finds nothing to do depends on it.
    fn sleep(&mut self, bound: Duration) -> Result<(), Failure> {
        if !self.card.wait(0, bound)? {
            return Err(format!("no interrupt for {bound:?}").into());
        }
        // The read clears the causes, and so the pin.
        self.card.read(register::ICR)?;
        self.card.unmask()
    }
}

fn next(slot: u16) -> u16 {
    (slot + 1) % DESCRIPTORS
}
