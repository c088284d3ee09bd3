//! `ToDevice(DEVNAME, [keywords])`: sends packets as frames through a network interface.
//!
//! Ports: one input, push or pull; optionally push outputs: 0 for sent packets, 1 for packets that could not
//! be sent.
//!
//! Arguments:
//! - `DEVNAME`: the interface's name.
//! - `BURST`: packets pulled per turn; by default 1, or the router's burst.
//! - `METHOD`: `LINUX`, `PCAP` or `DEFAULT`: all mean a packet socket.
//! - `DEBUG`: ignored.
//!
//! Packets must begin with a link header. Checksums and segmentation are left to the kernel. If the interface
//! has no room, a pulled packet waits in the element, a pushed one is dropped. Requires CAP_NET_RAW.
//! Handlers: `count`, `drops` (read); `reset_counts` (write).
use super::device::check_device;
use super::outbox::Outbox;
use crate::file::reason;
use ringway_click::arg::{Args, Word};
use ringway_click::{Class, Context, Element, Failed, Handler, Packet, PacketBurst, Task, Timer};
use ringway_host::{PacketSettings, open_packet, packet_send};
use std::os::fd::{AsFd, OwnedFd};

pub static CLASS: Class = Class::new("ToDevice", || Box::<ToDevice>::default())
    .ports("1/0-2")
    .processing("a/h")
    .flags("S2")
    .phase(Class::PRIVILEGED);

#[derive(Default)]
pub struct ToDevice {
    device: String,
    burst: u32,
    socket: Option<OwnedFd>,
    outbox: Outbox,
    count: u64,
    drops: u64,
}

impl ToDevice {
    /// Sends a packet, or returns it if there is no room now.
    fn send(&mut self, packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        let socket = self.socket.as_ref()?;
        match packet_send(socket.as_fd(), &packet.offload().to_bytes(), packet.data()) {
            Ok(true) => {
                self.count += 1;
                cx.push(0, packet);
            }
            Ok(false) => return Some(packet),
            Err(error) => {
                if self.drops == 0 {
                    let name = cx.declaration();
                    cx.chatter(format_args!("{name}: {}: {}", self.device, reason(&error.into())));
                }
                self.drop_one(packet, cx);
            }
        }
        None
    }

    fn drop_one(&mut self, packet: Packet, cx: &mut Context<'_>) {
        self.drops += 1;
        cx.push(1, packet);
    }
}

impl Element for ToDevice {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let (mut device, mut method, mut debug) = (Word::default(), Word::default(), false);
        self.burst = cx.burst() as u32;
        args.read_mp("DEVNAME", &mut device);
        args.read("BURST", &mut self.burst);
        args.read("METHOD", &mut method);
        args.read("DEBUG", &mut debug);
        args.complete()?;
        check_device(&method.0, self.burst, cx)?;
        self.device = device.0;
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let settings =
            PacketSettings { interface: &self.device, only_sends: true, ..PacketSettings::default() };
        let socket = open_packet(&settings).map_err(|error| cx.error(format!("{}: {error}", self.device)))?;
        self.socket = Some(socket);
        if cx.input_is_pull(0) {
            self.outbox = Outbox::new(cx);
        }
        Ok(())
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for packet in burst.drain() {
            if let Some(packet) = self.send(packet, cx) {
                self.drop_one(packet, cx);
            }
        }
    }

    fn run_task(&mut self, _: Task, cx: &mut Context<'_>) -> bool {
        let mut outbox = std::mem::take(&mut self.outbox);
        let worked = outbox.run(self.burst as usize, cx, |packet, cx| self.send(packet, cx));
        self.outbox = outbox;
        worked
    }

    fn run_timer(&mut self, _: Timer, cx: &mut Context<'_>) {
        self.outbox.wake(cx);
    }

    fn take_state(&mut self, from: &mut dyn Element, cx: &mut Context<'_>) {
        let Some(from) = from.downcast_mut::<Self>() else { return };
        if let Some(packet) = self.outbox.take_state(&mut from.outbox) {
            self.drop_one(packet, cx);
        }
    }

    fn shares(&self) -> Option<String> {
        Some(format!("device {}", self.device))
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::counter("count", |e: &mut Self| &mut e.count),
            Handler::counter("drops", |e: &mut Self| &mut e.drops),
            Handler::button("reset_counts", |e: &mut Self, _| (e.count, e.drops) = (0, 0)),
        ]
        .into()
    }
}
