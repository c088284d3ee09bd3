//! `AggregatePacketCounter([ANNO, NOTIFIER])`: counts packets of each aggregate by their packet number, for each input.
//!
//! Ports: any number of inputs, as many outputs, push or pull; what comes in at one goes out at the same.
//!
//! Arguments:
//! - `ANNO`: the annotation of 4 bytes that has the packet number; PACKET_NUMBER by default, and with NONE all
//!   packets have number 0.
//! - `NOTIFIER`: an element that numbers aggregates; ignored, since memory is bounded without it.
//!
//! Packets whose aggregate is 0, and more than 1048576 different ones, are not counted by number; `uncounted` says
//! how many they were.
//!
//! Handlers: `count` (packets counted), `uncounted`; `received AGGREGATE`: the packet numbers that came at any input;
//! with two or more inputs `undelivered AGGREGATE`: those that came more often at input 0 than at input 1 (read), a
//! line each; `clear` (write).
use core::ops::Bound;
use ringway_click::OrderedMap;
use ringway_click::arg::{Annotation, ArgError, KEYWORD, Scope, Word};
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("AggregatePacketCounter", || Box::<AggregatePacketCounter>::default())
    .ports("1-/=")
    .flow("#/#");

/// Maximum number of packet numbers kept. Attack: packets with ever new numbers.
const MOST: usize = 1 << 20;

#[derive(Debug)]
pub struct AggregatePacketCounter {
    annotation: Option<usize>,
    /// Keyed by aggregate, packet number and input.
    counts: OrderedMap<(u32, u32, usize), u64>,
    count: u64,
    uncounted: u64,
}

impl Default for AggregatePacketCounter {
    fn default() -> Self {
        let annotation = Some(Annotations::PACKET_NUMBER);
        Self { annotation, counts: OrderedMap::new(), count: 0, uncounted: 0 }
    }
}

fn annotation(text: &str, scope: &Scope) -> Result<Option<usize>, ArgError> {
    match text {
        "NONE" => Ok(None),
        _ => Annotation::of_size(text, 4, scope).map(|found| Some(found.offset)),
    }
}

impl AggregatePacketCounter {
    fn note(&mut self, port: usize, burst: &PacketBurst) {
        for packet in burst.iter() {
            let notes = packet.notes();
            let aggregate = notes.u32(Annotations::AGGREGATE);
            let key = (aggregate, self.annotation.map_or(0, |at| notes.u32(at)), port);
            let room = self.counts.len() < MOST || self.counts.contains_key(key);
            if aggregate == 0 || !room {
                self.uncounted += 1;
                continue;
            }
            *self.counts.or_insert_with(key, || 0) += 1;
            self.count += 1;
        }
    }

    fn of(&self, aggregate: u32) -> impl Iterator<Item = (u32, usize, u64)> + '_ {
        let all = self.counts.range(Bound::Included((aggregate, 0, 0)));
        let own = all.take_while(move |((other, ..), _)| *other == aggregate);
        own.map(|((_, number, port), count)| (number, port, *count))
    }

    fn undelivered(&self, aggregate: u32) -> Vec<u32> {
        let sent = self.of(aggregate).filter(|(_, port, _)| *port == 0);
        let arrived = |number| self.counts.get((aggregate, number, 1)).copied().unwrap_or(0);
        sent.filter(|(number, _, count)| *count > arrived(*number)).map(|(number, ..)| number).collect()
    }
}

/// The aggregate given by a handler's parameter.
fn aggregate(parameter: &str, cx: &Context<'_>) -> Result<u32, HandlerError> {
    let wrong = |_| HandlerError::failed("argument should be aggregate number");
    if parameter.is_empty() { Ok(0) } else { cx.parse(parameter).map_err(wrong) }
}

/// Numbers in ascending order without duplicates, one a line.
fn lines(mut numbers: Vec<u32>) -> String {
    numbers.dedup();
    numbers.iter().map(|number| format!("{number}\n")).collect()
}

impl Element for AggregatePacketCounter {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_with("ANNO", KEYWORD, &mut self.annotation, annotation);
        args.read("NOTIFIER", &mut Word::default());
        args.complete()
    }

    fn push(&mut self, port: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        self.note(port, burst);
        if port > 0 {
            cx.push_burst(port, burst);
        }
    }

    fn pull(&mut self, port: usize, max: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        cx.lend(self, |cx| cx.pull(port, max, burst));
        self.note(port, burst);
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("count", |e: &Self| e.count),
            Handler::read("uncounted", |e: &Self| e.uncounted),
            Handler::read_with("received", |e: &mut Self, parameter, cx| {
                let aggregate = aggregate(parameter, cx)?;
                Ok(lines(e.of(aggregate).map(|(number, ..)| number).collect()))
            })
            .parameters()
            .expensive(),
            Handler::read_with("undelivered", |e: &mut Self, parameter, cx| {
                if cx.ninputs() < 2 {
                    return Err(HandlerError::failed("need two inputs"));
                }
                Ok(lines(e.undelivered(aggregate(parameter, cx)?)))
            })
            .parameters()
            .expensive(),
            Handler::button("clear", |e: &mut Self, _| {
                e.counts.clear();
                (e.count, e.uncounted) = (0, 0);
            }),
        ]
        .into()
    }

    fn take_state(&mut self, from: &mut dyn Element, _: &mut Context<'_>) {
        if let Some(from) = from.downcast_mut::<Self>() {
            self.counts = core::mem::take(&mut from.counts);
            (self.count, self.uncounted) = (from.count, from.uncounted);
        }
    }
}
