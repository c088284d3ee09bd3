//! The driver of a network device (virtio 1.3, 5.1): a queue for each direction, with buffers in the guest's memory,
//! and without offloads.

use super::transport::{DeviceError, QueueAddresses, Transport};
use crate::device::Pushed;
use crate::net_device::{NetDeviceError, copy_in, copy_out, keep};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{Ordering, fence};
use ringway_mem::{OwnedSpan, Region, Span, SpanMut, copy};
use ringway_ring::Received;
use ringway_virtq::{Areas, Buffer, Driver, Layout, Lengths};

/// Bits of the status (virtio 1.3, 2.1).
const ACKNOWLEDGE: u8 = 1;
const DRIVER: u8 = 2;
const DRIVER_OK: u8 = 4;
const FEATURES_OK: u8 = 8;
const FAILED: u8 = 128;

/// Features (virtio 1.3, 5.1.3 and 6).
const MAC: u64 = 1 << 5;
const EVENT_IDX: u64 = 1 << 29;
const VERSION_1: u64 = 1 << 32;
const ACCESS_PLATFORM: u64 = 1 << 33;
const RING_PACKED: u64 = 1 << 34;
/// Features that the driver accepts. `ACCESS_PLATFORM`: the device's addresses are the guest's, since no IOMMU is set
/// up.
const ACCEPTED: u64 = MAC | EVENT_IDX | VERSION_1 | ACCESS_PLATFORM | RING_PACKED;

/// Queues.
const RX: u16 = 0;
const TX: u16 = 1;
/// Largest number of descriptors that are used.
const LARGEST: u16 = 256;
/// Bytes before a frame: `virtio_net_hdr`, all zeros without offloads.
const HEADER: usize = 12;
/// Bytes of a buffer, with the header.
const BUFFER: usize = 2048;
/// From one buffer to the next: an odd number of cache lines, so that buffers don't share a few sets of the cache.
const STRIDE: usize = BUFFER + 64;
/// Reads of the status until a reset must be over.
const RESETS: u32 = 100_000;

/// Memory of a device's queues and their buffers. A device may write there at any time: it is not used for anything
/// else as long as there is the device.
#[derive(Debug)]
pub struct NetMemory {
    /// Each queue's memory, and its address.
    queues: [(OwnedSpan, u64); 2],
    size: u16,
}

impl NetMemory {
    /// Memory for queues of at most so many descriptors, and for 256 at most; `None` if there is none.
    pub fn new(size: u16) -> Option<NetMemory> {
        let size = size.clamp(1, LARGEST);
        let [_, _, buffers] = parts(Lengths {
            descriptors: 16 * u32::from(size),
            driver: 6 + 2 * u32::from(size),
            device: 6 + 8 * u32::from(size),
        });
        let len = buffers + usize::from(size) * STRIDE;
        let queue = || {
            let memory = Region::private(0, 0, len);
            // All memory is identity-mapped.
            let address = memory.base().addr().get() as u64;
            keep(memory).map(|kept| (kept, address))
        };
        Some(NetMemory { queues: [queue()?, queue()?], size })
    }

    /// The memory of the queue for receiving, and of that for sending.
    pub fn spans(&self) -> [SpanMut<'_>; 2] {
        self.queues.each_ref().map(|(kept, _)| kept.span())
    }
}

/// Where a queue's driver area, its device area and its buffers are in its memory, behind the descriptors.
fn parts(lengths: Lengths) -> [usize; 3] {
    let driver = lengths.descriptors as usize;
    let device = (driver + lengths.driver as usize).next_multiple_of(64);
    [driver, device, (device + lengths.device as usize).next_multiple_of(64)]
}

/// A queue and its buffers.
#[derive(Debug)]
struct Queue<'m> {
    number: u16,
    driver: Driver<'m>,
    buffers: SpanMut<'m>,
    /// Address of the first buffer.
    base: u64,
    /// The buffer of each descriptor that the device has, by its id.
    held: Box<[u16]>,
    /// Buffers were added, and the device does not know.
    added: bool,
}

impl<'m> Queue<'m> {
    /// Starts a queue of the device.
    fn new(
        transport: &mut dyn Transport,
        number: u16,
        features: u64,
        memory: &'m NetMemory,
    ) -> Result<Queue<'m>, DeviceError> {
        let most = transport.queue_max(number).min(memory.size);
        // A split ring's size is a power of two.
        let size = most.checked_ilog2().map(|log| 1_u16 << log).ok_or(DeviceError::Queue(number))?;
        let layout = Layout {
            packed: features & RING_PACKED != 0,
            size,
            event_idx: features & EVENT_IDX != 0,
            indirect: false,
        };
        let lengths = layout.lengths()?;
        let [driver_at, device_at, buffers_at] = parts(lengths);
        let (memory, base) = memory.queues.get(usize::from(number)).ok_or(DeviceError::Queue(number))?;
        let part = |at: usize, len: u32| memory.span().split(at).1.split(len as usize).0;
        let areas = Areas {
            descriptors: part(0, lengths.descriptors),
            driver: part(driver_at, lengths.driver),
            device: part(device_at, lengths.device),
        };
        // Another driver may have used it.
        for mut area in [areas.descriptors, areas.driver, areas.device] {
            while !area.is_empty() {
                area.write(&[0; 64]);
                area = area.split(64).1;
            }
        }
        let driver = Driver::new(&layout, areas)?;
        let place = QueueAddresses {
            size,
            descriptors: *base,
            driver: base + driver_at as u64,
            device: base + device_at as u64,
        };
        if !transport.start_queue(number, &place) {
            return Err(DeviceError::Queue(number));
        }
        Ok(Queue {
            number,
            driver,
            buffers: memory.span().split(buffers_at).1,
            base: base + buffers_at as u64,
            held: (0..size).collect(),
            added: false,
        })
    }

    /// Number of buffers.
    fn size(&self) -> usize {
        self.held.len()
    }

    /// The bytes of a buffer behind the header.
    #[inline]
    fn frame(&self, buffer: u16) -> SpanMut<'m> {
        self.buffers.split(usize::from(buffer) * STRIDE + HEADER).1.split(BUFFER - HEADER).0
    }

    /// Gives a buffer to the device; `false`: there is no descriptor for it.
    #[inline]
    fn add(&mut self, buffer: u16, len: usize, write: bool) -> bool {
        let address = self.base + (usize::from(buffer) * STRIDE) as u64;
        let Some(id) = self.driver.add(&[Buffer { address, len: len as u32, write }], None) else {
            return false;
        };
        if let Some(held) = self.held.get_mut(usize::from(id)) {
            *held = buffer;
        }
        self.added = true;
        true
    }

    /// Publishes buffers; whether the device must be told.
    #[inline]
    fn publish(&mut self) -> bool {
        if !core::mem::take(&mut self.added) {
            return false;
        }
        self.driver.publish();
        self.driver.wants_kick()
    }
}

/// A network device.
pub struct Net<'m> {
    transport: Box<dyn Transport>,
    mac: Option<[u8; 6]>,
    features: u64,
    rx: Queue<'m>,
    tx: Queue<'m>,
    /// The next frame: its buffer and its bytes.
    head: Option<(u16, usize)>,
    /// Buffers for sending that the device does not have.
    free: Vec<u16>,
}

impl core::fmt::Debug for Net<'_> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_struct("Net").field("mac", &self.mac).field("rx", &self.rx).field("tx", &self.tx).finish()
    }
}

impl<'m> Net<'m> {
    /// Resets the device and starts it (virtio 1.3, 3.1.1).
    ///
    /// # Errors
    /// The device can't be used.
    pub fn new(mut transport: Box<dyn Transport>, memory: &'m NetMemory) -> Result<Net<'m>, DeviceError> {
        match Net::start(&mut *transport, memory) {
            Ok((features, mac, [rx, tx])) => {
                let free = (0..tx.size() as u16).rev().collect();
                let mut net = Net { transport, mac, features, rx, tx, head: None, free };
                // Polled until a function waits.
                net.rx.driver.set_flag(false);
                net.tx.driver.set_flag(false);
                // Cloud Hypervisor starts a vhost-user back-end at the available ring's index: buffers that were
                // available before would be skipped.
                net.transport.set_status(ACKNOWLEDGE | DRIVER | FEATURES_OK | DRIVER_OK);
                for buffer in 0..net.rx.size() as u16 {
                    net.rx.add(buffer, BUFFER, true);
                }
                net.rx.driver.publish();
                net.transport.kick(RX);
                net.rx.added = false;
                Ok(net)
            }
            Err(error) => {
                transport.set_status(FAILED);
                Err(error)
            }
        }
    }

    #[allow(clippy::type_complexity, reason = "what the only caller needs")]
    fn start(
        transport: &mut dyn Transport,
        memory: &'m NetMemory,
    ) -> Result<(u64, Option<[u8; 6]>, [Queue<'m>; 2]), DeviceError> {
        transport.set_status(0);
        // Attack: a device that never leaves its reset.
        if !(0..RESETS).any(|_| transport.status() == 0) {
            return Err(DeviceError::Reset);
        }
        transport.set_status(ACKNOWLEDGE);
        transport.set_status(ACKNOWLEDGE | DRIVER);
        let offered = transport.features();
        if offered & VERSION_1 == 0 {
            return Err(DeviceError::Legacy);
        }
        let features = offered & ACCEPTED;
        transport.accept(features);
        transport.set_status(ACKNOWLEDGE | DRIVER | FEATURES_OK);
        if transport.status() & FEATURES_OK == 0 {
            return Err(DeviceError::Features(features));
        }
        let mac = (features & MAC != 0).then(|| core::array::from_fn(|at| transport.config(at as u32)));
        let [rx, tx] = [RX, TX].map(|queue| Queue::new(transport, queue, features, memory));
        Ok((features, mac, [rx?, tx?]))
    }

    /// Its address, if it has one.
    pub fn mac(&self) -> Option<[u8; 6]> {
        self.mac
    }

    /// Whether its rings are packed.
    pub fn is_packed(&self) -> bool {
        self.features & RING_PACKED != 0
    }

    /// Whether its interrupts arrive.
    pub fn interrupts(&self) -> bool {
        self.transport.interrupts()
    }

    /// Number of buffers for sending.
    pub fn tx_slots(&self) -> u32 {
        self.tx.size() as u32
    }

    /// Finds the next frame.
    fn look(&mut self) -> Result<Option<(u16, usize)>, NetDeviceError> {
        if self.head.is_none()
            && let Some((id, len)) = self.rx.driver.take_used()?
        {
            // The driver checked that the device had this descriptor.
            let buffer = self.rx.held.get(usize::from(id)).copied().ok_or(NetDeviceError::Layout)?;
            // Attack: more bytes than the buffer has, which would be those of another one, or not even a header.
            let len = len as usize;
            if !(HEADER..=BUFFER).contains(&len) {
                return Err(NetDeviceError::Length);
            }
            self.head = Some((buffer, len - HEADER));
        }
        Ok(self.head)
    }

    /// Bytes of the next frame; `None` if there is none.
    pub fn frame_len(&mut self) -> Result<Option<usize>, NetDeviceError> {
        Ok(self.look()?.map(|(_, len)| len))
    }

    /// Copies the next frame, truncated, and returns its buffer to the device.
    pub fn pop(&mut self, out: &mut [u8]) -> Result<Option<Received>, NetDeviceError> {
        let Some((buffer, whole)) = self.look()? else { return Ok(None) };
        let len = copy_out(self.rx.frame(buffer).split(whole).0.as_span(), out);
        self.head = None;
        self.rx.add(buffer, BUFFER, true);
        Ok(Some(Received { len, whole, offload: [0; 10] }))
    }

    /// Queues a frame. One with an offload is not sent: none was negotiated.
    pub fn push(&mut self, frame: &[u8], offload: [u8; 10]) -> Result<Pushed, NetDeviceError> {
        self.push_with(frame.len(), offload, |buffer| copy_in(frame, buffer))
    }

    /// As [`Net::push`], of a frame in parts.
    pub fn push_gathered<'s>(
        &mut self,
        parts: impl Iterator<Item = Span<'s>> + Clone,
        offload: [u8; 10],
    ) -> Result<Pushed, NetDeviceError> {
        let len = parts.clone().map(|part| part.len()).sum();
        self.push_with(len, offload, |mut buffer| {
            for part in parts {
                let (place, rest) = buffer.split(part.len());
                copy(part, place);
                buffer = rest;
            }
        })
    }

    /// Queues a frame of `len` bytes, which `fill` writes.
    fn push_with(
        &mut self,
        len: usize,
        offload: [u8; 10],
        fill: impl FnOnce(SpanMut<'m>),
    ) -> Result<Pushed, NetDeviceError> {
        if len > BUFFER - HEADER || offload != [0; 10] {
            return Ok(Pushed::TooLong);
        }
        if self.free.is_empty() {
            self.reclaim()?;
        }
        let Some(buffer) = self.free.pop() else { return Ok(Pushed::Full) };
        fill(self.tx.frame(buffer));
        if self.tx.add(buffer, HEADER + len, false) {
            return Ok(Pushed::Done);
        }
        self.free.push(buffer);
        Ok(Pushed::Full)
    }

    /// Takes back the buffers of frames that are sent.
    fn reclaim(&mut self) -> Result<(), NetDeviceError> {
        let Net { tx: Queue { driver, held, .. }, free, .. } = self;
        driver.take_used_run(held.len(), |id, _| {
            // A descriptor comes back once, so there are never more buffers than there were.
            free.extend(held.get(usize::from(id)));
        })?;
        Ok(())
    }

    /// Publishes frames and empty buffers.
    pub fn sync(&mut self) {
        for queue in [&mut self.tx, &mut self.rx] {
            if queue.publish() {
                self.transport.kick(queue.number);
            }
        }
    }

    /// Free buffers for sending, at least `wanted` if there are as many.
    pub fn room(&mut self, wanted: u32) -> Result<u32, NetDeviceError> {
        if self.free.len() < wanted as usize {
            self.reclaim()?;
        }
        Ok(self.free.len() as u32)
    }

    /// Lets the device interrupt again. Call it before the last look at the rings before sleep.
    pub fn acknowledge(&self) {
        self.transport.acknowledge();
        fence(Ordering::SeqCst);
    }

    /// Whether there is a frame, or the ring is broken.
    pub fn has_frame(&self) -> bool {
        self.head.is_some() || self.rx.driver.pending()
    }

    /// Asks for an interrupt when there is a frame; `false`: there is one already.
    pub fn arm_rx(&mut self) -> bool {
        self.rx.driver.set_flag(true);
        // The device stores an index, then looks at the flag; the driver stores the flag, then looks at the index.
        fence(Ordering::SeqCst);
        if self.has_frame() {
            self.rx.driver.set_flag(false);
            return false;
        }
        true
    }

    /// Cancels [`Net::arm_rx`].
    pub fn disarm_rx(&mut self) {
        self.rx.driver.set_flag(false);
    }

    /// Asks for an interrupt when buffers come back; `false`: `slots` are free.
    pub fn arm_tx(&mut self, slots: u32) -> Result<bool, NetDeviceError> {
        self.tx.driver.set_flag(true);
        fence(Ordering::SeqCst);
        if self.room(slots)? >= slots {
            self.disarm_tx();
            return Ok(false);
        }
        Ok(true)
    }

    /// Cancels [`Net::arm_tx`].
    pub fn disarm_tx(&mut self) {
        self.tx.driver.set_flag(false);
    }
}

/// A device that is not used any more gets no more buffers.
impl Drop for Net<'_> {
    fn drop(&mut self) {
        self.transport.set_status(0);
    }
}
