//! `FromDump(FILENAME, [keywords])`: reads packets from a capture file in tcpdump's format.
//!
//! Ports: one output, push or pull; optionally a push output for the packets that FORCE_IP excludes.
//!
//! Arguments:
//! - `FILENAME`: the file; `-` is standard input.
//! - `TIMING`: keeps the packets' intervals in time.
//! - `STOP`: whether the driver is stopped at the end.
//! - `ACTIVE`: whether packets are emitted; true by default.
//! - `FORCE_IP`: emits IP packets only, with the network header set. Always true if packets have no link header.
//! - `SAMPLE`: the probability with which a packet is emitted; 1 by default.
//! - `START`, `START_AFTER`: time of the first packet emitted, in seconds since 1970 or after the file's first packet.
//! - `END`, `END_AFTER`, `INTERVAL`: the first packet no longer emitted, likewise, or relative to the start.
//! - `END_CALL`: write handler called at the end of that time, and at the end of the file; by default this element
//!   becomes inactive at END. It may set a later end.
//! - `FILEPOS`: position in the file, in bytes, of the first record read.
//! - `BURST`: packets pushed per turn; by default 1, or the router's burst.
//! - `MMAP`: ignored.
//!
//! Handlers: `count`, `sampling_prob`, `encap` (the link type, as ToDump's ENCAP), `filename`, `filesize`,
//! `packet_filepos` (position of the last record read) (read); `active`, `filepos` (read, write); `stop`,
//! `reset_counts`, `reset_timing` (after a change of `filepos`), `extend_interval` (time to add to the end) (write).
use super::link_type::{ETHERNET, RAW, canonical, is_known, link_name, mark_ip};
use super::replay::{Replay, is_sampled, read_sample};
use super::time_window::TimeWindow;
use crate::file::{Input, reason};
use ringway_click::arg::{Args, Filename, Fixed, Nanoseconds, Raw};
use ringway_click::{
    Annotations, Class, Context, Element, Failed, Handler, HandlerCall, HandlerError, Packet, PacketBurst,
    Task, Timer,
};
use ringway_wire::pcap::{HEADER_LEN, Header, LONGEST, RECORD_LEN};

pub static CLASS: Class =
    Class::new("FromDump", || Box::<FromDump>::default()).ports("0/1-2").processing("a/ah");

/// Attack: a long file without records to emit. Number of records read, as in Click, before other tasks run.
const SKIPPED: usize = 16;
/// Attack: a handler that moves the end by a nanosecond each time. Maximum number of calls per record.
const MOST_CALLS: usize = 1000;

#[derive(Default)]
pub struct FromDump {
    capture: Capture,
    replay: Replay,
    window: TimeWindow,
    force_ip: bool,
    sample: u32,
    end_text: String,
    end: Option<HandlerCall>,
    count: u64,
}

/// The file.
#[derive(Default)]
struct Capture {
    path: String,
    input: Option<Input>,
    header: Option<Header>,
    /// Position of the last record read.
    position: u64,
    record: Vec<u8>,
    body: Vec<u8>,
}

/// Result of looking for the next packet.
enum Next {
    Packet(Packet),
    /// This record has no packet, but more records follow.
    More,
    Nothing,
}

impl Capture {
    fn open(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut input = Input::open(&self.path)
            .map_err(|error| cx.error(format!("{}: {}", self.path, reason(&error))))?;
        let read = input.read_bytes(HEADER_LEN, &mut self.record);
        let header = match (read, Header::parse(&self.record)) {
            (Ok(true), Ok(Some(header))) => header,
            (_, Err(error)) => return Err(cx.error(format!("{}: {error}", input.name))),
            _ => return Err(cx.error(format!("{}: not a tcpdump file (too short)", input.name))),
        };
        if self.position > 0 {
            let sought = input.seek(self.position);
            sought.map_err(|error| cx.error(format!("{}: {}", input.name, reason(&error))))?;
        }
        (self.header, self.input) = (Some(header), Some(input));
        Ok(())
    }

    fn link(&self) -> u16 {
        self.header.map_or(ETHERNET, |header| canonical(header.link_type))
    }

    /// Reads the next record and returns its time; `None` at the end, or after an error, which has been reported.
    fn next_record(&mut self, cx: &mut Context<'_>) -> Option<u64> {
        let (input, header) = (self.input.as_mut()?, self.header?);
        self.position = input.position;
        if !input.read_bytes(RECORD_LEN, &mut self.record).ok()? {
            return None;
        }
        let bytes = self.record.get(8..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default();
        let kept = if header.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) };
        if kept > LONGEST || !input.read_bytes(kept as usize, &mut self.body).ok()? {
            cx.chatter(format_args!("{}: bad packet header; giving up", input.name));
            return None;
        }
        self.record.extend_from_slice(&self.body);
        Some(header.record(&self.record).ok()??.0.time)
    }

    /// The packet of the last record read.
    fn packet(&self, cx: &mut Context<'_>) -> Option<Packet> {
        let (record, _) = self.header?.record(&self.record).ok()??;
        let mut packet = cx.packet(record.data)?;
        packet.set_timestamp(record.time);
        let extra = record.original_len.saturating_sub(record.data.len() as u32);
        packet.notes_mut().set_u32(Annotations::EXTRA_LENGTH, extra);
        packet.set_mac_header(0);
        Some(packet)
    }
}

impl FromDump {
    /// Calls the handler for the end, which may use this element meanwhile.
    fn call_end(&mut self, cx: &mut Context<'_>) {
        if let Some(call) = self.end.clone() {
            cx.write_lending(self, &call);
        }
    }

    /// Whether a record is emitted: before the end, or the handler for the end leaves this element active.
    fn goes_on(&mut self, time: u64, cx: &mut Context<'_>) -> bool {
        for _ in 0..MOST_CALLS {
            if !self.window.reaches_end(time) {
                break;
            }
            self.call_end(cx);
            if !self.replay.active {
                return false;
            }
        }
        true
    }

    fn finish(&mut self, cx: &mut Context<'_>) -> Next {
        self.replay.sleep(cx);
        self.call_end(cx);
        Next::Nothing
    }

    /// Reads a record: a packet, if it is to be emitted.
    fn read(&mut self, cx: &mut Context<'_>) -> Next {
        let Some(time) = self.capture.next_record(cx) else { return self.finish(cx) };
        if self.window.prepare(time) {
            self.replay.begin_at(time, cx);
        }
        if self.window.is_before(time) {
            return Next::More;
        }
        if !self.goes_on(time, cx) {
            return self.finish(cx);
        }
        let sampled = is_sampled(self.sample, cx);
        let packet = if sampled { self.capture.packet(cx) } else { None };
        packet.map_or(Next::More, Next::Packet)
    }

    /// The next packet to emit, if it is due.
    fn next(&mut self, cx: &mut Context<'_>) -> Next {
        for _ in 0..SKIPPED {
            let packet = match self.replay.take_waiting() {
                Some(packet) => packet,
                None => match self.read(cx) {
                    Next::Packet(packet) => packet,
                    Next::More => continue,
                    Next::Nothing => return Next::Nothing,
                },
            };
            let Some(mut packet) = self.replay.when_due(packet, cx) else { return Next::Nothing };
            if self.force_ip && !mark_ip(&mut packet, self.capture.link()) {
                cx.push(1, packet);
                continue;
            }
            self.count += 1;
            return Next::Packet(packet);
        }
        Next::More
    }

    /// Checks FORCE_IP against the file's link type.
    fn check_link(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let link = self.capture.link();
        self.force_ip |= link == RAW;
        if self.force_ip && !is_known(link) {
            let text = format!("{}: unknown linktype {link}; can't force IP packets", self.capture.path);
            return Err(cx.error(text));
        }
        Ok(())
    }
}

impl Element for FromDump {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let (mut path, mut end, mut stop, mut mmap) = (Filename::default(), Raw::default(), false, false);
        self.replay.active = true;
        args.read("MMAP", &mut mmap);
        args.read_mp("FILENAME", &mut path);
        args.read_p("TIMING", &mut self.replay.timing);
        args.read("STOP", &mut stop);
        args.read("ACTIVE", &mut self.replay.active);
        self.sample = read_sample(args, cx);
        args.read("FORCE_IP", &mut self.force_ip);
        self.replay.read_burst(args);
        self.window.read(args);
        args.read("END_CALL", &mut end);
        args.read("FILEPOS", &mut self.capture.position);
        args.complete()?;
        self.end_text = match (stop, end.0.is_empty()) {
            (true, false) => return Err(cx.error("END_CALL and STOP are mutually exclusive")),
            (false, false) => end.0,
            (true, true) => format!("{}.stop", cx.name()),
            (false, true) if self.window.ends() => format!("{}.active false", cx.name()),
            (false, true) => String::new(),
        };
        self.capture.path = path.0;
        self.replay.configure(cx);
        cx.check_file(&self.capture.path)
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        if !self.end_text.is_empty() {
            let call = cx.handler_call(&self.end_text, true);
            self.end = Some(call.map_err(|error| cx.call_error(&error))?);
        }
        if !cx.has_predecessor() {
            self.capture.open(cx)?;
            self.check_link(cx)?;
        }
        self.replay.initialize(cx);
        Ok(())
    }

    /// Continues in the same file.
    fn take_state(&mut self, from: &mut dyn Element, cx: &mut Context<'_>) {
        let Some(from) = from.downcast_mut::<Self>() else { return };
        if self.capture.path == from.capture.path {
            self.capture = std::mem::take(&mut from.capture);
            self.replay.take_state(&mut from.replay);
        } else if self.capture.open(cx).is_err() {
            return;
        }
        // Errors have been reported.
        let _ = self.check_link(cx);
    }

    fn run_task(&mut self, task: Task, cx: &mut Context<'_>) -> bool {
        for _ in 0..if self.replay.active { self.replay.burst(cx) } else { 0 } {
            match self.next(cx) {
                Next::Packet(packet) => cx.lend(self, |cx| cx.push(0, packet)),
                Next::More => break,
                Next::Nothing => return false,
            }
        }
        if self.replay.active {
            cx.reschedule(task);
        }
        self.replay.active
    }

    fn run_timer(&mut self, _: Timer, cx: &mut Context<'_>) {
        self.replay.run_timer(cx);
    }

    fn pull(&mut self, _: usize, max: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for _ in 0..if self.replay.active { max } else { 0 } {
            match self.next(cx) {
                Next::Packet(packet) => burst.push(packet),
                Next::More | Next::Nothing => break,
            }
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        let [filename, filesize, filepos] =
            Input::handlers(|e: &Self| (e.capture.path.as_str(), e.capture.input.as_ref()));
        let own = [
            Handler::read("sampling_prob", |e: &Self| Fixed::<28>(e.sample)),
            Handler::read("encap", |e: &Self| link_name(e.capture.link())),
            Handler::read("packet_filepos", |e: &Self| e.capture.position),
            Handler::write("extend_interval", |e: &mut Self, value, cx| {
                let by = cx.parse::<Nanoseconds>(value);
                let by = by.map_err(|_| HandlerError::failed("'extend_interval' takes a time interval"))?;
                e.window.extend(by.0, e.end.is_some());
                if e.end.is_some() {
                    e.replay.set_active(true, cx);
                }
                Ok(())
            }),
            Handler::read("count", |e: &Self| e.count),
            Handler::button("reset_counts", |e: &mut Self, _| e.count = 0),
            Handler::button("reset_timing", |e: &mut Self, _| e.window.reset()),
            filename,
            filesize,
            filepos.writes(|e: &mut Self, value, cx| {
                let position =
                    cx.parse(value).map_err(|_| HandlerError::failed("argument must be file offset"))?;
                let sought = e.capture.input.as_mut().map_or(Ok(()), |input| input.seek(position));
                sought.map_err(|error| HandlerError::failed(reason(&error)))
            }),
        ];
        own.into_iter().chain(Replay::handlers(|e: &mut Self| &mut e.replay)).collect()
    }
}
