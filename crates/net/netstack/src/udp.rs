//! UDP sockets (RFC 768).

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;

/// Bytes that wait to be read (`net.core.rmem_default`). Attack: a sender fills memory faster than the
/// program reads; further datagrams are dropped and counted.
const RMEM: usize = 212_992;
/// What a datagram counts besides its bytes.
const OVERHEAD: usize = 64;

#[derive(Debug)]
pub(crate) struct UdpSocket {
    pub local: SocketAddr,
    received: VecDeque<(SocketAddr, Vec<u8>)>,
    held: usize,
    pub dropped: u64,
    /// An ICMP error came back.
    pub refused: bool,
}

impl UdpSocket {
    pub(crate) fn new(local: SocketAddr) -> UdpSocket {
        UdpSocket { local, received: VecDeque::new(), held: 0, dropped: 0, refused: false }
    }

    /// Queues a datagram. `false`: it was dropped.
    pub(crate) fn push(&mut self, from: SocketAddr, bytes: &[u8]) -> bool {
        if self.held + bytes.len() + OVERHEAD > RMEM {
            self.dropped += 1;
            return false;
        }
        self.held += bytes.len() + OVERHEAD;
        self.received.push_back((from, bytes.to_vec()));
        true
    }

    /// Takes the oldest datagram.
    pub(crate) fn pop(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        let (from, bytes) = self.received.pop_front()?;
        self.held -= bytes.len() + OVERHEAD;
        Some((from, bytes))
    }

    /// Bytes of the datagrams that wait, and what each counts besides.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Whether there is a datagram, or an error, to receive.
    pub(crate) fn is_readable(&self) -> bool {
        self.refused || !self.received.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_that_nobody_reads_are_bounded() {
        let from: SocketAddr = ([10, 0, 0, 2], 9).into();
        for len in [0, 1, 1000, 65_507] {
            let mut socket = UdpSocket::new(([10, 0, 0, 1], 7).into());
            let bytes = alloc::vec![1; len];
            let kept = (0..10_000).filter(|_| socket.push(from, &bytes)).count();
            assert_eq!((kept, socket.dropped), (RMEM / (len + OVERHEAD), 10_000 - kept as u64));
            while socket.pop().is_some() {}
            assert_eq!(socket.held, 0);
        }
    }
}
