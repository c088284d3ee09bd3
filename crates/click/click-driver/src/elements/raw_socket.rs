//! `RawSocket(TYPE, [PORT, SNAPLEN, HEADROOM])`: exchanges IPv4 packets with other hosts through a raw socket
//! of this host's kernel.
//!
//! Ports: a pull input or none; a push output or none.
//!
//! Arguments:
//! - `TYPE`: the IP protocol: `TCP`, `UDP`, `ICMP`, `GRE` or a number.
//! - `PORT`: for TCP and UDP, a port to reserve, so that no other program on this host gets it; none by
//!   default. Ignored for other protocols.
//! - `SNAPLEN`: bytes kept of a packet; 2048 by default.
//! - `HEADROOM`: bytes reserved before a packet; 28 by default.
//!
//! All packets of the protocol that arrive at this host are copied here, whatever their ports; the kernel
//! processes them too. Sent packets begin with their IP headers, and go to the destination in the header.
//! Requires CAP_NET_RAW. Handlers: `count`, `drops` (read): packets sent, and packets that could not be sent.
use super::link_type::{RAW, mark_ip};
use super::outbox::Outbox;
use crate::file::reason;
use ringway_click::arg::{Args, MANDATORY_POSITIONAL};
use ringway_click::{
    Annotations, Class, Context, Element, Failed, HEADROOM, Handler, Metadata, Packet, Task, Timer,
};
use ringway_elements::parse_protocol;
use ringway_host::open_raw;
use ringway_wire::{Header, Ipv4, Protocol};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};

pub static CLASS: Class = Class::new("RawSocket", || Box::<RawSocket>::default())
    .ports("0-1/0-1")
    .processing("l/h")
    .flow("x/y")
    .flags("S3")
    .phase(Class::PRIVILEGED)
    .metadata(Metadata::Resolve);

/// Largest possible packet.
const LARGEST: u32 = 65_535;

/// Reserves a port.
#[expect(dead_code, reason = "held until they are dropped")]
enum Port {
    Tcp(TcpListener),
    Udp(UdpSocket),
}

#[derive(Default)]
pub struct RawSocket {
    protocol: Protocol,
    port: u16,
    snaplen: u32,
    headroom: u32,
    socket: Option<OwnedFd>,
    held: Option<Port>,
    buffer: Vec<u8>,
    outbox: Outbox,
    count: u64,
    drops: u64,
}

impl RawSocket {
    fn take_port(&self) -> std::io::Result<Option<Port>> {
        let place = (Ipv4Addr::UNSPECIFIED, self.port);
        Ok(match self.protocol {
            _ if self.port == 0 => None,
            Protocol::TCP => Some(Port::Tcp(TcpListener::bind(place)?)),
            Protocol::UDP => Some(Port::Udp(UdpSocket::bind(place)?)),
            _ => None,
        })
    }

    /// Receives a packet; false if there is none.
    fn take(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(socket) = &self.socket else { return false };
        let (count, whole) = match rustix::net::recv(socket, &mut self.buffer[..], RecvFlags::TRUNC) {
            Ok(result) => result,
            Err(Errno::AGAIN | Errno::INTR) => return false,
            Err(error) => {
                self.complain("recv", error, cx);
                return false;
            }
        };
        let Some(mut packet) = cx.make_packet(self.headroom as usize, count, 0) else { return false };
        packet.data_mut().copy_from_slice(&self.buffer[..count]);
        packet.set_timestamp(cx.packet_time());
        packet.notes_mut().set_u32(Annotations::EXTRA_LENGTH, whole.saturating_sub(count) as u32);
        if mark_ip(&mut packet, RAW) {
            cx.push(0, packet);
        }
        true
    }

    /// Sends a packet, or returns it if there is no room now.
    fn send(&mut self, packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        let socket = self.socket.as_ref()?;
        let Some(header) = Ipv4::of(packet.data()) else {
            self.drops += 1;
            return None;
        };
        let to = SocketAddrV4::new(header.destination_addr(), 0);
        match rustix::net::sendto(socket, packet.data(), SendFlags::empty(), &to) {
            Ok(_) => self.count += 1,
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => return Some(packet),
            Err(error) => {
                self.complain("sendto", error, cx);
                self.drops += 1;
            }
        }
        None
    }

    /// Attack: a log line for each packet. Only errors up to the first dropped packet are reported.
    fn complain(&self, call: &str, error: Errno, cx: &mut Context<'_>) {
        if self.drops == 0 {
            let name = cx.declaration();
            cx.chatter(format_args!("{name}: {call}: {}", reason(&error.into())));
        }
    }
}

impl Element for RawSocket {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        (self.snaplen, self.headroom) = (2048, HEADROOM as u32);
        args.read_with("TYPE", MANDATORY_POSITIONAL, &mut self.protocol, |text, scope| {
            parse_protocol(&text.to_ascii_lowercase(), scope)
        });
        args.read_p("PORT", &mut self.port);
        args.read("SNAPLEN", &mut self.snaplen);
        args.read("HEADROOM", &mut self.headroom);
        self.headroom = self.headroom.min(LARGEST);
        args.complete()
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let socket = open_raw(self.protocol.0).map_err(|error| cx.error(error.to_string()))?;
        self.held = self.take_port().map_err(|error| {
            let text = format!("port {}: {}", self.port, reason(&error));
            cx.error(text)
        })?;
        if cx.noutputs() > 0 {
            self.buffer = vec![0; self.snaplen.clamp(1, LARGEST) as usize];
            cx.select(socket.as_raw_fd(), true, false);
        }
        self.socket = Some(socket);
        if cx.ninputs() > 0 {
            self.outbox = Outbox::new(cx);
        }
        Ok(())
    }

    fn selected(&mut self, _: i32, _: bool, _: bool, cx: &mut Context<'_>) {
        for _ in 0..cx.burst() {
            if !self.take(cx) {
                return;
            }
        }
    }

    fn run_task(&mut self, _: Task, cx: &mut Context<'_>) -> bool {
        let mut outbox = std::mem::take(&mut self.outbox);
        let worked = outbox.run(cx.burst(), cx, |packet, cx| self.send(packet, cx));
        self.outbox = outbox;
        worked
    }

    fn run_timer(&mut self, _: Timer, cx: &mut Context<'_>) {
        self.outbox.wake(cx);
    }

    fn take_state(&mut self, from: &mut dyn Element, _: &mut Context<'_>) {
        if let Some(from) = from.downcast_mut::<Self>() {
            self.drops += u64::from(self.outbox.take_state(&mut from.outbox).is_some());
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::counter("count", |e: &mut Self| &mut e.count),
            Handler::counter("drops", |e: &mut Self| &mut e.drops),
        ]
        .into()
    }
}
