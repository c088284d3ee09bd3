//! `ToyTCP(DPORT)`: opens a TCP connection and answers every segment with another segment, for load tests.
//!
//! Ports: one push input for segments that begin with the TCP header, one push output for such segments; IPEncap and
//! SetTCPChecksum complete them.
//!
//! Arguments:
//! - `DPORT`: the server's port.
//!
//! Handlers: `good`, `bad`, `sent` (read): received segments without and with RST, sent segments. These counts are
//! printed every second. After an RST the element opens a new connection.
use ringway_click::HEADROOM;
use ringway_click::arg::IpPort;
use ringway_click::prelude::*;
use ringway_wire::tcp::Flags;
use ringway_wire::{Header, Tcp};

pub static CLASS: Class = Class::new("ToyTCP", || Box::<ToyTcp>::default())
    .ports("1/1")
    .processing("h")
    .metadata(Metadata::Resolve);

/// Received segments after which one additional segment is sent.
const GROW_AFTER: u8 = 5;
/// One of this many segments advertises half the window.
const WINDOWS: u8 = 4;
const WINDOW: u16 = 60 * 1024;

#[derive(Debug, Default)]
pub struct ToyTcp {
    server_port: u16,
    port: u16,
    initial: u32,
    /// The server's next byte, once the connection is open.
    expected: Option<u32>,
    reset: bool,
    grow: u8,
    window: u8,
    good: u64,
    bad: u64,
    sent: u64,
}

impl ToyTcp {
    fn restart(&mut self, cx: &mut Context<'_>) {
        self.initial = cx.random() & 0x0fff_ffff;
        self.port = cx.random_between(1024, 61_023) as u16;
        (self.expected, self.reset, self.grow, self.window) = (None, false, 0, 0);
    }

    fn receive(&mut self, packet: &Packet, cx: &mut Context<'_>) {
        let Some(tcp) = Tcp::of(packet.data()) else { return };
        if tcp.source_port != self.server_port || tcp.destination_port != self.port {
            return;
        }
        if tcp.flags.has(Flags::RST) {
            let (port, good, sent) = (self.server_port, self.good, self.sent);
            cx.chatter(format_args!("ToyTCP: RST from port {port}, in {good}, out {sent}"));
            self.bad += 1;
            self.reset = true;
            return;
        }
        let opens = tcp.flags.has(Flags::ACK) && tcp.acknowledgment_number == self.initial.wrapping_add(1);
        if opens && self.expected.is_none() {
            self.expected = Some(tcp.sequence_number.get().wrapping_add(1));
            cx.chatter(format_args!("ToyTCP connected"));
        }
        self.good += 1;
    }

    /// Sends SYN, or a byte in the window.
    fn send(&mut self, cx: &mut Context<'_>) {
        let payload = usize::from(self.expected.is_some());
        let Some(mut packet) = cx.make_packet(HEADROOM, Tcp::LEN + payload, 0) else { return };
        packet.data_mut().fill(0);
        let half = self.window + 1 == WINDOWS;
        self.window = (self.window + 1) % WINDOWS;
        if let Some(tcp) = Tcp::of_mut(packet.data_mut()) {
            *tcp = Tcp {
                source_port: self.port.into(),
                destination_port: self.server_port.into(),
                sequence_number: self.initial.into(),
                flags: Flags::SYN,
                window: if half { WINDOW / 2 } else { WINDOW }.into(),
                ..Tcp::EMPTY
            };
            if let Some(expected) = self.expected {
                tcp.sequence_number = self.initial.wrapping_add(2 + (self.sent & 0xfff) as u32).into();
                tcp.acknowledgment_number = expected.into();
                tcp.flags = Flags::ACK;
            }
        }
        cx.push(0, packet);
        self.sent += 1;
    }
}

impl Element for ToyTcp {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        let mut port = IpPort::default();
        args.read_mp("DPORT", &mut port);
        self.server_port = port.0;
        args.complete()
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.restart(cx);
        let timer = cx.new_timer();
        cx.set_timer_after(timer, SECOND);
        Ok(())
    }

    fn run_timer(&mut self, timer: Timer, cx: &mut Context<'_>) {
        if self.reset {
            self.restart(cx);
        }
        self.send(cx);
        cx.set_timer_after(timer, SECOND);
        let (good, bad, sent) = (self.good, self.bad, self.sent);
        cx.chatter(format_args!("ToyTCP: {good} good in, {bad} bad in, {sent} out"));
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for packet in burst.drain() {
            if self.reset {
                continue;
            }
            self.receive(&packet, cx);
            self.send(cx);
            self.grow += 1;
            if self.grow >= GROW_AFTER {
                self.grow = 0;
                self.send(cx);
            }
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::counter("good", |e: &mut Self| &mut e.good),
            Handler::counter("bad", |e: &mut Self| &mut e.bad),
            Handler::counter("sent", |e: &mut Self| &mut e.sent),
        ]
        .into()
    }
}
