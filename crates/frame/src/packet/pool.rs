//! Where packets come from and go back to.
use super::{Annotations, HEADROOM, Inner, LARGEST_BUFFER, Packet, UNSET};
use crate::Offload;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::mem::ManuallyDrop;

/// Bytes of a buffer that is kept for use again; larger ones are freed.
pub const SMALL: usize = 2048;
/// How many packets are kept. Attack: a burst that once filled all queues would hold its memory for ever.
const KEPT: usize = 16384;

/// What is free. A packet knows its shelf, so it finds back by itself; so do the free ones, which is why the pool
/// empties its shelf in the end.
#[expect(clippy::vec_box, reason = "handles are one pointer; nodes do not move")]
pub(super) struct Shelf {
    /// Nodes together with an unshared buffer of [`SMALL`] bytes.
    whole: RefCell<Vec<Box<Inner>>>,
    /// Nodes without a buffer.
    bare: RefCell<Vec<Box<Inner>>>,
    /// Buffers of [`SMALL`] bytes by themselves.
    bytes: RefCell<Vec<Rc<Vec<u8>>>>,
    /// The buffer of no bytes, which nodes without one hold.
    none: Rc<Vec<u8>>,
    /// The pool is gone: nothing is kept any more.
    closed: Cell<bool>,
    /// Some packet was left something to do.
    pub(super) offloads: Cell<bool>,
}

impl Shelf {
    /// A buffer of at least `size` bytes that nobody else holds.
    pub(super) fn bytes(&self, size: usize) -> Rc<Vec<u8>> {
        if size > SMALL {
            return Rc::new(vec![0; size]);
        }
        if let Some(bytes) = self.bytes.borrow_mut().pop() {
            return bytes;
        }
        let whole = self.whole.borrow_mut().pop();
        match whole {
            Some(mut node) => {
                let bytes = core::mem::replace(&mut node.bytes, self.none.clone());
                keep(&self.bare, node);
                bytes
            }
            None => Rc::new(vec![0; SMALL]),
        }
    }

    pub(super) fn put_bytes(&self, bytes: Rc<Vec<u8>>) {
        if bytes.len() == SMALL && Rc::strong_count(&bytes) == 1 && !self.closed.get() {
            keep(&self.bytes, bytes);
        }
    }

    /// A node for `bytes`; the rest of it is as some earlier packet left it.
    pub(super) fn node(self: &Rc<Self>, bytes: Rc<Vec<u8>>) -> Box<Inner> {
        let bare = self.bare.borrow_mut().pop();
        match bare {
            Some(mut node) => {
                node.bytes = bytes;
                node
            }
            None => Box::new(Inner {
                bytes,
                start: 0,
                end: 0,
                mac: UNSET,
                network: UNSET,
                transport: UNSET,
                unsummed: UNSET,
                offload: Offload::default(),
                notes: Annotations::default(),
                shelf: self.clone(),
            }),
        }
    }

    /// Takes a packet back.
    #[inline]
    pub(super) fn put(mut node: Box<Inner>) {
        let shelf = node.shelf.clone();
        if shelf.closed.get() {
            return;
        }
        if node.bytes.len() == SMALL && Rc::strong_count(&node.bytes) == 1 {
            keep(&shelf.whole, node);
        } else {
            node.bytes = shelf.none.clone();
            keep(&shelf.bare, node);
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

/// Makes packets, and keeps their memory when they are dropped.
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
            bytes: RefCell::default(),
            none: Rc::default(),
            closed: Cell::new(false),
            offloads: Cell::new(false),
        }))
    }

    /// Whether any of its packets ever had offload metadata: if not, nobody need look for it.
    #[inline]
    pub fn has_offloads(&self) -> bool {
        self.0.offloads.get()
    }

    /// Says that packets with offload metadata come from elsewhere.
    pub fn expect_offloads(&self) {
        self.0.offloads.set(true);
    }

    /// A packet of `length` bytes, none of them meaningful yet, with at least that much room before and behind them.
    /// Nothing if it would be larger than [`LARGEST_BUFFER`].
    #[inline]
    pub fn make(&self, headroom: usize, length: usize, tailroom: usize) -> Option<Packet> {
        let size = headroom.checked_add(length)?.checked_add(tailroom)?;
        if size > LARGEST_BUFFER {
            return None;
        }
        let whole = if size <= SMALL { self.0.whole.borrow_mut().pop() } else { None };
        let mut node = match whole {
            Some(node) => node,
            None => self.0.node(self.0.bytes(size)),
        };
        node.start = headroom as u32;
        node.end = (headroom + length) as u32;
        (node.mac, node.network, node.transport) = (UNSET, UNSET, UNSET);
        (node.unsummed, node.offload) = (UNSET, Offload::default());
        node.notes = Annotations::default();
        Some(Packet(ManuallyDrop::new(node)))
    }

    /// A packet of these bytes with the usual [`HEADROOM`].
    #[inline]
    pub fn copy(&self, data: &[u8]) -> Option<Packet> {
        self.copy_with(HEADROOM, data, 0)
    }

    /// A packet of these bytes with that much room.
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
        drop((whole, bare, self.0.bytes.take()));
    }
}
