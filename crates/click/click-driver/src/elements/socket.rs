//! `Socket(TYPE, PLACE, ..., [keywords])`: sends packets through a socket, and makes packets of received
//! data.
//!
//! Ports: at most one input, push or pull; at most one push output. Input packets are not sent to the output.
//!
//! Arguments:
//! - `TYPE`: `TCP` or `UDP`, and then `IP`, `PORT`, `LOCALIP`, `LOCALPORT`; or `UNIX` or `UNIX_DGRAM`, and then
//!   `FILENAME`, `LOCALFILENAME`.
//! - `CLIENT`: whether it connects to the place instead of listening there; true if it has no output, or if a
//!   local address is given. A server of TCP or UNIX has one connection at a time, one of datagrams replies
//!   to the last sender. A UDP client of 0.0.0.0 sends each packet to its destination annotation.
//! - `SNAPLEN`: largest size of a packet in bytes; 2048 by default.
//! - `HEADROOM`: bytes reserved before them; 28 by default.
//! - `TIMESTAMP`: whether packets are timestamped; true by default.
//! - `NODELAY`: whether TCP sends small packets at once; true by default.
//! - `SNDBUF`, `RCVBUF`: sizes of the buffers of a TCP or UDP socket.
//! - `ALLOW`, `DENY`: names of elements that look up IPv4 routes. A server of TCP or UDP accepts addresses
//!   for which ALLOW has a route; others are accepted only if there is a DENY without a route for them, or if
//!   there is neither.
//! - `VERBOSE`: whether connections are reported; false by default.
//!
//! The element never blocks: a pushed packet is dropped if the socket has no room, or if there is no connection.
//! Handlers: `drops` (read).
mod system_socket;

use crate::file::reason;
use ringway_click::arg::{Args, Word};
use ringway_click::{Class, Context, Element, Failed, Handler, Packet, PacketBurst, Signal, Task};
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use system_socket::{SocketAddress, SocketKind, SocketOptions, SystemSocket};

pub static CLASS: Class =
    Class::new("Socket", || Box::<Socket>::default()).ports("0-1/0-1").processing("a/h").flow("x/y");

/// Largest number of packets received per turn, so that a flood leaves time for other elements.
const TURN: usize = 64;
/// Largest packet, and largest headroom.
const LARGEST: u32 = 65_535;

#[derive(Default)]
pub struct Socket {
    options: SocketOptions,
    snaplen: u32,
    headroom: u32,
    timestamp: bool,
    verbose: bool,
    allow: Option<String>,
    deny: Option<String>,
    socket: Option<SystemSocket>,
    /// The unsent rest of a packet.
    left: Vec<u8>,
    buffer: Vec<u8>,
    task: Option<Task>,
    signal: Signal,
    drops: u64,
}

impl Socket {
    fn open(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let socket = SystemSocket::open(&self.options).map_err(|error| {
            let text = format!("{}: {}", self.options.remote, reason(&error));
            cx.error(text)
        })?;
        self.socket = Some(socket);
        self.watch(cx);
        Ok(())
    }

    /// Whether a server accepts this address.
    fn accepts(&self, address: Option<Ipv4Addr>, cx: &mut Context<'_>) -> bool {
        let Some(address) = address else { return true };
        let mut has = |table: &str| {
            let call = cx.handler_call(&format!("{table}.lookup {address}"), false);
            call.and_then(|call| cx.read(&call)).is_ok_and(|found| !found.trim().starts_with('-'))
        };
        match (&self.allow, &self.deny) {
            (Some(allow), _) if has(allow) => true,
            (_, Some(deny)) => !has(deny),
            (allow, None) => allow.is_none(),
        }
    }

    /// Selects the events that currently matter.
    fn watch(&self, cx: &mut Context<'_>) {
        let Some(socket) = &self.socket else { return };
        for (descriptor, readable) in socket.descriptors(cx.noutputs() > 0) {
            cx.select(descriptor, readable, !self.left.is_empty() && socket.carries(descriptor));
        }
    }

    /// Ends a connection.
    fn close(&mut self, cx: &mut Context<'_>) {
        let Some(socket) = &mut self.socket else { return };
        if let Some(descriptor) = socket.end() {
            cx.select(descriptor, false, false);
            if self.verbose {
                let name = cx.declaration();
                cx.chatter(format_args!("{name}: closed connection"));
            }
        }
        self.left.clear();
        self.watch(cx);
    }

    /// Sends a packet, or part of it; false if nothing could be sent.
    fn send(&mut self, packet: &Packet, cx: &mut Context<'_>) -> bool {
        let Some(socket) = self.socket.as_mut().filter(|_| self.left.is_empty()) else { return false };
        let noted = Ipv4Addr::from(packet.notes().dst_ip());
        match socket.send(packet.data(), noted) {
            Ok(sent) if sent < packet.len() => {
                self.left.extend_from_slice(&packet.data()[sent..]);
                self.watch(cx);
                true
            }
            Ok(_) => true,
            Err(error) => {
                if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) {
                    self.complain(&error, cx);
                    self.close(cx);
                }
                false
            }
        }
    }

    fn complain(&self, error: &std::io::Error, cx: &mut Context<'_>) {
        if self.verbose {
            let name = cx.declaration();
            cx.chatter(format_args!("{name}: {}", reason(error)));
        }
    }

    /// Sends the rest of a packet.
    fn flush(&mut self, cx: &mut Context<'_>) {
        let Some(socket) = self.socket.as_mut().filter(|_| !self.left.is_empty()) else { return };
        match socket.send(&self.left, Ipv4Addr::UNSPECIFIED) {
            Ok(sent) => drop(self.left.drain(..sent)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => {
                self.complain(&error, cx);
                self.close(cx);
            }
        }
        if self.left.is_empty() {
            self.watch(cx);
            if let Some(task) = self.task {
                cx.reschedule(task);
            }
        }
    }

    /// Makes a packet of received data; false if there is none.
    fn receive(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(socket) = &mut self.socket else { return false };
        let limit = self.snaplen as usize;
        let (length, from) = match socket.receive(&mut self.buffer[..limit]) {
            Ok(received) => received,
            Err(error) => {
                match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::NotConnected => {}
                    ErrorKind::Interrupted => return true,
                    // The other end disconnected.
                    ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => self.close(cx),
                    _ => {
                        self.complain(&error, cx);
                        self.close(cx);
                    }
                }
                return false;
            }
        };
        if !self.accepts(from, cx) {
            return true;
        }
        if let Some(socket) = &mut self.socket {
            socket.accept_sender();
        }
        let Some(mut packet) = cx.make_packet(self.headroom as usize, length, 0) else { return true };
        packet.data_mut().copy_from_slice(&self.buffer[..length]);
        if self.timestamp {
            packet.set_timestamp(cx.packet_time());
        }
        cx.push(0, packet);
        true
    }

    /// Takes a connection.
    fn accept(&mut self, cx: &mut Context<'_>) {
        let Some(socket) = &mut self.socket else { return };
        let from = match socket.accept(self.options.no_delay) {
            Ok(from) => from,
            Err(_) => return,
        };
        if !self.accepts(from, cx) {
            return self.close(cx);
        }
        if self.verbose {
            let (name, from) = (cx.declaration(), from.map_or(String::new(), |from| format!(" from {from}")));
            cx.chatter(format_args!("{name}: opened connection{from}"));
        }
        self.watch(cx);
        if let Some(task) = self.task {
            cx.reschedule(task);
        }
    }

    fn read_place(&mut self, args: &mut Args) {
        let mut port = 0u16;
        let mut local = String::new();
        match self.options.kind {
            SocketKind::Tcp | SocketKind::Udp => {
                let (mut address, mut own) = (Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED);
                let mut own_port = 0u16;
                args.read_mp("ADDR", &mut address);
                args.read_mp("PORT", &mut port);
                let given = [args.read_p("LOCAL_ADDR", &mut own), args.read_p("LOCAL_PORT", &mut own_port)];
                self.options.remote = SocketAddress::Address(address, port);
                self.options.local = given.contains(&true).then_some(SocketAddress::Address(own, own_port));
            }
            SocketKind::Unix | SocketKind::UnixDatagram => {
                let mut file = ringway_click::arg::Filename::default();
                args.read_mp("FILENAME", &mut file);
                self.options.remote = SocketAddress::File(file.0);
                let mut own = ringway_click::arg::Filename::default();
                if args.read_p("LOCAL_FILENAME", &mut own) {
                    local = own.0;
                }
                self.options.local = (!local.is_empty()).then_some(SocketAddress::File(local));
            }
        }
    }
}

impl Element for Socket {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let (mut kind, mut client) = (Word::default(), false);
        let (mut send, mut receive) = (0u32, 0u32);
        let (mut allow, mut deny) = (Word::default(), Word::default());
        (self.snaplen, self.headroom, self.timestamp) = (2048, ringway_click::HEADROOM as u32, true);
        self.options.no_delay = true;
        args.read_mp("TYPE", &mut kind);
        args.result()?;
        self.options.kind = match kind.0.to_ascii_uppercase().as_str() {
            "TCP" => SocketKind::Tcp,
            "UDP" => SocketKind::Udp,
            "UNIX" => SocketKind::Unix,
            "UNIX_DGRAM" => SocketKind::UnixDatagram,
            _ => return Err(cx.error(format!("unknown socket type `{}'", kind.0))),
        };
        self.read_place(args);
        args.read("SNAPLEN", &mut self.snaplen);
        args.read("HEADROOM", &mut self.headroom);
        args.read("TIMESTAMP", &mut self.timestamp);
        args.read("NODELAY", &mut self.options.no_delay);
        args.read("VERBOSE", &mut self.verbose);
        let chosen = args.read("CLIENT", &mut client);
        self.options.send_buffer = args.read("SNDBUF", &mut send).then_some(send);
        self.options.receive_buffer = args.read("RCVBUF", &mut receive).then_some(receive);
        self.allow = args.read("ALLOW", &mut allow).then_some(allow.0);
        self.deny = args.read("DENY", &mut deny).then_some(deny.0);
        args.complete()?;
        self.options.client =
            if chosen { client } else { cx.noutputs() == 0 || self.options.local.is_some() };
        self.snaplen = self.snaplen.clamp(1, LARGEST);
        self.headroom = self.headroom.min(LARGEST);
        self.buffer = vec![0; self.snaplen as usize];
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        for table in [&self.allow, &self.deny].into_iter().flatten() {
            if cx.handler_call(&format!("{table}.lookup"), false).is_err() {
                let text = format!("{table} is not an IPRouteTable");
                return Err(cx.error(text));
            }
        }
        // The state of the replaced element is taken over, or closed first.
        if !cx.has_predecessor() {
            self.open(cx)?;
        }
        if cx.ninputs() > 0 && cx.input_is_pull(0) {
            let task = cx.new_task(true);
            self.task = Some(task);
            self.signal = cx.upstream_empty_signal(0, Some(task));
        }
        Ok(())
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for packet in burst.drain() {
            let sent = self.send(&packet, cx);
            self.drops += u64::from(!sent);
        }
    }

    fn run_task(&mut self, task: Task, cx: &mut Context<'_>) -> bool {
        let ready = self.socket.as_ref().is_some_and(SystemSocket::is_ready) && self.left.is_empty();
        let Some(packet) = ready.then(|| cx.pull_one(0)).flatten() else {
            // The task is scheduled again when it becomes ready.
            if ready && cx.is_active(&self.signal) {
                cx.reschedule(task);
            }
            return false;
        };
        let sent = self.send(&packet, cx);
        self.drops += u64::from(!sent);
        cx.reschedule(task);
        sent
    }

    fn selected(&mut self, descriptor: i32, readable: bool, writable: bool, cx: &mut Context<'_>) {
        if self.socket.as_ref().is_some_and(|socket| socket.listens(descriptor)) {
            return self.accept(cx);
        }
        if writable {
            self.flush(cx);
        }
        let mut rounds = TURN;
        while readable && rounds > 0 && self.receive(cx) {
            rounds -= 1;
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::counter("drops", |e: &mut Self| &mut e.drops)].into()
    }

    fn take_state(&mut self, from: &mut dyn Element, cx: &mut Context<'_>) {
        let Some(from) = from.downcast_mut::<Self>() else { return };
        let socket = from.socket.take();
        if from.options == self.options {
            (self.socket, self.left) = (socket, std::mem::take(&mut from.left));
            return self.watch(cx);
        }
        drop(socket);
        // Errors are reported; then there is no connection.
        let _ = self.open(cx);
    }
}
