//! Flow Queue CoDel (RFC 8290).

use super::codel::CoDel;
use super::{CoDelSettings, Fifo, Limit, Waiting};
use crate::Frame;
use crate::link::{Counters, Reason};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Frames that are dropped at once if all queues together are full (RFC 8290, 4.1.2): the search for the longest queue
/// costs as much as there are queues. Attack: frames of many flows faster than the rate.
const BATCH: usize = 64;

#[derive(Debug)]
struct Flow<F> {
    fifo: Fifo<F>,
    codel: CoDel,
    /// Bytes that the flow may still send in this turn.
    deficit: i64,
    is_listed: bool,
}

#[derive(Debug)]
pub(super) struct FqCoDel<F> {
    flows: Vec<Flow<F>>,
    /// Flows that began, before they have had their first turn.
    new: VecDeque<u16>,
    old: VecDeque<u16>,
    quantum: i64,
    /// Attack: flows that all have one queue, found by a known hash.
    key: u64,
    frames: usize,
    bytes: usize,
}

impl<F: Frame> FqCoDel<F> {
    pub fn new(settings: CoDelSettings, flows: u16, quantum: u32, key: u64) -> FqCoDel<F> {
        let flow = || Flow { fifo: Fifo::new(), codel: CoDel::new(settings), deficit: 0, is_listed: false };
        let flows = (0..flows.max(1)).map(|_| flow()).collect();
        let (new, old) = (VecDeque::new(), VecDeque::new());
        FqCoDel { flows, new, old, quantum: quantum.max(1).into(), key, frames: 0, bytes: 0 }
    }

    pub fn enqueue(&mut self, waiting: Waiting<F>, limit: Limit, counters: &mut Counters) {
        let index = (waiting.frame.flow(self.key) % self.flows.len() as u64) as u16;
        let flow = &mut self.flows[usize::from(index)];
        if !flow.is_listed {
            (flow.is_listed, flow.deficit) = (true, self.quantum);
            self.new.push_back(index);
        }
        self.bytes += waiting.frame.len();
        self.frames += 1;
        flow.fifo.push(waiting);
        if self.frames > limit.frames || self.bytes > limit.bytes {
            self.shorten(limit, counters);
        }
    }

    /// Drops from the head of the longest queue: half of it, at most a batch, and not the last frame of all.
    fn shorten(&mut self, limit: Limit, counters: &mut Counters) {
        let Some(flow) = self.flows.iter_mut().max_by_key(|flow| flow.fifo.bytes) else { return };
        let least = flow.fifo.len().div_ceil(2).min(BATCH);
        for dropped in 0.. {
            let is_full = self.frames > limit.frames || self.bytes > limit.bytes;
            if self.frames <= 1 || dropped >= least && !is_full {
                return;
            }
            let Some(waiting) = flow.fifo.pop() else { return };
            self.frames -= 1;
            self.bytes -= waiting.frame.len();
            counters.drop(Reason::Full);
        }
    }

    pub fn dequeue(&mut self, now: u64, counters: &mut Counters) -> Option<Waiting<F>> {
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let index = list.pop_front()?;
            let flow = &mut self.flows[usize::from(index)];
            if flow.deficit <= 0 {
                flow.deficit += self.quantum;
                self.old.push_back(index);
                continue;
            }
            let (frames, bytes) = (flow.fifo.len(), flow.fifo.bytes);
            let next = flow.codel.dequeue(&mut flow.fifo, now, counters);
            self.frames -= frames - flow.fifo.len();
            self.bytes -= bytes - flow.fifo.bytes;
            match next {
                Some(waiting) => {
                    flow.deficit -= waiting.frame.len() as i64;
                    if is_new {
                        self.new.push_front(index)
                    } else {
                        self.old.push_front(index)
                    }
                    return Some(waiting);
                }
                // So that a flow of single frames does not always come first.
                None if is_new && !self.old.is_empty() => self.old.push_back(index),
                None => flow.is_listed = false,
            }
        }
    }

    pub fn backlog(&self) -> (usize, usize) {
        (self.frames, self.bytes)
    }

    /// All frames, by arrival.
    pub fn drain(&mut self) -> Vec<Waiting<F>> {
        let all = self.flows.iter_mut().flat_map(|flow| flow.fifo.frames.drain(..));
        let mut all: Vec<Option<Waiting<F>>> = all.map(Some).collect();
        // Numbers are sorted, since a sort of frames would take much code in a guest's image.
        let arrival = |(at, waiting): (usize, &Option<Waiting<F>>)| {
            u128::from(waiting.as_ref().map_or(0, |waiting| waiting.arrived)) << 64 | at as u128
        };
        let mut order: Vec<u128> = all.iter().enumerate().map(arrival).collect();
        order.sort_unstable();
        order.into_iter().filter_map(|place| all.get_mut(place as u64 as usize)?.take()).collect()
    }
}
