//! `EtherPauseSource(SRC, PAUSETIME, [keywords])`: generates frames that ask a neighbour to pause (IEEE 802.3, annex
//! 31B).
//!
//! Ports: no inputs; one output, push or pull. If push, it generates a frame per INTERVAL; if pull, one per pull.
//!
//! Arguments:
//! - `SRC`: source Ethernet address.
//! - `PAUSETIME`: duration of the pause, in units of 512 bit times.
//! - `DST`: destination; 01-80-C2-00-00-01 by default, which bridges don't forward.
//! - `LIMIT`: frames in total; no limit if negative, as by default.
//! - `INTERVAL`: time between frames; 1s by default.
//! - `ACTIVE`: whether it generates frames; true by default.
//!
//! Handlers: `count` (read); `src`, `dst`, `pausetime`, `limit`, `active` (read, write); `reset_counts`
//! (write).
use crate::packet::mac_handler;
use ringway_click::arg::Nanoseconds;
use ringway_click::prelude::*;
use ringway_wire::{EtherType, Ethernet, Header, MacAddress, U16};

pub static CLASS: Class = Class::new("EtherPauseSource", || Box::<EtherPauseSource>::default())
    .ports("0/1")
    .flags("S1")
    .metadata(Metadata::Ignores);

/// Length of a frame without its check sequence.
const FRAME: usize = 60;
/// PAUSE's opcode.
const PAUSE: u16 = 1;
const EVERYBODY: MacAddress = MacAddress([1, 0x80, 0xc2, 0, 0, 1]);
/// The shortest interval.
const LEAST: u64 = SECOND / 1000;

#[derive(Debug, Default)]
pub struct EtherPauseSource {
    source: MacAddress,
    destination: MacAddress,
    time: u16,
    limit: i64,
    interval: u64,
    active: bool,
    count: u64,
    timer: Option<Timer>,
}

impl EtherPauseSource {
    fn may_go_on(&self) -> bool {
        self.active && u64::try_from(self.limit).map_or(true, |limit| self.count < limit)
    }

    fn make(&mut self, cx: &mut Context<'_>) -> Option<Packet> {
        let mut frame = [0; FRAME];
        let (source, destination) = (self.source, self.destination);
        let (header, control) = Ethernet::split_mut(&mut frame)?;
        *header = Ethernet { destination, source, ethertype: EtherType::MAC_CONTROL };
        *<[U16; 2]>::of_mut(control)? = [PAUSE.into(), self.time.into()];
        let mut packet = cx.packet(&frame)?;
        packet.set_timestamp(cx.packet_time());
        packet.set_mac_header(0);
        self.count += 1;
        Some(packet)
    }

    fn go_on(&self, cx: &mut Context<'_>) {
        if let Some(timer) = self.timer.filter(|timer| self.may_go_on() && !cx.is_timer_set(*timer)) {
            cx.set_timer_after(timer, self.interval);
        }
    }
}

impl Element for EtherPauseSource {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        (self.destination, self.limit, self.active) = (EVERYBODY, -1, true);
        let mut interval = Nanoseconds(SECOND);
        args.read_mp("SRC", &mut self.source);
        args.read_mp("PAUSETIME", &mut self.time);
        args.read("DST", &mut self.destination);
        args.read("LIMIT", &mut self.limit);
        args.read("INTERVAL", &mut interval);
        args.read("ACTIVE", &mut self.active);
        self.interval = interval.0.max(LEAST);
        args.complete()
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        if cx.output_is_push(0) {
            self.timer = Some(cx.new_timer());
            self.go_on(cx);
        }
        Ok(())
    }

    fn run_timer(&mut self, _: Timer, cx: &mut Context<'_>) {
        if self.may_go_on()
            && let Some(packet) = self.make(cx)
        {
            cx.push(0, packet);
        }
        self.go_on(cx);
    }

    fn pull(&mut self, _: usize, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        if self.may_go_on()
            && let Some(packet) = self.make(cx)
        {
            burst.push(packet);
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("count", |e: &Self| e.count),
            Handler::button("reset_counts", |e: &mut Self, _| e.count = 0),
            mac_handler("src", |e: &mut Self| &mut e.source),
            mac_handler("dst", |e: &mut Self| &mut e.destination),
            Handler::field("pausetime", |e: &mut Self| &mut e.time),
            Handler::field("limit", |e: &mut Self| &mut e.limit),
            Handler::field("active", |e: &mut Self| &mut e.active),
        ]
        .map(|handler| handler.then(|e: &mut Self, cx| e.go_on(cx)))
        .into()
    }
}
