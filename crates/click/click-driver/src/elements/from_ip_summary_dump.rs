//! `FromIPSummaryDump(FILENAME, [keywords])`: makes packets from the records of an IP summary dump.
//!
//! Ports: one output, push or pull.
//!
//! Arguments:
//! - `FILENAME`: the file; `-` is standard input.
//! - `DATA`: the dump itself, instead of a file.
//! - `STOP`: whether the driver is stopped at the end.
//! - `ACTIVE`: whether packets are emitted; true by default.
//! - `TIMING`: keeps the packets' intervals in time.
//! - `CHECKSUM`: sets checksums, and extends packets to their stated length.
//! - `ZERO`: accepted for compatibility; bytes that the dump does not set are always 0.
//! - `PROTO`: the default IP protocol of packets; 6 by default.
//! - `MULTIPACKET`: a record that stands for several packets produces several.
//! - `SAMPLE`: the probability with which a packet is emitted; 1 by default.
//! - `FIELDS`: fields of a dump without a `!data` line. `CONTENTS`, `DEFAULT_FIELDS` and `DEFAULT_CONTENTS`
//!   are old names of it.
//! - `FLOWID`: default `SRC SPORT DST DPORT [PROTO]` of packets. `DEFAULT_FLOWID` is an old name of it.
//! - `BURST`: packets pushed per turn; by default 1, or the router's burst.
//! - `ALLOW_NONEXISTENT`: a missing file is not an error.
//!
//! Handlers: `sampling_prob`, `encap`, `filename`, `filesize`, `filepos` (read); `active` (read, write);
//! `stop` (write).
use super::replay::{Records, Replay, is_sampled, read_sample};
use crate::file::{Input, reason};
use ringway_click::arg::{Args, Filename, Fixed, Raw};
use ringway_click::{
    Annotations, Class, Context, Element, Failed, HEADROOM, Handler, Packet, PacketBurst, Task, Timer,
};
use ringway_elements::summary::{Item, Reader, record_length};
use std::io::ErrorKind;

pub static CLASS: Class =
    Class::new("FromIPSummaryDump", || Box::<FromIpSummaryDump>::default()).ports("0/1");

/// A packet that stands for several, some of which are still to be emitted.
struct Several {
    packet: Packet,
    left: u32,
    /// Bytes of each.
    length: u32,
    step: u64,
    end: u64,
}

#[derive(Default)]
pub struct FromIpSummaryDump {
    dump: Dump,
    replay: Replay,
    /// The probability with which a packet is emitted, in 28 bits.
    sample: u32,
}

/// The dump itself.
#[derive(Default)]
struct Dump {
    path: String,
    data: Option<Vec<u8>>,
    multipacket: bool,
    allow_nonexistent: bool,
    reader: Reader,
    input: Option<Input>,
    binary: bool,
    line: Vec<u8>,
    /// Whether the current line, already inspected, must be read again.
    again: bool,
    /// Where the dump ended, in bytes.
    end: u64,
    several: Option<Several>,
}

impl Dump {
    /// Reports errors of a line. Returns the packet, if it was one.
    fn take(&mut self, item: Item, cx: &mut Context<'_>) -> Option<Packet> {
        let place = |input: &Option<Input>, binary: bool| {
            let (name, line) = input.as_ref().map_or(("", 0), |input| (input.name.as_str(), input.line));
            format!("{name}:{}{line}", if binary { "record " } else { "" })
        };
        match item {
            Item::Packet(packet) => return Some(packet),
            Item::Binary => {
                self.binary = true;
                if let Some(input) = &mut self.input {
                    input.line = 0;
                }
            }
            Item::Warning(text) => {
                cx.chatter(format_args!("{}: warning: {text}", place(&self.input, self.binary)));
            }
            Item::Error(text) => cx.chatter(format_args!("{}: {text}", place(&self.input, self.binary))),
            Item::Nothing => {}
        }
        None
    }

    fn open(&mut self) -> std::io::Result<Input> {
        match self.data.take() {
            Some(data) => Ok(Input::text(data)),
            None => Input::open(&self.path),
        }
    }

    /// Reads the next line or record; `None` at the end, or after an error, which has been reported.
    fn read_item(&mut self, cx: &mut Context<'_>) -> Option<Item> {
        let input = self.input.as_mut()?;
        let make = &mut |length| cx.make_packet(HEADROOM, length, 0);
        if !self.binary {
            if !core::mem::take(&mut self.again) && !input.read_line(&mut self.line).ok()? {
                return None;
            }
            let line = String::from_utf8_lossy(&self.line);
            return Some(self.reader.line(&line, make));
        }
        if !input.read_bytes(4, &mut self.line).ok()? {
            return None;
        }
        input.line += 1;
        let length = match record_length(*self.line.first_chunk()?) {
            Ok(length) => length,
            Err(text) => {
                cx.chatter(format_args!("{}:record {}: {text}", input.name, input.line));
                return None;
            }
        };
        if !input.read_bytes(length.bytes, &mut self.line).ok()? {
            return None;
        }
        if length.text {
            let line = String::from_utf8_lossy(&self.line);
            return Some(self.reader.line(line.trim_end_matches(['\0', '\n']), make));
        }
        Some(self.reader.record(&self.line, make))
    }

    fn read_packet(&mut self, cx: &mut Context<'_>) -> Option<Packet> {
        loop {
            let Some(item) = self.read_item(cx) else {
                self.end = self.input.take().map_or(self.end, |input| input.position);
                return None;
            };
            if let Some(packet) = self.take(item, cx) {
                return Some(packet);
            }
        }
    }

    fn one_of_several(&mut self) -> Option<Packet> {
        let several = self.several.as_mut()?;
        let packet = several.take();
        if several.left == 0 {
            self.several = None;
        }
        Some(packet)
    }
}

impl Records for Dump {
    fn next_record(&mut self, cx: &mut Context<'_>) -> Option<Packet> {
        if let Some(packet) = self.one_of_several() {
            return Some(packet);
        }
        let packet = self.read_packet(cx)?;
        let extra = packet.notes().u32(Annotations::EXTRA_PACKETS);
        if !self.multipacket || extra == 0 {
            return Some(packet);
        }
        self.several = Some(Several::new(packet, extra.saturating_add(1)));
        self.one_of_several()
    }
}

impl FromIpSummaryDump {
    /// The next packet to emit.
    fn next(dump: &mut Dump, replay: &mut Replay, sample: u32, cx: &mut Context<'_>) -> Option<Packet> {
        loop {
            let packet = replay.next(dump, cx)?;
            if is_sampled(sample, cx) {
                return Some(packet);
            }
        }
    }
}

impl Several {
    fn new(packet: Packet, count: u32) -> Self {
        let mut packet = packet;
        let notes = packet.notes();
        let total = packet.len() as u64 + u64::from(notes.u32(Annotations::EXTRA_LENGTH));
        let length = (total / u64::from(count)).max(packet.len() as u64);
        let (first, end) = (notes.u64(Annotations::FIRST_TIMESTAMP), packet.timestamp());
        let step = if first > 0 { end.saturating_sub(first) / u64::from(count - 1).max(1) } else { 0 };
        if first > 0 {
            packet.set_timestamp(first);
        }
        packet.notes_mut().set_u32(Annotations::EXTRA_PACKETS, 0);
        Self { packet, left: count, length: length as u32, step, end }
    }

    fn take(&mut self) -> Packet {
        let mut packet = self.packet.clone();
        self.left -= 1;
        if self.left == 0 {
            packet.set_timestamp(self.end);
        }
        let time = self.packet.timestamp().saturating_add(self.step);
        self.packet.set_timestamp(time);
        let extra = self.length.saturating_sub(packet.len() as u32);
        packet.notes_mut().set_u32(Annotations::EXTRA_LENGTH, extra);
        let length = (self.length.min(0xffff) as u16).to_be_bytes();
        if let Some(place) = packet.network_data_mut().and_then(|ip| ip.get_mut(2..4)) {
            place.copy_from_slice(&length);
        }
        packet
    }
}

impl Element for FromIpSummaryDump {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let (mut path, mut fields, mut flow) = (Filename::default(), Raw::default(), Raw::default());
        let mut zero = true;
        self.replay.active = true;
        args.read_p("FILENAME", &mut path);
        args.read("STOP", &mut self.replay.stop);
        args.read("ACTIVE", &mut self.replay.active);
        args.read("ZERO", &mut zero);
        args.read("TIMING", &mut self.replay.timing);
        args.read("CHECKSUM", &mut self.dump.reader.checksums);
        self.sample = read_sample(args, cx);
        self.replay.read_burst(args);
        args.read("PROTO", &mut self.dump.reader.protocol);
        args.read("MULTIPACKET", &mut self.dump.multipacket);
        for name in ["DEFAULT_CONTENTS", "DEFAULT_FIELDS", "CONTENTS", "FIELDS"] {
            args.read(name, &mut fields);
        }
        args.read("DEFAULT_FLOWID", &mut flow);
        args.read("FLOWID", &mut flow);
        args.read("ALLOW_NONEXISTENT", &mut self.dump.allow_nonexistent);
        args.read("DATA", &mut self.dump.data);
        args.complete()?;
        let chosen = (!fields.0.is_empty()).then(|| self.dump.reader.set_fields(&fields.0));
        let given = (!flow.0.is_empty()).then(|| self.dump.reader.set_flow(&flow.0));
        for item in chosen.into_iter().chain(given) {
            match item {
                Item::Error(text) => return Err(cx.error(text)),
                Item::Warning(text) => cx.warning(text),
                _ => {}
            }
        }
        self.dump.path = path.0;
        match (&self.dump.data, self.dump.path.is_empty()) {
            (Some(_), false) => Err(cx.error("FILENAME and DATA conflict")),
            (None, true) => Err(cx.error("FILENAME: required argument missing")),
            (data, _) => {
                let is_file = data.is_none();
                self.replay.configure(cx);
                if is_file { cx.check_file(&self.dump.path) } else { Ok(()) }
            }
        }
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.replay.initialize(cx);
        let mut input = match self.dump.open() {
            Ok(input) => input,
            Err(error) if self.dump.allow_nonexistent && error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(cx.error(format!("{}: {}", self.dump.path, reason(&error)))),
        };
        let read = input.read_line(&mut self.dump.line);
        let read = read.map_err(|error| cx.error(format!("{}: {}", input.name, reason(&error))))?;
        if !read && !self.dump.allow_nonexistent {
            return Err(cx.error(format!("{}: empty file", input.name)));
        }
        let (only, item) = self.dump.reader.first_line(&String::from_utf8_lossy(&self.dump.line));
        self.dump.again = read && !only;
        if let Item::Warning(text) = item
            && read
        {
            cx.warning(format!("{}:1: {text}", input.name));
        }
        self.dump.input = Some(input);
        Ok(())
    }

    fn run_task(&mut self, task: Task, cx: &mut Context<'_>) -> bool {
        let Self { dump, replay, sample } = self;
        replay.run_task(task, cx, |replay, cx| Self::next(dump, replay, *sample, cx))
    }

    fn run_timer(&mut self, _: Timer, cx: &mut Context<'_>) {
        self.replay.run_timer(cx);
    }

    fn pull(&mut self, _: usize, max: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let Self { dump, replay, sample } = self;
        replay.pull(max, burst, cx, |replay, cx| Self::next(dump, replay, *sample, cx));
    }

    fn handlers(&self) -> Vec<Handler> {
        let own = [
            Handler::read("sampling_prob", |e: &Self| Fixed::<28>(e.sample)),
            Handler::read("encap", |_: &Self| "IP"),
        ];
        let [filename, filesize, _] =
            Input::handlers(|e: &Self| (e.dump.path.as_str(), e.dump.input.as_ref()));
        let filepos = Handler::read("filepos", |e: &Self| {
            e.dump.input.as_ref().map_or(e.dump.end, |input| input.position)
        });
        own.into_iter()
            .chain([filename, filesize, filepos])
            .chain(Replay::handlers(|e: &mut Self| &mut e.replay))
            .collect()
    }
}
