//! `ToIPSummaryDump(FILENAME, [keywords])`: writes a line of selected fields for each packet.
//!
//! Ports: one input, push or pull; optionally one push output, which passes the packets on.
//!
//! Arguments:
//! - `FILENAME`: the file; `-` is standard output.
//! - `FIELDS`: names of fields, separated by spaces; `timestamp ip_src` by default. `CONTENTS` is an old name
//!   of it.
//! - `HEADER`: whether the dump begins with lines that describe it; true by default.
//! - `VERBOSE`: whether these include the host and the time.
//! - `BANNER`: a text for the `!creator` line.
//! - `BINARY`: packed records instead of lines.
//! - `MULTIPACKET`: a packet that stands for several produces several records, unless `count` is a field.
//! - `BAD_PACKETS`: packets with broken headers are preceded by a `!bad` line.
//! - `CAREFUL_TRUNC`: packets shorter than their IP length count as broken; true by default.
//! - `EXTRA_LENGTH`: lengths include bytes that were not captured; true by default.
//!
//! Handlers: `flush` (write).
use super::intake::Intake;
use crate::file::{Output, reason};
use ringway_click::arg::{Args, Filename, Raw};
use ringway_click::{
    Annotations, Class, Context, Element, Failed, Handler, HandlerError, Metadata, Packet, PacketBurst, Task,
};
use ringway_click_lang::config;
use ringway_elements::summary::{self, Time, Writer};

pub static CLASS: Class = Class::new("ToIPSummaryDump", || Box::<ToIpSummaryDump>::default())
    .ports("1/0-1")
    .processing("a/h")
    .flags("S2")
    .metadata(Metadata::Resolve);

/// Attack: a packet that claims to stand for four billion. Largest number of records per packet.
const MOST_RECORDS: u32 = 1 << 16;

#[derive(Default)]
pub struct ToIpSummaryDump {
    path: String,
    header: bool,
    verbose: bool,
    multipacket: bool,
    banner: String,
    writer: Writer,
    file: Option<Output>,
    record: Vec<u8>,
    intake: Intake,
}

impl ToIpSummaryDump {
    fn open(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let file = Output::create(&self.path);
        self.file = Some(file.map_err(|error| cx.error(format!("{}: {}", self.path, reason(&error))))?);
        if self.header {
            self.record = self.head(cx);
            self.write_out(cx);
        }
        Ok(())
    }

    fn head(&self, cx: &mut Context<'_>) -> Vec<u8> {
        let mut lines = format!("{}\n", summary::BANNER);
        if !self.banner.is_empty() {
            lines += &format!("!creator {}\n", config::quote(self.banner.as_bytes()));
        }
        if self.verbose {
            let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
            if !host.trim().is_empty() {
                lines += &format!("!host {}\n", host.trim());
            }
            lines += &format!("!runtime {}\n", Time(cx.now() as i64));
        }
        lines += &format!("{}\n", self.writer.heading());
        if self.writer.binary {
            lines += "!binary\n";
        }
        lines.into_bytes()
    }

    fn write_out(&mut self, cx: &mut Context<'_>) {
        let Some(file) = &mut self.file else { return };
        if let Err(error) = file.write(&self.record, cx) {
            cx.chatter(format_args!("{}: {}", self.path, reason(&error)));
            self.file = None;
        }
        self.record.clear();
    }

    fn dump(&mut self, packet: &mut Packet) {
        let several = packet.notes().u32(Annotations::EXTRA_PACKETS);
        if self.multipacket && several > 0 {
            self.dump_each(packet, several.saturating_add(1).min(MOST_RECORDS));
        } else {
            self.writer.packet(packet, &mut self.record);
        }
    }

    /// Distributes length and time of a packet that stands for several over as many records.
    fn dump_each(&mut self, packet: &mut Packet, count: u32) {
        let length = packet.len() as u64;
        let extra = if self.writer.extra_length { packet.notes().u32(Annotations::EXTRA_LENGTH) } else { 0 };
        let mut total = (length + u64::from(extra)).max(length * u64::from(count));
        let end = packet.timestamp();
        let first = packet.notes().u64(Annotations::FIRST_TIMESTAMP);
        let step = if first > 0 { end.saturating_sub(first) / u64::from(count - 1).max(1) } else { 0 };
        if first > 0 {
            packet.set_timestamp(first);
        }
        packet.notes_mut().set_u32(Annotations::EXTRA_PACKETS, 0);
        for left in (1..=count).rev() {
            let share = total / u64::from(left);
            total -= share;
            packet.notes_mut().set_u32(Annotations::EXTRA_LENGTH, (share - length) as u32);
            self.writer.packet(packet, &mut self.record);
            let time = packet.timestamp().saturating_add(step);
            packet.set_timestamp(if left <= 2 { end } else { time });
        }
    }
}

impl Element for ToIpSummaryDump {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut path = Filename::default();
        let mut fields = Raw("timestamp ip_src".into());
        let (mut binary, mut bad, mut careful, mut extra) = (false, false, true, true);
        self.header = true;
        args.read_mp("FILENAME", &mut path);
        args.read("DATA", &mut fields);
        args.read("CONTENTS", &mut fields);
        args.read("FIELDS", &mut fields);
        args.read("VERBOSE", &mut self.verbose);
        args.read("HEADER", &mut self.header);
        args.read("BANNER", &mut self.banner);
        args.read("MULTIPACKET", &mut self.multipacket);
        args.read("BAD_PACKETS", &mut bad);
        args.read("CAREFUL_TRUNC", &mut careful);
        args.read("EXTRA_LENGTH", &mut extra);
        args.read("BINARY", &mut binary);
        args.complete()?;
        self.path = path.0;
        match Writer::new(&fields.0, binary) {
            Ok(writer) => {
                self.multipacket &= !writer.fields.contains(&summary::Field::Count);
                self.writer = Writer { bad_packets: bad, careful, extra_length: extra, ..writer };
                Output::check(&self.path, cx)
            }
            Err(errors) => {
                for error in errors {
                    let _ = cx.error(error);
                }
                Err(Failed)
            }
        }
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
        let Some(from) = from.downcast_mut::<Self>() else { return };
        let kind = |dump: &Self| (dump.writer.heading(), dump.writer.binary);
        if self.path == from.path && kind(self) == kind(from) {
            self.file = from.file.take();
            return;
        }
        from.cleanup(cx);
        // Errors have been reported.
        let _ = self.open(cx);
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        burst.iter_mut().for_each(|packet| self.dump(packet));
        self.write_out(cx);
    }

    fn run_task(&mut self, task: Task, cx: &mut Context<'_>) -> bool {
        let mut burst = self.intake.pull(task, 1, cx);
        let worked = !burst.is_empty();
        self.push(0, &mut burst, cx);
        cx.push_burst(0, &mut burst);
        worked
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::write("flush", |e: &mut Self, _, _| {
            let flushed = e.file.as_mut().map_or(Ok(()), Output::flush);
            flushed.map_err(|error| HandlerError::failed(format!("{}: {}", e.path, reason(&error))))
        })]
        .into()
    }

    fn cleanup(&mut self, cx: &mut Context<'_>) {
        if let Some(mut file) = self.file.take()
            && let Err(error) = file.flush()
        {
            cx.chatter(format_args!("{}: {}", self.path, reason(&error)));
        }
    }
}
