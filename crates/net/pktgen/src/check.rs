//! What became of the frames that were sent.

use crate::Flows;
use crate::frame::{IP_UDP, MARK};
use crate::latency::{Latency, LatencySummary};
use crate::tag::{MASK, TAG, Tag, headers_check, is_filled};
use ringway_wire::checksum::checksum;
use serde::Serialize;
use std::ops::RangeInclusive;

/// Numbers below the next one for which it is known whether they came.
const WINDOW: u64 = 1 << 16;
/// Of a frame without a valid tag, or with it, so many marks of a generated frame must be there.
const MARKS: usize = 5;

/// Frames by what became of them. A frame that came is counted in one of `frames`, `duplicates`, `corrupted`, `foreign`
/// and `old`; those that are `reordered` are among `frames`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Received {
    /// Frames that came as they were sent, each counted once.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames that did not come.
    pub lost: u64,
    /// Frames that came after one that was sent later (RFC 4737, 3.3).
    pub reordered: u64,
    /// Frames that came again.
    pub duplicates: u64,
    /// Frames that came with other bytes than they were sent with.
    pub corrupted: u64,
    /// Frames that no generator sent.
    pub foreign: u64,
    /// Frames so late that it is not known whether they came already, or from before the first one.
    pub old: u64,
    /// How often a sender began anew.
    pub restarts: u64,
    /// Latencies in nanoseconds.
    pub latency: LatencySummary,
}

impl Received {
    /// All frames that came.
    pub fn came(&self) -> u64 {
        self.frames + self.duplicates + self.corrupted + self.foreign + self.old
    }
}

/// Checks frames, and counts.
#[derive(Clone, Debug)]
pub struct Checker {
    ports: RangeInclusive<u16>,
    /// Whether headers may be changed on the way: then only the payload and the checksum of IPv4 are checked.
    changed_headers: bool,
    counts: Received,
    latency: Latency,
    /// The number of the first frame.
    first: Option<u64>,
    /// The number after the highest that came.
    next: u64,
    /// When the newest frame was sent.
    newest: u64,
    /// A bit for each number of the window that came.
    seen: Box<[u64]>,
    /// Frames of the current run that came, damaged ones included, whose number is below `next`.
    known: u64,
    /// Damaged frames of the current run whose number is not known.
    unknown: u64,
}

/// What a frame is.
enum Kind {
    Foreign,
    /// With its number and time, if they are known.
    Corrupted(Option<Tag>),
    Good(Tag),
}

impl Checker {
    /// A checker of frames to these UDP ports.
    pub fn new(ports: RangeInclusive<u16>) -> Checker {
        Checker {
            ports,
            changed_headers: false,
            counts: Received::default(),
            latency: Latency::new(),
            first: None,
            next: 0,
            newest: 0,
            seen: vec![0; (WINDOW / 64) as usize].into(),
            known: 0,
            unknown: 0,
        }
    }

    /// A checker of what comes back of these flows, whose addresses and ports are exchanged or not.
    pub fn of_answers(flows: &Flows) -> Checker {
        let (own, other) = (flows.ports(), flows.from_port);
        Checker::new((*own.start()).min(other)..=(*own.end()).max(other)).permit_changed_headers()
    }

    /// Permits others to change headers on the way, as routers and NAT do.
    pub fn permit_changed_headers(mut self) -> Checker {
        self.changed_headers = true;
        self
    }

    /// Counts from frame `number` on, which is sent after `now`: those before it that come count as old, those from it
    /// on that don't as lost.
    pub fn starting_at(mut self, number: u64, now: u64) -> Checker {
        (self.first, self.next, self.newest) = (Some(number), number, now);
        self
    }

    /// Checks a frame that came at `now`, in nanoseconds of the sender's clock; returns whether it came well.
    #[inline]
    pub fn see(&mut self, frame: &[u8], now: u64) -> bool {
        match self.kind(frame) {
            Kind::Good(tag) => {
                let is_new = self.place(tag, now);
                if is_new {
                    self.counts.frames += 1;
                    self.counts.bytes += frame.len() as u64;
                    self.latency.add((now.wrapping_sub(tag.time)) & MASK);
                }
                is_new
            }
            kind => {
                self.count_other(kind, now);
                false
            }
        }
    }

    #[cold]
    fn count_other(&mut self, kind: Kind, now: u64) {
        match kind {
            Kind::Corrupted(None) => {
                self.counts.corrupted += 1;
                self.unknown += 1;
            }
            // A copy of one that came already is a duplicate, damaged or not.
            Kind::Corrupted(Some(tag)) => {
                let before = self.counts.reordered;
                let is_new = self.place(tag, now);
                self.counts.reordered = before;
                self.counts.corrupted += u64::from(is_new);
            }
            _ => self.counts.foreign += 1,
        }
    }

    /// How many marks of a generated frame are there, if its IPv4 header begins at `ip`.
    #[inline]
    fn marks(&self, frame: &[u8], ip: usize) -> usize {
        let word =
            |at: usize| frame.get(at..at + 2).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
        let marks = [
            word(ip - 2) == 0x0800,
            word(ip) >> 8 == 0x45,
            word(ip + 4) == MARK,
            word(ip + 8) & 0xff == 17,
            self.ports.contains(&word(ip + 22)),
        ];
        marks.iter().filter(|mark| **mark).count()
    }

    #[inline]
    fn kind(&self, frame: &[u8]) -> Kind {
        let ip = match frame.get(12..14) {
            Some([0x08, 0x00]) => 14,
            Some([0x81, 0x00]) => 18,
            Some(_) => self.likely(frame),
            None => return Kind::Foreign,
        };
        let (at, marks) = (ip + IP_UDP, self.marks(frame, ip));
        let bytes = frame.get(at..at + TAG).and_then(|bytes| <&[u8; TAG]>::try_from(bytes).ok());
        let Some(bytes) = bytes else {
            return if marks == MARKS { Kind::Corrupted(None) } else { Kind::Foreign };
        };
        match Tag::from_bytes(bytes) {
            None if marks == MARKS => Kind::Corrupted(None),
            Some((tag, check)) if marks + 2 >= MARKS => {
                let (headers, pattern) = (&frame[..at], &frame[at + TAG..]);
                let len = usize::from(u16::from_be_bytes([frame[ip + 2], frame[ip + 3]]));
                let is_whole = if self.changed_headers {
                    checksum(&frame[ip..ip + 20]) == 0
                } else {
                    headers_check(headers) == check
                };
                match is_whole && ip + len == frame.len() && marks == MARKS && is_filled(pattern, tag.number)
                {
                    true => Kind::Good(tag),
                    false => Kind::Corrupted(Some(tag)),
                }
            }
            _ => Kind::Foreign,
        }
    }

    /// Where the IPv4 header begins if the type before it is damaged.
    #[cold]
    fn likely(&self, frame: &[u8]) -> usize {
        if self.marks(frame, 18) > self.marks(frame, 14) { 18 } else { 14 }
    }

    /// Notes a number; whether it did not come before.
    #[inline]
    fn place(&mut self, tag: Tag, now: u64) -> bool {
        let sent = now.wrapping_sub(now.wrapping_sub(tag.time) & MASK);
        // The number nearest to the next one that has these 40 bits.
        let mut ahead = tag.number.wrapping_sub(self.next) & MASK;
        if self.first.is_none() || ahead > MASK / 2 && sent > self.newest {
            self.restart(tag.number);
            ahead = 0;
        }
        self.newest = self.newest.max(sent);
        match ahead > MASK / 2 {
            false => self.advance(self.next + ahead),
            true => self.look_back(MASK + 1 - ahead),
        }
    }

    /// A sender begins, or begins anew: what did not come of its last run is lost.
    #[cold]
    fn restart(&mut self, number: u64) {
        if self.first.is_some() {
            self.counts.restarts += 1;
            self.counts.lost += self.missing(self.next);
        }
        (self.first, self.next, self.known, self.unknown) = (Some(number), number, 0, 0);
        self.seen.fill(0);
    }

    /// A number that is the next one, or a later one.
    ///
    /// Attack: a number far ahead; no more than the window is cleared.
    #[inline]
    fn advance(&mut self, number: u64) -> bool {
        let skipped = number - self.next;
        if skipped > 0 {
            self.clear(skipped.min(WINDOW));
        }
        self.next = number + 1;
        self.seen[(number % WINDOW / 64) as usize] |= 1 << (number % 64);
        self.known += 1;
        true
    }

    #[cold]
    fn clear(&mut self, count: u64) {
        for number in (self.next..).take(count as usize) {
            self.seen[(number % WINDOW / 64) as usize] &= !(1 << (number % 64));
        }
    }

    /// A number `behind` the next one.
    #[cold]
    fn look_back(&mut self, behind: u64) -> bool {
        if behind >= WINDOW || behind > self.next - self.first.unwrap_or(self.next) {
            self.counts.old += 1;
            return false;
        }
        let number = self.next - behind;
        let (word, bit) = (&mut self.seen[(number % WINDOW / 64) as usize], 1u64 << (number % 64));
        if *word & bit != 0 {
            self.counts.duplicates += 1;
            return false;
        }
        *word |= bit;
        self.known += 1;
        self.counts.reordered += 1;
        true
    }

    /// Numbers of the current run below `end` that did not come.
    fn missing(&self, end: u64) -> u64 {
        let first = self.first.unwrap_or(end);
        end.max(self.next).saturating_sub(first).saturating_sub(self.known + self.unknown)
    }

    /// Frames that came well so far.
    pub fn frames(&self) -> u64 {
        self.counts.frames
    }

    /// Bytes of frames that came well so far.
    pub fn bytes(&self) -> u64 {
        self.counts.bytes
    }

    /// Frames that did not come so far, of those before the newest.
    pub fn lost(&self) -> u64 {
        self.counts.lost + self.missing(self.next)
    }

    /// Numbers of the current run that are accounted for.
    pub fn known(&self) -> u64 {
        self.known + self.unknown
    }

    /// The counts; `end`: the number after the last one sent, if it is known.
    pub fn received(&mut self, end: Option<u64>) -> Received {
        let lost = self.counts.lost + self.missing(end.unwrap_or(self.next));
        Received { lost, latency: self.latency.summary(), ..self.counts.clone() }
    }

    /// The latencies.
    pub fn latency(&mut self) -> &mut Latency {
        &mut self.latency
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Generator, Sizes};
    use proptest::prelude::*;

    const NOW: u64 = 5_000_000;

    fn generator(size: usize) -> Generator {
        Generator::new(&Sizes::all(size).unwrap(), &Flows::default()).unwrap()
    }

    fn frame(generator: &Generator, number: u64) -> Vec<u8> {
        let mut out = vec![0; generator.largest()];
        generator.write(number, NOW + number, &mut out);
        out
    }

    /// What is counted of frames with these numbers, sent up to `end`.
    fn counted(numbers: &[u64], end: u64) -> Received {
        let (generator, mut checker) = (generator(60), Checker::new(9..=9).starting_at(0, 0));
        for number in numbers {
            checker.see(&frame(&generator, *number), NOW + 100_000);
        }
        checker.received(Some(end))
    }

    #[test]
    fn each_of_loss_reorder_and_duplicates_is_counted_apart() {
        let all = counted(&[0, 1, 5, 3, 3, 6, 6, 6, 2], 10);
        assert_eq!((all.frames, all.lost, all.reordered, all.duplicates), (6, 4, 2, 3));
        assert_eq!((all.corrupted, all.foreign, all.old, all.restarts), (0, 0, 0, 0));
        assert_eq!((all.bytes, all.latency.frames, all.latency.max), (360, 6, 100_000));
        let far = counted(&[0, WINDOW + 10, 5, 12], WINDOW + 11);
        assert_eq!((far.frames, far.old, far.reordered, far.lost), (3, 1, 1, WINDOW + 8));
    }

    #[test]
    fn a_sender_that_begins_anew_loses_nothing() {
        let (generator, mut checker) = (generator(60), Checker::new(9..=9));
        let mut out = vec![0; 60];
        for (number, sent) in [(7, 10), (8, 11), (10, 12), (0, 13), (1, 14), (9, 12)] {
            generator.write(number, NOW + sent, &mut out);
            checker.see(&out, NOW + 20);
        }
        let all = checker.received(None);
        assert_eq!((all.frames, all.lost, all.restarts), (6, 8, 1));
    }

    #[test]
    fn numbers_and_times_of_40_bits_repeat() {
        let (generator, mut checker) = (generator(60), Checker::new(9..=9).starting_at(MASK - 2, 0));
        let mut out = vec![0; 60];
        for number in MASK - 2..MASK + 5 {
            generator.write(number, number, &mut out);
            assert!(checker.see(&out, number + 7));
        }
        let all = checker.received(Some(MASK + 5));
        assert_eq!((all.frames, all.lost, all.latency.min, all.latency.max), (7, 0, 7, 7));
    }

    #[test]
    fn frames_of_others_are_foreign_and_changed_headers_can_be_permitted() {
        let generator = generator(80);
        let mut checker = Checker::new(9..=9);
        for other in [&[0; 14][..], &[], &[0; 60], &frame(&generator, 3)[..20]] {
            assert!(!checker.see(other, NOW));
        }
        let mut dns = frame(&generator, 1);
        dns[18..20].fill(0);
        dns[36..38].copy_from_slice(&53u16.to_be_bytes());
        dns[42] ^= 1;
        checker.see(&dns, NOW);
        assert_eq!((checker.counts.foreign, checker.counts.corrupted), (5, 0));
        // A router's: another TTL with its checksum, other addresses of Ethernet.
        let mut routed = frame(&generator, 2);
        routed[0] = 2;
        routed[22] -= 1;
        routed[24..26].fill(0);
        let sum = checksum(&routed[14..34]);
        routed[24..26].copy_from_slice(&sum.to_be_bytes());
        checker.see(&routed, NOW);
        assert_eq!(checker.counts.corrupted, 1);
        let mut checker = Checker::new(9..=9).permit_changed_headers();
        assert!(checker.see(&routed, NOW + 10));
    }

    proptest! {
        /// One bit, or all behind some byte, anywhere in the frame.
        #[test]
        fn a_corrupted_frame_is_counted_as_such(
            size in 60usize..200, vlan: bool, bit in 0usize..480, cut in proptest::option::of(1usize..30)
        ) {
            let flows = Flows { vlan: vlan.then_some(7), ..Flows::default() };
            let generator = Generator::new(&Sizes::all(size).unwrap(), &flows).unwrap();
            let mut checker = Checker::new(9..=9).starting_at(0, 0);
            for number in 0..3 {
                let mut bytes = frame(&generator, number);
                if number == 1 {
                    match cut {
                        Some(cut) => bytes.truncate(size - cut.min(size - 50)),
                        None => bytes[bit / 8] ^= 1 << (bit % 8),
                    }
                }
                checker.see(&bytes, NOW + 10);
            }
            let all = checker.received(Some(3));
            prop_assert_eq!((all.frames, all.corrupted, all.lost, all.foreign), (2, 1, 0, 0));
        }

        /// Any order, losses and copies: each is counted as a model does.
        #[test]
        fn counts_are_those_of_a_model(numbers in prop::collection::vec(0u64..300, 0..400)) {
            let all = counted(&numbers, 300);
            let (mut seen, mut next) = (std::collections::BTreeSet::new(), 0);
            let (mut reordered, mut duplicates) = (0, 0);
            for number in &numbers {
                match seen.insert(*number) {
                    true => reordered += u64::from(*number < next),
                    false => duplicates += 1,
                }
                next = next.max(number + 1);
            }
            let frames = seen.len() as u64;
            prop_assert_eq!((all.frames, all.lost), (frames, 300 - frames));
            prop_assert_eq!((all.reordered, all.duplicates), (reordered, duplicates));
        }
    }
}
