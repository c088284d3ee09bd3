//! A pool that creates packets and reuses their memory.

use super::{Buffer, HEADROOM, Inner, LARGEST_BUFFER, PACKETS, Packet, PacketBurst};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::cell::{Cell, RefCell, RefMut};
use core::mem::ManuallyDrop;

/// Size of the buffers that are kept for reuse; larger ones are freed.
pub const SMALL: usize = 2048;
/// Maximum number of packets that are kept for reuse. Attack: traffic that once filled all queues would
/// occupy their memory forever.
const KEPT: usize = 16384;

/// Bytes of a packet besides its buffer.
const HANDLE: usize = 192;
/// What a packet counts for a pool's limit, besides a buffer larger than [`SMALL`].
pub const PACKET: usize = SMALL + HANDLE;

/// An unshared buffer of [`SMALL`] bytes, on its way between pools.
#[repr(transparent)]
pub struct Blank(pub(super) Buffer);

// SAFETY: a buffer belongs to one thread because its clones count themselves in a cell; this one has no clones.
unsafe impl Send for Blank {}

impl core::fmt::Debug for Blank {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Blank")
    }
}

/// Free memory of packets. Each packet, free ones included, refers to the list that it returns to, so the
/// pool must empty the list when it is dropped.
#[expect(clippy::vec_box, reason = "handles are one pointer; nodes do not move")]
pub(super) struct FreeList {
    /// Nodes with an unshared buffer of [`SMALL`] bytes.
    nodes: RefCell<Vec<Box<Inner>>>,
    /// Nodes without a buffer.
    bare_nodes: RefCell<Vec<Box<Inner>>>,
    /// Buffers without a node.
    buffers: RefCell<Vec<Blank>>,
    /// Whether the pool was dropped: memory is freed instead of kept.
    closed: Cell<bool>,
    /// Whether any packet ever had offload metadata.
    pub(super) offloads: Cell<bool>,
    /// Number of nodes.
    count: Cell<usize>,
    /// Bytes of the nodes' buffers that are larger than [`SMALL`]; each buffer counts once.
    large: Cell<usize>,
    /// Bytes from which no further packets are made.
    limit: Cell<usize>,
}

impl FreeList {
    /// Counts new or freed nodes.
    pub(super) fn count(&self, change: isize) {
        self.count.set(self.count.get().saturating_add_signed(change));
    }

    /// Counts bytes of large buffers.
    fn count_large(&self, change: isize) {
        self.large.set(self.large.get().saturating_add_signed(change));
    }

    /// Bytes that all packets occupy, free ones included.
    #[inline]
    fn used(&self) -> usize {
        self.count.get().saturating_mul(PACKET).saturating_add(self.large.get())
    }

    /// Whether no further packet may be made: the limit is reached, and no node is free.
    #[inline]
    pub(super) fn is_exhausted(&self) -> bool {
        self.used() >= self.limit.get()
            && self.nodes.borrow().is_empty()
            && self.bare_nodes.borrow().is_empty()
    }

    /// Whether a further buffer of `size` bytes is within the limit. Gives up free packets for a large one.
    #[inline]
    pub(super) fn admits(&self, size: usize) -> bool {
        size <= SMALL || self.admits_large(size)
    }

    /// Attack: packets of 64 KB and more, which take many times as much memory as their number suggests.
    #[cold]
    fn admits_large(&self, size: usize) -> bool {
        let free = self.nodes.borrow().len() + self.bare_nodes.borrow().len();
        let bound = self.limit.get().saturating_sub(size);
        if self.used().saturating_sub(free * PACKET) > bound {
            return false;
        }
        while self.used() > bound {
            let node = self.nodes.borrow_mut().pop();
            if node.or_else(|| self.bare_nodes.borrow_mut().pop()).is_none() {
                break;
            }
        }
        true
    }

    /// An unshared buffer of at least `size` bytes.
    #[inline]
    pub(super) fn buffer(&self, size: usize) -> Buffer {
        if size > SMALL {
            return Buffer::new(size);
        }
        if let Some(Blank(buffer)) = self.buffers.borrow_mut().pop() {
            return buffer;
        }
        self.buffer_of_node()
    }

    /// A buffer of [`SMALL`] bytes, a free node's if there is one.
    #[cold]
    fn buffer_of_node(&self) -> Buffer {
        let nodes = self.nodes.borrow_mut().pop();
        match nodes {
            Some(mut node) => {
                let buffer = node.set_buffer(Buffer::none());
                keep(&self.bare_nodes, node);
                buffer
            }
            None => Buffer::new(SMALL),
        }
    }

    pub(super) fn put_buffer(&self, buffer: Buffer) {
        if buffer.capacity() == SMALL && !buffer.is_shared() {
            self.put_small(Blank(buffer));
        }
    }

    /// Keeps a buffer.
    #[inline]
    pub(super) fn put_small(&self, blank: Blank) {
        if !self.closed.get() {
            keep(&self.buffers, blank);
        }
    }

    /// Keeps buffers, as many as may be; the list is empty afterwards.
    #[inline]
    pub(super) fn put_blanks(&self, blanks: &mut Vec<Blank>) {
        let mut own = self.buffers.borrow_mut();
        blanks.truncate(KEPT.saturating_sub(own.len()));
        own.append(blanks);
    }

    /// Moves up to `count` buffers to the end of a list; returns their number.
    #[inline]
    pub(super) fn take_blanks(&self, count: usize, to: &mut Vec<Blank>) -> usize {
        let mut own = self.buffers.borrow_mut();
        let at = own.len().saturating_sub(count);
        let count = own.len() - at;
        to.extend(own.drain(at..));
        count
    }

    /// The nodes without a buffer.
    #[expect(clippy::vec_box, reason = "nodes do not move")]
    #[inline]
    pub(super) fn bare_nodes(&self) -> RefMut<'_, Vec<Box<Inner>>> {
        self.bare_nodes.borrow_mut()
    }

    /// The nodes without a buffer, if `count` more of them may be kept.
    #[expect(clippy::vec_box, reason = "nodes do not move")]
    #[inline]
    pub(super) fn room_for_bare(&self, count: usize) -> Option<RefMut<'_, Vec<Box<Inner>>>> {
        let nodes = self.bare_nodes.borrow_mut();
        (nodes.len() + count <= KEPT).then_some(nodes)
    }

    /// The buffer of a node, which no clone shares; the node is kept without one.
    #[inline]
    pub(super) fn take_buffer(mut node: Box<Inner>) -> Buffer {
        let free_list = node.free_list.clone();
        let buffer =
            if node.capacity as usize > SMALL { node.set_buffer(Buffer::none()) } else { node.leave() };
        if !free_list.closed.get() {
            keep(&free_list.bare_nodes, node);
        }
        buffer
    }

    /// A free node without a buffer, with this unshared one, if it has [`SMALL`] bytes.
    ///
    /// # Errors
    /// There is no such node, or the buffer is another.
    #[inline]
    pub(super) fn node_of_small(&self, buffer: Buffer, capacity: u32) -> Result<Box<Inner>, Buffer> {
        if capacity as usize != SMALL {
            return Err(buffer);
        }
        let Some(mut node) = self.bare_nodes.borrow_mut().pop() else { return Err(buffer) };
        node.enter(buffer);
        Ok(node)
    }

    /// A node with `buffer`. The values of its other fields may be an earlier packet's.
    pub(super) fn node(self: &Rc<Self>, buffer: Buffer) -> Box<Inner> {
        let bare_nodes = self.bare_nodes.borrow_mut().pop();
        match bare_nodes {
            Some(mut node) => {
                node.set_buffer(buffer);
                node
            }
            None if self.used() >= self.limit.get() && !self.nodes.borrow().is_empty() => {
                self.node_of_another(buffer)
            }
            None => {
                let node = Box::new(Inner::new(buffer, self.clone()));
                node.cloned.set(node.buffer.is_shared());
                node
            }
        }
    }

    /// At the limit: a free node with `buffer` in place of its own one, which is kept.
    #[cold]
    fn node_of_another(self: &Rc<Self>, buffer: Buffer) -> Box<Inner> {
        let nodes = self.nodes.borrow_mut().pop();
        let mut node = nodes.unwrap_or_else(|| Box::new(Inner::new(Buffer::none(), self.clone())));
        let own = node.set_buffer(buffer);
        self.put_buffer(own);
        node
    }

    /// Keeps a dropped packet's memory.
    pub(super) fn put(mut node: Box<Inner>) {
        let free_list = node.free_list.clone();
        if free_list.closed.get() {
            return;
        }
        if node.has_small_buffer() {
            keep(&free_list.nodes, node);
        } else {
            node.set_buffer(Buffer::none());
            keep(&free_list.bare_nodes, node);
        }
    }

    /// Whether all packets belong to this list and have a small unshared buffer.
    #[inline]
    pub(super) fn owns(self: &Rc<Self>, packets: &[Packet]) -> bool {
        // Without branches, since nearly all packets belong here; `cloned` may be outdated, so check again.
        let fault = |packet: &Packet| {
            let Inner { free_list, capacity, cloned, .. } = packet.inner();
            !Rc::ptr_eq(free_list, self) | (*capacity as usize != SMALL) | cloned.get()
        };
        !packets.iter().fold(false, |faults, packet| faults | fault(packet))
            || packets
                .iter()
                .all(|packet| Rc::ptr_eq(&packet.0.free_list, self) && packet.0.has_small_buffer())
    }

    /// As [`FreeList::put`], for several packets, most of which belong to one pool.
    #[inline]
    pub(super) fn put_all(packets: &mut ArrayVec<Packet, PACKETS>) {
        let Some(free_list) = packets.first().map(|packet| packet.0.free_list.clone()) else { return };
        if free_list.closed.get() {
            packets.clear();
            return;
        }
        let mut nodes = free_list.nodes.borrow_mut();
        let count = packets.len();
        if nodes.len() + count <= KEPT && free_list.owns(packets) {
            return PacketBurst::abandon_to(packets, &mut nodes);
        }
        drop(nodes);
        packets.clear();
    }
}

impl Inner {
    /// Takes the node's small buffer, which no clone shares, and leaves it without one.
    #[inline]
    pub(super) fn leave(&mut self) -> Buffer {
        self.capacity = 0;
        self.cloned.set(true);
        core::mem::replace(&mut self.buffer, Buffer::none())
    }

    /// Gives a node without a buffer an unshared one of [`SMALL`] bytes.
    #[inline]
    pub(super) fn enter(&mut self, buffer: Buffer) {
        self.capacity = SMALL as u32;
        self.cloned.set(false);
        self.buffer = buffer;
    }

    /// Whether the node has an unshared buffer of [`SMALL`] bytes.
    #[inline]
    fn has_small_buffer(&self) -> bool {
        self.capacity as usize == SMALL && !self.is_shared()
    }

    /// Counts the bytes of `buffer`, if it is large and no other packet has it.
    #[inline]
    pub(super) fn count_buffer(free_list: &FreeList, buffer: &Buffer, sign: isize) {
        if buffer.capacity() > SMALL && !buffer.is_shared() {
            free_list.count_large(sign * buffer.capacity() as isize);
        }
    }
}

#[inline]
fn keep<T>(list: &RefCell<Vec<T>>, item: T) {
    let mut list = list.borrow_mut();
    if list.len() < KEPT {
        list.push(item);
    }
}

/// Creates packets, and keeps their memory when they are dropped.
pub struct Pool(pub(super) Rc<FreeList>);

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}

impl Pool {
    /// An empty pool.
    pub fn new() -> Self {
        Self(Rc::new(FreeList {
            nodes: RefCell::default(),
            bare_nodes: RefCell::default(),
            buffers: RefCell::default(),
            closed: Cell::new(false),
            offloads: Cell::new(false),
            count: Cell::new(0),
            large: Cell::new(0),
            limit: Cell::new(usize::MAX),
        }))
    }

    /// Makes no further packets, and lets none grow beyond [`SMALL`] bytes, while they occupy `bytes`: [`PACKET`] each,
    /// and their buffers that are larger. Clones of packets count; they are always made, and may always be written to.
    pub fn limit(&self, bytes: usize) {
        self.0.limit.set(bytes);
    }

    /// Whether clones, which are always made, occupy as much again as the limit.
    #[inline]
    pub fn is_over_limit(&self) -> bool {
        self.0.used() > self.0.limit.get().saturating_mul(2)
    }

    /// Whether any packet of the pool ever had offload metadata. If not, callers need not check for it.
    #[inline]
    pub fn has_offloads(&self) -> bool {
        self.0.offloads.get()
    }

    /// Announces packets of another pool that may have offload metadata.
    pub fn expect_offloads(&self) {
        self.0.offloads.set(true);
    }

    /// A packet of `length` bytes of unspecified content, with at least this headroom and tailroom. `None` if
    /// the buffer would exceed [`LARGEST_BUFFER`], or at the pool's limit.
    #[inline]
    pub fn make(&self, headroom: usize, length: usize, tailroom: usize) -> Option<Packet> {
        let size = headroom.checked_add(length)?.checked_add(tailroom)?;
        if size > LARGEST_BUFFER {
            return None;
        }
        let nodes = if size <= SMALL { self.0.nodes.borrow_mut().pop() } else { None };
        let mut node = match nodes {
            Some(node) => node,
            None if self.0.is_exhausted() || !self.0.admits(size) => return None,
            None => self.0.node(self.0.buffer(size)),
        };
        node.reset(headroom as u32, length as u32);
        Some(Packet(ManuallyDrop::new(node)))
    }

    /// Creates a packet for each item of `from`, as by [`Pool::make`], calls `write` to fill it, and adds it
    /// to the burst, as many as fit. Stops if a packet would be too large.
    #[inline]
    pub fn fill<T>(
        &self,
        burst: &mut PacketBurst,
        from: &[T],
        headroom: usize,
        length: usize,
        mut write: impl FnMut(&T, &mut [u8]),
    ) {
        let from = &from[..from.len().min(PACKETS - burst.len())];
        let mut rest = from;
        if headroom.saturating_add(length) <= SMALL {
            let mut nodes = self.0.nodes.borrow_mut();
            let at = nodes.len().saturating_sub(from.len());
            let (reused, others) = from.split_at(nodes.len() - at);
            for (node, item) in nodes[at..].iter_mut().zip(reused) {
                node.reset(headroom as u32, length as u32);
                // SAFETY: the list's nodes have unshared buffers of `SMALL` bytes, which contain this range.
                let data =
                    unsafe { core::slice::from_raw_parts_mut(node.buffer.at(headroom).as_ptr(), length) };
                write(item, data);
            }
            burst.adopt(&mut nodes, at);
            rest = others;
        }
        for item in rest {
            let Some(mut packet) = self.make(headroom, length, 0) else { return };
            write(item, packet.data_mut());
            burst.push(packet);
        }
    }

    /// A packet with these bytes and the usual [`HEADROOM`].
    #[inline]
    pub fn copy(&self, data: &[u8]) -> Option<Packet> {
        self.copy_with(HEADROOM, data, 0)
    }

    /// A packet with these bytes and this headroom and tailroom.
    #[inline]
    pub fn copy_with(&self, headroom: usize, data: &[u8], tailroom: usize) -> Option<Packet> {
        let mut packet = self.make(headroom, data.len(), tailroom)?;
        packet.data_mut().copy_from_slice(data);
        Some(packet)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.0.closed.set(true);
        let nodes = self.0.nodes.take();
        let bare_nodes = self.0.bare_nodes.take();
        drop((nodes, bare_nodes, self.0.buffers.take()));
    }
}
