//! A flow: a program that always has bytes to send, and one that reads them.

use crate::Failure;
use crate::peer::net::Space;
use ringway_netstack::congestion::Algorithm;
use ringway_sockets::Network;
use rustix::net::sockopt::{set_socket_linger, set_tcp_congestion};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Bytes of a call.
const BLOCK: usize = 128 << 10;
/// How long a call blocks before it looks whether to stop.
pub const SOCKET_TIMEOUT: Duration = Duration::from_millis(50);

/// Received bytes.
#[derive(Debug, Default)]
pub struct Traffic(AtomicU64);

impl Traffic {
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    pub fn received(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Both ends of a flow that is to begin.
pub enum Flow<'a> {
    Ours { networks: &'a [Network; 2], server: SocketAddr, algorithm: Algorithm },
    Kernel { spaces: &'a [Space; 2], server: SocketAddr, algorithm: Algorithm },
}

/// The work of an end, until it is to stop.
pub type End<'a> = Box<dyn FnOnce(&Traffic, &AtomicBool) -> Result<(), Failure> + Send + 'a>;

/// The kernel's name of a controller.
fn kernel_name(algorithm: Algorithm) -> Result<&'static str, Failure> {
    match algorithm {
        Algorithm::Reno => Ok("reno"),
        Algorithm::Cubic => Ok("cubic"),
        Algorithm::Bbr1 => Ok("bbr"),
        Algorithm::Bbr3 | Algorithm::Dctcp => Err("this kernel does not have it".into()),
    }
}

impl<'a> Flow<'a> {
    /// Listens, and returns the sender and the receiver.
    pub fn open(self) -> Result<(End<'a>, End<'a>), Failure> {
        match self {
            Flow::Ours { networks: [from, to], server, algorithm } => {
                let listener = ringway_sockets::TcpListener::bind(to, server)?;
                listener.set_nonblocking(true)?;
                let sender = move |_: &Traffic, stop: &AtomicBool| {
                    let stream = ringway_sockets::TcpStream::connect(from, server)?;
                    stream.set_congestion(algorithm)?;
                    stream.set_write_timeout(Some(SOCKET_TIMEOUT))?;
                    send(stream, stop)
                };
                let receiver = move |traffic: &Traffic, stop: &AtomicBool| {
                    let Some((stream, _)) = accept(stop, || listener.accept())? else { return Ok(()) };
                    stream.set_read_timeout(Some(SOCKET_TIMEOUT))?;
                    receive(stream, traffic, stop)
                };
                Ok((Box::new(sender), Box::new(receiver)))
            }
            Flow::Kernel { spaces: [from, to], server, algorithm } => {
                let name = kernel_name(algorithm)?;
                let listener = to.within(|| Ok(std::net::TcpListener::bind(server)?))?;
                listener.set_nonblocking(true)?;
                let sender = move |_: &Traffic, stop: &AtomicBool| {
                    let stream = from.within(|| Ok(std::net::TcpStream::connect(server)?))?;
                    set_tcp_congestion(&stream, name)?;
                    // What was not sent yet at the end is discarded.
                    set_socket_linger(&stream, Some(Duration::ZERO))?;
                    stream.set_write_timeout(Some(SOCKET_TIMEOUT))?;
                    send(stream, stop)
                };
                let receiver = move |traffic: &Traffic, stop: &AtomicBool| {
                    let Some((stream, _)) = accept(stop, || listener.accept())? else { return Ok(()) };
                    stream.set_nonblocking(false)?;
                    stream.set_read_timeout(Some(SOCKET_TIMEOUT))?;
                    receive(stream, traffic, stop)
                };
                Ok((Box::new(sender), Box::new(receiver)))
            }
        }
    }
}

fn is_timeout(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

pub fn accept<T>(
    stop: &AtomicBool,
    mut once: impl FnMut() -> std::io::Result<T>,
) -> Result<Option<T>, Failure> {
    while !stop.load(Relaxed) {
        match once() {
            Ok(accepted) => return Ok(Some(accepted)),
            Err(error) if is_timeout(error.kind()) => std::thread::sleep(Duration::from_millis(2)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

fn send(mut stream: impl Write, stop: &AtomicBool) -> Result<(), Failure> {
    let block = vec![0x5a; BLOCK];
    while !stop.load(Relaxed) {
        match stream.write(&block) {
            Ok(_) => {}
            Err(error) if is_timeout(error.kind()) => {}
            // The receiver stopped first.
            Err(_) if stop.load(Relaxed) => {}
            Err(error) => return Err(format!("the sender: {error}").into()),
        }
    }
    Ok(())
}

pub fn receive(mut stream: impl Read, traffic: &Traffic, stop: &AtomicBool) -> Result<(), Failure> {
    let mut block = vec![0; BLOCK];
    while !stop.load(Relaxed) {
        match stream.read(&mut block) {
            // The sender stopped first.
            Ok(0) => return Ok(()),
            Ok(count) => traffic.add(count as u64),
            Err(error) if is_timeout(error.kind()) => {}
            Err(_) if stop.load(Relaxed) => {}
            Err(error) => return Err(format!("the receiver: {error}").into()),
        }
    }
    Ok(())
}
