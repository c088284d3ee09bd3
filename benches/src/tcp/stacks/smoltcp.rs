//! Two of smoltcp's stacks.

use super::PORT;
use crate::Failure;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr};
use std::collections::VecDeque;

/// The time that frames need from one stack to the other.
const DELAY: Duration = Duration::from_micros(10);
const FRAME: usize = 1514;
/// Sockets of each host that wait for the end of TIME-WAIT.
const CLOSING: usize = 12;
/// Bytes of each buffer of an idle connection.
const IDLE_BUFFER: usize = 4096;

/// A device's frames, and buffers to use again.
#[derive(Default)]
struct Wire {
    received: VecDeque<Vec<u8>>,
    sent: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
}

struct Received<'a>(Vec<u8>, &'a mut Vec<Vec<u8>>);
struct Sent<'a>(Vec<u8>, &'a mut VecDeque<Vec<u8>>);

impl RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        let result = read(&self.0);
        self.1.push(self.0);
        result
    }
}

impl TxToken for Sent<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(mut self, len: usize, write: F) -> R {
        self.0.resize(len, 0);
        let result = write(&mut self.0);
        self.1.push_back(self.0);
        result
    }
}

impl Device for Wire {
    type RxToken<'a> = Received<'a>;
    type TxToken<'a> = Sent<'a>;

    fn receive(&mut self, _now: Instant) -> Option<(Received<'_>, Sent<'_>)> {
        let frame = self.received.pop_front()?;
        let free = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(FRAME));
        Some((Received(frame, &mut self.spare), Sent(free, &mut self.sent)))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Sent<'_>> {
        let free = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(FRAME));
        Some(Sent(free, &mut self.sent))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = FRAME;
        capabilities
    }
}

struct Host {
    device: Wire,
    interface: Interface,
    sockets: SocketSet<'static>,
}

impl Host {
    fn new(last: u8) -> Result<Host, Failure> {
        let mut device = Wire::default();
        let mut config = Config::new(EthernetAddress([2, 0, 0, 0, 0, last]).into());
        config.random_seed = u64::from(last);
        let mut interface = Interface::new(config, &mut device, Instant::ZERO);
        let mut added = Ok(());
        interface.update_ip_addrs(|all| {
            added = all
                .push(IpCidr::new(IpAddress::v4(10, 0, 0, last), 24))
                .map_err(|_| "no room for an address");
        });
        added?;
        Ok(Host { device, interface, sockets: SocketSet::new(Vec::new()) })
    }

    /// A socket that is closed, one that was before if there is one.
    fn socket(&mut self, buffer: usize) -> SocketHandle {
        let closed = |(handle, socket): (SocketHandle, &smoltcp::socket::Socket<'_>)| match socket {
            smoltcp::socket::Socket::Tcp(socket) => (!socket.is_open()).then_some(handle),
        };
        let free = self.sockets.iter().find_map(closed);
        free.unwrap_or_else(|| {
            let buffer = || SocketBuffer::new(vec![0; buffer]);
            let mut socket = Socket::new(buffer(), buffer());
            socket.set_nagle_enabled(false);
            self.sockets.add(socket)
        })
    }
}

pub struct Pair {
    hosts: [Host; 2],
    /// Bytes of each buffer of a socket.
    buffer: usize,
    sockets: Option<[SocketHandle; 2]>,
    local_port: u16,
    now: Instant,
}

impl Pair {
    pub fn new(buffer: usize) -> Result<Pair, Failure> {
        let hosts = [Host::new(1)?, Host::new(2)?];
        Ok(Pair { hosts, buffer, sockets: None, local_port: 20_000, now: Instant::ZERO })
    }

    fn tcp(&mut self, host: usize) -> Result<&mut Socket<'static>, Failure> {
        let handle = self.sockets.ok_or("there is no connection")?[host];
        Ok(self.hosts[host].sockets.get_mut::<Socket<'_>>(handle))
    }

    fn begin(&mut self) -> Result<[SocketHandle; 2], Failure> {
        let handles = [self.hosts[0].socket(self.buffer), self.hosts[1].socket(self.buffer)];
        self.hosts[1].sockets.get_mut::<Socket<'_>>(handles[1]).listen(PORT)?;
        self.local_port = if self.local_port == 60_000 { 20_000 } else { self.local_port + 1 };
        let client = &mut self.hosts[0];
        let socket = client.sockets.get_mut::<Socket<'_>>(handles[0]);
        let server = (IpAddress::v4(10, 0, 0, 2), PORT);
        socket.connect(client.interface.context(), server, self.local_port)?;
        Ok(handles)
    }
}

impl super::Pair for Pair {
    fn connect(&mut self) -> Result<(), Failure> {
        self.sockets = Some(self.begin()?);
        for host in [0, 1] {
            while self.tcp(host)?.state() != State::Established {
                self.pass();
            }
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), Failure> {
        for host in [0, 1] {
            self.tcp(host)?.close();
            self.pass();
        }
        self.pass();
        self.sockets = None;
        self.now += Duration::from_micros(super::PAUSE / 1000);
        if self.hosts.iter().any(|host| host.sockets.iter().count() > CLOSING) {
            return Err("connections do not end".into());
        }
        Ok(())
    }

    fn send(&mut self, host: usize, bytes: &[u8]) -> Result<usize, Failure> {
        Ok(self.tcp(host)?.send_slice(bytes)?)
    }

    fn receive(&mut self, host: usize, out: &mut [u8]) -> Result<usize, Failure> {
        let socket = self.tcp(host)?;
        Ok(if socket.can_recv() { socket.recv_slice(out)? } else { 0 })
    }

    fn pass(&mut self) {
        self.now += DELAY;
        let mut moved = false;
        for from in [0, 1] {
            let Host { device, interface, sockets } = &mut self.hosts[from];
            interface.poll(self.now, device, sockets);
            let mut sent = std::mem::take(&mut device.sent);
            moved |= !sent.is_empty();
            self.hosts[1 - from].device.received.append(&mut sent);
            self.hosts[from].device.sent = sent;
        }
        if !moved {
            let next = |host: &mut Host| host.interface.poll_at(self.now, &host.sockets);
            let next = self.hosts.iter_mut().filter_map(next).min();
            self.now = next.unwrap_or(self.now).max(self.now);
        }
    }
}

/// Resident bytes of an end of so many idle connections, of a process of its own.
pub fn idle(connections: usize) -> Result<f64, Failure> {
    crate::tcp::memory::of_process("--idle-smoltcp", connections)
}

/// That process.
pub fn print(connections: usize) -> Result<(), Failure> {
    crate::tcp::memory::print_of(connections, |connections| {
        let mut pair = Pair::new(IDLE_BUFFER)?;
        for _ in 0..connections {
            super::Pair::connect(&mut pair)?;
            super::byte(&mut pair, 0)?;
            super::byte(&mut pair, 1)?;
        }
        Ok(pair)
    })
}
