//! A stack with its device and clock, polled by the caller.

use crate::device::HEADERS;
use crate::{Device, DeviceError, Received, StoredBytes};
use ringway_frame::{BURST, BURST_BYTES, LARGEST, Offload};
use ringway_host::{Clock, Epoll, random};
use ringway_mem::Span;
use ringway_netstack::{Cidr, InterfaceConfig, Reader, Settings, SocketError, SocketId, Stack, Transmit};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// The fewest bytes that are copied to the device's memory: fewer are not worth a buffer there.
const STORED: usize = 8192;

/// Frames received between two looks at the clock: a timer that is due does not wait for the rest of a burst.
const BETWEEN: usize = 8;

/// Addresses and settings of a host.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its addresses; each adds a route to its network.
    pub addresses: Vec<Cidr>,
    /// The next hop to other networks.
    pub gateways: Vec<IpAddr>,
    /// Its link-layer address; a random one if none.
    pub mac: Option<[u8; 6]>,
    /// Largest IP packet in bytes.
    pub mtu: usize,
    /// Whether checksums and segmentation are left to the device.
    pub offloads: bool,
    /// Settings of the stack.
    pub settings: Settings,
    /// The secret of hosts that had these addresses before, see [`Stack::set_sequence_secret`]; a random one if none.
    pub sequence_secret: Option<[u64; 2]>,
    /// How long a blocked call polls the device before it sleeps. Sleeping costs microseconds, polling a
    /// core.
    pub spin: Duration,
}

impl Config {
    /// A host with one address and no gateway.
    pub fn new(address: Cidr) -> Config {
        Config {
            addresses: vec![address],
            gateways: Vec::new(),
            mac: None,
            mtu: 1500,
            offloads: true,
            settings: Settings::default(),
            sequence_secret: None,
            spin: Duration::ZERO,
        }
    }
}

/// The device as the stack sends to it.
struct Output<'a> {
    device: &'a mut dyn Device,
    full: bool,
}

impl Transmit for Output<'_> {
    fn frame(&mut self, offload: Offload, headers: &[u8], payload: &[Span<'_>]) -> bool {
        self.full = !self.device.frame(offload, headers, payload);
        !self.full
    }
}

/// A TCP/IP stack on a device. Its sockets are those of [`Stack`]; nothing happens outside of calls.
///
/// [`Host::poll`] never blocks, and [`Host::wait`] sleeps until a frame or a deadline. A program with its own
/// event loop watches the descriptor of [`Host::as_fd`] while [`Host::arm`] permits it to sleep.
pub struct Host {
    stack: Stack,
    device: Box<dyn Device>,
    clock: Clock,
    epoll: Arc<Epoll>,
    frame: Vec<u8>,
    /// Memory for a list in [`Host::write`].
    stored: Vec<StoredBytes>,
    /// The device had no room for a frame.
    full: bool,
    /// Why the device failed, to be reported by the next [`Host::poll`].
    error: Option<DeviceError>,
    may_read: bool,
    pub(crate) spin: Duration,
    /// Bytes of streams that were copied between the device and the stack.
    copied: u64,
    /// Bytes of received frames.
    received: u64,
    /// The time, in place of the clock's.
    #[cfg(test)]
    pub(crate) virtual_now: Option<u64>,
    /// The device's epoch whose descriptors are watched.
    epoch: u64,
    /// Whether the device was away then.
    is_away: bool,
    /// The addresses are to be announced: neighbours may know them from a program that was here before, or elsewhere.
    is_new: bool,
}

/// Watches the descriptors of a device.
fn watch(epoll: &Epoll, device: &dyn Device) -> Result<(), DeviceError> {
    for (key, descriptor) in device.descriptors().into_iter().enumerate() {
        epoll.add_edge(descriptor, key as u64)?;
    }
    Ok(())
}

impl std::fmt::Debug for Host {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Host").field("statistics", &self.stack.statistics()).finish_non_exhaustive()
    }
}

impl Host {
    /// A host on a device.
    ///
    /// # Errors
    /// If the operating system has no descriptors or random numbers.
    pub fn new(device: impl Device + 'static, config: Config) -> Result<Host, DeviceError> {
        let mut stack = Stack::new(config.settings, [random()?, random()?]);
        if let Some(secret) = config.sequence_secret {
            stack.set_sequence_secret(secret);
        }
        let [a, b, c, d, e, ..] = random()?.to_ne_bytes();
        let number = stack.add_interface(InterfaceConfig {
            // Locally administered, of one station.
            mac: config.mac.unwrap_or([2, a, b, c, d, e]).into(),
            mtu: config.mtu,
            addresses: config.addresses,
            offloads: if config.offloads { device.offloads() } else { ringway_frame::Needs::NONE },
        });
        for gateway in config.gateways {
            let any: IpAddr = if gateway.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
            stack.add_route(Cidr::new(any, 0), gateway, number);
        }
        let epoll = Epoll::new()?;
        watch(&epoll, &device)?;
        Ok(Host {
            stack,
            epoch: device.epoch(),
            is_away: false,
            is_new: true,
            device: Box::new(device),
            clock: Clock::new(),
            epoll: Arc::new(epoll),
            frame: vec![0; LARGEST as usize],
            stored: Vec::new(),
            full: false,
            error: None,
            may_read: false,
            spin: config.spin,
            copied: 0,
            received: 0,
            #[cfg(test)]
            virtual_now: None,
        })
    }

    /// The stack, whose calls take the time of [`Host::now`].
    pub fn stack(&mut self) -> &mut Stack {
        &mut self.stack
    }

    /// The time in nanoseconds.
    pub fn now(&self) -> u64 {
        #[cfg(test)]
        if let Some(now) = self.virtual_now {
            return now;
        }
        self.clock.now()
    }

    /// Bytes of streams that were copied on this side: from programs' memory to that of the device, and back.
    pub fn bytes_copied(&self) -> u64 {
        self.stack.statistics().bytes_copied + self.device.copied() + self.copied
    }

    /// Receives up to a burst of frames, handles deadlines, and sends. Returns whether frames were received.
    ///
    /// # Errors
    /// If the device can't be used any more; the same holds for the other functions.
    pub fn poll(&mut self) -> Result<bool, DeviceError> {
        self.turn(true)
    }

    /// As [`Host::poll`]; receives only if it should.
    pub(crate) fn turn(&mut self, receive: bool) -> Result<bool, DeviceError> {
        self.error.take().map_or(Ok(()), Err)?;
        let now = self.now();
        self.attend(now)?;
        let busy = receive && self.receive(now, None)?;
        let now = if busy { self.now() } else { now };
        self.stack.expire(now);
        self.send(now)?;
        Ok(busy)
    }

    /// Why the device is away, and with it the network, until it comes back by itself; `None` if it can be used. A ring
    /// is away while its fabric is down.
    pub fn away(&self) -> Option<&str> {
        self.device.away()
    }

    /// Lets a device that is away come back, follows its changes, and announces the addresses on a new one.
    fn attend(&mut self, now: u64) -> Result<(), DeviceError> {
        self.follow(now)?;
        if self.device.next_attempt().is_some_and(|next| next <= now) {
            self.device.come_back(now);
            self.follow(now)?;
        }
        if self.is_new && self.device.away().is_none() {
            self.is_new = false;
            self.stack.announce(now, 0);
        }
        Ok(())
    }

    /// Watches the device's new descriptors; ends connections if it went away.
    fn follow(&mut self, now: u64) -> Result<(), DeviceError> {
        let epoch = self.device.epoch();
        if epoch == self.epoch {
            return Ok(());
        }
        self.epoch = epoch;
        watch(&self.epoll, &*self.device)?;
        let is_away = self.device.away().is_some();
        if is_away && !std::mem::replace(&mut self.is_away, is_away) {
            self.stack.end_connections(now);
        }
        self.is_new = true;
        self.is_away = is_away;
        Ok(())
    }

    /// Whether the next [`Host::read`] may receive. Returns whether it still might.
    pub(crate) fn permit_read(&mut self, may: bool) -> bool {
        std::mem::replace(&mut self.may_read, may)
    }

    /// Receives bytes of a socket that has nothing to read: they are copied once, from the device's memory to `out`.
    /// Only once in a call of [`Network`](crate::Network), which sends afterwards.
    ///
    /// # Errors
    /// [`SocketError::WouldBlock`] if no bytes came for the socket.
    pub fn read(&mut self, socket: SocketId, out: &mut [u8]) -> Result<usize, SocketError> {
        if !self.permit_read(false) {
            return Err(SocketError::WouldBlock);
        }
        let now = self.now();
        let mut reader = Reader::new(socket, out);
        if let Err(error) = self.receive(now, Some(&mut reader)) {
            self.error = Some(error);
        }
        let filled = reader.filled();
        self.stack.expire(now);
        if filled > 0 { Ok(filled) } else { Err(SocketError::WouldBlock) }
    }

    /// Appends bytes to a stream, as [`Stack::send`]. Many at once are copied to the device's memory, if it has some
    /// for that, and not to the stack's.
    ///
    /// # Errors
    /// As [`Stack::send`].
    pub fn write(&mut self, socket: SocketId, bytes: &[u8]) -> Result<usize, SocketError> {
        let now = self.now();
        // The other end of the device must not see what stays on this host.
        if bytes.len() < STORED || self.stack.is_to_itself(socket)? {
            return self.stack.send(now, socket, bytes);
        }
        let room = self.stack.send_room(socket)?;
        let (mut rest, mut left) = (bytes, room.min(bytes.len()));
        let mut stored = std::mem::take(&mut self.stored);
        while left >= STORED
            && let Some((source, len)) = self.device.store(&rest[..left])
            && len > 0
        {
            (rest, left) = (&rest[len..], left - len);
            stored.push((source, len));
        }
        let sent = self.stack.send_stored(now, socket, &stored, rest);
        stored.clear();
        self.stored = stored;
        sent
    }

    /// Receives up to a burst of frames, until the reader has enough, or a timer is due. Returns whether there were
    /// frames.
    fn receive(&mut self, now: u64, mut reader: Option<&mut Reader<'_>>) -> Result<bool, DeviceError> {
        let (mut count, mut bytes) = (0, 0);
        while count < BURST
            && bytes < BURST_BYTES
            && !reader.as_ref().is_some_and(|reader| reader.is_full())
            && !(count > 0 && count % BETWEEN == 0 && self.is_due())
            && let Some(received) = self.device.receive()?
        {
            let (len, copied) =
                pass_counted(&mut self.stack, now, &received, &mut self.frame, reader.as_deref_mut());
            self.copied += copied as u64;
            (count, bytes) = (count + 1, bytes + len);
        }
        self.received += bytes as u64;
        Ok(count > 0)
    }

    /// Bytes of all received frames.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    fn is_due(&self) -> bool {
        self.stack.next_timer().is_some_and(|due| due <= self.now())
    }

    /// Sends what can be sent.
    pub(crate) fn send(&mut self, now: u64) -> Result<(), DeviceError> {
        let mut output = Output { device: &mut *self.device, full: false };
        self.stack.transmit(now, 0, &mut output);
        self.full = output.full;
        self.device.flush()
    }

    /// Whether frames wait for room in the device.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// When [`Host::poll`] must be called although nothing arrives.
    pub(crate) fn deadline(&self) -> Option<u64> {
        let own = if self.full { self.stack.next_timer() } else { self.stack.next_deadline() };
        own.into_iter().chain(self.device.next_attempt()).min()
    }

    /// Prepares to sleep: the descriptor becomes readable when a frame arrives, or when there is room for
    /// frames that wait. Returns for how long the caller may sleep; `None`: it may not, since
    /// [`Host::poll`] has work already.
    pub fn arm(&mut self) -> Result<Option<Duration>, DeviceError> {
        let now = self.now();
        Ok(self.arm_until()?.filter(|until| *until > now).map(|until| Duration::from_nanos(until - now)))
    }

    /// As [`Host::arm`], with the time at which to wake up.
    pub(crate) fn arm_until(&mut self) -> Result<Option<u64>, DeviceError> {
        let armed = self.device.arm(self.full)? && self.device.epoch() == self.epoch;
        Ok(armed.then(|| self.deadline().unwrap_or(u64::MAX)))
    }

    /// Cancels [`Host::arm`]: while the caller polls, nobody needs to notify it.
    pub fn disarm(&mut self) {
        self.device.disarm();
    }

    /// Sleeps until a frame, a deadline, or for `timeout`.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<(), DeviceError> {
        let Some(most) = self.arm()? else { return Ok(()) };
        let most = timeout.map_or(most, |timeout| most.min(timeout));
        let events = events(&self.epoll, most.as_nanos() as u64);
        self.notified(events)?;
        self.disarm();
        Ok(())
    }

    /// Tells the device which descriptors became readable: one bit each.
    pub(crate) fn notified(&mut self, events: u64) -> Result<(), DeviceError> {
        for descriptor in (0..u64::BITS as usize).filter(|number| events >> number & 1 != 0) {
            self.device.notified(descriptor)?;
        }
        Ok(())
    }

    pub(crate) fn epoll(&self) -> &Arc<Epoll> {
        &self.epoll
    }
}

/// Passes a frame to a stack; its length. `frame` has room for a copy, if one is necessary.
pub fn pass(
    stack: &mut Stack,
    now: u64,
    received: &Received<'_>,
    frame: &mut [u8],
    reader: Option<&mut Reader<'_>>,
) -> usize {
    pass_counted(stack, now, received, frame, reader).0
}

/// As [`pass`], with the number of bytes that were copied to `frame`, without headers.
fn pass_counted(
    stack: &mut Stack,
    now: u64,
    received: &Received<'_>,
    frame: &mut [u8],
    reader: Option<&mut Reader<'_>>,
) -> (usize, usize) {
    let Received { head, rest, offload } = received;
    if rest.is_empty() {
        // To a program that waits the bytes go in one copy, not by the receive buffer.
        let (headers, bytes) = head.split_at(head.len().min(HEADERS));
        let waits = reader.is_some() && !bytes.is_empty();
        if !waits || !stack.receive_in_place(now, 0, headers, &[Span::of(bytes)], *offload, reader) {
            stack.receive(now, 0, head, *offload);
        }
        return (head.len(), 0);
    }
    let behind = rest.iter().map(|piece| piece.len()).sum::<usize>();
    if stack.receive_in_place(now, 0, head, rest, *offload, reader) {
        return (head.len() + behind, 0);
    }
    let len = received.read(frame);
    stack.receive(now, 0, &frame[..len], *offload);
    (len, behind)
}

/// Waits at most `most` nanoseconds; the keys that were reported, as bits.
pub(crate) fn events(epoll: &Epoll, most: u64) -> u64 {
    let mut events = 0;
    epoll.wait((most != u64::MAX).then_some(most), |key| events |= 1 << key);
    events
}

/// The descriptor to watch after [`Host::arm`]. It is readable until [`Host::wait`] is called, with no time
/// to wait if the caller waited itself.
impl AsFd for Host {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
