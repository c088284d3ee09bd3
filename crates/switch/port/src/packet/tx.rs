//! Frames from the interface: the receive ring of the socket.

use super::{Ring, Shared, block};
use ringway_frame::{BURST, Burst, LARGEST, Needs, Offload, Reason, TxQueue};
use ringway_host::{HostError, Mapping, RX_BLOCK, RX_BLOCKS, packet_missed};
use ringway_mem::{Hint, Memory, Published, Span, Turn, Words};
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;

/// Bytes of a frame's header in a block (`struct tpacket3_hdr`).
const HEADER: u32 = 48;
/// Frames that have room in a block.
const MOST_FRAMES: u32 = RX_BLOCK as u32 / HEADER;
/// Words of that header.
const NEXT: usize = 0;
const CAPTURED: usize = 3;
const LENGTH: usize = 4;
const STATUS: usize = 5;
const POSITIONS: usize = 6;
const TAG: usize = 8;
const TAG_TYPE: usize = 9;
/// The frame's status: the kernel removed a VLAN tag, and knows its type.
const TAGGED: u32 = 1 << 4;
const TYPE_KNOWN: u32 = 1 << 6;
/// Type of a VLAN tag if the kernel does not tell it.
const VLAN: u16 = 0x8100;
/// Bytes of two Ethernet addresses, after which a tag stands.
const ADDRESSES: usize = 12;
const TAG_LEN: usize = 4;
const SHORTEST: u32 = 14;
/// Bursts after which a busy queue asks the kernel what it lost.
const ASK_EVERY: u32 = 4096;

/// A frame that was taken and not yet released.
struct Held {
    /// Where it begins in the mapping, and its length there.
    at: u64,
    len: u32,
    offload: Offload,
    /// The tag to insert.
    tag: Option<[u8; TAG_LEN]>,
    /// Frames of the ring that are released with it: itself, and invalid ones after it.
    count: u32,
}

/// A block with frames that were not released.
struct Reading {
    index: usize,
    frames: u32,
    released: u32,
}

pub(super) struct PacketTx {
    shared: Shared,
    /// Number of the interface that the rest is about.
    number: u64,
    blocks: VecDeque<Reading>,
    /// The block after those.
    next: usize,
    /// Frames of the last block that were not looked at, and where the next one begins in the block.
    left: u32,
    at: u32,
    held: VecDeque<Held>,
    /// Calls of `release` until the kernel is asked what it lost.
    until_asked: u32,
    /// A place for tags that are inserted, until a burst has copied them. Never replaced.
    tags: Published<Memory>,
}

/// What a frame's header says.
enum Found {
    Frame(Held),
    Refused(Reason),
}

impl PacketTx {
    pub fn new(shared: Shared) -> Result<PacketTx, HostError> {
        let tags = Memory::new(vec![Mapping::private(BURST * TAG_LEN)?.region()]).unwrap_or_default();
        Ok(PacketTx {
            shared,
            number: 0,
            blocks: VecDeque::with_capacity(RX_BLOCKS),
            next: 0,
            left: 0,
            at: 0,
            held: VecDeque::with_capacity(BURST),
            until_asked: ASK_EVERY,
            tags: Published::new(Arc::new(tags)),
        })
    }

    fn ring<'t>(&mut self, turn: &'t Turn<'_>) -> Option<&'t Ring> {
        let found = self.shared.ring(turn);
        let number = found.map_or(0, |(.., number)| number);
        if number != self.number {
            self.blocks.clear();
            self.held.clear();
            (self.number, self.left) = (number, 0);
            self.next = found.map_or(0, |(ring, ..)| ring.first);
        }
        found.map(|(ring, ..)| ring)
    }

    /// Counts frames that the kernel had no room for.
    fn count_missed(&mut self, ring: &Ring) {
        self.until_asked = ASK_EVERY;
        let missed = packet_missed(ring.socket.as_fd());
        if missed > 0 {
            self.shared.counters.drop_tx(Reason::Full, missed as usize);
        }
    }

    /// Begins the next block if the kernel has handed it over.
    fn begin(&mut self, ring: &Ring) -> bool {
        // A block that is being read is still ours, but not new.
        if self.blocks.len() >= RX_BLOCKS || !ring.is_ours(self.next) {
            return false;
        }
        let Some(words) = ring.words(self.next) else { return false };
        let frames = words.load(block::FRAMES / 4).min(MOST_FRAMES);
        // What a former data process released is skipped.
        let released = words.load(block::RELEASED / 4).min(frames);
        self.at = words.load(block::FIRST / 4);
        self.left = frames;
        self.blocks.push_back(Reading { index: self.next, frames, released });
        self.next = (self.next + 1) % RX_BLOCKS;
        for _ in 0..released {
            self.advance(ring);
        }
        if released == frames {
            self.return_blocks(ring);
        }
        true
    }

    /// Reads the next frame's header, and moves on; `None` if it is not within the block.
    fn advance(&mut self, ring: &Ring) -> Option<Found> {
        let index = self.blocks.back()?.index;
        let at = self.at;
        self.left -= 1;
        // The kernel writes the offsets. They are checked all the same.
        let inside = |at: u32, len: u32| {
            at.checked_add(len).is_some_and(|end| at >= block::HEADER && end as usize <= RX_BLOCK)
        };
        let header = inside(at, HEADER).then(|| ring.block(index)?.split(at as usize).1.into()).flatten();
        let words = header.and_then(Words::<u32>::new)?;
        let [next, captured, len, status, tag, kind] =
            [NEXT, CAPTURED, LENGTH, STATUS, TAG, TAG_TYPE].map(|word| words.load(word));
        let position = words.load(POSITIONS) & 0xffff;
        self.at = at.saturating_add(next);
        let start = at.saturating_add(position);
        if captured < SHORTEST {
            return Some(Found::Refused(Reason::Short));
        }
        // With BIG TCP an interface has frames of more than 64 KB.
        if captured < len || captured.saturating_add(4) > LARGEST {
            return Some(Found::Refused(Reason::Long));
        }
        let before = start.checked_sub(Offload::LEN as u32)?;
        if position < HEADER + Offload::LEN as u32
            || !inside(before, captured.saturating_add(Offload::LEN as u32))
        {
            return None;
        }
        let place = index * RX_BLOCK + before as usize;
        let offload = ring.span(place, Offload::LEN)?.as_span().read_array::<{ Offload::LEN }>()?;
        let Ok(offload) = Offload::from_bytes(&offload).check(captured, Needs::ALL) else {
            return Some(Found::Refused(Reason::BadOffload));
        };
        let tag = (status & TAGGED != 0).then(|| {
            let kind = if status & TYPE_KNOWN != 0 { kind as u16 } else { VLAN };
            let ([a, b], [c, d]) = (kind.to_be_bytes(), (tag as u16).to_be_bytes());
            [a, b, c, d]
        });
        let offload = if tag.is_some() { behind_tag(offload) } else { offload };
        let at = (place + Offload::LEN) as u64;
        Some(Found::Frame(Held { at, len: captured, offload, tag, count: 1 }))
    }

    /// Counts frames of the oldest blocks as released, and gives blocks back to the kernel.
    fn consume(&mut self, ring: &Ring, mut count: u32) {
        while let Some(block) = self.blocks.front_mut() {
            let some = count.min(block.frames - block.released);
            block.released += some;
            count -= some;
            if block.released < block.frames {
                if let Some(words) = ring.words(block.index) {
                    words.store(block::RELEASED / 4, block.released);
                }
                return;
            }
            if count == 0 {
                return self.return_blocks(ring);
            }
            self.give_back(ring);
        }
    }

    /// Gives the oldest blocks back whose frames are all released.
    fn return_blocks(&mut self, ring: &Ring) {
        while self.blocks.front().is_some_and(|block| block.released == block.frames) {
            self.give_back(ring);
        }
    }

    fn give_back(&mut self, ring: &Ring) {
        let Some(block) = self.blocks.pop_front() else { return };
        if let Some(words) = ring.words(block.index) {
            words.store(block::RELEASED / 4, 0);
            words.store_release(block::STATUS / 4, block::KERNELS);
        }
    }

    /// Drops the rest of the last block, whose headers lead nowhere.
    #[cold]
    fn abandon(&mut self, ring: &Ring, count: u32) {
        self.shared.counters.drop_tx(Reason::BadDescriptor, u64::from(count) as usize);
        self.left = 0;
        self.skip(ring, count);
    }

    /// Releases invalid frames, with the frame before them if one is held.
    fn skip(&mut self, ring: &Ring, count: u32) {
        match self.held.back_mut() {
            Some(held) => held.count += count,
            None => self.consume(ring, count),
        }
    }
}

/// The offload header of a frame into which a tag is inserted before what it is about.
fn behind_tag(offload: Offload) -> Offload {
    if offload.is_done() {
        return offload;
    }
    let more = TAG_LEN as u16;
    let hdr_len = if offload.hdr_len > 0 { offload.hdr_len.saturating_add(more) } else { 0 };
    Offload { csum_start: offload.csum_start.saturating_add(more), hdr_len, ..offload }
}

/// Adds a frame to the burst; `place`: where its tag may stand.
#[inline]
fn push<'t>(
    ring: &'t Ring,
    tags: &'t Memory,
    place: usize,
    held: &Held,
    burst: &mut Burst<'t>,
) -> Option<bool> {
    let frame = ring.span(held.at as usize, held.len as usize)?.as_span();
    let Some(tag) = held.tag else { return Some(burst.push(held.offload, frame).is_ok()) };
    let space = tags.span_mut((place * TAG_LEN) as u64, TAG_LEN as u32, &mut Hint::default())?;
    space.write(&tag);
    let (addresses, rest) = frame.split(ADDRESSES);
    let pieces: [Span<'t>; 3] = [addresses, space.as_span(), rest];
    Some(burst.push_pieces(held.offload, &pieces).is_ok())
}

impl TxQueue for PacketTx {
    fn take<'t>(&mut self, turn: &'t Turn<'_>, burst: &mut Burst<'t>) {
        let Some(ring) = self.ring(turn) else { return };
        let tags: &'t Memory = self.tags.read(turn);
        for (place, held) in self.held.iter().enumerate() {
            if push(ring, tags, place, held, burst) != Some(true) {
                return;
            }
        }
        // Attack: frames that are all invalid must not keep the worker in this loop.
        let mut refused = 0;
        while burst.room() > 0 && self.held.len() < BURST && refused < BURST {
            if self.left == 0 {
                if !self.begin(ring) {
                    return;
                }
                continue;
            }
            match self.advance(ring) {
                Some(Found::Frame(held)) => {
                    let pushed = push(ring, tags, self.held.len(), &held, burst);
                    self.held.push_back(held);
                    // The burst may have other queues' frames already; this frame is in the next one.
                    if pushed != Some(true) {
                        return;
                    }
                }
                Some(Found::Refused(reason)) => {
                    self.shared.counters.drop_tx(reason, 1);
                    self.skip(ring, 1);
                    refused += 1;
                }
                None => {
                    let count = self.left + 1;
                    self.abandon(ring, count);
                    refused += 1;
                }
            }
        }
    }

    fn release(&mut self, turn: &Turn<'_>, frames: usize) {
        let Some(ring) = self.ring(turn) else { return };
        let count = self.held.drain(..frames.min(self.held.len())).map(|held| held.count).sum();
        self.consume(ring, count);
        self.until_asked -= 1;
        if self.until_asked == 0 {
            self.count_missed(ring);
        }
    }

    fn arm(&mut self, turn: &Turn<'_>) -> bool {
        let Some(ring) = self.ring(turn) else { return true };
        if !self.held.is_empty() || self.left > 0 || ring.is_ours(self.next) {
            return false;
        }
        self.count_missed(ring);
        // The descriptor is reported at once if a block was handed over already.
        self.shared.doorbell.watch(ring.socket.clone());
        true
    }

    fn disarm(&mut self, _turn: &Turn<'_>) {
        // While the queue is polled, the worker must not be woken for each block.
        self.shared.doorbell.unwatch();
    }

    fn is_half_full(&mut self, turn: &Turn<'_>) -> Option<bool> {
        let ring = self.ring(turn)?;
        Some(ring.is_ours(self.next + RX_BLOCKS / 2 - 1))
    }
}
