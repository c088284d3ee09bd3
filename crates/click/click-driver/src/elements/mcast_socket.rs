//! `McastSocket(MCASTIP, MCASTPORT, SOURCEIP, SOURCEPORT, [keywords])`: sends packets as UDP datagrams to a
//! multicast address, and receives those sent to it.
//!
//! Ports: at most one input, push or pull; at most one push output. Input packets are not sent to the output.
//!
//! Arguments:
//! - `MCASTIP`, `MCASTPORT`: the multicast group.
//! - `SOURCEIP`, `SOURCEPORT`: the source of sent datagrams, which also selects the interface; received
//!   datagrams from there, its own, are dropped. By default the system chooses.
//! - `LOOP`: whether programs on this machine receive its datagrams; true by default.
//! - `SNAPLEN`: bytes kept of a datagram; 2048 by default.
//! - `HEADROOM`: bytes reserved before them; 28 by default.
//! - `TIMESTAMP`: whether packets are timestamped; true by default.
//! - `SNDBUF`, `RCVBUF`: sizes of the socket buffers.
//!
//! Handlers: `drops` (read): packets that could not be sent because the socket was full.
use super::intake::Intake;
use ringway_click::arg::Args;
use ringway_click::{Annotations, Class, Context, Element, Failed, Handler, PacketBurst, Task};
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use std::io::{ErrorKind, Result as IoResult};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;

pub static CLASS: Class = Class::new("McastSocket", || Box::<McastSocket>::default())
    .ports("0-1/0-1")
    .processing("a/h")
    .flow("x/y");

/// Largest number of datagrams received per turn, so that a flood leaves time for other elements.
const TURN: usize = 64;
/// The largest datagram.
const LARGEST: u32 = 65_535;

struct Sockets {
    send: UdpSocket,
    receive: UdpSocket,
    /// The configured source of datagrams.
    source: Option<SocketAddrV4>,
}

pub struct McastSocket {
    group: SocketAddrV4,
    source: SocketAddrV4,
    looped: bool,
    snaplen: u32,
    headroom: u32,
    timestamp: bool,
    send_buffer: Option<u32>,
    receive_buffer: Option<u32>,
    sockets: Option<Sockets>,
    buffer: Vec<u8>,
    intake: Intake,
    drops: u64,
}

impl Default for McastSocket {
    fn default() -> Self {
        let nowhere = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        Self {
            group: nowhere,
            source: nowhere,
            looped: true,
            snaplen: 2048,
            headroom: ringway_click::HEADROOM as u32,
            timestamp: true,
            send_buffer: None,
            receive_buffer: None,
            sockets: None,
            buffer: Vec::new(),
            intake: Intake::default(),
            drops: 0,
        }
    }
}

impl McastSocket {
    fn open(&self) -> IoResult<Sockets> {
        let make = || socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        let (send, receive) = (make()?, make()?);
        if let Some(bytes) = self.send_buffer {
            sockopt::set_socket_send_buffer_size(&send, bytes as usize)?;
        }
        if let Some(bytes) = self.receive_buffer {
            sockopt::set_socket_recv_buffer_size(&receive, bytes as usize)?;
        }
        // Several programs of this machine may listen.
        sockopt::set_socket_reuseaddr(&receive, true)?;
        bind(&receive, &SocketAddr::V4(self.group))?;
        let chosen = !self.source.ip().is_unspecified();
        if chosen {
            bind(&send, &SocketAddr::V4(self.source))?;
            sockopt::set_ip_multicast_if(&send, self.source.ip())?;
        }
        sockopt::set_ip_multicast_loop(&send, self.looped)?;
        let (send, receive) = (UdpSocket::from(send), UdpSocket::from(receive));
        receive.join_multicast_v4(self.group.ip(), self.source.ip())?;
        send.set_nonblocking(true)?;
        receive.set_nonblocking(true)?;
        let source = match send.local_addr()? {
            SocketAddr::V4(address) if chosen => Some(address),
            _ => None,
        };
        Ok(Sockets { send, receive, source })
    }

    /// Sends packets; those that don't fit into the socket buffer are dropped.
    fn send(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for packet in burst.drain() {
            let Some(sockets) = &self.sockets else { continue };
            match sockets.send.send_to(packet.data(), self.group) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.drops += 1,
                Err(error) => {
                    self.drops += 1;
                    if self.drops.is_power_of_two() {
                        let name = cx.declaration();
                        cx.chatter(format_args!("{name}: {}", crate::file::reason(&error)));
                    }
                }
            }
        }
    }
}

impl Element for McastSocket {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let (mut group, mut port) = (Ipv4Addr::UNSPECIFIED, 0u16);
        let (mut source, mut source_port) = (Ipv4Addr::UNSPECIFIED, 0u16);
        let (mut send, mut receive) = (0u32, 0u32);
        args.read_mp("MCASTIP", &mut group);
        args.read_mp("MCASTPORT", &mut port);
        args.read_p("SOURCEIP", &mut source);
        args.read_p("SOURCEPORT", &mut source_port);
        args.read("SNAPLEN", &mut self.snaplen);
        args.read("HEADROOM", &mut self.headroom);
        args.read("TIMESTAMP", &mut self.timestamp);
        args.read("LOOP", &mut self.looped);
        self.receive_buffer = args.read("RCVBUF", &mut receive).then_some(receive);
        self.send_buffer = args.read("SNDBUF", &mut send).then_some(send);
        args.complete()?;
        if !group.is_multicast() {
            return Err(cx.error(format!("MCASTIP: {group} is no multicast address")));
        }
        self.snaplen = self.snaplen.clamp(1, LARGEST);
        self.headroom = self.headroom.min(LARGEST);
        self.group = SocketAddrV4::new(group, port);
        self.source = SocketAddrV4::new(source, source_port);
        self.buffer = vec![0; LARGEST as usize];
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let sockets = self
            .open()
            .map_err(|error| cx.error(format!("{}: {}", self.group, crate::file::reason(&error))))?;
        if cx.noutputs() > 0 {
            cx.select(sockets.receive.as_raw_fd(), true, false);
        }
        self.sockets = Some(sockets);
        self.intake = Intake::new(cx);
        Ok(())
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        self.send(burst, cx);
    }

    fn run_task(&mut self, task: Task, cx: &mut Context<'_>) -> bool {
        let mut burst = self.intake.pull(task, cx.burst(), cx);
        let worked = !burst.is_empty();
        self.send(&mut burst, cx);
        worked
    }

    fn selected(&mut self, _: i32, _: bool, _: bool, cx: &mut Context<'_>) {
        let Some(sockets) = &self.sockets else { return };
        for _ in 0..TURN {
            let (length, from) = match sockets.receive.recv_from(&mut self.buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return,
            };
            if sockets.source.is_some_and(|own| SocketAddr::V4(own) == from) {
                continue;
            }
            let kept = length.min(self.snaplen as usize);
            let Some(mut packet) = cx.make_packet(self.headroom as usize, kept, 0) else { continue };
            packet.data_mut().copy_from_slice(&self.buffer[..kept]);
            if kept < length {
                packet.notes_mut().set_u32(Annotations::EXTRA_LENGTH, (length - kept) as u32);
            }
            if self.timestamp {
                packet.set_timestamp(cx.packet_time());
            }
            cx.push(0, packet);
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::counter("drops", |e: &mut Self| &mut e.drops)].into()
    }
}
