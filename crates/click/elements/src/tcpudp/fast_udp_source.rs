//! `FastUDPSource(RATE, LIMIT, LENGTH, SRCETH, SRCIP, SPORT, DSTETH, DSTIP, DPORT, CHECKSUM, INTERVAL, ACTIVE)`:
//! generates identical Ethernet frames with UDP.
//!
//! Ports: no inputs; one pull output.
//!
//! Arguments:
//! - `RATE`: maximum number of frames per second; with 0 unlimited.
//! - `LIMIT`: frames in total; no limit if negative.
//! - `LENGTH`: length of a frame in bytes, at least 60.
//! - `SRCETH`, `SRCIP`, `SPORT`, `DSTETH`, `DSTIP`, `DPORT`: addresses and ports.
//! - `CHECKSUM`: whether the UDP checksum is computed; true by default.
//! - `INTERVAL`: number of frames after which both ports are incremented; never if 0, as by default.
//! - `ACTIVE`: whether it generates frames; true by default.
//!
//! Handlers: `count` (read); `rate` (read, write): its value when read is the rate reached once LIMIT frames are
//! generated, 0 before; `limit`, `reset`, `active` (write).
use super::pace::Pace;
use super::template::{Ends, Template};
use ringway_click::prelude::*;
use ringway_wire::{Protocol, Udp};

pub static CLASS: Class = Class::new("FastUDPSource", || Box::<FastUdpSource>::default())
    .ports("0/1")
    .processing("l")
    .flags("S1")
    .metadata(Metadata::Ignores);

#[derive(Debug, Default)]
pub struct FastUdpSource {
    pace: Pace,
    ends: Ends,
    interval: u32,
    template: Template,
}

impl Element for FastUdpSource {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut checksum = true;
        self.pace.read_arguments(args, cx);
        self.ends.read_arguments(args, true);
        args.read_p("CHECKSUM", &mut checksum);
        args.read_p("INTERVAL", &mut self.interval);
        args.read_p("ACTIVE", &mut self.pace.active);
        args.complete()?;
        self.ends.bound(cx);
        self.template = self.ends.template(Protocol::UDP, &Udp::default(), checksum);
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.pace.initialize(cx);
        Ok(())
    }

    fn run_timer(&mut self, _: Timer, cx: &mut Context<'_>) {
        self.pace.wake(cx);
    }

    fn pull(&mut self, _: usize, max: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let Self { pace, ends, interval, template } = self;
        let ports = [ends.source_port, ends.destination_port];
        pace.fill(max, burst, cx, |count, cx| {
            let steps = count.checked_div((*interval).into()).unwrap_or(0) as u16;
            template.packet(ports.map(|port| port.wrapping_add(steps)), cx)
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        Pace::handlers(|e: &mut Self| &mut e.pace).into()
    }
}
