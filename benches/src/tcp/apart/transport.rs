//! How a program reaches its connections: the kernel's sockets, or a stack of its own.

use super::{BULK, CONNECTIONS};
use crate::Failure;
use ringway_netstack::{SocketError, SocketId, SocketOptions};
use ringway_sockets::Host;
use rustix::event::epoll::{self, EventData, EventFlags};
use std::io::{ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

/// The connections of a program, by number.
pub trait Transport {
    /// Sleeps until something has happened, and adds the connections with bytes to read, or new room.
    fn wait(&mut self, ready: &mut Vec<usize>) -> Result<(), Failure>;
    /// Reads what is there; 0 if nothing is.
    fn read(&mut self, at: usize, bytes: &mut [u8]) -> Result<usize, Failure>;
    /// Writes what there is room for.
    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<usize, Failure>;
}

/// The kernel's sockets, or those that `ringway exec` gives a program in their place.
pub struct Kernel {
    epoll: OwnedFd,
    streams: Vec<TcpStream>,
}

impl Kernel {
    pub fn accept(address: SocketAddr, ready: impl FnOnce()) -> Result<Kernel, Failure> {
        let listener = TcpListener::bind(address)?;
        ready();
        let streams = (0..CONNECTIONS).map(|_| Ok(listener.accept()?.0)).collect::<std::io::Result<_>>()?;
        Kernel::of(streams, false)
    }

    pub fn connect(address: SocketAddr) -> Result<Kernel, Failure> {
        let streams = (0..CONNECTIONS).map(|_| TcpStream::connect(address));
        Kernel::of(streams.collect::<std::io::Result<_>>()?, true)
    }

    fn of(streams: Vec<TcpStream>, writes: bool) -> Result<Kernel, Failure> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (at, stream) in streams.iter().enumerate() {
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let room = if writes && at == BULK { EventFlags::OUT } else { EventFlags::empty() };
            let flags = EventFlags::IN | EventFlags::ET | room;
            epoll::add(&epoll, stream, EventData::new_u64(at as u64), flags)?;
        }
        Ok(Kernel { epoll, streams })
    }
}

/// 0 if the call would block.
fn done(result: std::io::Result<usize>) -> Result<usize, Failure> {
    match result {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        result => Ok(result?),
    }
}

impl Transport for Kernel {
    fn wait(&mut self, ready: &mut Vec<usize>) -> Result<(), Failure> {
        let mut events = [const { MaybeUninit::uninit() }; 64];
        let (events, _) = epoll::wait(&self.epoll, &mut events, None)?;
        ready.extend(events.iter().map(|event| event.data.u64() as usize));
        Ok(())
    }

    fn read(&mut self, at: usize, bytes: &mut [u8]) -> Result<usize, Failure> {
        done(self.streams[at].read(bytes))
    }

    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<usize, Failure> {
        done(self.streams[at].write(bytes))
    }
}

/// Connections of a stack, and their numbers.
#[derive(Default)]
pub struct Places {
    pub sockets: Vec<SocketId>,
    places: Vec<Option<usize>>,
}

impl Places {
    pub fn add(&mut self, host: &mut Host, socket: SocketId) -> Result<(), Failure> {
        let options = SocketOptions { tcp_nodelay: true, ..SocketOptions::default() };
        let now = host.now();
        host.stack().set_options(now, socket, options)?;
        self.places.resize(self.places.len().max(socket.index() + 1), None);
        self.places[socket.index()] = Some(self.sockets.len());
        self.sockets.push(socket);
        Ok(())
    }

    pub fn of(&self, socket: SocketId) -> Option<usize> {
        self.places.get(socket.index()).copied().flatten()
    }
}

/// A stack in the program, run by its calls.
pub struct InProcess {
    host: Host,
    places: Places,
}

impl InProcess {
    pub fn accept(mut host: Host, address: SocketAddr, ready: impl FnOnce()) -> Result<InProcess, Failure> {
        let listener = host.stack().listen(address, CONNECTIONS)?;
        ready();
        let mut places = Places::default();
        while places.sockets.len() < CONNECTIONS {
            host.poll()?;
            match host.stack().accept(listener) {
                Ok(accepted) => places.add(&mut host, accepted.socket)?,
                Err(_) => host.wait(None)?,
            }
        }
        Ok(InProcess { host, places })
    }

    pub fn connect(mut host: Host, address: SocketAddr) -> Result<InProcess, Failure> {
        let mut places = Places::default();
        for _ in 0..CONNECTIONS {
            let now = host.now();
            let socket = host.stack().connect(now, address)?;
            places.add(&mut host, socket)?;
            establish(&mut host, socket)?;
        }
        Ok(InProcess { host, places })
    }
}

/// Waits until a connection is established.
pub fn establish(host: &mut Host, socket: SocketId) -> Result<(), Failure> {
    loop {
        let busy = host.poll()?;
        if let Some(error) = host.stack().error(socket)? {
            return Err(format!("no connection: {error:?}").into());
        }
        if host.stack().info(socket)?.tcpi_state == ringway_netstack::State::Established {
            return Ok(());
        }
        if !busy {
            host.wait(None)?;
        }
    }
}

/// 0 if the call would block.
pub fn stack_done(result: Result<usize, SocketError>) -> Result<usize, Failure> {
    match result {
        Err(SocketError::WouldBlock) => Ok(0),
        result => Ok(result?),
    }
}

impl Transport for InProcess {
    fn wait(&mut self, ready: &mut Vec<usize>) -> Result<(), Failure> {
        loop {
            let busy = self.host.poll()?;
            while let Some((socket, _)) = self.host.stack().next_event() {
                ready.extend(self.places.of(socket));
            }
            if !ready.is_empty() {
                return Ok(());
            }
            if !busy {
                self.host.wait(None)?;
            }
        }
    }

    fn read(&mut self, at: usize, bytes: &mut [u8]) -> Result<usize, Failure> {
        let now = self.host.now();
        stack_done(self.host.stack().recv(now, self.places.sockets[at], bytes))
    }

    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<usize, Failure> {
        let now = self.host.now();
        stack_done(self.host.stack().send(now, self.places.sockets[at], bytes))
    }
}
