//! The stack that processes share.

use crate::abi::{ADDRESS, ADDRESSES, Flags, Operation, address_of, addresses_bytes, addresses_of};
use crate::call::bit;
use crate::end::{End, Output, Taken, prefetch, take};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use ringway_frame::{BURST, LARGEST, Offload};
use ringway_mem::{Region, Span};
use ringway_netstack::{Diverted, Reader, RepairError, SocketError, SocketId, Stack};
use ringway_wire::{Arp, EtherType, Ethernet, Header, Ipv4, Protocol, arp, icmp};

/// Longest headers of a TCP segment that is received in place: Ethernet's, IPv4's and TCP's with options.
const HEADERS: usize = 14 + 60 + 60;
/// Longest frame that is copied as a whole.
const SHORT: usize = 1024;
/// Where the kind of an ICMP message for IPv6 is, behind the header of IPv6 alone.
const KIND: usize = Ethernet::LEN + 40;
/// `next header` of IPv6.
const NEXT: usize = Ethernet::LEN + 6;
const ICMPV6: u8 = 58;

/// A stack with connections of several processes, which one of them runs at a time.
#[derive(Debug)]
pub struct Shared {
    stack: Stack,
    /// The ring to the port.
    port: Option<End>,
    /// The ring to the agent.
    agent: Option<End>,
    /// The first bytes of a received frame, with all headers, and all of them if that is necessary.
    head: Vec<u8>,
    frame: Vec<u8>,
    /// The state of the connection that left last.
    saved: Vec<u8>,
    /// The port had no room for a frame.
    full: bool,
    /// The connections that were accepted here, by their handles, and the numbers of their processes.
    accepted: BTreeMap<u64, u64>,
}

/// What a call reads and writes.
#[derive(Debug, Default)]
pub struct Arguments<'a> {
    /// The time.
    pub now: u64,
    /// The handle of a connection.
    pub socket: u64,
    /// Bytes to read.
    pub input: &'a [u8],
    /// Room for bytes.
    pub output: &'a mut [u8],
    /// Arguments of the operation.
    pub number: u64,
}

impl Shared {
    /// A stack with the [`configuration`](Stack::configuration) of the agent's; `None` if the bytes are no
    /// configuration.
    pub fn new(configuration: &[u8], seed: [u64; 2]) -> Option<Shared> {
        Some(Shared {
            stack: Stack::from_configuration(configuration, seed)?,
            port: None,
            agent: None,
            head: alloc::vec![0; SHORT],
            frame: alloc::vec![0; LARGEST as usize],
            saved: Vec::new(),
            full: false,
            accepted: BTreeMap::new(),
        })
    }

    /// Attaches the ring to the port, or the one to the agent. `false` if the memory has no ring.
    pub fn attach_ring(&mut self, is_port: bool, region: Region, is_second: bool) -> bool {
        let end = End::new(region, is_second);
        let is_ring = end.is_some();
        *(if is_port { &mut self.port } else { &mut self.agent }) = end;
        is_ring
    }

    /// Does what a call says, and then what is due. The result, what the caller is to do, and the bits of connections
    /// that became ready.
    pub fn call(
        &mut self,
        operation: Operation,
        with: &mut Arguments<'_>,
    ) -> (Result<u64, RepairError>, Flags, u64) {
        let now = with.now;
        let (result, mut flags) = self.operate(operation, with);
        if operation == Operation::Arm || operation == Operation::Saved {
            return (result, flags, 0);
        }
        self.stack.expire(now);
        if let Some(end) = &mut self.port {
            let mut output = Output { end, full: false };
            self.stack.transmit(now, 0, &mut output);
            self.full = output.full;
        }
        let mut ready = 0;
        while let Some((socket, _)) = self.stack.next_event() {
            ready |= 1 << bit(socket);
        }
        flags = flags.with(Flags::KICK_PORT, self.port.as_mut().is_some_and(End::publish));
        flags = flags.with(Flags::KICK_AGENT, self.agent.as_mut().is_some_and(End::publish));
        (result, flags, ready)
    }

    fn operate(
        &mut self,
        operation: Operation,
        with: &mut Arguments<'_>,
    ) -> (Result<u64, RepairError>, Flags) {
        let (now, id) = (with.now, SocketId::from_bits(with.socket));
        let done = |result: Result<(), SocketError>| result.map(|()| 0).map_err(RepairError::from);
        let result = match operation {
            Operation::Attach => self.stack.attach(now, with.input).map(SocketId::to_bits),
            Operation::Detach => self.stack.detach(now, id).map(|bytes| {
                self.accepted.remove(&with.socket);
                self.saved = bytes;
                self.saved.len() as u64
            }),
            Operation::Saved => Ok(self.copy_saved(with.number as usize, with.output)),
            Operation::Receive => self.receive(now, id, with.output).map_err(RepairError::from),
            Operation::Send => match self.stack.send(now, id, with.input) {
                // Acknowledgments may have arrived.
                Err(SocketError::WouldBlock) => {
                    self.exchange(now, None);
                    self.stack.send(now, id, with.input)
                }
                sent => sent,
            }
            .map(|count| count as u64)
            .map_err(RepairError::from),
            Operation::Shutdown => done(self.stack.shutdown(now, id)),
            Operation::Close => {
                self.accepted.remove(&with.socket);
                done(self.stack.close(now, id))
            }
            Operation::Readiness => return self.readiness(id),
            Operation::Diverted => Ok(self.receive_diverted(now, with.input, with.number != 0).into()),
            Operation::Run => {
                self.exchange(now, None);
                Ok(0)
            }
            Operation::Arm => Ok(u64::from(self.arm())),
            Operation::Listen => self.listen(with.input, with.number as usize),
            Operation::Accept => self.accept(id, with.number, with.output).map_err(RepairError::from),
            Operation::StopListening => {
                self.stop_listening(id).map(|count| count as u64).map_err(RepairError::from)
            }
            Operation::Reserve => self.reserve(with.input),
            Operation::Unreserve => {
                let addresses = with.input.first_chunk::<ADDRESSES>().and_then(addresses_of);
                addresses.inspect(|(local, remote)| self.stack.unreserve(*local, *remote));
                Ok(0)
            }
            Operation::EndProcess => {
                self.end_process(now, with.number);
                Ok(0)
            }
            Operation::Drained => match self.stack.is_drained() {
                true => Ok(0),
                false => Ok(self.stack.statistics().segments_in.saturating_add(1)),
            },
            // The image does these.
            Operation::Begin | Operation::Port | Operation::Agent => Err(RepairError::Invalid),
        };
        (result, Flags::default())
    }

    fn listen(&mut self, input: &[u8], backlog: usize) -> Result<u64, RepairError> {
        let address = input.first_chunk::<ADDRESS>().and_then(address_of).ok_or(RepairError::Invalid)?;
        Ok(self.stack.listen(address, backlog)?.to_bits())
    }

    /// How many connections may still come to a listener that takes no more.
    fn stop_listening(&mut self, listener: SocketId) -> Result<usize, SocketError> {
        self.stack.stop_admitting(listener)?;
        let cookies = usize::from(self.stack.expects_cookies(listener)?);
        Ok(self.stack.half_open(listener)?.saturating_add(cookies))
    }

    fn reserve(&mut self, addresses: &[u8]) -> Result<u64, RepairError> {
        let addresses = addresses.first_chunk::<ADDRESSES>().and_then(addresses_of);
        let (local, remote) = addresses.ok_or(RepairError::Invalid)?;
        Ok(self.stack.reserve(local, remote)?.to_bits())
    }

    /// Whether a segment of the agent's was for a connection of the stack.
    fn receive_diverted(&mut self, now: u64, bytes: &[u8], is_stray: bool) -> bool {
        let Some(diverted) = Diverted::from_bytes(bytes) else { return false };
        if is_stray {
            self.stack.receive_stray(now, 0, &diverted);
            return true;
        }
        self.stack.receive_diverted(now, 0, &diverted)
    }

    fn accept(&mut self, listener: SocketId, process: u64, out: &mut [u8]) -> Result<u64, SocketError> {
        if process != 0 && !self.stack.is_admitting(listener)? {
            return Err(SocketError::BadSocket);
        }
        let socket = self.stack.accept(listener)?.socket;
        let (local, remote) = self.stack.addresses(socket)?;
        if let Some(out) = out.first_chunk_mut::<ADDRESSES>() {
            *out = addresses_bytes(local, remote);
        }
        if process != 0 {
            self.accepted.insert(socket.to_bits(), process);
        }
        Ok(socket.to_bits())
    }

    /// Closes what a process has left open.
    fn end_process(&mut self, now: u64, process: u64) {
        let stack = &mut self.stack;
        self.accepted.retain(|handle, owner| {
            let ends = *owner == process;
            if ends {
                // It may have ended.
                let _ = stack.close(now, SocketId::from_bits(*handle));
            }
            !ends
        });
    }

    /// When the next call is due although nothing arrives.
    pub fn deadline(&self) -> u64 {
        let own = if self.full { self.stack.next_timer() } else { self.stack.next_deadline() };
        own.unwrap_or(u64::MAX)
    }

    /// Copies a part of the saved state; how many bytes. Nothing is kept when all was read.
    fn copy_saved(&mut self, from: usize, out: &mut [u8]) -> u64 {
        let rest = self.saved.get(from..).unwrap_or_default();
        let count = rest.len().min(out.len());
        out[..count].copy_from_slice(&rest[..count]);
        if count == rest.len() {
            self.saved = Vec::new();
        }
        count as u64
    }

    /// Reads bytes, those that come at this moment too.
    fn receive(&mut self, now: u64, id: SocketId, out: &mut [u8]) -> Result<u64, SocketError> {
        match self.stack.recv(now, id, out) {
            Err(SocketError::WouldBlock) => {}
            received => return received.map(|count| count as u64),
        }
        let mut reader = Reader::new(id, out);
        self.exchange(now, Some(&mut reader));
        match reader.filled() {
            0 => self.stack.recv(now, id, out).map(|count| count as u64),
            filled => Ok(filled as u64),
        }
    }

    /// What a connection is ready for.
    fn readiness(&self, id: SocketId) -> (Result<u64, RepairError>, Flags) {
        let stack = &self.stack;
        match stack.is_admitting(id) {
            Ok(true) => return (Ok(0), Flags::default().with(Flags::READABLE, stack.has_connections(id))),
            Ok(false) => return (Err(SocketError::BadSocket.into()), Flags::default()),
            Err(_) => {}
        }
        let ready = || {
            let ended = stack.error(id)?.is_some();
            let (unread, finished) = (stack.unread(id)?, stack.is_finished(id)?);
            Ok((ended, unread, finished, stack.send_room(id).map_or(ended, |room| room > 0)))
        };
        match ready() {
            Ok((ended, unread, finished, write)) => {
                let flags = Flags::default().with(Flags::CLOSED, ended).with(Flags::FINISHED, finished);
                let flags = flags.with(Flags::READABLE, unread > 0 || finished || ended);
                (Ok(unread as u64), flags.with(Flags::WRITABLE, write))
            }
            Err(error) => (Err(SocketError::into(error)), Flags::default()),
        }
    }

    /// Prepares to sleep. `false`: there is work already.
    fn arm(&mut self) -> bool {
        let full = self.full;
        let port = self.port.as_mut().is_none_or(|end| end.arm(full));
        self.agent.as_mut().is_none_or(|end| end.arm(false)) && port
    }

    /// Receives a burst of the port, and passes on what the agent sent.
    fn exchange(&mut self, now: u64, mut reader: Option<&mut Reader<'_>>) {
        let Shared { stack, port: Some(port), agent, head, frame, .. } = self else { return };
        for _ in 0..BURST {
            if port.is_broken || reader.as_ref().is_some_and(|reader| reader.is_full()) {
                break;
            }
            let mut taken = match take(&port.memory, &mut port.rx) {
                Ok(Some(taken)) => taken,
                Ok(None) => break,
                Err(_) => {
                    port.is_broken = true;
                    break;
                }
            };
            let slots = taken.slots;
            prefetch(&port.memory, &port.rx);
            deliver(stack, agent.as_mut(), now, &mut taken, (head, frame), reader.as_deref_mut());
            port.rx.advance(slots);
        }
        let Some(agent) = agent else { return };
        for _ in 0..BURST {
            match take(&agent.memory, &mut agent.rx) {
                Ok(Some(taken)) if !agent.is_broken => {
                    if !port.push(taken.pieces.iter().copied(), taken.offload) {
                        break;
                    }
                    agent.rx.advance(taken.slots);
                }
                Ok(_) => break,
                Err(_) => {
                    agent.is_broken = true;
                    break;
                }
            }
        }
    }
}

/// Gives a frame to the stack, if it is for one of its connections, or to the agent.
fn deliver(
    stack: &mut Stack,
    agent: Option<&mut End>,
    now: u64,
    taken: &mut Taken<'_>,
    (head, frame): (&mut [u8], &mut [u8]),
    reader: Option<&mut Reader<'_>>,
) {
    let whole = taken.pieces.clone();
    let first = whole.first().copied().unwrap_or(Span::empty());
    let is_short = whole.len() == 1 && first.len() <= SHORT;
    let len = if is_short { first.len() } else { first.len().min(HEADERS) };
    let (front, back) = first.split(len);
    front.read(&mut head[..len]);
    let head = &head[..len];
    if let Some(first) = taken.pieces.first_mut() {
        *first = back;
    }
    taken.pieces.retain(|piece| !piece.is_empty());
    let (rest, offload) = (&taken.pieces[..], Offload::from_bytes(&taken.offload));
    let behind = rest.iter().map(|piece| piece.len()).sum();
    if !stack.takes(now, 0, head, behind) {
        if is_short && (tells_address(head) || tells_error(head)) {
            stack.receive(now, 0, head, offload);
        }
        // Attack: frames that nobody takes. What has no room is lost, as in a network.
        if let Some(agent) = agent
            && !agent.push(whole.iter().copied(), taken.offload)
        {
            agent.lost += 1;
        }
        return;
    }
    if rest.is_empty() {
        // To a program that waits the bytes go in one copy, not by the receive buffer.
        let (headers, bytes) = head.split_at(head.len().min(HEADERS));
        let waits = reader.is_some() && !bytes.is_empty();
        if !waits || !stack.receive_in_place(now, 0, headers, &[Span::of(bytes)], offload, reader) {
            stack.receive(now, 0, head, offload);
        }
    } else if !stack.receive_in_place(now, 0, head, rest, offload, reader) {
        let pieces = core::iter::once(Span::of(head)).chain(rest.iter().copied());
        let len = pieces.fold(0, |len, piece| len + piece.read(frame.get_mut(len..).unwrap_or_default()));
        stack.receive(now, 0, &frame[..len], offload);
    }
}

/// Whether a frame has an error of ICMP: it may be about a segment of either stack, and neither answers it.
fn tells_error(frame: &[u8]) -> bool {
    let Some((ethernet, bytes)) = Ethernet::split(frame) else { return false };
    match ethernet.ethertype {
        EtherType::IPV4 => Ipv4::parse(bytes).is_some_and(|(ip, _, payload)| {
            ip.protocol == Protocol::ICMP && payload.first() == Some(&icmp::v4::UNREACHABLE)
        }),
        // Those below 128 are errors (RFC 4443, 2.1).
        EtherType::IPV6 => {
            frame.get(NEXT) == Some(&ICMPV6) && frame.get(KIND).is_some_and(|kind| *kind < 128)
        }
        _ => false,
    }
}

/// Whether a frame tells the link-layer address of a neighbour: the stack asks for these itself, and so does the agent.
fn tells_address(frame: &[u8]) -> bool {
    let Some((ethernet, bytes)) = Ethernet::split(frame) else { return false };
    match ethernet.ethertype {
        EtherType::ARP => Arp::split(bytes).is_some_and(|(arp, _)| arp.operation.get() == arp::REPLY),
        EtherType::IPV6 => {
            let kind = frame.get(KIND).copied();
            frame.get(NEXT) == Some(&ICMPV6) && kind == Some(icmp::v6::NEIGHBOR_ADVERTISEMENT)
        }
        _ => false,
    }
}
