//! `Queue(CAPACITY)`: keeps packets, first in, first out, until they are pulled.
//!
//! Ports: one push input; one pull output, and optionally a push output for packets that find it full.
//!
//! Arguments:
//! - `CAPACITY`: packets it holds at most; 1000 by default.
//!
//! Handlers: `length`, `highwater_length`, `drops` (read); `capacity` (read, write); `reset`, `reset_counts` (write).
//! It says when it is empty and when it is full, so that who pulls or pushes may sleep.
use crate::arg::Args;
use crate::{
    Class, Context, Element, Failed, Handler, HandlerError, Note, NoteKind, Packet, PacketBurst, Search,
};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Facts.
pub static CLASS: Class =
    Class::new("Queue", || Box::<Queue>::default()).ports("1/1-2").processing("h/lh").live();

/// Pulls in vain before those who pull are put to sleep.
const PATIENCE: u32 = 9;
/// The largest capacity. Attack: a configuration that would hold all memory.
const LARGEST: u32 = 1 << 24;

/// Keeps packets.
#[derive(Debug, Default)]
pub struct Queue {
    packets: VecDeque<Packet>,
    capacity: usize,
    highest: usize,
    drops: u64,
    in_vain: u32,
    nonempty: Option<Note>,
    nonfull: Option<Note>,
}

impl Queue {
    fn set(&self, note: Option<Note>, active: bool, cx: &mut Context<'_>) {
        match note {
            Some(note) if active => cx.wake(note),
            Some(note) => cx.sleep(note),
            None => {}
        }
    }

    fn resize(&mut self, capacity: usize, cx: &mut Context<'_>) {
        self.capacity = capacity;
        self.packets.truncate(capacity);
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
        self.nonempty = Some(cx.new_note(NoteKind::Empty, Search::Stop));
        self.nonfull = Some(cx.new_note(NoteKind::Full, Search::Stop));
        Ok(())
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for packet in burst.drain() {
            if self.packets.len() < self.capacity {
                self.packets.push_back(packet);
                continue;
            }
            if self.drops == 0 && self.capacity > 0 {
                let name = cx.declaration();
                cx.chatter(format_args!("{name}: overflow"));
            }
            self.drops += 1;
            cx.push(1, packet);
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
            if self.in_vain > PATIENCE {
                self.set(self.nonempty, false, cx);
            }
            return;
        }
        self.in_vain = 0;
        for packet in self.packets.drain(..max.min(self.packets.len())) {
            burst.push(packet);
        }
        self.set(self.nonfull, true, cx);
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("length"),
            Handler::read("highwater_length"),
            Handler::both("capacity").calm(),
            Handler::read("drops"),
            Handler::write("reset_counts").button(),
            Handler::write("reset").button(),
        ]
        .into()
    }

    fn read(&mut self, name: &str, _: &str, _: &mut Context<'_>) -> Result<String, HandlerError> {
        Ok(match name {
            "length" => self.packets.len().to_string(),
            "highwater_length" => self.highest.to_string(),
            "capacity" => self.capacity.to_string(),
            "drops" => self.drops.to_string(),
            _ => return Err(HandlerError::missing(name)),
        })
    }

    fn write(&mut self, name: &str, value: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        match name {
            "capacity" => {
                let capacity: u32 =
                    cx.parse(value).map_err(|error| HandlerError::failed(error.to_string()))?;
                self.resize(capacity.min(LARGEST) as usize, cx);
                cx.set_configuration(&capacity.to_string());
            }
            "reset_counts" => (self.drops, self.highest) = (0, self.packets.len()),
            _ => {
                while let Some(packet) = self.packets.pop_front() {
                    cx.push(1, packet);
                }
                self.set(self.nonfull, true, cx);
            }
        }
        Ok(())
    }

    fn take_state(&mut self, from: &mut dyn Element, cx: &mut Context<'_>) {
        let from: &mut dyn core::any::Any = from;
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
