//! The driver side of a ring, of either format.

use crate::error::{LayoutError, QueueError};
use crate::layout::{Areas, Layout};
use crate::packed::PackedDriver;
use crate::split::SplitDriver;
use alloc::boxed::Box;
use ringway_mem::SpanMut;

/// A buffer of one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// The address in the device's address space.
    pub address: u64,
    /// The length in bytes.
    pub len: u32,
    /// Whether the buffer is device-writable.
    pub write: bool,
}

/// Memory for an indirect table, 16 bytes per buffer.
#[derive(Clone, Copy, Debug)]
pub struct Indirect<'t> {
    /// The address in the device's address space.
    pub address: u64,
    /// The memory.
    pub table: SpanMut<'t>,
}

/// Driver state of a ring.
#[derive(Debug)]
pub enum Driver<'t> {
    /// The driver of a split ring.
    Split(SplitDriver<'t>),
    /// The driver of a packed ring.
    Packed(PackedDriver<'t>),
}

macro_rules! each {
    ($driver:expr, $name:ident => $body:expr) => {
        match $driver {
            Driver::Split($name) => $body,
            Driver::Packed($name) => $body,
        }
    };
}

impl<'t> Driver<'t> {
    /// A driver for a ring in zeroed memory.
    pub fn new(layout: &Layout, areas: Areas<'t>) -> Result<Driver<'t>, LayoutError> {
        if layout.packed {
            Ok(Driver::Packed(PackedDriver::new(layout, areas)?))
        } else {
            Ok(Driver::Split(SplitDriver::new(layout, areas)?))
        }
    }

    /// Enables `VIRTIO_F_IN_ORDER`: a used entry may complete all earlier buffers, too.
    #[must_use]
    pub fn in_order(mut self) -> Driver<'t> {
        each!(&mut self, driver => driver.order = Some(Order::default()));
        self
    }

    /// Adds a chain of `buffers`, as an indirect table if memory is given. Returns its id, or `None` if there
    /// are too few free descriptors. The device sees it after [`Driver::publish`].
    #[inline]
    pub fn add(&mut self, buffers: &[Buffer], indirect: Option<Indirect<'_>>) -> Option<u16> {
        each!(self, driver => driver.add(buffers, indirect))
    }

    /// Adds buffers of one descriptor each, as many as there are free descriptors; returns their number.
    /// Calls `added` with each added buffer's index and id.
    #[inline]
    pub fn add_run(&mut self, buffers: impl Iterator<Item = Buffer>, added: impl FnMut(usize, u16)) -> usize {
        each!(self, driver => driver.add_run(buffers, added))
    }

    /// Publishes the added buffers to the device.
    #[inline]
    pub fn publish(&mut self) {
        each!(self, driver => driver.publish())
    }

    /// Whether the device wants a kick for the buffers published since the last call.
    pub fn wants_kick(&mut self) -> bool {
        each!(self, driver => driver.wants_kick())
    }

    /// The next used buffer: its id, and the number of bytes written by the device, or 0 if a later buffer's
    /// used entry completed it.
    #[inline]
    pub fn take_used(&mut self) -> Result<Option<(u16, u32)>, QueueError> {
        each!(self, driver => driver.take_used())
    }

    /// The next used buffers, up to `max`; returns their number. Calls `used` with each buffer's id and
    /// length, as returned by [`Driver::take_used`].
    #[inline]
    pub fn take_used_run(&mut self, max: usize, used: impl FnMut(u16, u32)) -> Result<usize, QueueError> {
        each!(self, driver => driver.take_used_run(max, used))
    }

    /// Whether there is a used buffer to take.
    pub fn pending(&self) -> bool {
        each!(self, driver => driver.pending())
    }

    /// Tells the device whether to interrupt for buffers that it uses from now on.
    pub fn set_flag(&mut self, wanted: bool) {
        each!(self, driver => driver.set_flag(wanted))
    }

    /// Number of free descriptors.
    pub fn free(&self) -> usize {
        each!(self, driver => driver.free())
    }
}

/// Driver state for buffers that are used in order.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// The id and length of a used entry that completes several buffers, until its own buffer is taken.
    pub last: Option<(u16, u32)>,
}

impl Order {
    /// The next used buffer: the oldest one in flight. `read` reads the next used entry when all buffers of
    /// the previous one are taken.
    #[inline]
    pub fn next(
        &mut self,
        free: &Free,
        read: impl FnOnce() -> Result<Option<(u16, u32)>, QueueError>,
    ) -> Result<Option<(u16, u32)>, QueueError> {
        let last = match self.last {
            Some(last) => last,
            None => match read()? {
                Some(last) => last,
                None => return Ok(None),
            },
        };
        let id = free.oldest().ok_or(QueueError::Descriptor)?;
        self.last = (id != last.0).then_some(last);
        Ok(Some((id, if self.last.is_some() { 0 } else { last.1 })))
    }
}

/// Free ids, in a FIFO: they stay in order as long as the device uses buffers in order.
#[derive(Debug)]
pub(crate) struct Free {
    ids: Box<[u16]>,
    head: usize,
    count: usize,
}

impl Free {
    pub fn all(size: u16) -> Free {
        Free { ids: (0..size).collect(), head: 0, count: usize::from(size) }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.count
    }

    #[inline]
    pub fn take(&mut self) -> Option<u16> {
        if self.count == 0 {
            return None;
        }
        let id = self.ids.get(self.head).copied();
        self.head = self.after(self.head);
        self.count -= 1;
        id
    }

    #[inline]
    pub fn give(&mut self, id: u16) {
        let mut at = self.head + self.count;
        if at >= self.ids.len() {
            at -= self.ids.len();
        }
        if let Some(slot) = self.ids.get_mut(at) {
            *slot = id;
            self.count += 1;
        }
    }

    /// The oldest id in flight, if ids are returned in order.
    #[inline]
    pub fn oldest(&self) -> Option<u16> {
        let at = self.head + self.count;
        let at = if at >= self.ids.len() { at - self.ids.len() } else { at };
        self.ids.get(at).copied().filter(|_| self.count < self.ids.len())
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        if at + 1 == self.ids.len() { 0 } else { at + 1 }
    }
}
