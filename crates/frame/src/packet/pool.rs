//! A pool that creates packets and reuses their memory.
use super::{Buffer, HEADROOM, Inner, LARGEST_BUFFER, PACKETS, Packet, PacketBurst};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::cell::{Cell, RefCell};
use core::mem::ManuallyDrop;

/// Size of the buffers that are kept for reuse; larger ones are freed.
pub const SMALL: usize = 2048;
/// Maximum number of packets that are kept. Attack: without a limit, the memory of one burst that filled all
/// queues would never be freed.
const KEPT: usize = 16384;

/// Free memory. Each packet refers to the shelf that it returns to; so do free ones, and therefore the pool
/// empties its shelf when dropped.
#[expect(clippy::vec_box, reason = "handles are one pointer; nodes do not move")]
pub(super) struct Shelf {
    /// Nodes with an unshared buffer of [`SMALL`] bytes.
    whole: RefCell<Vec<Box<Inner>>>,
    /// Nodes without a buffer.
    bare: RefCell<Vec<Box<Inner>>>,
    /// Buffers of [`SMALL`] bytes without a node.
    buffers: RefCell<Vec<Buffer>>,
    /// The empty buffer, which is shared by all nodes without a buffer.
    none: Buffer,
    /// The pool was dropped: nothing is kept any more.
    closed: Cell<bool>,
    /// Whether any packet ever had offload metadata.
    pub(super) offloads: Cell<bool>,
}

impl Shelf {
    /// An unshared buffer of at least `size` bytes.
    pub(super) fn buffer(&self, size: usize) -> Buffer {
        if size > SMALL {
            return Buffer::new(size);
        }
        if let Some(buffer) = self.buffers.borrow_mut().pop() {
            return buffer;
        }
        let whole = self.whole.borrow_mut().pop();
        match whole {
            Some(mut node) => {
                let buffer = node.set_buffer(self.none.clone());
                keep(&self.bare, node);
                buffer
            }
            None => Buffer::new(SMALL),
        }
    }

    pub(super) fn put_buffer(&self, buffer: Buffer) {
        if buffer.capacity() == SMALL && !buffer.is_shared() && !self.closed.get() {
            keep(&self.buffers, buffer);
        }
    }

    /// A node with `buffer`; its other fields have values of an earlier packet.
    pub(super) fn node(self: &Rc<Self>, buffer: Buffer) -> Box<Inner> {
        let bare = self.bare.borrow_mut().pop();
        match bare {
            Some(mut node) => {
                node.set_buffer(buffer);
                node
            }
            None => {
                let node = Box::new(Inner::new(buffer, self.clone()));
                node.cloned.set(node.buffer.is_shared());
                node
            }
        }
    }

    /// Takes a packet's memory back.
    pub(super) fn put(mut node: Box<Inner>) {
        let shelf = node.shelf.clone();
        if shelf.closed.get() {
            return;
        }
        if node.is_whole() {
            keep(&shelf.whole, node);
        } else {
            node.set_buffer(shelf.none.clone());
            keep(&shelf.bare, node);
        }
    }

    /// Whether all packets belong to this shelf and have a small unshared buffer.
    #[inline]
    fn owns(self: &Rc<Self>, packets: &[Packet]) -> bool {
        // Without branches, since nearly all packets do.
        let fault = |packet: &Packet| {
            let Inner { shelf, room, cloned, .. } = packet.inner();
            !Rc::ptr_eq(shelf, self) | (*room as usize != SMALL) | cloned.get()
        };
        !packets.iter().fold(false, |faults, packet| faults | fault(packet))
            || packets.iter().all(|packet| Rc::ptr_eq(&packet.0.shelf, self) && packet.0.is_whole())
    }

    /// The same for several packets, most of which belong to one pool.
    #[inline]
    pub(super) fn put_all(packets: &mut ArrayVec<Packet, PACKETS>) {
        let Some(shelf) = packets.first().map(|packet| packet.0.shelf.clone()) else { return };
        if shelf.closed.get() {
            packets.clear();
            return;
        }
        let mut whole = shelf.whole.borrow_mut();
        let count = packets.len();
        if whole.len() + count <= KEPT && shelf.owns(packets) {
            whole.reserve(count);
            // SAFETY: a packet is a node's box and nothing else. They move from the one to the other,
            // which has room.
            unsafe {
                packets.set_len(0);
                let (from, to) = (packets.as_ptr().cast(), whole.as_mut_ptr().add(whole.len()));
                core::ptr::copy_nonoverlapping(from, to, count);
                let length = whole.len() + count;
                whole.set_len(length);
            }
            return;
        }
        drop(whole);
        packets.clear();
    }
}

impl Inner {
    /// Whether it has a small unshared buffer.
    #[inline]
    fn is_whole(&self) -> bool {
        self.room as usize == SMALL && !self.is_shared()
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
pub struct Pool(Rc<Shelf>);

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}

impl Pool {
    /// An empty pool.
    pub fn new() -> Self {
        Self(Rc::new(Shelf {
            whole: RefCell::default(),
            bare: RefCell::default(),
            buffers: RefCell::default(),
            none: Buffer::new(0),
            closed: Cell::new(false),
            offloads: Cell::new(false),
        }))
    }

    /// Whether any of its packets ever had offload metadata: if not, callers need not check for it.
    #[inline]
    pub fn has_offloads(&self) -> bool {
        self.0.offloads.get()
    }

    /// Announces packets with offload metadata from elsewhere.
    pub fn expect_offloads(&self) {
        self.0.offloads.set(true);
    }

    /// A packet of `length` bytes of unspecified content, with at least this headroom and tailroom. `None` if
    /// it would exceed [`LARGEST_BUFFER`].
    #[inline]
    pub fn make(&self, headroom: usize, length: usize, tailroom: usize) -> Option<Packet> {
        let size = headroom.checked_add(length)?.checked_add(tailroom)?;
        if size > LARGEST_BUFFER {
            return None;
        }
        let whole = if size <= SMALL { self.0.whole.borrow_mut().pop() } else { None };
        let mut node = match whole {
            Some(node) => node,
            None => self.0.node(self.0.buffer(size)),
        };
        node.renew(headroom as u32, length as u32);
        Some(Packet(ManuallyDrop::new(node)))
    }

    /// Adds packets as created by [`Pool::make`] to a burst, one for each item of `from`, as many as fit;
    /// `write` fills each. Stops if a packet would be too large.
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
            let mut whole = self.0.whole.borrow_mut();
            let at = whole.len().saturating_sub(from.len());
            let (ready, behind) = from.split_at(whole.len() - at);
            for (node, item) in whole[at..].iter_mut().zip(ready) {
                node.renew(headroom as u32, length as u32);
                // SAFETY: nodes on the shelf have small unshared buffers, which contain this range.
                let data =
                    unsafe { core::slice::from_raw_parts_mut(node.buffer.at(headroom).as_ptr(), length) };
                write(item, data);
            }
            burst.adopt(&mut whole, at);
            rest = behind;
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
        let whole = self.0.whole.take();
        let bare = self.0.bare.take();
        drop((whole, bare, self.0.buffers.take()));
    }
}
