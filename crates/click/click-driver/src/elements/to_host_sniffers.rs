//! `ToHostSniffers(DEVNAME, TYPE)`: shows packets only to programs of this host that listen on an interface with packet
//! sockets, such as tcpdump. The element creates the interface (a TAP or TUN).
//!
//! Ports: one push input.
//!
//! Arguments:
//! - `DEVNAME`: the interface's name; chosen by the kernel by default.
//! - `TYPE`: `ETHER` for Ethernet frames, the default, or `IP` for IP packets.
//!
//! Packets are sent through the interface, and discarded there. In Click the element is part of the kernel module, and
//! packets appear as received from an existing device. Requires CAP_NET_ADMIN and CAP_NET_RAW. Handlers: `dev_name`,
//! `count`, `drops` (read).
use super::tun::{Taken, Tun};
use ringway_click::arg::{Args, Word};
use ringway_click::{Class, Context, Element, Failed, Handler, Metadata, PacketBurst};
use ringway_host::{PacketSettings, open_packet, packet_send};
use std::os::fd::{AsFd, OwnedFd};

/// FromDevice is configured after it.
pub static CLASS: Class = Class::new("ToHostSniffers", || Box::<ToHostSniffers>::default())
    .ports("1/0")
    .processing("h")
    .phase(Class::PRIVILEGED - 1)
    .metadata(Metadata::Resolve);

#[derive(Default)]
pub struct ToHostSniffers {
    tun: Tun,
    socket: Option<OwnedFd>,
    count: u64,
    drops: u64,
}

impl Element for ToHostSniffers {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let (mut name, mut kind) = (Word::default(), Word("ETHER".into()));
        args.read_p("DEVNAME", &mut name);
        args.read("TYPE", &mut kind);
        self.tun = Tun::new(kind.0 == "ETHER");
        self.tun.is_up = true;
        self.tun.read(args);
        args.complete()?;
        if !matches!(kind.0.as_str(), "ETHER" | "IP") {
            return Err(cx.error("TYPE must be ETHER or IP"));
        }
        self.tun.settle(name, None, cx)
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.tun.open(cx)?;
        let name = self.tun.name.clone();
        let settings = PacketSettings { interface: &name, only_sends: true, ..PacketSettings::default() };
        self.socket = Some(open_packet(&settings).map_err(|error| cx.error(format!("{name}: {error}")))?);
        Ok(())
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, _: &mut Context<'_>) {
        let Some(socket) = &self.socket else { return };
        for packet in burst.drain() {
            let sent = packet_send(socket.as_fd(), &packet.offload().to_bytes(), packet.data());
            match sent {
                Ok(true) => self.count += 1,
                _ => self.drops += 1,
            }
        }
    }

    fn selected(&mut self, _: i32, _: bool, _: bool, cx: &mut Context<'_>) {
        // Listeners have seen these packets when they leave the interface.
        for _ in 0..cx.burst() {
            let Taken::Packet(..) = self.tun.take(cx) else { return };
        }
    }

    fn shares(&self) -> Option<String> {
        Some(format!("device {}", self.tun.name))
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("dev_name", |e: &Self| e.tun.name.clone()),
            Handler::counter("count", |e: &mut Self| &mut e.count),
            Handler::counter("drops", |e: &mut Self| &mut e.drops),
        ]
        .into()
    }
}
