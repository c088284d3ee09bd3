//! The element that sends a benchmark's frames.

use super::frames::Frames;
use ringway_click::arg::Args;
use ringway_click::{Class, Context, Element, Failed, Metadata, Packet, Task};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// Facts.
pub static CLASS: Class = Class::new("BenchmarkSource", || Box::<BenchmarkSource>::default())
    .ports("0/1")
    .processing("h")
    .flags("S1")
    .metadata(Metadata::Ignores);

/// Packets that are ready before one of them is sent: their memory comes round only after as many others', as that of
/// a card's receive ring does, and is not the cache's first level's.
const READY: usize = 8192;
const HEADROOM: usize = 28;

thread_local! {
    static FRAMES: RefCell<Rc<Frames>> = RefCell::default();
    static SENT: Cell<u64> = const { Cell::new(0) };
}

/// What sources of this thread made from now on send.
pub fn set(frames: Rc<Frames>) {
    FRAMES.set(frames);
}

/// How many packets sources of this thread have sent.
pub fn sent() -> u64 {
    SENT.get()
}

/// Sends frames as fast as it is asked to.
#[derive(Default)]
struct BenchmarkSource {
    frames: Rc<Frames>,
    next: usize,
    ready: VecDeque<Packet>,
    /// Frames whose payload matters.
    whole: Vec<Option<Packet>>,
}

impl BenchmarkSource {
    /// Puts the next frame into a packet.
    #[inline]
    fn make(&mut self, cx: &mut Context<'_>) {
        let (head, length) = self.frames.get(self.next);
        if let Some(Some(packet)) = self.whole.get(self.next) {
            self.ready.push_back(packet.clone());
        } else if let Some(mut packet) = cx.make_packet(HEADROOM, length, 0) {
            // A card writes the whole frame; what this core costs is to read what it looks at.
            if let Some((front, _)) = packet.data_mut().split_at_mut_checked(head.len().min(length)) {
                front.copy_from_slice(&head[..front.len()]);
            }
            self.ready.push_back(packet);
        }
        self.next += 1;
        if self.next == self.frames.len() {
            self.next = 0;
        }
    }
}

impl BenchmarkSource {
    /// A frame with its payload, if that matters.
    fn whole_frame(&self, number: usize, cx: &mut Context<'_>) -> Option<Packet> {
        let ((head, length), rest) = (self.frames.get(number), self.frames.rest(number));
        let mut packet = cx.make_packet(HEADROOM, length, 0).filter(|_| !rest.is_empty())?;
        let (front, behind) = packet.data_mut().split_at_mut_checked(head.len())?;
        front.copy_from_slice(head);
        behind.copy_from_slice(rest.get(..behind.len())?);
        Some(packet)
    }
}

impl Element for BenchmarkSource {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        self.frames = FRAMES.with_borrow(Rc::clone);
        args.complete()
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        // Packets that share these: as after a card has written them, the payload lies in memory and is only read.
        let whole = (0..self.frames.len()).map(|number| self.whole_frame(number, cx)).collect();
        self.whole = whole;
        (0..READY).for_each(|_| self.make(cx));
        cx.new_task(true);
        Ok(())
    }

    fn run_task(&mut self, task: Task, cx: &mut Context<'_>) -> bool {
        let count = cx.burst();
        for _ in 0..count {
            self.make(cx);
            if let Some(packet) = self.ready.pop_front() {
                cx.push(0, packet);
            }
        }
        SENT.set(SENT.get() + count as u64);
        cx.reschedule(task);
        true
    }
}
