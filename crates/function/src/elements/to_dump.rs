//! `ToDump(FILENAME, [SNAPLEN, ENCAP, EXTRA_LENGTH])`: writes packets to a capture file in tcpdump's format.
//!
//! Ports: one input, push or pull; optionally one push output, which passes the packets on.
//!
//! Arguments:
//! - `FILENAME`: the file; `-` is standard output.
//! - `SNAPLEN`: largest number of bytes written per packet; 2000 by default, all if 0.
//! - `ENCAP`: the packets' first header, `ETHER` (the default) or `IP`.
//! - `EXTRA_LENGTH`: the original length includes bytes that were not captured; true by default.
//!
//! Handlers: `count` (read); `reset_counts`, `flush` (write).
use super::intake::Intake;
use crate::file::{Output, reason};
use ringway_click::arg::{Args, Filename, Word};
use ringway_click::{
    Annotations, Class, Context, Element, Failed, Handler, HandlerError, Metadata, Packet, PacketBurst, Task,
};
use ringway_wire::pcap::Header;
use std::any::Any;

pub static CLASS: Class = Class::new("ToDump", || Box::<ToDump>::default())
    .ports("1/0-1")
    .processing("a/h")
    .flags("S2")
    .metadata(Metadata::Resolve);

/// Link type of packets that begin with an IP header.
const RAW: u16 = 101;

/// Writes a capture file.
#[derive(Default)]
pub struct ToDump {
    path: String,
    header: Option<Header>,
    length: usize,
    extra_length: bool,
    file: Option<Output>,
    count: u64,
    intake: Intake,
}

impl ToDump {
    fn open(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let file = Output::create(&self.path);
        self.file = Some(file.map_err(|error| cx.error(format!("{}: {}", self.path, reason(&error))))?);
        if let Some(header) = self.header {
            self.put(&header.to_bytes(), cx);
        }
        Ok(())
    }

    fn put(&mut self, bytes: &[u8], cx: &mut Context<'_>) {
        let Some(file) = &mut self.file else { return };
        if let Err(error) = file.write(bytes, cx) {
            cx.chatter(format_args!("{}: {}", self.path, reason(&error)));
            self.file = None;
        }
    }

    fn dump(&mut self, packet: &Packet, cx: &mut Context<'_>) {
        let Some(header) = self.header else { return };
        let data = packet.data();
        let kept = &data[..data.len().min(self.length)];
        let extra = if self.extra_length { packet.notes().u32(Annotations::EXTRA_LENGTH) } else { 0 };
        let original = (data.len() as u32).saturating_add(extra);
        let time = match packet.notes().timestamp {
            0 => cx.now(),
            time => time,
        };
        self.put(&header.record_header(time, kept.len() as u32, original), cx);
        self.put(kept, cx);
        self.count += 1;
    }

    fn flush(&mut self) -> Result<(), String> {
        let flushed = self.file.as_mut().map_or(Ok(()), Output::flush);
        flushed.map_err(|error| format!("{}: {}", self.path, reason(&error)))
    }
}

impl Element for ToDump {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let (mut path, mut encapsulation) = (Filename::default(), Word("ETHER".into()));
        let mut length = 2000u32;
        self.extra_length = true;
        args.read_mp("FILENAME", &mut path);
        args.read_p("SNAPLEN", &mut length);
        args.read_p("ENCAP", &mut encapsulation);
        args.read("EXTRA_LENGTH", &mut self.extra_length);
        args.complete()?;
        let link_type = match encapsulation.0.as_str() {
            "ETHER" | "ETHERNET" => Header::ethernet().link_type,
            "IP" => RAW,
            _ => return Err(cx.error("bad encapsulation type")),
        };
        let most = ringway_wire::pcap::LONGEST;
        let length = if length == 0 { most } else { length.min(most) };
        self.header = Some(Header { nanoseconds: false, snap_len: length, link_type, ..Header::ethernet() });
        (self.length, self.path) = (length as usize, path.0);
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        if !cx.has_predecessor() {
            self.open(cx)?;
        }
        self.intake = Intake::new(cx);
        Ok(())
    }

    /// Continues in the same file.
    fn take_state(&mut self, from: &mut dyn Element, cx: &mut Context<'_>) {
        let from: &mut dyn Any = from;
        let Some(from) = from.downcast_mut::<Self>() else { return };
        let kind = |dump: &Self| dump.header.map(|header| (header.snap_len, header.link_type));
        if (&self.path, kind(self)) == (&from.path, kind(from)) {
            (self.file, self.count) = (from.file.take(), from.count);
            return;
        }
        from.cleanup(cx);
        // Errors have been reported.
        let _ = self.open(cx);
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for packet in burst.iter() {
            self.dump(packet, cx);
        }
    }

    fn run_task(&mut self, task: Task, cx: &mut Context<'_>) -> bool {
        let mut burst = self.intake.pull(task, 1, cx);
        let worked = !burst.is_empty();
        self.push(0, &mut burst, cx);
        cx.push_burst(0, &mut burst);
        worked
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("count", |e: &Self| e.count),
            Handler::button("reset_counts", |e: &mut Self, _| e.count = 0),
            Handler::write("flush", |e: &mut Self, _, _| e.flush().map_err(HandlerError::failed)),
        ]
        .into()
    }

    fn cleanup(&mut self, cx: &mut Context<'_>) {
        if let Err(text) = self.flush() {
            cx.chatter(format_args!("{text}"));
        }
        self.file = None;
    }
}
