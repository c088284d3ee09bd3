//! `FromHost(DEVNAME, [DST, keywords])`: receives the Ethernet frames that this host's kernel sends through
//! an interface (a TAP) that the element creates. ToHost sends frames to the kernel through it.
//!
//! Ports: one push output.
//!
//! Arguments:
//! - `DEVNAME`: the interface's name.
//! - `DST`: the kernel's own address on it and the network behind it, as a prefix; without it the interface
//!   is only created.
//! - `GATEWAY`: an address of that network for the host's default route; none by default.
//! - `ETHER`: the interface's Ethernet address; the kernel's choice by default.
//! - `HEADROOM`: bytes reserved before a frame; 28 by default.
//! - `MTU`: the largest packet, without the Ethernet header; 1500 by default.
//!
//! While packets can't be pushed on, none are received. The kernel resolves addresses by ARP, which must be
//! answered. Requires CAP_NET_ADMIN. Handlers: `dev_name`, `signal` (read).
use super::tun::{Taken, Tun, prefix};
use ringway_click::arg::{Args, POSITIONAL, Word};
use ringway_click::{Class, Context, Element, Failed, Handler, Signal, Task};

/// ToHost is configured after it.
pub static CLASS: Class = Class::new("FromHost", || Box::<FromHost>::default())
    .ports("0/1")
    .processing("h")
    .flags("S3")
    .phase(Class::PRIVILEGED - 1);

pub struct FromHost {
    tun: Tun,
    signal: Signal,
}

impl Default for FromHost {
    fn default() -> Self {
        Self { tun: Tun::new(true), signal: Signal::default() }
    }
}

impl FromHost {
    /// Its interface, for another element, if it has this name.
    pub(super) fn share(&self, name: &str) -> Option<Tun> {
        if self.tun.name == name { self.tun.share() } else { None }
    }
}

impl Element for FromHost {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let (mut name, mut address) = (Word::default(), None);
        args.read_mp("DEVNAME", &mut name);
        args.read_with("DST", POSITIONAL, &mut address, prefix);
        self.tun.read(args);
        args.complete()?;
        if name.0.is_empty() {
            return Err(cx.error("must specify device name"));
        }
        self.tun.settle(name, address, cx)
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.tun.open(cx)?;
        let task = cx.new_task(false);
        self.signal = cx.downstream_full_signal(0, Some(task));
        Ok(())
    }

    fn selected(&mut self, _: i32, _: bool, _: bool, cx: &mut Context<'_>) {
        for _ in 0..cx.burst() {
            if !cx.is_active(&self.signal) {
                return self.tun.watch(false, cx);
            }
            let Taken::Packet(packet, _) = self.tun.take(cx) else { return };
            cx.push(0, packet);
        }
    }

    fn run_task(&mut self, _: Task, cx: &mut Context<'_>) -> bool {
        let room = cx.is_active(&self.signal);
        if room {
            self.tun.watch(true, cx);
        }
        room
    }

    fn shares(&self) -> Option<String> {
        Some(format!("device {}", self.tun.name))
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("dev_name", |e: &Self| e.tun.name.clone()),
            Handler::read_with("signal", |e: &mut Self, _, cx| Ok(cx.is_active(&e.signal).to_string())),
        ]
        .into()
    }
}
