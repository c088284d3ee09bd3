//! The element that sends a benchmark's frames.

use super::frames::{Frames, Heads, KEPT};
use ringway_click::arg::Args;
use ringway_click::{Class, Context, Element, Failed, Metadata, PACKETS, Packet, PacketBurst, Task};
use ringway_frame::prefetch;
use std::borrow::Borrow;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// The element's class.
pub static CLASS: Class = Class::new("BenchmarkSource", || Box::<BenchmarkSource>::default())
    .ports("0/1")
    .processing("h")
    .flags("S1")
    .metadata(Metadata::Ignores);

const HEADROOM: usize = 28;
/// Number of frames that exceed nearby caches.
const FAR: usize = 1 << 15;

thread_local! {
    static FRAMES: RefCell<Rc<Frames>> = RefCell::default();
    static SENT: Cell<u64> = const { Cell::new(0) };
}

/// Sets the frames of sources created later by this thread.
pub fn set(frames: Rc<Frames>) {
    FRAMES.set(frames);
}

/// Packets sent by this thread's sources.
pub fn sent() -> u64 {
    SENT.get()
}

/// Sends frames at full speed.
#[derive(Default)]
struct BenchmarkSource {
    frames: Rc<Frames>,
    next: usize,
    /// Number of packets prepared before the first is sent: memory is reused only after that many other packets, as
    /// in a card's receive ring, and is not in the first-level cache.
    least: usize,
    ready: VecDeque<Packet>,
    /// Frames whose payload matters.
    whole: Vec<Packet>,
}

impl BenchmarkSource {
    /// Copies the next frames to packets.
    #[inline]
    fn make(&mut self, count: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        while burst.len() < count {
            let run = (count - burst.len()).min(self.frames.len() - self.next);
            self.run(run, burst, cx);
            self.next += run;
            if self.next == self.frames.len() {
                self.next = self.frames.once();
            }
        }
    }

    /// Adds packets of the next `count` frames, which are contiguous in memory.
    #[inline]
    fn run(&mut self, count: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let frames = self.next..self.next + count;
        if let Some(whole) = self.whole.get(frames.clone()) {
            whole.iter().for_each(|packet| burst.push(packet.clone()));
            return;
        }
        let ahead = if self.frames.len() > FAR { count } else { 0 };
        let next = frames.end..self.frames.len().min(frames.end + ahead);
        let lengths = self.frames.lengths(frames.clone());
        match self.frames.heads() {
            Heads::Close(heads) => fill(burst, &heads[frames], lengths, &heads[next], cx),
            Heads::Apart(buffers) => fill(burst, &buffers[frames], lengths, &buffers[next], cx),
        }
    }
}

/// Adds packets with these first bytes and lengths, and prefetches the `next` ones.
#[inline]
fn fill<T: Borrow<[u8; KEPT]>>(
    burst: &mut PacketBurst,
    heads: &[T],
    lengths: &[u16],
    next: &[T],
    cx: &mut Context<'_>,
) {
    let mut next = next.iter().map(Borrow::<[u8; KEPT]>::borrow);
    // A card would write the whole frame at no cost to this core.
    if let [first, ..] = lengths
        && lengths.iter().fold(0, |other, length| other | (length ^ first)) == 0
    {
        cx.make_packets(burst, heads, HEADROOM, usize::from(*first), |head, data| {
            write(head.borrow(), data);
            next.next().into_iter().for_each(prefetch);
        });
        return;
    }
    next.for_each(prefetch);
    for (head, length) in heads.iter().zip(lengths) {
        let Some(mut packet) = cx.make_packet(HEADROOM, usize::from(*length), 0) else { return };
        write(head.borrow(), packet.data_mut());
        burst.push(packet);
    }
}

/// Writes a frame's first bytes.
#[inline]
fn write(head: &[u8; KEPT], data: &mut [u8]) {
    match data.first_chunk_mut() {
        Some(front) => *front = *head,
        None => write_short(head, data),
    }
}

/// A separate function, so that the other copy has a constant length.
#[cold]
#[inline(never)]
fn write_short(head: &[u8; KEPT], data: &mut [u8]) {
    data.copy_from_slice(&head[..data.len()]);
}

impl BenchmarkSource {
    /// A frame with its payload.
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
        let mut least = 0u32;
        args.read("READY", &mut least);
        self.least = least as usize;
        args.complete()
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        // Sent packets share these frames' memory: as with a card, the payload is already there and only read.
        self.whole = (0..self.frames.len()).map_while(|number| self.whole_frame(number, cx)).collect();
        while self.ready.len() < self.least {
            let mut burst = PacketBurst::new();
            self.make(PACKETS, &mut burst, cx);
            self.ready.extend(burst.drain());
        }
        cx.new_task(true);
        Ok(())
    }

    fn run_task(&mut self, task: Task, cx: &mut Context<'_>) -> bool {
        let count = cx.burst();
        cx.push_with(0, |cx, burst| {
            self.make(count, burst, cx);
            if self.least > 0 {
                self.ready.extend(burst.drain());
                self.ready.drain(..count).for_each(|packet| burst.push(packet));
                burst.prefetch();
            }
        });
        SENT.set(SENT.get() + count as u64);
        cx.reschedule(task);
        true
    }
}
