//! `FastTCPFlows(RATE, LIMIT, LENGTH, SRCETH, SRCIP, DSTETH, DSTIP, FLOWS, FLOWSIZE, ACTIVE)`: generates Ethernet
//! frames with TCP, of many flows in random order: for each flow a SYN, data, a FIN. Their sequence numbers are
//! arbitrary.
//!
//! Ports: no inputs; one pull output.
//!
//! Arguments:
//! - `RATE`: maximum number of frames per second; with 0 unlimited.
//! - `LIMIT`: frames in total, in addition to the FINs of flows that are then open; no limit if negative.
//! - `LENGTH`: length of a frame in bytes, at least 60.
//! - `SRCETH`, `SRCIP`, `DSTETH`, `DSTIP`: addresses.
//! - `FLOWS`: number of concurrent flows, at most 1048576. Each flow has random ports.
//! - `FLOWSIZE`: frames per flow, at least 3; then a new flow replaces it.
//! - `ACTIVE`: whether it generates frames; true by default.
//!
//! Handlers: `count` (read); `rate` (read, write): its value when read is the rate reached once LIMIT frames are
//! generated, 0 before; `limit`, `reset`, `active` (write).
use super::flows::{Flow, Flows};
use super::pace::Pace;
use super::template::{Ends, Template};
use ringway_click::prelude::*;
use ringway_wire::tcp::Flags;
use ringway_wire::{Protocol, Tcp};

pub static CLASS: Class = Class::new("FastTCPFlows", || Box::<FastTcpFlows>::default())
    .ports("0/1")
    .processing("l")
    .flags("S1")
    .metadata(Metadata::Ignores);

/// Flags of the three kinds of frames.
const FLAGS: [Flags; 3] = [Flags::SYN, Flags::PSH.with(Flags::ACK), Flags::FIN];
const SYN: usize = 0;
const DATA: usize = 1;
const FIN: usize = 2;

#[derive(Debug, Default)]
pub struct FastTcpFlows {
    pace: Pace,
    ends: Ends,
    flows: Flows,
    templates: [Template; 3],
    /// After the limit is reached: flows before this index have ended.
    ended: usize,
}

impl FastTcpFlows {
    fn next(&mut self, cx: &mut Context<'_>) -> Option<Packet> {
        let flow = self.flows.next(cx)?;
        let kind = match flow.made {
            1 => SYN,
            made if made == self.flows.size => FIN,
            _ => DATA,
        };
        self.templates[kind].packet(flow.ports, cx)
    }

    /// The FIN of the next open flow.
    fn end(&mut self, cx: &mut Context<'_>) -> Option<Packet> {
        let open = |flow: &Flow| (1..self.flows.size).contains(&flow.made);
        let found = self.flows.all.get(self.ended..)?.iter().position(open)?;
        self.ended += found;
        let flow = self.flows.all.get_mut(self.ended)?;
        flow.made = self.flows.size;
        self.templates[FIN].packet(flow.ports, cx)
    }
}

impl Element for FastTcpFlows {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.pace.read_arguments(args, cx);
        self.ends.read_arguments(args, false);
        self.flows.read_arguments(args);
        args.read_p("ACTIVE", &mut self.pace.active);
        args.complete()?;
        if self.flows.size < 3 {
            cx.chatter(format_args!("warning: flow size < 3, defaulting to 3"));
            self.flows.size = 3;
        }
        self.ends.bound(cx);
        self.templates = FLAGS.map(|flags| {
            let (sequence_number, acknowledgment_number) = (cx.random().into(), cx.random().into());
            let window = u16::MAX.into();
            let header = Tcp { sequence_number, acknowledgment_number, flags, window, ..Tcp::EMPTY };
            self.ends.template(Protocol::TCP, &header, true)
        });
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
        let now = cx.steady();
        while burst.len() < max && self.pace.is_due(now, cx) {
            let done = self.pace.is_done();
            let made = if done { self.end(cx) } else { self.next(cx) };
            let Some(packet) = made else { return self.pace.rest(cx) };
            self.pace.made(now);
            burst.push(packet);
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        Pace::handlers(|e: &mut Self| &mut e.pace)
            .map(|handler| handler.then(|e: &mut Self, _| e.ended = 0))
            .into()
    }
}
