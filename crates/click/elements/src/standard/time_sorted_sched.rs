//! `TimeSortedSched(STOP, BUFFER)`: merges packets of several inputs by their timestamps.
//!
//! Ports: any number of pull inputs, one pull output. It signals when all of them are empty.
//!
//! Arguments:
//! - `STOP`: stops the driver when all inputs have ended; false by default.
//! - `BUFFER`: number of buffered packets per input, which corrects minor disorder; 1 by default.
//!
//! Handlers: `well_ordered` (read): whether all packets were in order.
use ringway_click::prelude::*;
use ringway_click::{Note, NoteKind, OrderedMap, Search};

pub static CLASS: Class =
    Class::new("TimeSortedSched", || Box::<TimeSortedSched>::default()).ports("-/1").processing("l");

#[derive(Debug, Default)]
pub struct TimeSortedSched {
    stop: bool,
    buffer: u32,
    disordered: bool,
    last: u64,
    arrivals: u64,
    inputs: Vec<(Signal, u32)>,
    /// Ordered by time and arrival, with their input.
    held: OrderedMap<(u64, u64), (usize, Packet)>,
    note: Option<Note>,
}

impl TimeSortedSched {
    fn fill(&mut self, cx: &mut Context<'_>) -> bool {
        let mut waiting = false;
        for input in 0..self.inputs.len() {
            while self.inputs[input].1 < self.buffer {
                if !cx.is_active(&self.inputs[input].0) {
                    break;
                }
                waiting = true;
                let Some(packet) = cx.pull_one(input) else { break };
                self.arrivals += 1;
                self.inputs[input].1 += 1;
                self.held.insert((packet.timestamp(), self.arrivals), (input, packet));
            }
        }
        waiting
    }
}

impl Element for TimeSortedSched {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.buffer = 1;
        args.read("STOP", &mut self.stop);
        args.read("BUFFER", &mut self.buffer);
        args.complete()?;
        self.buffer = self.buffer.clamp(1, 1 << 20);
        self.note = Some(cx.new_note(NoteKind::Empty, Search::Stop));
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        if let Some(note) = self.note {
            self.inputs =
                (0..cx.ninputs()).map(|port| (cx.upstream_empty_signal_for(port, note), 0)).collect();
        }
        Ok(())
    }

    fn pull(&mut self, _: usize, max: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        while burst.len() < max {
            let waiting = self.fill(cx);
            let Some(((time, _), (input, packet))) = self.held.pop_first() else {
                let empty = !waiting && burst.is_empty();
                if let Some(note) = self.note.filter(|_| empty) {
                    cx.sleep(note);
                    if self.stop {
                        cx.stop();
                    }
                }
                return;
            };
            // A packet of an input that the element had before its configuration was replaced counts for none.
            if let Some((_, count)) = self.inputs.get_mut(input) {
                *count -= 1;
            }
            self.disordered |= time < self.last;
            self.last = time;
            burst.push(packet);
        }
        if let Some(note) = self.note {
            cx.wake(note);
        }
    }

    fn take_state(&mut self, from: &mut dyn Element, _: &mut Context<'_>) {
        let Some(from) = from.downcast_mut::<Self>() else { return };
        (self.held, self.arrivals) = (core::mem::take(&mut from.held), from.arrivals);
        (self.last, self.disordered) = (from.last, from.disordered);
        for (input, _) in self.held.values_mut() {
            if let Some((_, count)) = self.inputs.get_mut(*input) {
                *count += 1;
            }
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::read("well_ordered", |e: &Self| !e.disordered)].into()
    }
}
