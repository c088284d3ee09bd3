//! `FromDump(FILENAME, [STOP, TIMING, ACTIVE, FORCE_IP])`: reads packets from a capture file in tcpdump's
//! format.
//!
//! Ports: one output, push or pull.
//!
//! Arguments:
//! - `FILENAME`: the file; `-` is standard input.
//! - `STOP`: whether the driver is stopped at the end.
//! - `TIMING`: keeps the packets' intervals in time.
//! - `ACTIVE`: whether packets are emitted; true by default.
//! - `FORCE_IP`: emits IP packets only, with the network header set.
//!
//! Handlers: `encap`, `filesize`, `filepos`, `count` (read); `active` (read, write); `stop` (write).
use super::link_ip::{ETHERNET, is_known, mark_ip};
use super::replay::{Records, Replay};
use crate::file::{Input, reason};
use ringway_click::arg::{Args, Filename};
use ringway_click::{
    Annotations, Class, Context, Element, Failed, Handler, Packet, PacketBurst, Task, Timer,
};
use ringway_wire::pcap::{HEADER_LEN, Header, RECORD_LEN};

pub static CLASS: Class = Class::new("FromDump", || Box::<FromDump>::default()).ports("0/1");

/// Reads a capture file.
#[derive(Default)]
pub struct FromDump {
    capture: Capture,
    replay: Replay,
    count: u64,
}

/// The file and its filter settings.
#[derive(Default)]
struct Capture {
    path: String,
    force_ip: bool,
    input: Option<Input>,
    header: Option<Header>,
    record: Vec<u8>,
    body: Vec<u8>,
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
        if self.force_ip && !is_known(header.link_type) {
            let text = format!("{}: unknown linktype {}", input.name, header.link_type);
            return Err(cx.error(text));
        }
        (self.header, self.input) = (Some(header), Some(input));
        Ok(())
    }

    /// Reads the next record; `None` at the end, or after an error, which has been reported.
    fn read_packet(&mut self, cx: &mut Context<'_>) -> Option<Packet> {
        let (input, header) = (self.input.as_mut()?, self.header?);
        loop {
            if !input.read_bytes(RECORD_LEN, &mut self.record).ok()? {
                return None;
            }
            let number = |at: usize| {
                let bytes = self.record.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default();
                if header.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
            };
            let kept = number(8).min(ringway_wire::pcap::LONGEST + 1) as usize;
            if kept as u32 > ringway_wire::pcap::LONGEST || !input.read_bytes(kept, &mut self.body).ok()? {
                cx.chatter(format_args!("{}: bad packet at offset {}", input.name, input.position));
                return None;
            }
            self.record.extend_from_slice(&self.body);
            let Ok(Some((record, _))) = header.record(&self.record) else { return None };
            let mut packet = cx.packet(record.data)?;
            packet.notes_mut().timestamp = record.time;
            let extra = record.original_len.saturating_sub(record.data.len() as u32);
            packet.notes_mut().set_u32(Annotations::EXTRA_LENGTH, extra);
            if header.link_type == ETHERNET {
                packet.set_mac_header(0);
            }
            let is_ip = mark_ip(&mut packet, header.link_type);
            if !self.force_ip || is_ip {
                return Some(packet);
            }
        }
    }
}

impl Records for Capture {
    fn next_record(&mut self, cx: &mut Context<'_>) -> Option<Packet> {
        let packet = self.read_packet(cx);
        if packet.is_none() {
            self.input = None;
        }
        packet
    }
}

impl Element for FromDump {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut path = Filename::default();
        self.replay.active = true;
        args.read_mp("FILENAME", &mut path);
        args.read_p("TIMING", &mut self.replay.timing);
        args.read("STOP", &mut self.replay.stop);
        args.read("ACTIVE", &mut self.replay.active);
        args.read("FORCE_IP", &mut self.capture.force_ip);
        self.capture.path = path.0;
        self.replay.configure(cx);
        args.complete()
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.capture.open(cx)?;
        self.replay.initialize(cx);
        Ok(())
    }

    fn run_task(&mut self, task: Task, cx: &mut Context<'_>) -> bool {
        let Self { capture, replay, count } = self;
        replay.run_task(task, cx, |replay, cx| {
            let packet = replay.next(capture, cx);
            *count += u64::from(packet.is_some());
            packet
        })
    }

    fn run_timer(&mut self, _: Timer, cx: &mut Context<'_>) {
        self.replay.run_timer(cx);
    }

    fn pull(&mut self, _: usize, max: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let Self { capture, replay, count } = self;
        replay.pull(max, burst, cx, |replay, cx| replay.next(capture, cx));
        *count += burst.len() as u64;
    }

    fn handlers(&self) -> Vec<Handler> {
        let own = [
            Handler::read("encap", |e: &Self| match e.capture.header {
                Some(header) if header.link_type != ETHERNET && is_known(header.link_type) => "IP",
                _ => "ETHER",
            }),
            Handler::read("filesize", |e: &Self| {
                let size = e.capture.input.as_ref().and_then(|input| input.size);
                size.map_or("-".into(), |size| size.to_string())
            }),
            Handler::read("filepos", |e: &Self| e.capture.input.as_ref().map_or(0, |input| input.position)),
            Handler::read("count", |e: &Self| e.count),
        ];
        own.into_iter().chain(Replay::handlers(|e: &mut Self| &mut e.replay)).collect()
    }
}
