//! `KernelTun(ADDR/MASK, [GATEWAY, keywords])`: exchanges IP packets with this host's kernel through an
//! interface (a TUN) that it creates.
//!
//! Ports: an input, push or pull, or none; one or two push outputs: 0 for IP packets that the kernel sends
//! through the interface, 1 for others.
//!
//! Arguments:
//! - `ADDR/MASK`: the kernel's own address on the interface, and the network behind it.
//! - `GATEWAY`: an address of that network for the host's default route; none by default.
//! - `TAP`: exchanges Ethernet frames instead, as KernelTap does; false by default.
//! - `DEVNAME`: the interface's name; the kernel's choice by default.
//! - `HEADROOM`: bytes reserved before a packet; 28 by default.
//! - `BURST`: packets received at once; by default 1, or the router's burst.
//! - `ETHER`: the interface's Ethernet address, if it carries frames; the kernel's choice by default.
//! - `MTU`: the largest packet, without a link header; 1500 by default.
//! - `IGNORE_QUEUE_OVERFLOWS`: accepted for compatibility: only the first error is reported anyway.
//!
//! Sent packets must have the network header set; bytes before it are removed. The interface is deleted with
//! the router. Requires CAP_NET_ADMIN. Handlers: `dev_name`, `selected_calls`, `packets`, `drops` (read):
//! packets that the kernel refused.
use super::intake::Intake;
use super::tun::{Taken, Tun, prefix};
use ringway_click::arg::{Args, MANDATORY_POSITIONAL, Word};
use ringway_click::{Class, Context, Element, Failed, Handler, Metadata, PacketBurst, Task};

pub static CLASS: Class = exchanging(Class::new("KernelTun", || Box::new(KernelTun::new(false))));

/// Properties of all elements that exchange packets with the kernel.
pub(super) const fn exchanging(class: Class) -> Class {
    class
        .ports("0-1/1-2")
        .processing("a/h")
        .flow("x/y")
        .flags("S3")
        .phase(Class::PRIVILEGED - 1)
        .metadata(Metadata::Resolve)
}

pub struct KernelTun {
    tun: Tun,
    burst: u32,
    intake: Intake,
    selected_calls: u64,
    packets: u64,
    drops: u64,
}

impl KernelTun {
    /// An element for frames, or for IP packets.
    pub(super) fn new(frames: bool) -> Self {
        Self {
            tun: Tun::new(frames),
            burst: 0,
            intake: Intake::default(),
            selected_calls: 0,
            packets: 0,
            drops: 0,
        }
    }
}

impl Element for KernelTun {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let (mut address, mut name) = (None, Word::default());
        self.burst = cx.burst() as u32;
        args.read_with("ADDR", MANDATORY_POSITIONAL, &mut address, prefix);
        self.tun.read(args);
        args.read("TAP", &mut self.tun.frames);
        args.read("BURST", &mut self.burst);
        args.read("DEV_NAME", &mut name);
        args.read("DEVNAME", &mut name);
        args.complete()?;
        if self.burst == 0 {
            return Err(cx.error("BURST must be >= 1"));
        }
        self.tun.settle(name, address, cx)
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.tun.open(cx)?;
        self.intake = Intake::new(cx);
        Ok(())
    }

    fn selected(&mut self, _: i32, _: bool, _: bool, cx: &mut Context<'_>) {
        self.selected_calls += 1;
        for _ in 0..self.burst {
            let Taken::Packet(packet, expected) = self.tun.take(cx) else { return };
            self.packets += 1;
            cx.push(usize::from(!expected), packet);
        }
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for packet in burst.drain() {
            self.drops += u64::from(!self.tun.give(&packet, cx));
        }
    }

    fn run_task(&mut self, task: Task, cx: &mut Context<'_>) -> bool {
        let mut burst = self.intake.pull(task, self.burst as usize, cx);
        let worked = !burst.is_empty();
        self.push(0, &mut burst, cx);
        worked
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("dev_name", |e: &Self| e.tun.name.clone()),
            Handler::read("selected_calls", |e: &Self| e.selected_calls),
            Handler::counter("packets", |e: &mut Self| &mut e.packets),
            Handler::counter("drops", |e: &mut Self| &mut e.drops),
        ]
        .into()
    }
}
