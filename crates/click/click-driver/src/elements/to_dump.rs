//! `ToDump(FILENAME, [SNAPLEN, ENCAP, keywords])`: writes packets to a capture file in tcpdump's format.
//!
//! Ports: one input, push or pull; optionally one push output, which passes the packets on.
//!
//! Arguments:
//! - `FILENAME`: the file; `-` is standard output.
//! - `SNAPLEN`: largest number of bytes written per packet; 2000 by default, all if 0.
//! - `ENCAP`: the packets' first header: `ETHER` (the default), `IP`, `NULL`, `PPP`, `PPP_HDLC`, `HDLC`, `SLL`,
//!   `FDDI`, `ATM`, `SUNATM`, `802_11`, `802_11_RADIO`, `PRISM`, `AIRONET`, or a link type's number after `#`.
//! - `USE_ENCAP_FROM`: elements whose `encap` handlers return it instead; these must agree.
//! - `EXTRA_LENGTH`: the original length includes bytes that were not captured; true by default.
//! - `UNBUFFERED`: each packet is written to the file at once; false by default.
//! - `NANO`: times have nanoseconds, not microseconds; true by default.
//!
//! Handlers: `count`, `filename` (read); `reset_counts`, `flush` (write).
use super::intake::Intake;
use super::link_type::{ETHERNET, parse_link};
use crate::file::{Output, reason};
use ringway_click::arg::{Args, Filename, Raw, Word};
use ringway_click::{
    Annotations, Class, Context, Element, Failed, Handler, HandlerError, Metadata, Packet, PacketBurst, Task,
};
use ringway_click_lang::config;
use ringway_wire::pcap::{Header, LONGEST};

pub static CLASS: Class = Class::new("ToDump", || Box::<ToDump>::default())
    .ports("1/0-1")
    .processing("a/h")
    .flags("S2")
    .metadata(Metadata::Resolve);

#[derive(Default)]
pub struct ToDump {
    path: String,
    header: Option<Header>,
    length: usize,
    extra_length: bool,
    unbuffered: bool,
    /// Elements from which the link type is read.
    encap_from: String,
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
        let time = match packet.timestamp() {
            0 => cx.now(),
            time => time,
        };
        self.put(&header.record_header(time, kept.len() as u32, original), cx);
        self.put(kept, cx);
        self.count += 1;
        if self.unbuffered
            && let Err(text) = self.flush()
        {
            cx.chatter(format_args!("{text}"));
        }
    }

    /// The link type that all of the elements in USE_ENCAP_FROM report.
    fn shared_link(&self, cx: &mut Context<'_>) -> Result<u16, Failed> {
        let mut types: Vec<(String, String, u16)> = Vec::new();
        for name in config::split_words(&self.encap_from) {
            if cx.find(&name).is_none() {
                return Err(cx.error(format!("no element named '{name}'")));
            }
            let call = cx.handler_call(&format!("{name}.encap"), false);
            let call = call.map_err(|_| cx.error(format!("'{name}' has no 'encap' read handler")))?;
            let text = cx.read(&call).map_err(|error| cx.error(error.to_string()))?;
            let link = parse_link(text.trim());
            let bad = "did not return a valid encapsulation type";
            let link = link.ok_or_else(|| cx.error(format!("'{name}.encap' {bad}")))?;
            types.push((name, text, link));
        }
        let Some((.., first)) = types.first() else {
            return Err(cx.error("element names missing after 'USE_ENCAP_FROM'"));
        };
        if types.iter().any(|(.., link)| link != first) {
            cx.error("source encapsulation types disagree:");
            for (name, text, _) in &types {
                cx.error(format!("  {name} has {text}"));
            }
            return Err(Failed);
        }
        Ok(*first)
    }

    fn flush(&mut self) -> Result<(), String> {
        let flushed = self.file.as_mut().map_or(Ok(()), Output::flush);
        flushed.map_err(|error| format!("{}: {}", self.path, reason(&error)))
    }
}

impl Element for ToDump {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let (mut path, mut encap, mut encap_from) = (Filename::default(), Word::default(), Raw::default());
        let (mut length, mut nanoseconds) = (2000u32, true);
        self.extra_length = true;
        args.read_mp("FILENAME", &mut path);
        args.read_p("SNAPLEN", &mut length);
        args.read_p("ENCAP", &mut encap);
        args.read("USE_ENCAP_FROM", &mut encap_from);
        args.read("EXTRA_LENGTH", &mut self.extra_length);
        args.read("UNBUFFERED", &mut self.unbuffered);
        args.read("NANO", &mut nanoseconds);
        args.complete()?;
        if !encap.0.is_empty() && !encap_from.0.is_empty() {
            return Err(cx.error("specify at most one of 'ENCAP' and 'USE_ENCAP_FROM'"));
        }
        let link_type = match encap.0.as_str() {
            "" => ETHERNET,
            name => parse_link(name).ok_or_else(|| cx.error("bad encapsulation type"))?,
        };
        // As in Click, the file's header has the largest number if there is no limit.
        let snap_len = if length == 0 { u32::MAX } else { length };
        self.header = Some(Header { nanoseconds, snap_len, link_type, ..Header::ethernet() });
        let length = snap_len.min(LONGEST);
        (self.length, self.path, self.encap_from) = (length as usize, path.0, encap_from.0);
        Output::check(&self.path, cx)
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        if !self.encap_from.is_empty() {
            let link_type = self.shared_link(cx)?;
            self.header = self.header.map(|header| Header { link_type, ..header });
        }
        if !cx.has_predecessor() {
            self.open(cx)?;
        }
        self.intake = Intake::new(cx);
        Ok(())
    }

    /// Continues in the same file.
    fn take_state(&mut self, from: &mut dyn Element, cx: &mut Context<'_>) {
        let Some(from) = from.downcast_mut::<Self>() else { return };
        if (&self.path, self.header) == (&from.path, from.header) {
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
            Handler::read(
                "filename",
                |e: &Self| if e.path == "-" { "<stdout>".into() } else { e.path.clone() },
            ),
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
