//! `InfiniteSource(DATA, LIMIT, BURST, ACTIVE, TIMESTAMP, LENGTH, STOP, END_CALL)`: makes packets as fast
//! as it can.
//!
//! Ports: no inputs; one output, push or pull.
//!
//! Arguments:
//! - `DATA`: what stands in each packet; by default 69 bytes of text, as many as in Click.
//! - `LIMIT`: packets in all; no limit if negative, as by default.
//! - `BURST`: packets a run of its task; 1 by default, or as many as the router handles at once.
//! - `ACTIVE`: whether it makes packets; true by default.
//! - `TIMESTAMP`: whether packets bear the time; true by default.
//! - `LENGTH` (or `DATASIZE`): bytes of a packet, of DATA again and again; DATA once if negative, as by
//!   default.
//! - `STOP`: stops the driver after LIMIT packets.
//! - `END_CALL`: write handler to call after LIMIT packets instead.
//!
//! Handlers: `data`, `limit`, `burst`, `active`, `length` (read, write); `count` (read); `reset` (write);
//! those of its task if the output is push.
use crate::packet::bounded;
use ringway_click::arg::{MANDATORY_POSITIONAL, Raw};
use ringway_click::prelude::*;
use ringway_click::{HandlerCall, Note, NoteKind, Search};

pub static CLASS: Class = Class::new("InfiniteSource", || Box::<InfiniteSource>::default())
    .ports("0/1")
    .flags("S1")
    .metadata(Metadata::Ignores)
    .live();

/// Default packet data: 64 bytes and a bit.
pub(super) const DEFAULT_DATA: &str = "Some bytes to fill a packet; they are not meant to say anything else.";
/// Maximum packet length. Attack: a configuration that asks for more memory than there is.
pub(super) const LARGEST: usize = 1 << 20;

#[derive(Debug, Default)]
pub struct InfiniteSource {
    data: Vec<u8>,
    length: i32,
    /// The contents of a packet, made from DATA and LENGTH.
    template: Vec<u8>,
    /// Whether packets hold random bytes instead.
    random: bool,
    limit: i64,
    burst: i32,
    active: bool,
    timestamp: bool,
    count: u64,
    end: Option<HandlerCall>,
    end_text: Raw,
    task: Option<Task>,
    note: Option<Note>,
    nonfull: Signal,
}

impl InfiniteSource {
    /// A source of packets with random bytes.
    pub(super) fn random() -> Self {
        Self { random: true, ..Self::default() }
    }

    fn fill(&mut self) {
        let length = usize::try_from(self.length).map_or(self.data.len(), |length| length.min(LARGEST));
        self.template = self.data.iter().copied().cycle().take(length).collect();
    }

    fn left(&self) -> u64 {
        u64::try_from(self.limit).map_or(u64::MAX, |limit| limit.saturating_sub(self.count))
    }

    /// Makes up to `max` packets.
    fn make(
        &mut self,
        max: usize,
        cx: &mut Context<'_>,
        mut give: impl FnMut(&mut Self, &mut Context<'_>, ringway_click::Packet),
    ) {
        for _ in 0..max {
            let Some(mut packet) = cx.packet(&self.template) else { return };
            if self.random {
                for word in packet.data_mut().chunks_mut(4) {
                    word.copy_from_slice(&cx.random().to_le_bytes()[..word.len()]);
                }
            }
            if self.timestamp {
                packet.set_timestamp(cx.packet_time());
            }
            give(self, cx, packet);
            self.count += 1;
        }
    }

    fn at_end(&mut self, cx: &mut Context<'_>) {
        if let Some(call) = self.end.clone() {
            cx.write_lending(self, &call);
        }
    }

    /// Resumes making packets after a handler has changed parameters.
    fn changed(&mut self, cx: &mut Context<'_>) {
        self.fill();
        if self.active && self.left() > 0 {
            if let Some(task) = self.task {
                cx.reschedule(task);
            } else if let Some(note) = self.note {
                cx.wake(note);
            }
        }
    }
}

impl Element for InfiniteSource {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.data = DEFAULT_DATA.as_bytes().to_vec();
        (self.limit, self.length, self.active, self.timestamp) = (-1, -1, true, true);
        self.burst = cx.burst() as i32;
        let mut stop = false;
        if self.random {
            args.read_with("LENGTH", MANDATORY_POSITIONAL, &mut self.length, bounded(0, LARGEST as i128));
        } else {
            args.read_p("DATA", &mut self.data);
        }
        args.read_p("LIMIT", &mut self.limit);
        args.read_p("BURST", &mut self.burst);
        args.read_p("ACTIVE", &mut self.active);
        args.read("TIMESTAMP", &mut self.timestamp);
        if !self.random {
            args.read("LENGTH", &mut self.length);
            args.read("DATASIZE", &mut self.length);
        }
        args.read("STOP", &mut stop);
        let end_call = args.read("END_CALL", &mut self.end_text);
        args.complete()?;
        if self.burst < 1 {
            return Err(cx.error("burst size must be >= 1"));
        }
        if stop && end_call {
            return Err(cx.error("END_CALL and STOP are mutually exclusive"));
        }
        if stop {
            self.end_text = Raw("stop".to_string());
        }
        self.note = Some(cx.new_note(NoteKind::Empty, Search::Stop));
        self.fill();
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        if cx.output_is_push(0) {
            let task = cx.new_task(true);
            self.nonfull = cx.downstream_full_signal(0, Some(task));
            self.task = Some(task);
        }
        if !self.end_text.0.is_empty() {
            let call = cx.handler_call(&self.end_text.0, true);
            self.end = Some(call.map_err(|error| cx.call_error(&error))?);
        }
        Ok(())
    }

    fn run_task(&mut self, task: Task, cx: &mut Context<'_>) -> bool {
        if !self.active || !cx.is_active(&self.nonfull) {
            return false;
        }
        let count = self.left().min(self.burst as u64) as usize;
        self.make(count, cx, |e, cx, packet| cx.lend(e, |cx| cx.push(0, packet)));
        if count > 0 {
            cx.reschedule(task);
        } else {
            self.at_end(cx);
        }
        count > 0
    }

    fn pull(&mut self, _: usize, max: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let left = self.left();
        if self.active && left > 0 {
            self.make(left.min(max as u64) as usize, cx, |_, _, packet| burst.push(packet));
            return;
        }
        if self.active {
            self.at_end(cx);
        }
        if let Some(note) = self.note {
            cx.sleep(note);
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        let data =
            Handler::read("data", |e: &Self| String::from_utf8_lossy(&e.data).into_owned()).raw().calm();
        let data = data.writes(|e: &mut Self, value, _| {
            e.data = value.as_bytes().to_vec();
            Ok(())
        });
        let burst = |name| {
            let wrong = || HandlerError::failed("burstsize parameter must be integer >= 1");
            Handler::read(name, |e: &Self| e.burst).calm().writes(move |e: &mut Self, value, cx| {
                e.burst = cx.parse(value).ok().filter(|burst| *burst >= 1).ok_or_else(wrong)?;
                Ok(())
            })
        };
        let length =
            |name| Handler::field(name, |e: &mut Self| &mut e.length).calm().error("length must be integer");
        let limit = Handler::field("limit", |e: &mut Self| &mut e.limit).calm();
        let active = Handler::field("active", |e: &mut Self| &mut e.active).checkbox();
        let others = [
            limit.error("limit parameter must be integer"),
            burst("burst"),
            active.error("active parameter must be boolean"),
            Handler::read("count", |e: &Self| e.count),
            Handler::button("reset", |e: &mut Self, _| e.count = 0),
            length("length"),
            burst("burstsize").deprecated(),
            length("datasize").deprecated(),
        ];
        let handlers = (!self.random).then_some(data).into_iter().chain(others);
        handlers.map(|handler| handler.then(Self::changed)).collect()
    }
}
