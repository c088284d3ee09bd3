//! Owned frames between threads: a packet's bytes and offloads, without its annotations.

use super::pool::FreeList;
use super::{Blank, Buffer, HEADROOM, Packet, PacketBurst, Pool, SMALL};
use crate::{Burst, Full, Offload};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::mem::ManuallyDrop;
use ringway_mem::{Span, SpanMut, Turn, TurnMark};

/// An owned frame that may change threads.
pub struct OwnedFrame {
    /// Not shared.
    buffer: Buffer,
    /// At most `end`.
    start: u32,
    /// At most `capacity`.
    end: u32,
    /// The buffer's, copied so that the buffer's header is not touched.
    capacity: u32,
    offload: Offload,
}

const _: () = assert!(size_of::<OwnedFrame>() == 32);

// SAFETY: a buffer belongs to one thread because its clones count themselves in a cell; a owned frame's buffer has no
// clones, and nothing else of a owned frame belongs to a thread.
unsafe impl Send for OwnedFrame {}

impl OwnedFrame {
    #[inline]
    fn of(buffer: Buffer, capacity: u32) -> OwnedFrame {
        OwnedFrame { buffer, start: 0, end: 0, capacity, offload: Offload::default() }
    }

    /// An empty one for a frame of `length` bytes, which a usual one can't take.
    #[cold]
    pub fn large(length: usize) -> OwnedFrame {
        let buffer = Buffer::new(HEADROOM + length);
        let capacity = buffer.capacity() as u32;
        OwnedFrame::of(buffer, capacity)
    }

    /// Number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether it has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.end == self.start
    }

    /// The pending offloads.
    #[inline]
    pub fn offload(&self) -> Offload {
        self.offload
    }

    /// Its buffer, if that has the usual size.
    #[inline]
    pub fn into_blank(self) -> Option<Blank> {
        (self.capacity as usize == SMALL).then_some(Blank(self.buffer))
    }

    /// The bytes.
    #[inline]
    pub fn data(&self) -> &[u8] {
        // SAFETY: `start` is at most `end`, and `end` at most the capacity; a buffer's bytes are initialized.
        unsafe { core::slice::from_raw_parts(self.buffer.at(self.start as usize).as_ptr(), self.len()) }
    }

    /// Copies frame `index` of a burst into the buffer, after the usual headroom. `false` if it has no room.
    #[inline]
    #[must_use]
    pub fn fill(&mut self, burst: &Burst<'_>, index: usize) -> bool {
        let meta = burst.meta(index);
        let length = meta.len as usize;
        if HEADROOM + length > self.capacity as usize {
            return false;
        }
        // SAFETY: the range is within the capacity, and the buffer is not shared.
        let data = unsafe { core::slice::from_raw_parts_mut(self.buffer.at(HEADROOM).as_ptr(), length) };
        burst.copy_to(index, SpanMut::of(data));
        (self.start, self.end) = (HEADROOM as u32, (HEADROOM + length) as u32);
        self.offload = meta.offload;
        true
    }
}

impl From<Blank> for OwnedFrame {
    /// A owned frame without bytes.
    #[inline]
    fn from(Blank(buffer): Blank) -> OwnedFrame {
        OwnedFrame::of(buffer, SMALL as u32)
    }
}

impl core::fmt::Debug for OwnedFrame {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("OwnedFrame").field("length", &self.len()).finish()
    }
}

impl Packet {
    /// The packet as a owned frame. Bytes that clones share are copied.
    #[inline]
    pub fn into_parcel(mut self) -> OwnedFrame {
        let offload = if self.has_offload() { self.offload() } else { Offload::default() };
        self.make_unique();
        if self.0.capacity as usize > SMALL {
            self.trim();
        }
        let mut packet = ManuallyDrop::new(self);
        // SAFETY: the packet is not used or dropped after this.
        let node = unsafe { ManuallyDrop::take(&mut packet.0) };
        let (start, end, capacity) = (node.start, node.end, node.capacity);
        OwnedFrame { buffer: FreeList::take_buffer(node), start, end, capacity, offload }
    }

    /// Moves the data to a buffer of its size if it has a far larger one.
    ///
    /// Attack: frames of a few bytes in buffers of megabytes, of which a queue of owned frames would hold hundreds.
    #[cold]
    fn trim(&mut self) {
        if self.0.capacity as usize > HEADROOM + self.len() + SMALL {
            self.reallocate(HEADROOM, 0);
        }
    }
}

/// What became of owned frames that a pool made packets of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unpacked {
    /// Bytes of the packets.
    pub bytes: u64,
    /// Number of owned frames that became no packet.
    pub refused: u64,
}

impl Pool {
    /// A buffer for a frame.
    #[inline]
    pub fn blank(&self) -> Blank {
        Blank(self.0.buffer(SMALL))
    }

    /// Takes buffers for later packets; the list is empty afterwards.
    #[inline]
    pub fn keep(&self, blanks: &mut Vec<Blank>) {
        self.0.put_blanks(blanks);
    }

    /// Appends `count` buffers to a list.
    #[inline]
    pub fn blanks(&self, count: usize, to: &mut Vec<Blank>) {
        let missing = count - self.0.take_blanks(count, to);
        to.extend((0..missing).map(|_| self.blank()));
    }

    /// Moves all packets of a burst, in order, to the end of `to`, and returns the number of their bytes; `None`, with
    /// nothing moved, unless all are this pool's, are not shared, have usual buffers and no pending offloads. Then
    /// [`Packet::into_parcel`] does.
    #[inline]
    pub fn pack(&self, burst: &mut PacketBurst, to: &mut Vec<OwnedFrame>) -> Option<u64> {
        let pending = burst.iter().fold(false, |any, packet| any | packet.has_offload());
        if pending || !self.0.owns(burst.packets()) {
            return None;
        }
        let (mut bytes, count) = (0, burst.len());
        let mut nodes = self.0.room_for_bare(count)?;
        to.reserve(count);
        for packet in burst.iter_mut() {
            let node = &mut **packet.0;
            let (start, end) = (node.start, node.end);
            bytes += u64::from(end - start);
            let (capacity, offload) = (SMALL as u32, Offload::default());
            to.push(OwnedFrame { buffer: node.leave(), start, end, capacity, offload });
        }
        burst.abandon(&mut nodes);
        Some(bytes)
    }

    /// Makes packets, received at `timestamp`, of owned frames, and appends them to a burst in order, as many as fit.
    /// Owned frames with invalid offloads, and those beyond the pool's limit, are refused; the list is empty
    /// afterwards.
    #[inline]
    pub fn unpack_all(
        &self,
        from: &mut Vec<OwnedFrame>,
        burst: &mut PacketBurst,
        timestamp: u64,
    ) -> Unpacked {
        let is_usual = |owned_frame: &OwnedFrame| {
            (owned_frame.capacity as usize == SMALL)
                & (owned_frame.offload.flags | owned_frame.offload.gso_type == 0)
        };
        let all_are = from.iter().fold(true, |all, owned_frame| all & is_usual(owned_frame));
        let mut nodes = self.0.bare_nodes();
        let (at, fit) = (nodes.len().checked_sub(from.len()), burst.room() >= from.len());
        let Some(at) = at.filter(|_| all_are & fit) else {
            drop(nodes);
            return self.unpack_each(from, burst, timestamp);
        };
        let mut bytes = 0;
        for (node, owned_frame) in nodes[at..].iter_mut().zip(from.drain(..)) {
            let OwnedFrame { buffer, start, end, .. } = owned_frame;
            node.enter(buffer);
            node.reset(start, end - start);
            node.timestamp = timestamp;
            bytes += u64::from(end - start);
        }
        burst.adopt(&mut nodes, at);
        Unpacked { bytes, refused: 0 }
    }

    #[cold]
    fn unpack_each(&self, from: &mut Vec<OwnedFrame>, burst: &mut PacketBurst, timestamp: u64) -> Unpacked {
        let mut unpacked = Unpacked::default();
        for owned_frame in from.drain(..) {
            match self.unpack(owned_frame).filter(|_| burst.room() > 0) {
                Some(mut packet) => {
                    packet.set_timestamp(timestamp);
                    unpacked.bytes += packet.len() as u64;
                    burst.push(packet);
                }
                None => unpacked.refused += 1,
            }
        }
        unpacked
    }

    /// A packet with the owned frame's bytes and offloads. `None` if the offloads are invalid, or at the pool's limit.
    #[inline]
    pub fn unpack(&self, owned_frame: OwnedFrame) -> Option<Packet> {
        let OwnedFrame { buffer, start, end, capacity, offload } = owned_frame;
        let mut node = match self.0.node_of_small(buffer, capacity) {
            Ok(node) => node,
            Err(buffer) if self.0.is_exhausted() || !self.0.admits(capacity as usize) => {
                self.0.put_buffer(buffer);
                return None;
            }
            Err(buffer) => self.0.node(buffer),
        };
        node.reset(start, end - start);
        let mut packet = Packet(ManuallyDrop::new(node));
        if offload != Offload::default() {
            packet.set_offload(offload).ok()?;
        }
        Some(packet)
    }
}

/// Owned frames of a queue whose frames bursts borrow until their turn ends.
#[derive(Default)]
pub struct Lent {
    /// Not released yet.
    held: VecDeque<OwnedFrame>,
    /// Released; bursts may still borrow them.
    released: Vec<OwnedFrame>,
    /// The last turn in which frames were borrowed.
    mark: Option<TurnMark>,
}

impl Lent {
    /// Number of frames that were not released.
    #[inline]
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether all frames were released.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Appends a frame.
    #[inline]
    pub fn push(&mut self, owned_frame: OwnedFrame) {
        self.held.push_back(owned_frame);
    }

    /// Adds the frames, in order, as many as fit, to a burst of this turn.
    #[inline]
    pub fn lend<'t>(&mut self, turn: &'t Turn<'_>, burst: &mut Burst<'t>) {
        let mark = turn.mark();
        if self.mark.is_some_and(|last| last != mark && !last.has_ended()) {
            // Another worker served the queue, and its turn has not ended.
            return;
        }
        self.mark = Some(mark);
        for owned_frame in &self.held {
            let data = owned_frame.data();
            // SAFETY: the bytes are neither written nor freed before the turn ends: a held owned frame is only moved to
            // `released`, which `reclaim` and `drop` give up after the end of turn `mark`; that is this turn, or
            // one in which nothing could be lent before this one ended.
            let data: &'t [u8] = unsafe { core::slice::from_raw_parts(data.as_ptr(), data.len()) };
            if let Err(Full) = burst.push(owned_frame.offload, Span::of(data)) {
                return;
            }
        }
    }

    /// Releases the first `frames` frames.
    #[inline]
    pub fn release(&mut self, frames: usize) {
        self.released.extend(self.held.drain(..frames.min(self.held.len())));
    }

    /// Moves the usual buffers of released owned frames that no burst borrows any more to `to`; frees others.
    #[inline]
    pub fn reclaim(&mut self, to: &mut Vec<Blank>) {
        if !self.released.is_empty() && self.mark.is_none_or(|mark| mark.has_ended()) {
            to.extend(self.released.drain(..).filter_map(OwnedFrame::into_blank));
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if !self.held.is_empty() || !self.released.is_empty() {
            // Bursts may borrow them until the end of the turn.
            let owned_frames = (core::mem::take(&mut self.held), core::mem::take(&mut self.released));
            ringway_mem::defer_free(Box::new(owned_frames));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Storage;
    use crate::packet::PACKET;
    use ringway_mem::Reader;

    #[test]
    fn a_frame_changes_threads_without_a_copy() {
        let pool = Pool::new();
        let packet = pool.copy(&[7; 100]).unwrap();
        let at = packet.data().as_ptr().addr();
        let owned_frame = packet.into_parcel();
        let (owned_frame, there) = std::thread::spawn(move || {
            let own = Pool::new();
            let mut packet = own.unpack(owned_frame).unwrap();
            let there = packet.data().as_ptr().addr();
            packet.data_mut()[0] = 8;
            (packet.into_parcel(), there)
        })
        .join()
        .unwrap();
        assert_eq!((at, owned_frame.data()[0], owned_frame.len()), (there, 8, 100));
        assert_eq!(pool.unpack(owned_frame).unwrap().headroom(), HEADROOM);
    }

    #[test]
    fn a_shared_packet_is_copied() {
        let pool = Pool::new();
        let packet = pool.copy(&[7; 100]).unwrap();
        let clone = packet.clone();
        let owned_frame = packet.into_parcel();
        assert_ne!(owned_frame.data().as_ptr(), clone.data().as_ptr());
        assert_eq!(owned_frame.data(), clone.data());
    }

    #[test]
    fn a_pool_stops_at_its_limit() {
        let pool = Pool::new();
        pool.limit(2 * PACKET);
        let packets = [pool.copy(&[1]), pool.copy(&[2])];
        assert!(packets.iter().all(Option::is_some) && pool.copy(&[3]).is_none());
        assert!(pool.unpack(pool.blank().into()).is_none());
        drop(packets);
        assert!(pool.copy(&[3]).is_some() && pool.unpack(pool.blank().into()).is_some());
    }

    #[test]
    fn a_free_packet_is_used_before_the_limit_is_exceeded() {
        let pool = Pool::new();
        pool.limit(2 * PACKET);
        let [dropped, _kept] = [pool.copy(&[1]), pool.copy(&[2])];
        let blank = pool.blank();
        drop(dropped);
        let packet = pool.unpack(blank.into());
        assert!(packet.is_some() && pool.copy(&[3]).is_none(), "there are two packets, and no third");
        drop(packet);
        assert!(pool.copy(&[3]).is_some());
    }

    #[test]
    fn bytes_of_large_packets_are_limited() {
        let (pool, other) = (Pool::new(), Pool::new());
        let (large, bytes) = (65_000, HEADROOM + 65_000);
        pool.limit(3 * (PACKET + bytes));
        let mut packets: Vec<Packet> = (0..3).map(|_| pool.copy(&[7; 65_000]).unwrap()).collect();
        assert!(pool.make(HEADROOM, large, 0).is_none() && pool.copy(&[7]).is_none());
        let more = || other.copy(&[7; 65_000]).unwrap().into_parcel();
        assert!(pool.unpack(more()).is_none());
        let owned_frame = packets.pop().unwrap().into_parcel();
        packets.push(pool.unpack(owned_frame).unwrap());
        assert!(pool.unpack(more()).is_none(), "a packet that leaves makes room for one");
        let clones = [packets[0].clone(), packets[0].clone()];
        assert!(!pool.is_over_limit(), "clones share their bytes");
        drop(packets);
        assert!(pool.make(HEADROOM, 2 * large, 0).is_some_and(|packet| packet.len() == 2 * large));
        assert!(pool.make(HEADROOM, 3 * large, 0).is_none(), "one buffer is still in use");
        drop(clones);
        assert!(pool.unpack(more()).is_some());
    }

    #[test]
    fn free_packets_make_room_for_a_large_one() {
        let pool = Pool::new();
        pool.limit(40 * PACKET);
        let small: Vec<_> = (0..40).map(|_| pool.copy(&[1])).collect();
        assert!(pool.make(0, 65_000, 0).is_none());
        drop(small);
        let large = pool.make(0, 65_000, 0).unwrap();
        assert!(pool.make(0, 65_000, 0).is_none());
        let small: Vec<_> = (0..40).map_while(|_| pool.copy(&[1])).collect();
        assert_eq!(small.len(), 10, "29 of {PACKET} bytes are taken by the large one");
        drop((small, large));
        assert!(pool.make(0, 65_000, 0).is_some());
    }

    #[test]
    fn a_packet_does_not_grow_beyond_the_limit() {
        let pool = Pool::new();
        pool.limit(20 * PACKET);
        let mut packet = pool.copy(&[7; 100]).unwrap();
        assert!(!packet.put(65_000) && !packet.push(65_000) && packet.len() == 100);
        packet.shift(65_000);
        assert!(packet.headroom() < SMALL && packet.put(30_000) && packet.len() == 30_100);
    }

    #[test]
    fn a_parcel_has_no_more_memory_than_its_frame_needs() {
        let pool = Pool::new();
        for length in [60, 3000] {
            let mut packet = pool.make(HEADROOM, 1 << 20, 0).unwrap();
            packet.data_mut()[..4].copy_from_slice(&[1, 2, 3, 4]);
            packet.take((1 << 20) - length);
            let owned_frame = packet.into_parcel();
            assert!(owned_frame.buffer.capacity() <= HEADROOM + length + SMALL);
            assert_eq!((owned_frame.len(), &owned_frame.data()[..4]), (length, &[1, 2, 3, 4][..]));
        }
    }

    #[test]
    fn released_frames_stay_until_the_turn_ends() {
        let pool = Pool::new();
        let (mut lent, mut storage, mut back) = (Lent::default(), Storage::default(), Vec::new());
        for byte in 0..3 {
            lent.push(pool.copy(&[byte; 60]).unwrap().into_parcel());
        }
        let mut reader = Reader::register().unwrap();
        {
            let turn = reader.turn(1);
            let mut burst = Burst::begin(&mut storage);
            lent.lend(&turn, &mut burst);
            lent.release(2);
            lent.reclaim(&mut back);
            assert_eq!((burst.len(), burst.head(2)[0], back.len(), lent.len()), (3, 2, 0, 1));
        }
        let turn = reader.turn(2);
        lent.reclaim(&mut back);
        let mut burst = Burst::begin(&mut storage);
        lent.lend(&turn, &mut burst);
        assert_eq!((back.len(), burst.len(), burst.head(0)[0]), (2, 1, 2));
    }
}
