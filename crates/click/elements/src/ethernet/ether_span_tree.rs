//! `EtherSpanTree(ADDR, INPUT_SUPPRESSOR, OUTPUT_SUPPRESSOR, SWITCH)`: the spanning tree protocol for an EtherSwitch
//! (IEEE 802.1D-1998, 8): suppresses redundant links between switches.
//!
//! Ports: as many push inputs as push outputs, one pair for each port of the switch, for the protocol's frames
//! (`Classifier(14/4242)`). Other frames are dropped.
//!
//! Arguments:
//! - `ADDR`: the switch's address. The bridge priority is 57005, so that other switches are preferred as root.
//! - `INPUT_SUPPRESSOR`, `OUTPUT_SUPPRESSOR`: the Suppressors upstream and downstream of the switch.
//! - `SWITCH`: the EtherSwitch. Its address table is cleared when the topology changes.
//!
//! Handlers: `msgs` (read): the best configuration received on each port, and that of the switch, one per line;
//! `states` (read): the state of each port, one per line: `blocking`, `listening`, `learning` or `forwarding`.
use super::ether_switch::EtherSwitch;
use crate::standard::suppressor::Suppressor;
use ringway_click::arg::Word;
use ringway_click::prelude::*;
use ringway_wire::stp::{self, Bpdu, Configuration, UNITS};
use ringway_wire::{EtherType, Ethernet, Header, MacAddress};

pub static CLASS: Class = Class::new("EtherSpanTree", || Box::<EtherSpanTree>::default())
    .ports("-/=")
    .processing("h")
    .metadata(Metadata::Ignores);

const PRIORITY: u64 = 0xdead;
/// Path cost of each port.
const COST: u32 = 1;

/// A port's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Blocking,
    Listening,
    Learning,
    Forwarding,
}

/// A configuration message: the fields that are compared, most significant first, then the others.
#[derive(Clone, Copy, Debug)]
struct Message {
    root: u64,
    cost: u32,
    bridge: u64,
    port: u16,
    changed: bool,
    /// When the root sent it, on the steady clock; `None` for a root's own.
    sent: Option<u64>,
    max_age: u64,
    hello_time: u64,
    forward_delay: u64,
}

impl Message {
    /// The configuration of a bridge that is the root.
    fn own(bridge: u64) -> Self {
        let [max_age, hello_time, forward_delay] = [20, 2, 15].map(|seconds| seconds * SECOND);
        Self {
            root: bridge,
            cost: 0,
            bridge,
            port: 0,
            changed: false,
            sent: None,
            max_age,
            hello_time,
            forward_delay,
        }
    }

    /// A configuration received at `now`. Attack: timer values that make a bridge send continuously, or never; they
    /// are clamped to the standard's ranges.
    fn received(wire: &Configuration, now: u64) -> Self {
        let time = |units: u16| u64::from(units) * SECOND / u64::from(UNITS);
        let within = |units: u16, least: u64, most: u64| time(units).clamp(least * SECOND, most * SECOND);
        Self {
            root: wire.root.get(),
            cost: wire.cost.get(),
            bridge: wire.bridge.get(),
            port: wire.port.get(),
            changed: wire.flags & stp::CHANGED != 0,
            sent: Some(now.saturating_sub(time(wire.message_age.get()))),
            max_age: within(wire.max_age.get(), 6, 40),
            hello_time: within(wire.hello_time.get(), 1, 10),
            forward_delay: within(wire.forward_delay.get(), 4, 30),
        }
    }

    /// Smaller is better.
    fn rank(&self) -> (u64, u32, u64, u16) {
        (self.root, self.cost, self.bridge, self.port)
    }

    fn is_expired(&self, now: u64) -> bool {
        self.sent.is_some_and(|sent| sent.saturating_add(self.max_age) <= now)
    }

    /// As Click prints it.
    fn text(&self) -> String {
        let [age, hello, delay] =
            [self.max_age, self.hello_time, self.forward_delay].map(|time| time / SECOND);
        let changed = if self.changed { "TC" } else { "tc" };
        let (bridge, root) = (format!("{:x}", self.bridge), format!("{:x}", self.root));
        let (port, cost) = (self.port, self.cost);
        format!(
            " {bridge:>16}:{port:04x}: {changed}  {cost:x} -> {root:>16}  m/h/d: {age:x}/{hello:x}/{delay:x}"
        )
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Port {
    state: State,
    /// When the port entered its state.
    since: u64,
    /// The best configuration received.
    message: Option<Message>,
    /// Whether the next configuration acknowledges a topology change.
    acknowledge: bool,
}

#[derive(Debug, Default)]
pub struct EtherSpanTree {
    address: MacAddress,
    /// The names of the two Suppressors and the switch.
    names: [Word; 3],
    elements: Option<[ElementId; 3]>,
    ports: Vec<Port>,
    best: Option<Message>,
    root_port: Option<usize>,
    /// Whether a topology change is to be reported to the root.
    notify: bool,
    /// End of the time in which the root advertises a topology change.
    changed_until: u64,
}

impl EtherSpanTree {
    fn id(&self) -> u64 {
        let [a, b, c, d, e, f] = self.address.0;
        PRIORITY << 48 | u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }

    /// The switch's own configuration.
    fn best(&self) -> Message {
        self.best.unwrap_or_else(|| Message::own(self.id()))
    }

    /// The configuration that the switch sends on a port.
    fn advertised(&self, port: usize) -> Message {
        Message { bridge: self.id(), port: port as u16, ..self.best() }
    }

    /// Whether the switch is the designated bridge on the segment of a port.
    fn is_designated(&self, port: usize) -> bool {
        let received = self.ports.get(port).and_then(|port| port.message);
        received.is_none_or(|received| self.advertised(port).rank() <= received.rank())
    }

    /// Elects the root and the root port, and updates the states of all ports.
    fn find_tree(&mut self, now: u64, cx: &mut Context<'_>) {
        let own = Message::own(self.id());
        let changed = self.best().changed;
        let received = self.ports.iter().enumerate().filter_map(|(number, port)| {
            let message = port.message?;
            Some((Message { cost: message.cost.saturating_add(COST), ..message }, number))
        });
        let found = received.filter(|(message, _)| message.root < own.root);
        let found = found.min_by_key(|(message, number)| (message.rank(), *number));
        (self.best, self.root_port) = (found.map(|(message, _)| message), found.map(|(_, number)| number));
        if self.best().changed && !changed {
            self.forget(cx);
        }
        for number in 0..self.ports.len() {
            let takes_part = self.root_port == Some(number) || self.is_designated(number);
            let port = &mut self.ports[number];
            match (takes_part, port.state) {
                (true, State::Blocking) => (port.state, port.since) = (State::Listening, now),
                (false, State::Learning | State::Forwarding) => {
                    (port.state, port.since) = (State::Blocking, now);
                    self.change(now, cx);
                }
                (false, _) => port.state = State::Blocking,
                (true, _) => {}
            }
        }
        self.apply(cx);
    }

    /// Advances ports whose forward delay has passed to the next state.
    fn advance(&mut self, now: u64, cx: &mut Context<'_>) {
        let delay = self.best().forward_delay;
        for number in 0..self.ports.len() {
            let port = &mut self.ports[number];
            if port.since.saturating_add(delay) > now {
                continue;
            }
            match port.state {
                State::Listening => (port.state, port.since) = (State::Learning, now),
                State::Learning => {
                    (port.state, port.since) = (State::Forwarding, now);
                    self.change(now, cx);
                }
                State::Blocking | State::Forwarding => {}
            }
        }
    }

    /// Handles a topology change that this switch detected or was notified of.
    fn change(&mut self, now: u64, cx: &mut Context<'_>) {
        let best = self.best();
        match self.root_port {
            Some(_) => self.notify = true,
            None => self.changed_until = now.saturating_add(best.max_age + best.forward_delay),
        }
        self.forget(cx);
    }

    fn forget(&self, cx: &mut Context<'_>) {
        if let Some([.., switch]) = self.elements {
            cx.with(switch, |switch: &mut EtherSwitch, _| switch.forget());
        }
    }

    /// Applies the state of the ports to the Suppressors.
    fn apply(&self, cx: &mut Context<'_>) {
        let Some([input, output, _]) = self.elements else { return };
        for (number, port) in self.ports.iter().enumerate() {
            let (learns, forwards) =
                (matches!(port.state, State::Learning | State::Forwarding), port.state == State::Forwarding);
            cx.with(input, |own: &mut Suppressor, _| own.set_active(number, learns));
            cx.with(output, |own: &mut Suppressor, _| own.set_active(number, forwards));
        }
    }

    /// Processes a frame of the protocol.
    fn receive(&mut self, number: usize, packet: &Packet, cx: &mut Context<'_>) {
        let now = cx.steady();
        let Some((bpdu, rest)) = Bpdu::split(packet.data()) else { return };
        if bpdu.llc != stp::LLC || bpdu.protocol != 0 {
            return;
        }
        if bpdu.kind == stp::TOPOLOGY_CHANGE {
            if self.is_designated(number) {
                self.ports[number].acknowledge = true;
                self.change(now, cx);
            }
            return;
        }
        // The padding may be missing.
        let mut padded = [0; Configuration::LEN];
        let given = rest.len().min(padded.len());
        padded[..given].copy_from_slice(&rest[..given]);
        let whole = bpdu.kind == stp::CONFIGURATION && given + stp::PADDING >= padded.len();
        let Some(wire) = Configuration::of(&padded).filter(|_| whole) else { return };
        let message = Message::received(wire, now);
        let same = |old: &Message| (old.bridge, old.port) == (message.bridge, message.port);
        let old = self.ports[number].message;
        if message.is_expired(now)
            || old.is_some_and(|old| !same(&old) && old.rank() < message.rank())
            || message.rank() >= self.advertised(number).rank() && !old.is_some_and(|old| same(&old))
        {
            return;
        }
        self.ports[number].message = Some(message);
        self.find_tree(now, cx);
        if self.root_port == Some(number) && wire.flags & stp::ACKNOWLEDGED != 0 {
            self.notify = false;
        }
    }

    /// The frame that a port sends now, if any.
    fn frame(&mut self, number: usize, now: u64) -> Option<[u8; Bpdu::LEN + Configuration::LEN]> {
        let notify = self.root_port == Some(number) && self.notify;
        if !notify && (self.root_port == Some(number) || !self.is_designated(number)) {
            return None;
        }
        let message = self.advertised(number);
        let units = |time: u64| ((time * u64::from(UNITS) / SECOND).min(u16::MAX.into()) as u16).into();
        let bpdu = Bpdu {
            ethernet: Ethernet {
                destination: stp::ALL_BRIDGES,
                source: self.address,
                ethertype: EtherType::new(stp::LENGTHS[usize::from(notify)]),
            },
            llc: stp::LLC,
            kind: if notify { stp::TOPOLOGY_CHANGE } else { stp::CONFIGURATION },
            ..Bpdu::default()
        };
        let mut configuration = Configuration::default();
        if !notify {
            let changed = message.changed || self.root_port.is_none() && now < self.changed_until;
            let acknowledge = core::mem::take(&mut self.ports[number].acknowledge);
            configuration = Configuration {
                flags: (u8::from(changed) * stp::CHANGED) | (u8::from(acknowledge) * stp::ACKNOWLEDGED),
                root: message.root.into(),
                cost: message.cost.into(),
                bridge: message.bridge.into(),
                port: message.port.into(),
                message_age: units(message.sent.map_or(0, |sent| now.saturating_sub(sent))),
                max_age: units(message.max_age),
                hello_time: units(message.hello_time),
                forward_delay: units(message.forward_delay),
                padding: [0; 8],
            };
        }
        let mut frame = [0; Bpdu::LEN + Configuration::LEN];
        frame[..Bpdu::LEN].copy_from_slice(bpdu.bytes());
        frame[Bpdu::LEN..].copy_from_slice(configuration.bytes());
        Some(frame)
    }
}

impl Element for EtherSpanTree {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        args.read_mp("ADDR", &mut self.address);
        for (keyword, name) in ["INPUT_SUPPRESSOR", "OUTPUT_SUPPRESSOR", "SWITCH"].iter().zip(&mut self.names)
        {
            args.read_mp(keyword, name);
        }
        args.complete()?;
        self.ports = alloc::vec![Port::default(); cx.noutputs()];
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut found = Vec::new();
        for (number, name) in self.names.iter().enumerate() {
            let is_right = |id: &ElementId| match number {
                0 | 1 => cx.element::<Suppressor>(*id).is_some(),
                _ => cx.element::<EtherSwitch>(*id).is_some(),
            };
            let kind = if number < 2 { "Suppressor" } else { "EtherSwitch" };
            let element = cx.find(&name.0).filter(is_right);
            found.push(element.ok_or_else(|| cx.error(format!("'{}' is not a {kind}", name.0)))?);
        }
        self.elements = found.try_into().ok();
        let timer = cx.new_timer();
        let now = cx.steady();
        self.find_tree(now, cx);
        cx.set_timer_after(timer, self.best().hello_time);
        Ok(())
    }

    fn push(&mut self, port: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for packet in burst.drain() {
            self.receive(port, &packet, cx);
        }
    }

    fn run_timer(&mut self, timer: Timer, cx: &mut Context<'_>) {
        let now = cx.steady();
        for port in &mut self.ports {
            port.message = port.message.filter(|message| !message.is_expired(now));
        }
        self.advance(now, cx);
        self.find_tree(now, cx);
        for number in 0..self.ports.len() {
            if let Some(packet) = self.frame(number, now).and_then(|frame| cx.packet(&frame)) {
                cx.push(number, packet);
            }
        }
        cx.set_timer_after(timer, self.best().hello_time);
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("msgs", |e: &Self| {
                let received = e.ports.iter().map(|port| port.message).chain([Some(e.best())]);
                received
                    .map(|message| message.map_or_else(|| " none".into(), |m| m.text()) + "\n")
                    .collect::<String>()
            }),
            Handler::read("states", |e: &Self| {
                let states = e.ports.iter().map(|port| match port.state {
                    State::Blocking => "blocking\n",
                    State::Listening => "listening\n",
                    State::Learning => "learning\n",
                    State::Forwarding => "forwarding\n",
                });
                states.collect::<String>()
            }),
        ]
        .into()
    }
}
