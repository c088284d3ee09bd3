//! Packets that functions own: a buffer with room on both sides, and annotations that elements make.
//!
//! A [`Packet`] is a handle of one pointer. Clones share the data until one of them is written to.
//! Whatever a packet held goes back to its [`Pool`] when it is dropped, so that passing packets on
//! allocates nothing. Packets and their pool stay on one thread: what crosses threads is copied, as it is
//! between ports.
mod annotation;
mod buffer;
mod burst;
mod complete;
mod pool;

pub use annotation::{ANNOTATION_BYTES, Annotations, PacketType};
pub use burst::{PACKETS, PacketBurst};
pub use pool::{Pool, SMALL};

use crate::Offload;
use alloc::boxed::Box;
use alloc::rc::Rc;
use buffer::Buffer;
use core::cell::Cell;
use core::mem::ManuallyDrop;
use core::ops::Range;
use pool::Shelf;
use ringway_mem::prefetch_value;
use ringway_wire::Header;

/// Default headroom of a new packet, in bytes.
pub const HEADROOM: usize = 28;

/// The largest buffer. Attack: a configuration that asks for packets of gigabytes.
pub const LARGEST_BUFFER: usize = 1 << 24;

/// Bytes of a line of the cache.
const LINE: usize = 64;

/// The target of a packet handle: a cache line that describes the data, and a cache line of annotations.
#[repr(C, align(64))]
struct Inner {
    buffer: Buffer,
    /// The buffer's capacity; copied here so that reading the data does not touch the buffer's header.
    room: u32,
    /// At most `end`.
    start: u32,
    /// At most `room`.
    end: u32,
    mac: u32,
    network: u32,
    transport: u32,
    /// Where the bytes begin whose checksum `offload` leaves to be filled; its own `csum_start` is not
    /// used.
    unsummed: u32,
    offload: Offload,
    /// The packet was cloned since it was made; clones may still exist.
    cloned: Cell<bool>,
    /// The line of annotations may be in use; if not, making the packet anew does not touch it.
    noted: bool,
    shelf: Rc<Shelf>,
    notes: Annotations,
}

const _: () = assert!(size_of::<Inner>() == 2 * LINE && core::mem::offset_of!(Inner, notes) == LINE);

impl Inner {
    fn new(buffer: Buffer, shelf: Rc<Shelf>) -> Self {
        let (room, notes) = (buffer.capacity() as u32, Annotations::default());
        let (mac, network, transport, unsummed) = (UNSET, UNSET, UNSET, UNSET);
        let (offload, cloned, noted) = (Offload::default(), Cell::new(false), false);
        Self {
            buffer,
            room,
            start: 0,
            end: 0,
            mac,
            network,
            transport,
            unsummed,
            offload,
            cloned,
            noted,
            shelf,
            notes,
        }
    }

    /// Becomes a packet's of `length` bytes behind `headroom`, which the buffer has and nobody else holds,
    /// as if it were new.
    #[inline]
    fn renew(&mut self, headroom: u32, length: u32) {
        self.start = headroom;
        self.end = headroom + length;
        (self.mac, self.network, self.transport) = (UNSET, UNSET, UNSET);
        (self.unsummed, self.offload) = (UNSET, Offload::default());
        self.cloned.set(false);
        if core::mem::take(&mut self.noted) {
            self.notes = Annotations::default();
        }
    }

    fn set_buffer(&mut self, buffer: Buffer) -> Buffer {
        self.room = buffer.capacity() as u32;
        self.cloned.set(buffer.is_shared());
        core::mem::replace(&mut self.buffer, buffer)
    }

    #[inline]
    fn is_shared(&self) -> bool {
        self.cloned.get() && self.buffer.is_shared()
    }

    #[inline]
    fn bytes(&self, from: usize, to: usize) -> Option<&[u8]> {
        if from > to || to > self.room as usize {
            return None;
        }
        // SAFETY: `room` is the buffer's capacity, and who writes has it for himself.
        Some(unsafe { core::slice::from_raw_parts(self.buffer.at(from).as_ptr(), to - from) })
    }

    /// Nothing also if clones may share the bytes, as far as is noted.
    #[inline]
    fn bytes_mut(&mut self, from: usize, to: usize) -> Option<&mut [u8]> {
        if from > to || to > self.room as usize || self.cloned.get() {
            return None;
        }
        // SAFETY: `room` is the buffer's capacity, and this is its only holder: clones are always noted.
        Some(unsafe { core::slice::from_raw_parts_mut(self.buffer.at(from).as_ptr(), to - from) })
    }

    /// The data.
    #[inline]
    fn data(&self) -> &[u8] {
        let (start, end) = (self.start as usize, self.end as usize);
        debug_assert!(start <= end && end <= self.room as usize);
        // SAFETY: `start` is at most `end`, and that at most `room`, the buffer's capacity; who writes has
        // it for himself.
        unsafe { core::slice::from_raw_parts(self.buffer.at(start).as_ptr(), end - start) }
    }

    /// The data, to write to.
    ///
    /// # Safety
    /// There are no clones.
    #[inline]
    unsafe fn data_mut(&mut self) -> &mut [u8] {
        let (start, end) = (self.start as usize, self.end as usize);
        debug_assert!(start <= end && end <= self.room as usize && !self.is_shared());
        // SAFETY: as for `data`; and this is the only holder, as the caller says.
        unsafe { core::slice::from_raw_parts_mut(self.buffer.at(start).as_ptr(), end - start) }
    }
}

/// No header known.
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

    /// The bytes, to write to: if clones share them, this packet gets its own copy first.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        self.make_unique();
        // SAFETY: it was just made sure that there are no clones.
        unsafe { self.0.data_mut() }
    }

    /// Number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        (self.0.end - self.0.start) as usize
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.end == self.0.start
    }

    /// Bytes of room before the data.
    #[inline]
    pub fn headroom(&self) -> usize {
        self.0.start as usize
    }

    /// Bytes of room behind the data.
    #[inline]
    pub fn tailroom(&self) -> usize {
        (self.0.room - self.0.end) as usize
    }

    /// Whether other packets share the data.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.0.is_shared()
    }

    /// Gives this packet its own data, with the same room on both sides.
    #[inline]
    pub fn make_unique(&mut self) {
        if self.0.cloned.get() {
            self.part();
        }
    }

    #[cold]
    fn part(&mut self) {
        if self.is_shared() {
            self.reallocate(self.headroom(), self.tailroom());
        }
        self.0.cloned.set(false);
    }

    /// Moves the data to a buffer of its own with the given room; headers move along.
    #[cold]
    fn reallocate(&mut self, headroom: usize, tailroom: usize) {
        let (old, length) = (self.headroom(), self.len());
        let buffer = self.0.shelf.buffer(headroom + length + tailroom);
        let kept = old.min(headroom);
        let behind = self.tailroom().min(buffer.capacity() - headroom - length);
        let inner = &mut **self.0;
        let used = inner.set_buffer(buffer);
        let count = kept + length + behind;
        // SAFETY: so many bytes stand in `used` from there on, as `behind` is at most its tailroom, and
        // there is room for them in the other, which nobody else holds.
        unsafe {
            let from = used.at(old - kept).as_ptr();
            core::ptr::copy_nonoverlapping(from, inner.buffer.at(headroom - kept).as_ptr(), count);
        }
        inner.shelf.put_buffer(used);
        inner.start = headroom as u32;
        inner.end = inner.start + length as u32;
        for header in [&mut inner.mac, &mut inner.network, &mut inner.transport, &mut inner.unsummed] {
            if *header != UNSET {
                *header = header.wrapping_add(headroom as u32).wrapping_sub(old as u32);
            }
        }
    }

    /// Puts a header in front. False if the packet would become larger than [`LARGEST_BUFFER`].
    #[inline]
    #[must_use]
    pub fn push_header<H: Header>(&mut self, header: &H) -> bool {
        if (self.headroom() < H::LEN || self.0.cloned.get()) && !self.make_room(H::LEN) {
            return false;
        }
        self.0.start -= H::LEN as u32;
        // SAFETY: there were as many bytes of room, and there are no clones.
        if let Some(front) = H::of_mut(unsafe { self.0.data_mut() }) {
            *front = *header;
        }
        true
    }

    /// Gives this packet its own data, with as much room in front.
    #[cold]
    fn make_room(&mut self, bytes: usize) -> bool {
        let made = self.push(bytes);
        if made {
            self.0.start += bytes as u32;
            self.make_unique();
        }
        made
    }

    /// Makes room for `bytes` more in front: they become the data's first, with whatever stands there.
    /// False if the packet would become larger than [`LARGEST_BUFFER`].
    #[inline]
    #[must_use]
    pub fn push(&mut self, bytes: usize) -> bool {
        if self.headroom() < bytes || self.is_shared() {
            if self.len() + bytes > LARGEST_BUFFER / 2 {
                return false;
            }
            let missing = bytes.saturating_sub(self.headroom());
            let headroom = if missing > 0 { self.headroom() + ((bytes + 128) & !3) } else { self.headroom() };
            self.reallocate(headroom, self.tailroom());
        }
        self.0.start -= bytes as u32;
        true
    }

    /// Takes `bytes` from the front, all if there are fewer. The room stays, so [`Packet::push`] brings
    /// them back.
    ///
    /// A checksum that is still to be filled and begins within these bytes is filled now, over the whole
    /// packet.
    #[inline]
    pub fn pull(&mut self, bytes: usize) {
        let start = self.0.start + bytes.min(self.len()) as u32;
        if self.has_offload() && start > self.0.unsummed {
            let _ = self.fill_checksum();
        }
        self.0.start = start;
    }

    /// Adds `bytes` behind the data, with whatever stands there. False as for [`Packet::push`].
    #[inline]
    #[must_use]
    pub fn put(&mut self, bytes: usize) -> bool {
        if self.tailroom() < bytes || self.is_shared() {
            if self.len() + bytes > LARGEST_BUFFER / 2 {
                return false;
            }
            let tailroom =
                if self.tailroom() < bytes { self.tailroom() + bytes + 128 } else { self.tailroom() };
            self.reallocate(self.headroom(), tailroom);
        }
        self.0.end += bytes as u32;
        true
    }

    /// Takes `bytes` from the end, all if there are fewer.
    #[inline]
    pub fn take(&mut self, bytes: usize) {
        self.0.end -= bytes.min(self.len()) as u32;
    }

    /// Moves the data within or to another buffer by `offset` bytes, as for alignment; headers move along.
    pub fn shift(&mut self, offset: isize) {
        let to = self.headroom().saturating_add_signed(offset);
        if offset != 0 && to + self.len() <= LARGEST_BUFFER {
            let tailroom = self.tailroom().saturating_add_signed(-offset);
            self.reallocate(to, tailroom);
        }
    }

    /// The whole buffer, and the range of the data in it: for code that must read before the data.
    pub fn buffer(&self) -> (&[u8], Range<usize>) {
        let inner = self.inner();
        let all = inner.bytes(0, inner.room as usize).unwrap_or_default();
        (all, inner.start as usize..inner.end as usize)
    }

    /// What elements noted about it.
    #[inline]
    pub fn notes(&self) -> &Annotations {
        &self.0.notes
    }

    /// What elements noted about it, to change.
    #[inline]
    pub fn notes_mut(&mut self) -> &mut Annotations {
        let inner = &mut **self.0;
        inner.noted = true;
        &mut inner.notes
    }

    /// Where in the data the MAC header begins; negative if it lies before the data.
    #[inline]
    pub fn mac_header(&self) -> Option<isize> {
        self.relative(self.0.mac)
    }

    /// Where in the data the network header begins; negative if it lies before the data.
    #[inline]
    pub fn network_header(&self) -> Option<isize> {
        self.relative(self.0.network)
    }

    /// Where in the data the transport header begins; negative if it lies before the data.
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

    /// Notes where the MAC header begins, counted from the data's first byte.
    #[inline]
    pub fn set_mac_header(&mut self, at: isize) {
        self.0.mac = self.absolute(at);
    }

    /// Notes where the network header begins, and the transport header `length` bytes behind it.
    #[inline]
    pub fn set_network_header(&mut self, at: isize, length: usize) {
        self.0.network = self.absolute(at);
        self.0.transport = self.absolute(at + length as isize);
    }

    /// Forgets the headers.
    pub fn clear_headers(&mut self) {
        let inner = &mut **self.0;
        (inner.mac, inner.network, inner.transport) = (UNSET, UNSET, UNSET);
    }

    /// The bytes from the MAC header on, if it is known and lies in the buffer.
    #[inline]
    pub fn mac_data(&self) -> Option<&[u8]> {
        self.bytes_from(self.0.mac)
    }

    /// The bytes from the network header on, if it is known and lies in the buffer.
    #[inline]
    pub fn network_data(&self) -> Option<&[u8]> {
        self.bytes_from(self.0.network)
    }

    /// The bytes from the transport header on, if it is known and lies in the buffer.
    #[inline]
    pub fn transport_data(&self) -> Option<&[u8]> {
        self.bytes_from(self.0.transport)
    }

    #[inline]
    fn bytes_from(&self, header: u32) -> Option<&[u8]> {
        self.0.bytes(header as usize, self.0.end as usize)
    }

    /// The bytes from the MAC header on, to write to.
    #[inline]
    pub fn mac_data_mut(&mut self) -> Option<&mut [u8]> {
        self.make_unique();
        self.bytes_from_mut(self.0.mac)
    }

    /// The bytes from the network header on, to write to.
    #[inline]
    pub fn network_data_mut(&mut self) -> Option<&mut [u8]> {
        self.make_unique();
        self.bytes_from_mut(self.0.network)
    }

    /// The bytes from the transport header on, to write to.
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

    /// The network header, if its place is known and so many bytes are there; its protocol is not checked.
    #[inline]
    pub fn network<H: Header>(&self) -> Option<&H> {
        let at = self.0.network as usize;
        if at + H::LEN > self.0.end as usize {
            return None;
        }
        // SAFETY: so many bytes lie before `end`, which is at most the buffer's capacity; who writes has
        // them for himself; any bytes are an `H`, wherever they lie.
        Some(unsafe { self.0.buffer.at(at).cast().as_ref() })
    }

    /// The network header, to write to.
    #[inline]
    pub fn network_mut<H: Header>(&mut self) -> Option<&mut H> {
        self.make_unique();
        let at = self.0.network as usize;
        if at + H::LEN > self.0.end as usize {
            return None;
        }
        // SAFETY: so many bytes lie before `end`, which is at most the buffer's capacity; there are no
        // clones; any bytes are an `H`, wherever they lie.
        Some(unsafe { self.0.buffer.at(at).cast().as_mut() })
    }

    /// Length of the network header, as its marks say.
    #[inline]
    pub fn network_header_len(&self) -> Option<usize> {
        if self.0.network == UNSET {
            return None;
        }
        self.0.transport.checked_sub(self.0.network).map(|length| length as usize)
    }
}

impl Clone for Packet {
    /// Another packet that shares the data; its notes are its own.
    fn clone(&self) -> Self {
        let from = self.inner();
        from.cloned.set(true);
        let mut made = from.shelf.node(from.buffer.clone());
        made.start = from.start;
        made.end = from.end;
        (made.mac, made.network, made.transport) = (from.mac, from.network, from.transport);
        (made.unsummed, made.offload) = (from.unsummed, from.offload);
        if from.noted || made.noted {
            made.notes = from.notes.clone();
            made.noted = from.noted;
        }
        Packet(ManuallyDrop::new(made))
    }
}

impl Drop for Packet {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `self` is being dropped, so nobody reads the field again after it was taken.
        let inner = unsafe { ManuallyDrop::take(&mut self.0) };
        Shelf::put(inner);
    }
}

impl core::fmt::Debug for Packet {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Packet").field("length", &self.len()).field("headroom", &self.headroom()).finish()
    }
}

#[cfg(test)]
mod tests;
