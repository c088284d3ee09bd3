//! `Queue(CAPACITY)`: stores packets, first in, first out, until they are pulled.
//!
//! Ports: one push input; one pull output, and optionally a push output for packets that arrive when it is full.
//!
//! Arguments:
//! - `CAPACITY`: maximum number of packets; 1000 by default.
//!
//! Handlers: `length`, `highwater_length`, `drops` (read); `capacity` (read, write); `reset`, `reset_counts` (write).
//! A queue notifies of emptiness and fullness, so that pulling and pushing tasks can sleep.
use alloc::collections::VecDeque;
use ringway_click::prelude::*;
use ringway_click::{Note, NoteKind, Search};

pub static CLASS: Class =
    Class::new("Queue", || Box::<Queue>::default()).ports("1/1-2").processing("h/lh").live();

/// The notifiers of a queue, and its policy when full.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mode {
    /// Signals emptiness after more than this many pulls without a packet, or at once if 0; `None`: never.
    pub(super) sleepiness_trigger: Option<u32>,
    /// Signals fullness.
    pub(super) says_full: bool,
    /// Drops the oldest packet when full.
    pub(super) drops_front: bool,
}

impl Mode {
    pub(super) const FULL_NOTE: Self =
        Self { sleepiness_trigger: Some(SLEEPINESS_TRIGGER), says_full: true, drops_front: false };
}

impl Default for Mode {
    fn default() -> Self {
        Self::FULL_NOTE
    }
}

/// Pulls without a packet after which downstream tasks are put to sleep.
const SLEEPINESS_TRIGGER: u32 = 9;
/// Maximum capacity. Attack: a configuration that exhausts memory.
const LARGEST: u32 = 1 << 24;

#[derive(Debug, Default)]
pub struct Queue {
    mode: Mode,
    packets: VecDeque<Packet>,
    capacity: usize,
    highest: usize,
    drops: u64,
    in_vain: u32,
    nonempty: Option<Note>,
    nonfull: Option<Note>,
}

impl Queue {
    pub(super) fn of(mode: Mode) -> Self {
        Self { mode, ..Self::default() }
    }

    /// Number of packets stored.
    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }

    /// Drops a packet, or emits it from output 1.
    fn drop_one(&mut self, packet: Packet, cx: &mut Context<'_>) {
        if self.drops == 0 && self.capacity > 0 {
            let name = cx.declaration();
            cx.chatter(format_args!("{name}: overflow"));
        }
        self.drops += 1;
        cx.push(1, packet);
    }

    /// Stores a packet at the back, or, with `first`, at the front.
    fn take_in(&mut self, packet: Packet, first: bool, cx: &mut Context<'_>) {
        if self.packets.len() < self.capacity {
            if first {
                self.packets.push_front(packet);
            } else {
                self.packets.push_back(packet);
            }
            return;
        }
        let room = match (self.capacity, first, self.mode.drops_front) {
            (0, ..) => None,
            (_, true, _) => self.packets.pop_back(),
            (.., true) => self.packets.pop_front(),
            _ => None,
        };
        let Some(old) = room else { return self.drop_one(packet, cx) };
        if first {
            self.packets.push_front(packet);
        } else {
            self.packets.push_back(packet);
        }
        self.drop_one(old, cx);
    }

    fn set(&self, note: Option<Note>, active: bool, cx: &mut Context<'_>) {
        match note {
            Some(note) if active => cx.wake(note),
            Some(note) => cx.sleep(note),
            None => {}
        }
    }

    fn resize(&mut self, capacity: usize, cx: &mut Context<'_>) {
        self.capacity = capacity;
        let excess = self.packets.len().saturating_sub(capacity);
        if self.mode.drops_front {
            self.packets.drain(..excess);
        } else {
            self.packets.truncate(capacity);
        }
        self.drops += excess as u64;
        self.set(self.nonfull, self.packets.len() < capacity, cx);
    }
}

impl Element for Queue {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut capacity = 1000u32;
        args.read_p("CAPACITY", &mut capacity);
        args.complete()?;
        if capacity > LARGEST {
            return Err(cx.error(alloc::format!("CAPACITY too large, bound {LARGEST}")));
        }
        self.capacity = capacity as usize;
        if self.mode.sleepiness_trigger.is_some() {
            self.nonempty = Some(cx.new_note(NoteKind::Empty, Search::Stop));
        }
        if self.mode.says_full {
            self.nonfull = Some(cx.new_note(NoteKind::Full, Search::Stop));
        }
        Ok(())
    }

    fn push(&mut self, port: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        if port == 0 && self.packets.len() + burst.len() <= self.capacity {
            self.packets.extend(burst.drain());
        }
        for packet in burst.drain() {
            self.take_in(packet, port == 1, cx);
        }
        self.highest = self.highest.max(self.packets.len());
        if !self.packets.is_empty() {
            self.set(self.nonempty, true, cx);
        }
        if self.packets.len() == self.capacity {
            self.set(self.nonfull, false, cx);
        }
    }

    fn pull(&mut self, _: usize, max: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        if self.packets.is_empty() {
            self.in_vain += 1;
            if self
                .mode
                .sleepiness_trigger
                .is_some_and(|sleepiness_trigger| self.in_vain > sleepiness_trigger)
            {
                self.set(self.nonempty, false, cx);
            }
            return;
        }
        self.in_vain = 0;
        for packet in self.packets.drain(..max.min(self.packets.len())) {
            burst.push(packet);
        }
        burst.prefetch();
        self.set(self.nonfull, true, cx);
        if self.packets.is_empty() && self.mode.sleepiness_trigger == Some(0) {
            self.set(self.nonempty, false, cx);
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("length", |e: &Self| e.packets.len()),
            Handler::read("highwater_length", |e: &Self| e.highest),
            Handler::read("capacity", |e: &Self| e.capacity)
                .calm()
                .writes(|e: &mut Self, value, cx| {
                    let capacity: u32 = cx.parse(value)?;
                    e.resize(capacity.min(LARGEST) as usize, cx);
                    Ok(())
                })
                .argument(Some(0), "CAPACITY"),
            Handler::counter("drops", |e: &mut Self| &mut e.drops),
            Handler::button("reset_counts", |e: &mut Self, _| (e.drops, e.highest) = (0, e.packets.len())),
            Handler::button("reset", |e: &mut Self, cx| {
                while let Some(packet) = e.packets.pop_front() {
                    cx.push(1, packet);
                }
                e.set(e.nonfull, true, cx);
            }),
        ]
        .into()
    }

    fn take_state(&mut self, from: &mut dyn Element, cx: &mut Context<'_>) {
        let Some(from) = from.downcast_mut::<Self>() else { return };
        let length = from.packets.len();
        if length > self.capacity {
            let text =
                alloc::format!("some packets lost (old length {length}, new capacity {})", self.capacity);
            cx.warning(text);
        }
        self.packets = core::mem::take(&mut from.packets);
        self.highest = length.min(self.capacity);
        self.resize(self.capacity, cx);
        self.set(self.nonempty, !self.packets.is_empty(), cx);
    }

    fn cast(&self, kind: &str) -> bool {
        matches!(kind, "Storage" | "SimpleQueue" | "NotifierQueue" | "FullNoteQueue")
    }
}
