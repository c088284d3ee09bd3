//! `EtherSwitch(TIMEOUT)`: a learning Ethernet switch (IEEE 802.1Q, 8.7 and 8.8, without spanning tree).
//!
//! Ports: two or more push inputs, and as many push outputs: input and output of a number are one port of the
//! switch.
//!
//! Arguments:
//! - `TIMEOUT`: how long an address is remembered; 5 minutes by default; if 0 none is, and
//!   every frame goes to all other ports.
//!
//! Handlers: `table` (read); `timeout` (read, write). Frames for groups and for addresses that are not known go to all
//! other ports. Frames too short for their header are dropped.
use crate::packet::mac_text;
use crate::search::Search;
use ringway_click::OrderedMap;
use ringway_click::arg::Seconds;
use ringway_click::prelude::*;
use ringway_wire::{Ethernet, Header, MacAddress};

pub static CLASS: Class = Class::new("EtherSwitch", || Box::new(EtherSwitch::new(false)))
    .ports("2-/=")
    .processing("h")
    .flow("#/[^#]")
    .live();

/// Maximum number of addresses. Attack: frames from ever new addresses.
const MOST: usize = 1 << 16;

#[derive(Debug)]
pub struct EtherSwitch {
    stations: OrderedMap<MacAddress, (usize, u64)>,
    search: Search,
    timeout: Seconds,
    /// The last output gets a copy of every frame.
    listen: bool,
}

impl EtherSwitch {
    /// A switch, whose last output gets a copy of every frame if `listen`.
    pub(super) fn new(listen: bool) -> Self {
        Self { stations: OrderedMap::new(), search: Search::default(), timeout: Seconds(300), listen }
    }

    /// Forgets all addresses.
    pub(super) fn forget(&mut self) {
        self.stations.clear();
    }
}

impl Element for EtherSwitch {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read("TIMEOUT", &mut self.timeout);
        args.complete()
    }

    fn push(&mut self, port: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let now = cx.coarse_now();
        for packet in burst.drain() {
            self.switch(port, packet, now, cx);
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("table", |e: &Self| {
                let lines =
                    e.stations.iter().map(|(address, (port, _))| format!("{} {port}\n", mac_text(address)));
                lines.collect::<String>()
            }),
            Handler::read("timeout", |e: &Self| e.timeout.0).writes(|e: &mut Self, value, cx| {
                e.timeout = cx.parse(value)?;
                Ok(())
            }),
        ]
        .into()
    }
}

impl EtherSwitch {
    fn is_fresh(&self, learned: u64, now: u64) -> bool {
        learned.saturating_add(u64::from(self.timeout.0) * SECOND) > now
    }

    fn learn(&mut self, address: MacAddress, port: usize, now: u64) {
        if address.is_group() || self.timeout.0 == 0 {
            return;
        }
        if self.stations.len() >= MOST && !self.stations.contains_key(address) {
            if !self.search.is_due(now) {
                return;
            }
            let lifetime = u64::from(self.timeout.0) * SECOND;
            self.stations.retain(|_, (_, learned)| learned.saturating_add(lifetime) > now);
            if self.stations.len() >= MOST {
                return;
            }
        }
        self.stations.insert(address, (port, now));
    }

    fn switch(&mut self, from: usize, packet: Packet, now: u64, cx: &mut Context<'_>) {
        let Some(frame) = Ethernet::of(packet.data()) else { return };
        let Ethernet { source, destination, .. } = *frame;
        self.learn(source, from, now);
        let ports = cx.ninputs();
        if self.listen {
            cx.push(ports, packet.clone());
        }
        match self.stations.get(destination) {
            Some((port, learned)) if self.is_fresh(*learned, now) => {
                if *port != from {
                    cx.push(*port, packet);
                }
            }
            _ => {
                for port in (0..ports).filter(|port| *port != from) {
                    cx.push(port, packet.clone());
                }
            }
        }
    }
}
