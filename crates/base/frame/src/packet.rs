//! Packets owned by functions: a buffer with headroom and tailroom, and annotations of elements.
//!
//! A [`Packet`] is a handle of one pointer. Clones share the data until one of them is written to. A dropped
//! packet's memory returns to its [`Pool`], so new packets are allocated rarely. Packets and their pool stay
//! on one thread; a [`OwnedFrame`] takes a packet's bytes to another thread without a copy.

mod annotation;
mod buffer;
mod burst;
mod complete;
mod owned_frame;
mod pending;
mod pool;

pub use annotation::{ANNOTATION_BYTES, Annotations, PacketType};
pub use burst::{PACKETS, PacketBurst};
pub use owned_frame::{Lent, OwnedFrame, Unpacked};
pub use pool::{Blank, PACKET, Pool, SMALL};

use alloc::boxed::Box;
use alloc::rc::Rc;
use buffer::Buffer;
use core::cell::Cell;
use core::mem::ManuallyDrop;
use core::ops::Range;
use pending::Pending;
use pool::FreeList;
use ringway_mem::prefetch_value;
use ringway_wire::Header;

/// Default headroom of a new packet, in bytes.
pub const HEADROOM: usize = 28;

/// Largest size of a buffer. Attack: a configuration that requests packets of gigabytes.
pub const LARGEST_BUFFER: usize = 1 << 24;

/// Size of a cache line.
const LINE: usize = 64;

/// A packet: a cache line that describes the data, and a cache line of annotations, which most packets of a function
/// that only passes frames on do without.
#[repr(C, align(64))]
struct Inner {
    buffer: Buffer,
    free_list: Rc<FreeList>,
    /// Nanoseconds since 1970; 0 if unknown.
    timestamp: u64,
    pending: Pending,
    /// The buffer's capacity, copied so that accessing the data does not touch the buffer's header.
    capacity: u32,
    /// At most `end`.
    start: u32,
    /// At most `capacity`.
    end: u32,
    mac: u32,
    network: u32,
    transport: u32,
    /// Offset of the first checksummed byte of a pending checksum.
    csum_start: u32,
    /// Whether the packet was cloned, so that clones may exist.
    cloned: Cell<bool>,
    /// Whether annotations may be set. If not, reusing the packet does not touch their cache line.
    annotated: bool,
    notes: Annotations,
}

const _: () = assert!(size_of::<Inner>() == 2 * LINE && core::mem::offset_of!(Inner, notes) == LINE);

impl Inner {
    fn new(buffer: Buffer, free_list: Rc<FreeList>) -> Self {
        free_list.count(1);
        Inner::count_buffer(&free_list, &buffer, 1);
        let (capacity, notes) = (buffer.capacity() as u32, Annotations::default());
        let (mac, network, transport, csum_start) = (UNSET, UNSET, UNSET, UNSET);
        let (timestamp, pending) = (0, Pending::default());
        let (cloned, annotated) = (Cell::new(false), false);
        Self {
            buffer,
            free_list,
            timestamp,
            pending,
            capacity,
            start: 0,
            end: 0,
            mac,
            network,
            transport,
            csum_start,
            cloned,
            annotated,
            notes,
        }
    }

    /// Reinitializes a reused packet, for `length` bytes after `headroom`. The buffer must be large enough
    /// and not shared.
    #[inline]
    fn reset(&mut self, headroom: u32, length: u32) {
        self.start = headroom;
        self.end = headroom + length;
        (self.mac, self.network, self.transport) = (UNSET, UNSET, UNSET);
        (self.csum_start, self.pending, self.timestamp) = (UNSET, Pending::default(), 0);
        self.cloned.set(false);
        if core::mem::take(&mut self.annotated) {
            self.notes = Annotations::default();
        }
    }

    /// Clears the offsets of headers that the first `bytes` bytes of the data overwrite.
    #[inline]
    fn forget_headers(&mut self, bytes: u32) {
        let (start, end) = (self.start, self.start + bytes);
        if self.mac.min(self.network).min(self.transport) >= end {
            return;
        }
        let overlaps = |at: u32, length: u32| at < end && at.saturating_add(length) > start;
        let network = match self.transport.checked_sub(self.network) {
            Some(length @ 1..=MOST_NETWORK) => length,
            _ => LEAST_NETWORK,
        };
        for (header, length) in
            [(&mut self.mac, MAC), (&mut self.network, network), (&mut self.transport, LEAST_TRANSPORT)]
        {
            if overlaps(*header, length) {
                *header = UNSET;
            }
        }
    }

    fn set_buffer(&mut self, buffer: Buffer) -> Buffer {
        if buffer.capacity().max(self.capacity as usize) > SMALL {
            Inner::count_buffer(&self.free_list, &buffer, 1);
            Inner::count_buffer(&self.free_list, &self.buffer, -1);
        }
        self.capacity = buffer.capacity() as u32;
        self.cloned.set(buffer.is_shared());
        core::mem::replace(&mut self.buffer, buffer)
    }

    #[inline]
    fn is_shared(&self) -> bool {
        self.cloned.get() && self.buffer.is_shared()
    }

    #[inline]
    fn bytes(&self, from: usize, to: usize) -> Option<&[u8]> {
        if from > to || to > self.capacity as usize {
            return None;
        }
        // SAFETY: the range is within the buffer's capacity, and only an unshared buffer is written to.
        Some(unsafe { core::slice::from_raw_parts(self.buffer.at(from).as_ptr(), to - from) })
    }

    /// As [`Inner::bytes`], mutable; also `None` if clones may share the bytes, according to `cloned`.
    #[inline]
    fn bytes_mut(&mut self, from: usize, to: usize) -> Option<&mut [u8]> {
        if from > to || to > self.capacity as usize || self.cloned.get() {
            return None;
        }
        // SAFETY: the range is within the buffer's capacity, and there are no clones: `cloned` records them.
        Some(unsafe { core::slice::from_raw_parts_mut(self.buffer.at(from).as_ptr(), to - from) })
    }

    /// The data.
    #[inline]
    fn data(&self) -> &[u8] {
        let (start, end) = (self.start as usize, self.end as usize);
        debug_assert!(start <= end && end <= self.capacity as usize);
        // SAFETY: `start` is at most `end`, and `end` at most the buffer's capacity; only an unshared buffer
        // is written to.
        unsafe { core::slice::from_raw_parts(self.buffer.at(start).as_ptr(), end - start) }
    }

    /// The data, mutable.
    ///
    /// # Safety
    /// There are no clones.
    #[inline]
    unsafe fn data_mut(&mut self) -> &mut [u8] {
        let (start, end) = (self.start as usize, self.end as usize);
        debug_assert!(start <= end && end <= self.capacity as usize && !self.is_shared());
        // SAFETY: as for `data`; there are no clones (the caller's promise).
        unsafe { core::slice::from_raw_parts_mut(self.buffer.at(start).as_ptr(), end - start) }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.free_list.count(-1);
        Inner::count_buffer(&self.free_list, &self.buffer, -1);
    }
}

/// Length of an Ethernet header.
const MAC: u32 = 14;
/// Length of the shortest network header, and the greatest distance from there to the transport header.
const LEAST_NETWORK: u32 = 20;
const MOST_NETWORK: u32 = 1 << 12;
/// Length of the shortest transport header.
const LEAST_TRANSPORT: u32 = 8;
/// The offset of an unknown header.
const UNSET: u32 = u32::MAX;

/// An owned packet.
#[repr(transparent)]
pub struct Packet(ManuallyDrop<Box<Inner>>);

impl Packet {
    #[inline]
    fn inner(&self) -> &Inner {
        &self.0
    }

    #[inline]
    fn prefetch_handle(&self) {
        prefetch_value(self.inner());
    }

    #[inline]
    fn prefetch_data(&self) {
        if let Some(first) = self.data().first_chunk::<LINE>() {
            prefetch_value(&first[0]);
            prefetch_value(&first[LINE - 1]);
        }
    }

    /// The bytes.
    #[inline]
    pub fn data(&self) -> &[u8] {
        self.inner().data()
    }

    /// The bytes, mutable. If clones share them, this packet gets its own copy first.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        self.make_unique();
        // SAFETY: `make_unique` ensured that there are no clones.
        unsafe { self.0.data_mut() }
    }

    /// Number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        (self.0.end - self.0.start) as usize
    }

    /// Whether it has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.end == self.0.start
    }

    /// Bytes available before the data.
    #[inline]
    pub fn headroom(&self) -> usize {
        self.0.start as usize
    }

    /// Bytes available after the data.
    #[inline]
    pub fn tailroom(&self) -> usize {
        (self.0.capacity - self.0.end) as usize
    }

    /// Whether other packets share the data.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.0.is_shared()
    }

    /// Gives this packet its own copy of the data, with the same headroom and tailroom.
    #[inline]
    pub fn make_unique(&mut self) {
        if self.0.cloned.get() {
            self.unshare();
        }
    }

    #[cold]
    fn unshare(&mut self) {
        if self.is_shared() {
            self.reallocate(self.headroom(), self.tailroom());
        }
        self.0.cloned.set(false);
    }

    /// Whether the packet may get another buffer, of this size.
    #[cold]
    fn may_have(&self, size: usize) -> bool {
        self.0.free_list.admits(size)
    }

    /// Moves the data to a separate buffer with the given headroom and tailroom; header offsets are
    /// adjusted.
    #[cold]
    fn reallocate(&mut self, headroom: usize, tailroom: usize) {
        let (old, length) = (self.headroom(), self.len());
        let buffer = self.0.free_list.buffer(headroom + length + tailroom);
        // Bytes of headroom and tailroom that both buffers have are copied, too.
        let before = old.min(headroom);
        let after = self.tailroom().min(buffer.capacity() - headroom - length);
        let inner = &mut **self.0;
        let old_buffer = inner.set_buffer(buffer);
        let count = before + length + after;
        // SAFETY: `before` and `after` are at most the headroom and tailroom of both buffers, and the new
        // buffer is not shared.
        unsafe {
            let from = old_buffer.at(old - before).as_ptr();
            core::ptr::copy_nonoverlapping(from, inner.buffer.at(headroom - before).as_ptr(), count);
        }
        inner.free_list.put_buffer(old_buffer);
        inner.start = headroom as u32;
        inner.end = inner.start + length as u32;
        for header in [&mut inner.mac, &mut inner.network, &mut inner.transport, &mut inner.csum_start] {
            if *header != UNSET {
                *header = header.wrapping_add(headroom as u32).wrapping_sub(old as u32);
            }
        }
    }

    /// Prepends a header. `false` as for [`Packet::push`].
    #[inline]
    #[must_use]
    pub fn push_header<H: Header>(&mut self, header: &H) -> bool {
        if (self.headroom() < H::LEN || self.0.cloned.get()) && !self.make_room(H::LEN) {
            return false;
        }
        self.0.start -= H::LEN as u32;
        self.0.forget_headers(H::LEN as u32);
        // SAFETY: there are no clones.
        if let Some(front) = H::of_mut(unsafe { self.0.data_mut() }) {
            *front = *header;
        }
        true
    }

    /// Gives this packet its own copy of the data, with at least `bytes` of headroom.
    #[cold]
    fn make_room(&mut self, bytes: usize) -> bool {
        let pushed = self.unpull(bytes);
        if pushed {
            self.0.start += bytes as u32;
            self.make_unique();
        }
        pushed
    }

    /// Prepends `bytes` bytes of unspecified content. `false` if the packet would exceed [`LARGEST_BUFFER`] or the
    /// pool's limit.
    ///
    /// Offsets of headers that these bytes overwrite are cleared.
    #[inline]
    #[must_use]
    pub fn push(&mut self, bytes: usize) -> bool {
        let pushed = self.unpull(bytes);
        if pushed {
            self.0.forget_headers(bytes as u32);
        }
        pushed
    }

    /// Restores bytes that [`Packet::pull`] removed from the front, or prepends unspecified ones if there were fewer;
    /// header offsets stay. `false` as for [`Packet::push`].
    #[inline]
    #[must_use]
    pub fn unpull(&mut self, bytes: usize) -> bool {
        if self.headroom() < bytes || self.is_shared() {
            if self.len() + bytes > LARGEST_BUFFER / 2 {
                return false;
            }
            let missing = bytes.saturating_sub(self.headroom());
            let headroom = if missing > 0 { self.headroom() + ((bytes + 128) & !3) } else { self.headroom() };
            if !self.may_have(headroom + self.len() + self.tailroom()) {
                return false;
            }
            self.reallocate(headroom, self.tailroom());
        }
        self.0.start -= bytes as u32;
        true
    }

    /// Removes `bytes` bytes from the front, or all if there are fewer. They stay in the headroom, so
    /// [`Packet::push`] restores them.
    ///
    /// A pending checksum that begins within these bytes is filled first.
    #[inline]
    pub fn pull(&mut self, bytes: usize) {
        let start = self.0.start + bytes.min(self.len()) as u32;
        if self.has_offload() && start > self.0.csum_start {
            let _ = self.fill_checksum();
        }
        self.0.start = start;
    }

    /// Appends `bytes` bytes of unspecified content. `false` as for [`Packet::push`].
    #[inline]
    #[must_use]
    pub fn put(&mut self, bytes: usize) -> bool {
        if self.tailroom() < bytes || self.is_shared() {
            if self.len() + bytes > LARGEST_BUFFER / 2 {
                return false;
            }
            let tailroom =
                if self.tailroom() < bytes { self.tailroom() + bytes + 128 } else { self.tailroom() };
            if !self.may_have(self.headroom() + self.len() + tailroom) {
                return false;
            }
            self.reallocate(self.headroom(), tailroom);
        }
        self.0.end += bytes as u32;
        true
    }

    /// Removes `bytes` bytes from the end, or all if there are fewer.
    #[inline]
    pub fn take(&mut self, bytes: usize) {
        self.0.end -= bytes.min(self.len()) as u32;
    }

    /// Moves the data by `offset` bytes, for example to align it; header offsets are adjusted.
    pub fn shift(&mut self, offset: isize) {
        let to = self.headroom().saturating_add_signed(offset);
        let tailroom = self.tailroom().saturating_add_signed(-offset);
        let size = to + self.len() + tailroom;
        if offset != 0 && to + self.len() <= LARGEST_BUFFER && self.may_have(size) {
            self.reallocate(to, tailroom);
        }
    }

    /// The whole buffer, and the range of the data in it, for code that reads before the data.
    pub fn buffer(&self) -> (&[u8], Range<usize>) {
        let inner = self.inner();
        let all = inner.bytes(0, inner.capacity as usize).unwrap_or_default();
        (all, inner.start as usize..inner.end as usize)
    }

    /// When it was received, in nanoseconds since 1970; 0 if unknown.
    #[inline]
    pub fn timestamp(&self) -> u64 {
        self.0.timestamp
    }

    /// Sets the time at which it was received.
    #[inline]
    pub fn set_timestamp(&mut self, nanoseconds: u64) {
        self.0.timestamp = nanoseconds;
    }

    /// Copies another packet's annotations and timestamp.
    pub fn copy_notes(&mut self, from: &Packet) {
        self.0.timestamp = from.0.timestamp;
        *self.notes_mut() = from.notes().clone();
    }

    /// Annotations of elements.
    #[inline]
    pub fn notes(&self) -> &Annotations {
        &self.0.notes
    }

    /// Annotations of elements, mutable.
    #[inline]
    pub fn notes_mut(&mut self) -> &mut Annotations {
        let inner = &mut **self.0;
        inner.annotated = true;
        &mut inner.notes
    }

    /// Offset of the MAC header from the start of the data; negative if it is before the data.
    #[inline]
    pub fn mac_header(&self) -> Option<isize> {
        self.relative(self.0.mac)
    }

    /// Offset of the network header from the start of the data; negative if it is before the data.
    #[inline]
    pub fn network_header(&self) -> Option<isize> {
        self.relative(self.0.network)
    }

    /// Offset of the transport header from the start of the data; negative if it is before the data.
    #[inline]
    pub fn transport_header(&self) -> Option<isize> {
        self.relative(self.0.transport)
    }

    fn relative(&self, header: u32) -> Option<isize> {
        (header != UNSET).then(|| header as isize - self.0.start as isize)
    }

    fn absolute(&self, at: isize) -> u32 {
        u32::try_from(self.0.start as isize + at).unwrap_or(UNSET)
    }

    /// Sets the offset of the MAC header from the start of the data.
    #[inline]
    pub fn set_mac_header(&mut self, at: isize) {
        self.0.mac = self.absolute(at);
    }

    /// Sets the offset of the network header, and of the transport header `length` bytes after it.
    #[inline]
    pub fn set_network_header(&mut self, at: isize, length: usize) {
        self.0.network = self.absolute(at);
        self.0.transport = self.absolute(at + length as isize);
    }

    /// Clears the header offsets.
    pub fn clear_headers(&mut self) {
        let inner = &mut **self.0;
        (inner.mac, inner.network, inner.transport) = (UNSET, UNSET, UNSET);
    }

    /// The bytes from the MAC header on, if its offset is known and within the buffer.
    #[inline]
    pub fn mac_data(&self) -> Option<&[u8]> {
        self.bytes_from(self.0.mac)
    }

    /// The bytes from the network header on, if its offset is known and within the buffer.
    #[inline]
    pub fn network_data(&self) -> Option<&[u8]> {
        self.bytes_from(self.0.network)
    }

    /// The bytes from the transport header on, if its offset is known and within the buffer.
    #[inline]
    pub fn transport_data(&self) -> Option<&[u8]> {
        self.bytes_from(self.0.transport)
    }

    #[inline]
    fn bytes_from(&self, header: u32) -> Option<&[u8]> {
        self.0.bytes(header as usize, self.0.end as usize)
    }

    /// The bytes from the MAC header on, mutable.
    #[inline]
    pub fn mac_data_mut(&mut self) -> Option<&mut [u8]> {
        self.make_unique();
        self.bytes_from_mut(self.0.mac)
    }

    /// The bytes from the network header on, mutable.
    #[inline]
    pub fn network_data_mut(&mut self) -> Option<&mut [u8]> {
        self.make_unique();
        self.bytes_from_mut(self.0.network)
    }

    /// The bytes from the transport header on, mutable.
    #[inline]
    pub fn transport_data_mut(&mut self) -> Option<&mut [u8]> {
        self.make_unique();
        self.bytes_from_mut(self.0.transport)
    }

    #[inline]
    fn bytes_from_mut(&mut self, header: u32) -> Option<&mut [u8]> {
        let inner = &mut **self.0;
        inner.bytes_mut(header as usize, inner.end as usize)
    }

    /// The network header, if its offset is known and the packet is long enough; its protocol is not checked.
    #[inline]
    pub fn network<H: Header>(&self) -> Option<&H> {
        let at = self.0.network as usize;
        if at + H::LEN > self.0.end as usize {
            return None;
        }
        // SAFETY: the header ends before `end`, which is at most the buffer's capacity; only an unshared
        // buffer is written to; a `Header` is valid for any bytes at any alignment.
        Some(unsafe { self.0.buffer.at(at).cast().as_ref() })
    }

    /// The network header, mutable, as for [`Packet::network`].
    #[inline]
    pub fn network_mut<H: Header>(&mut self) -> Option<&mut H> {
        self.make_unique();
        let at = self.0.network as usize;
        if at + H::LEN > self.0.end as usize {
            return None;
        }
        // SAFETY: as for `network`; there are no clones.
        Some(unsafe { self.0.buffer.at(at).cast().as_mut() })
    }

    /// Length of the network header according to the header offsets.
    #[inline]
    pub fn network_header_len(&self) -> Option<usize> {
        if self.0.network == UNSET {
            return None;
        }
        self.0.transport.checked_sub(self.0.network).map(|length| length as usize)
    }
}

impl Clone for Packet {
    /// Another packet that shares the data; it has its own annotations.
    fn clone(&self) -> Self {
        let from = self.inner();
        from.cloned.set(true);
        let mut inner = from.free_list.node(from.buffer.clone());
        inner.start = from.start;
        inner.end = from.end;
        (inner.mac, inner.network, inner.transport) = (from.mac, from.network, from.transport);
        (inner.csum_start, inner.pending, inner.timestamp) = (from.csum_start, from.pending, from.timestamp);
        if from.annotated || inner.annotated {
            inner.notes = from.notes.clone();
            inner.annotated = from.annotated;
        }
        Packet(ManuallyDrop::new(inner))
    }
}

impl Drop for Packet {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `self` is being dropped, so the field is not used again.
        let inner = unsafe { ManuallyDrop::take(&mut self.0) };
        FreeList::put(inner);
    }
}

impl core::fmt::Debug for Packet {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Packet").field("length", &self.len()).field("headroom", &self.headroom()).finish()
    }
}

#[cfg(test)]
mod tests;
