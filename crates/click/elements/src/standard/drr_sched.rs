//! `DRRSched(QUANTUM)`: pulls from inputs so that each gets an equal share of bytes (deficit round robin, Shreedhar
//! and Varghese 1995).
//!
//! Ports: any number of pull inputs, one pull output.
//!
//! Arguments:
//! - `QUANTUM`: additional bytes of an input per round; 500 by default. The first input begins with none.
//!
//! No handlers. Inputs that signal that they are empty are not pulled, and accumulate no credit.
use alloc::collections::VecDeque;
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("DRRSched", || Box::<DrrSched>::default()).ports("-/1").processing("l").flags("S0");

#[derive(Debug, Default)]
struct Input {
    signal: Signal,
    deficit: u64,
    /// A packet that was pulled but exceeds the input's deficit.
    head: Option<Packet>,
}

#[derive(Debug, Default)]
pub struct DrrSched {
    quantum: u32,
    inputs: Vec<Input>,
    next: usize,
    /// Packets that were pulled from inputs that the element had before its configuration was replaced: the first ones
    /// to leave.
    left: VecDeque<Packet>,
}

impl DrrSched {
    /// The next packet. An input whose packet exceeds its deficit waits for its next rounds.
    fn one(&mut self, cx: &mut Context<'_>) -> Option<Packet> {
        if let Some(packet) = self.left.pop_front() {
            return Some(packet);
        }
        let mut in_vain = 0;
        while in_vain < self.inputs.len() {
            let number = self.next;
            let input = &mut self.inputs[number];
            if input.head.is_none() && cx.is_active(&input.signal) {
                input.head = cx.pull_one(number);
            }
            let packet = input.head.take();
            match packet {
                None => {
                    input.deficit = 0;
                    in_vain += 1;
                }
                Some(packet) if packet.len() as u64 <= input.deficit => {
                    input.deficit -= packet.len() as u64;
                    return Some(packet);
                }
                waiting => {
                    input.head = waiting;
                    in_vain = 0;
                }
            }
            self.next = (number + 1) % self.inputs.len();
            let next = &mut self.inputs[self.next];
            next.deficit = next.deficit.saturating_add(self.quantum.into());
        }
        None
    }
}

impl Element for DrrSched {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.quantum = 500;
        args.read_p("QUANTUM", &mut self.quantum);
        args.complete()?;
        if self.quantum == 0 {
            return Err(cx.error("QUANTUM must be >= 1"));
        }
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        for port in 0..cx.ninputs() {
            self.inputs.push(Input { signal: cx.upstream_empty_signal(port, None), ..Input::default() });
        }
        Ok(())
    }

    fn take_state(&mut self, from: &mut dyn Element, _: &mut Context<'_>) {
        let Some(from) = from.downcast_mut::<Self>() else { return };
        self.next = from.next.checked_rem(self.inputs.len()).unwrap_or(0);
        self.left = core::mem::take(&mut from.left);
        self.left.extend(from.inputs.iter_mut().skip(self.inputs.len()).filter_map(|old| old.head.take()));
        for (own, old) in self.inputs.iter_mut().zip(&mut from.inputs) {
            (own.deficit, own.head) = (old.deficit, old.head.take());
        }
    }

    fn pull(&mut self, _: usize, max: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        while burst.len() < max
            && let Some(packet) = self.one(cx)
        {
            burst.push(packet);
        }
    }
}
