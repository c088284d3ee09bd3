//! TCP/IP stacks on ports.

use crate::port::{PortState, Use};
use crate::socket::Sockets;
use crate::state::Shared;
use crate::{Error, Program, TcpListener, TcpStream, UdpSocket};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::task::Waker;
use ringway_frame::{BURST, Needs, Offload};
use ringway_mem::Span;
use ringway_netstack::{
    Cidr, InterfaceConfig, SECOND, Settings, SocketError, SocketId, Stack, State, Transmit,
};
use ringway_wire::MacAddress;

/// Bytes that a stream may have in each direction, unless the program says otherwise.
pub(crate) const BUFFER: usize = 256 << 10;
/// Least bytes of it.
const LEAST: usize = 4 << 10;
/// Part of the memory that buffers of all streams may take.
const SHARE: u64 = 2;
/// Least number of streams of a network alone, and of sockets.
const STREAMS: u64 = 16;
const SOCKETS: u64 = 256;
/// Memory for each socket that may exist. Attack: connections that the program has closed, and whose peers do not end
/// them: sockets without buffers, but sockets.
const SOCKET: u64 = 16 << 10;
/// How long a stream that was closed may take to send what was written. Attack: a peer that answers, and takes nothing.
pub(crate) const LINGER: u64 = 30 * SECOND;
/// Streams that were closed are looked at so often while frames come.
const LOOK: u64 = SECOND / 1000;
/// Bytes of packets that lack fragments, and neighbours.
const FRAGMENTS: usize = 256 << 10;
const NEIGHBORS: usize = 512;
/// Connections to accept, and connections to a listener whose handshake is not complete.
const BACKLOG: usize = 64;
const EMBRYOS: usize = 256;
/// How long a closed connection is remembered: shorter than Linux's minute, since it takes memory.
const TIME_WAIT: u64 = 10 * SECOND;

/// How a network is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkConfig {
    /// Its addresses.
    pub addresses: Vec<Cidr>,
    /// The next hop to other networks.
    pub gateways: Vec<IpAddr>,
    /// Whether a DHCP server gives it an address.
    pub dhcp: bool,
    /// Its Ethernet address; one that depends on the function's and the port's name if none.
    pub mac: Option<[u8; 6]>,
    /// Largest IP packet.
    pub mtu: usize,
    /// Bytes that each stream may have in each direction. The number of streams is so that the buffers of all networks
    /// take half of the memory at most; 16 streams must fit.
    pub buffer: usize,
}

impl Default for NetworkConfig {
    fn default() -> NetworkConfig {
        NetworkConfig {
            addresses: Vec::new(),
            gateways: Vec::new(),
            dhcp: false,
            mac: None,
            mtu: 1500,
            buffer: BUFFER,
        }
    }
}

impl Program {
    /// The network of the fabric file: `address`, `gateway` and `mac`.
    ///
    /// # Errors
    /// A setting is wrong.
    pub fn network_config(&self) -> Result<NetworkConfig, Error> {
        let mut config = NetworkConfig::default();
        for text in self.settings("address") {
            match text {
                "dhcp" => config.dhcp = true,
                _ => config.addresses.push(text.parse().map_err(|error| Error::setting("address", error))?),
            }
        }
        for text in self.settings("gateway") {
            config.gateways.push(text.parse().map_err(|error| Error::setting("gateway", error))?);
        }
        for text in self.settings("mac") {
            let mac: MacAddress = text.parse().map_err(|error| Error::setting("mac", error))?;
            config.mac = Some(mac.0);
        }
        Ok(config)
    }

    /// The network on the first port, as the fabric file describes it.
    ///
    /// # Errors
    /// The file has no address, or the port is in use.
    pub fn network(&self) -> Result<Network, Error> {
        let config = self.network_config()?;
        if config.addresses.is_empty() && !config.dhcp {
            let why = "it is missing; add address = \"10.0.0.2/24\" or \"dhcp\" to the function";
            return Err(Error::setting("address", why));
        }
        let port = self.ports().next().unwrap_or_default();
        self.network_on(port, config)
    }

    /// A network on a port.
    ///
    /// # Errors
    /// There is no such port, or it is in use; or the memory is too small for 16 streams with such buffers.
    pub fn network_on(&self, port: &str, config: NetworkConfig) -> Result<Network, Error> {
        let settings = settings(self.shared.memory, config.buffer);
        if cost(&settings) > self.shared.budget.limit / STREAMS {
            let why = format_args!("{STREAMS} streams with so much do not fit into half of the memory");
            return Err(Error::setting("buffer", why));
        }
        let number = self.claim(port, Use::Network)?;
        let mut state = self.shared.state.borrow_mut();
        let index = state.networks.len();
        let now = self.shared.time.now();
        let offloads = if state.ports[number].has_offloads() { Needs::ALL } else { Needs::NONE };
        let new = NetworkState::new(number, (port, offloads), config, settings, &self.shared, now);
        state.networks.push(new);
        Ok(Network { shared: self.shared.clone(), index })
    }
}

/// The second half of a seed, from the first (SplitMix64's output function).
fn mix(seed: u64) -> u64 {
    let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A locally administered address that stays the same when the program is restarted.
fn address_of(function: &str, port: &str) -> [u8; 6] {
    let bytes = function.bytes().chain([0]).chain(port.bytes());
    let hash = bytes
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let [a, b, c, d, e, ..] = mix(hash).to_le_bytes();
    [2, a, b, c, d, e]
}

/// Memory of a stream's buffers.
fn cost(settings: &Settings) -> u64 {
    (settings.receive_memory() as u64).saturating_add(settings.tcp_wmem[2] as u64)
}

/// Memory for buffers of streams, of all networks.
pub(crate) struct Budget {
    limit: u64,
    used: Cell<u64>,
    /// Tasks that wait for a stream to end.
    crowded: RefCell<Vec<Waker>>,
}

impl Budget {
    /// The budget of a machine with so much memory.
    pub fn new(memory: u64) -> Budget {
        Budget { limit: memory / SHARE, used: Cell::new(0), crowded: RefCell::default() }
    }

    fn is_crowded(&self, cost: u64) -> bool {
        self.used.get().saturating_add(cost) > self.limit
    }

    fn take(&self, cost: u64) {
        self.used.set(self.used.get().saturating_add(cost));
    }

    fn give(&self, cost: u64) {
        self.used.set(self.used.get().saturating_sub(cost));
        self.crowded.borrow_mut().drain(..).for_each(Waker::wake);
    }

    fn wait(&self, waker: &Waker) {
        let mut crowded = self.crowded.borrow_mut();
        // Attack: a task that is woken again and again while it waits.
        if !crowded.iter().any(|own| own.will_wake(waker)) {
            crowded.push(waker.clone());
        }
    }
}

/// Settings of a stack that keeps within the memory.
fn settings(memory: u64, buffer: usize) -> Settings {
    let buffer = buffer.max(LEAST);
    Settings {
        tcp_rmem: [4 << 10, buffer.min(64 << 10), buffer],
        tcp_wmem: [4 << 10, buffer.min(16 << 10), buffer],
        tcp_max_syn_backlog: EMBRYOS,
        tcp_fin_timeout: TIME_WAIT,
        ipfrag_high_thresh: FRAGMENTS,
        gc_thresh3: NEIGHBORS,
        max_sockets: usize::try_from((memory / SOCKET).max(SOCKETS)).unwrap_or(usize::MAX),
        ..Settings::default()
    }
}

/// The tasks that wait for a socket.
#[derive(Default)]
struct Waiters {
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// A stack, its port, and the tasks that wait for its sockets.
pub(crate) struct NetworkState {
    pub port: usize,
    pub stack: Stack,
    waiters: BTreeMap<SocketId, Waiters>,
    /// The port had no room for a frame.
    full: bool,
    /// Memory for buffers, and what a stream needs of it.
    budget: Rc<Budget>,
    cost: u64,
    /// Streams that the program has closed, and whose bytes the peer has not acknowledged; until when it may.
    closing: VecDeque<(SocketId, u64)>,
    /// The last look at them, and whether frames came since.
    looked: u64,
    changed: bool,
}

impl NetworkState {
    fn new(
        port: usize,
        (name, offloads): (&str, Needs),
        config: NetworkConfig,
        settings: Settings,
        shared: &Shared,
        now: u64,
    ) -> NetworkState {
        let (seed, cost) = (shared.start.seed, cost(&settings));
        let mut stack = Stack::new(settings, [seed ^ port as u64, mix(seed)]);
        let mac = config.mac.unwrap_or_else(|| address_of(&shared.start.handlers, name));
        stack.add_interface(InterfaceConfig {
            mac: mac.into(),
            mtu: config.mtu,
            addresses: config.addresses,
            offloads,
        });
        for gateway in config.gateways {
            let any: IpAddr = match gateway {
                IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            };
            stack.add_route(Cidr::new(any, 0), gateway, 0);
        }
        stack.announce(now, 0);
        if config.dhcp {
            stack.enable_dhcp(now, 0);
        }
        NetworkState {
            port,
            stack,
            waiters: BTreeMap::new(),
            full: false,
            budget: shared.budget.clone(),
            cost,
            closing: VecDeque::new(),
            looked: 0,
            changed: false,
        }
    }

    /// Receives a burst; whether anything came.
    pub fn take(&mut self, port: &mut PortState, now: u64, frame: &mut [u8]) -> bool {
        let mut count = 0;
        while count < BURST {
            let Some(received) = port.pop(frame) else { break };
            count += 1;
            // Attack: a frame that is longer than any may be.
            if received.len == received.whole {
                self.stack.receive(now, 0, &frame[..received.len], Offload::from_bytes(&received.offload));
            }
        }
        let due = self.stack.next_timer().is_some_and(|due| due <= now);
        if due {
            self.stack.expire(now);
        }
        self.changed |= count > 0;
        if self.look().is_some_and(|due| due <= now) {
            self.end_closing(now);
        }
        self.wake_ready();
        count > 0 || due
    }

    /// Sends.
    pub fn put(&mut self, port: &mut PortState, now: u64) {
        let mut output = Output { port, full: false };
        self.stack.transmit(now, 0, &mut output);
        self.full = output.full;
        self.wake_ready();
    }

    /// Wakes tasks whose sockets are ready.
    fn wake_ready(&mut self) {
        while let Some((id, ready)) = self.stack.next_event() {
            let Some(waiters) = self.waiters.get_mut(&id) else { continue };
            if ready.readable || ready.acceptable || ready.closed {
                waiters.reader.take().into_iter().for_each(Waker::wake);
            }
            if ready.writable || ready.closed {
                waiters.writer.take().into_iter().for_each(Waker::wake);
            }
            if waiters.reader.is_none() && waiters.writer.is_none() {
                self.waiters.remove(&id);
            }
        }
    }

    /// When the next turn is due.
    pub fn deadline(&self) -> Option<u64> {
        let stack = if self.full { self.stack.next_timer() } else { self.stack.next_deadline() };
        stack.into_iter().chain(self.look()).min()
    }

    /// When streams that were closed are looked at.
    fn look(&self) -> Option<u64> {
        let (_, due) = self.closing.front()?;
        Some(if self.changed { self.looked.saturating_add(LOOK).min(*due) } else { *due })
    }

    /// Gives streams to the stack that the peer has all bytes of, and aborts those that are late.
    fn end_closing(&mut self, now: u64) {
        (self.looked, self.changed) = (now, false);
        let NetworkState { stack, closing, budget, cost, .. } = self;
        closing.retain(|&(id, due)| {
            if due <= now {
                // The connection may have ended already.
                let _ = stack.abort(now, id);
            } else if !is_sent(stack, id) {
                return true;
            }
            let _ = stack.close(now, id);
            budget.give(*cost);
            false
        });
    }

    /// Whether the port had no room.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Whether there are as many streams as the memory permits.
    pub fn is_crowded(&self) -> bool {
        self.budget.is_crowded(self.cost)
    }

    /// Counts a stream that was opened.
    pub fn open(&mut self) {
        self.budget.take(self.cost);
    }

    /// Closes a stream. It counts until its peer has all bytes, since it has buffers so long.
    pub fn close(&mut self, now: u64, id: SocketId) {
        self.waiters.remove(&id);
        // A stream that has ended already is gone.
        let _ = self.stack.shutdown(now, id);
        if is_sent(&self.stack, id) {
            let _ = self.stack.close(now, id);
            return self.budget.give(self.cost);
        }
        // Attack: peers that take nothing keep others out. The oldest ones are given up for new ones.
        if self.closing.len() as u64 >= self.budget.limit / 2 / self.cost
            && let Some((oldest, _)) = self.closing.pop_front()
        {
            let _ = self.stack.abort(now, oldest);
            self.budget.give(self.cost);
        }
        self.closing.push_back((id, now.saturating_add(LINGER)));
    }

    /// Calls the waker when a stream ends.
    pub fn wait_for_close(&mut self, waker: &Waker) {
        self.budget.wait(waker);
    }

    /// Calls the waker when a socket can be read, or written.
    pub fn wait(&mut self, id: SocketId, writes: bool, waker: &Waker) {
        let waiters = self.waiters.entry(id).or_default();
        let place = if writes { &mut waiters.writer } else { &mut waiters.reader };
        *place = Some(waker.clone());
    }

    /// How many wait for a stream to end.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.budget.crowded.borrow().len()
    }

    /// Memory of streams that are counted, and streams that are closing.
    #[cfg(test)]
    pub fn counts(&self) -> (u64, u64) {
        (self.budget.used.get() / self.cost, self.closing.len() as u64)
    }

    /// Removes the tasks that wait for a socket.
    pub fn forget(&mut self, id: SocketId) {
        self.waiters.remove(&id);
    }
}

/// Whether a stream that is shut down needs no program any more: the peer has everything, or is told that it does not,
/// since bytes of its own came that nobody reads.
fn is_sent(stack: &Stack, id: SocketId) -> bool {
    let state = stack.info(id).map_or(State::Closed, |info| info.tcpi_state);
    let has_all = matches!(state, State::Closed | State::SynSent | State::FinWait2 | State::TimeWait);
    has_all || stack.unread(id).is_ok_and(|unread| unread > 0)
}

/// A port as the stack sends to it.
struct Output<'a> {
    port: &'a mut PortState,
    full: bool,
}

impl Transmit for Output<'_> {
    fn frame(&mut self, offload: Offload, headers: &[u8], payload: &[Span<'_>]) -> bool {
        let headers = [Span::of(headers)];
        match self.port.push(&[&headers, payload], offload.to_bytes()) {
            Ok(sent) => {
                self.full |= !sent;
                sent
            }
            // A frame that no ring of this port can have is lost, as it would be on a line.
            Err(_) => true,
        }
    }
}

/// A TCP/IP stack on a port, for sockets. Copies are the same one.
#[derive(Clone)]
pub struct Network {
    pub(crate) shared: Rc<Shared>,
    pub(crate) index: usize,
}

impl Network {
    /// Uses the stack, at the time of now.
    pub(crate) fn with<T>(&self, call: impl FnOnce(&mut NetworkState, u64) -> T) -> T {
        let now = self.shared.time.now();
        let mut state = self.shared.state.borrow_mut();
        call(&mut state.networks[self.index], now)
    }

    /// Its addresses; with DHCP, those of the server.
    pub fn addresses(&self) -> Vec<Cidr> {
        self.with(|network, _| network.stack.interface_addresses(0).to_vec())
    }

    /// Whether the network's port has a ring, or else why not.
    pub fn port_state(&self) -> Result<(), String> {
        let state = self.shared.state.borrow();
        let port = state.networks.get(self.index).and_then(|network| state.ports.get(network.port));
        port.map_or(Ok(()), |port| port.state().map_err(String::from))
    }

    /// Listens on a TCP port of all addresses, IPv4 and IPv6.
    ///
    /// # Errors
    /// Another listener has the port.
    pub fn listen(&self, port: u16) -> Result<TcpListener, Error> {
        let listen = |stack: &mut Stack, address| stack.listen(address, BACKLOG);
        Ok(TcpListener::new(self.clone(), self.both(port, listen)?))
    }

    /// Listens on an address, which may be unspecified.
    ///
    /// # Errors
    /// Another listener has the address.
    pub fn listen_on(&self, address: SocketAddr) -> Result<TcpListener, Error> {
        let id = self.with(|network, _| network.stack.listen(address, BACKLOG))?;
        Ok(TcpListener::new(self.clone(), Sockets::new(self, [id])))
    }

    /// Opens a socket for each family of addresses on a port; 0 chooses one.
    fn both(
        &self,
        port: u16,
        open: impl Fn(&mut Stack, SocketAddr) -> Result<SocketId, SocketError>,
    ) -> Result<Sockets, Error> {
        let (first, port) = self.with(|network, _| {
            let id = open(&mut network.stack, (Ipv4Addr::UNSPECIFIED, port).into())?;
            Ok::<_, SocketError>((id, network.stack.local_address(id)?.port()))
        })?;
        // The first socket is closed if the second one fails.
        let sockets = Sockets::new(self, [first]);
        let second =
            self.with(|network, _| open(&mut network.stack, (Ipv6Addr::UNSPECIFIED, port).into()))?;
        Ok(sockets.and(Sockets::new(self, [second])))
    }

    /// Connects to an address.
    ///
    /// # Errors
    /// There is no route, nobody answers or listens, or there are as many streams as the memory permits.
    pub async fn connect(&self, address: SocketAddr) -> Result<TcpStream, Error> {
        TcpStream::connect(self, address).await
    }

    /// Opens a UDP socket on a port of all addresses, IPv4 and IPv6; 0 chooses one.
    ///
    /// # Errors
    /// Another socket has the port.
    pub fn bind(&self, port: u16) -> Result<UdpSocket, Error> {
        Ok(UdpSocket::new(self.clone(), self.both(port, Stack::bind)?))
    }

    /// Opens a UDP socket on an address, which may be unspecified; port 0 chooses one.
    ///
    /// # Errors
    /// Another socket has the address.
    pub fn bind_on(&self, address: SocketAddr) -> Result<UdpSocket, Error> {
        let id = self.with(|network, _| network.stack.bind(address))?;
        Ok(UdpSocket::new(self.clone(), Sockets::new(self, [id])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ethernet_address_is_of_a_function_and_its_port() {
        let address = address_of("/run/a.sock", "in");
        assert_eq!(address, address_of("/run/a.sock", "in"));
        assert_ne!(address, address_of("/run/a.sock", "out"));
        assert_ne!(address, address_of("/run/b.sock", "in"));
        assert_eq!(address[0], 2, "locally administered, of one station");
    }

    #[test]
    fn buffers_of_all_networks_take_half_of_the_memory_at_most() {
        for memory in [32_u64 << 20, 256 << 20, 2000 << 20] {
            let (budget, costs) =
                (Budget::new(memory), [BUFFER, 1].map(|buffer| cost(&settings(memory, buffer))));
            assert_eq!(costs, [(512 + 64) << 10, (8 + 4) << 10]);
            for cost in costs {
                while !budget.is_crowded(cost) {
                    budget.take(cost);
                }
                assert!(budget.used.get() <= memory / 2);
            }
            budget.give(costs[1]);
            assert!(budget.is_crowded(costs[0]) && !budget.is_crowded(costs[1]));
            let settings = settings(memory, BUFFER);
            assert!(settings.max_sockets as u64 * SOCKET <= memory);
            assert_eq!((settings.tcp_rmem[2], settings.tcp_wmem[2]), (BUFFER, BUFFER));
        }
    }

    #[test]
    fn a_task_that_waits_again_is_woken_once() {
        let budget = Budget::new(0);
        (0..100).for_each(|_| budget.wait(Waker::noop()));
        assert_eq!(budget.crowded.borrow().len(), 1);
        budget.give(1);
        assert_eq!(budget.crowded.borrow().len(), 0);
    }
}
