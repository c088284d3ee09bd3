//! `FastUDPFlows(RATE, LIMIT, LENGTH, SRCETH, SRCIP, DSTETH, DSTIP, FLOWS, FLOWSIZE, CHECKSUM, ACTIVE, STOP)`:
//! generates Ethernet frames with UDP, of many flows in random order.
//!
//! Ports: no inputs; one pull output.
//!
//! Arguments:
//! - `RATE`: maximum number of frames per second; with 0 unlimited.
//! - `LIMIT`: frames in total; no limit if negative.
//! - `LENGTH`: length of a frame in bytes, at least 60.
//! - `SRCETH`, `SRCIP`, `DSTETH`, `DSTIP`: addresses.
//! - `FLOWS`: number of concurrent flows, at most 1048576. Each flow has random ports.
//! - `FLOWSIZE`: frames per flow; then a new flow replaces it.
//! - `CHECKSUM`: whether the UDP checksum is computed; true by default.
//! - `ACTIVE`: whether it generates frames; true by default.
//! - `STOP`: stops the driver when more than LIMIT frames are pulled; false by default.
//!
//! Handlers: `count` (read); `rate` (read, write): its value when read is the rate reached once LIMIT frames are
//! generated, 0 before; `length` (read, write); `limit`, `reset`, `active` (write).
use super::flows::Flows;
use super::pace::Pace;
use super::template::{Ends, Template};
use ringway_click::prelude::*;
use ringway_wire::{Protocol, Udp};

pub static CLASS: Class = Class::new("FastUDPFlows", || Box::<FastUdpFlows>::default())
    .ports("0/1")
    .processing("l")
    .flags("S1")
    .metadata(Metadata::Ignores);

#[derive(Debug, Default)]
pub struct FastUdpFlows {
    pace: Pace,
    ends: Ends,
    flows: Flows,
    checksum: bool,
    template: Template,
}

impl FastUdpFlows {
    fn prepare(&mut self, cx: &mut Context<'_>) {
        self.ends.bound(cx);
        self.template = self.ends.template(Protocol::UDP, &Udp::default(), self.checksum);
    }
}

impl Element for FastUdpFlows {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.checksum = true;
        self.pace.read_arguments(args, cx);
        self.ends.read_arguments(args, false);
        self.flows.read_arguments(args);
        args.read_p("CHECKSUM", &mut self.checksum);
        args.read_p("ACTIVE", &mut self.pace.active);
        args.read("STOP", &mut self.pace.stop);
        args.complete()?;
        self.prepare(cx);
        self.flows.begin(cx);
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
        let Self { pace, flows, template, .. } = self;
        pace.fill(max, burst, cx, |_, cx| template.packet(flows.next(cx)?.ports, cx));
    }

    fn handlers(&self) -> Vec<Handler> {
        let length = Handler::field("length", |e: &mut Self| &mut e.ends.length);
        let length = length.error("length parameter must be integer").then(Self::prepare);
        Pace::handlers(|e: &mut Self| &mut e.pace).into_iter().chain([length]).collect()
    }
}
