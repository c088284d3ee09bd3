//! The file in which AggregateIPFlows describes flows, as XML.
use crate::printout::Printout;
use core::net::Ipv4Addr;
use ringway_click::HandlerCall;
use ringway_click::arg::{Filename, Word};
use ringway_click::prelude::*;

/// Statistics of a flow.
#[derive(Debug, Default)]
pub(super) struct Statistics {
    /// Timestamp of the first packet.
    pub(super) first: u64,
    /// Packets in both directions.
    pub(super) packets: [u32; 2],
    /// File offset of the first packet in the trace; 0 if unknown.
    position: u64,
}

/// A flow's number, and addresses and ports of its initiator and its responder.
pub(super) type Identity = (u32, [(u32, u16); 2]);

/// The XML file, if configured.
#[derive(Debug, Default)]
pub(super) struct FlowTrace {
    file: Option<Printout>,
    source: String,
    position: Option<HandlerCall>,
}

impl FlowTrace {
    /// Reads `TRACEINFO` and `SOURCE`.
    pub(super) fn read(&mut self, args: &mut Args) {
        let (mut path, mut source) = (Filename::default(), Word::default());
        if args.read("TRACEINFO", &mut path) {
            self.file = Some(Printout::to_file(path.0));
        }
        args.read("SOURCE", &mut source);
        self.source = source.0;
    }

    /// Checks that the file can be created here.
    pub(super) fn check(&self, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.file.as_ref().map_or(Ok(()), |file| file.check(cx))
    }

    /// Creates the file and writes the opening tags.
    pub(super) fn begin(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        if !self.source.is_empty() && cx.find(&self.source).is_none() {
            return Err(cx.error(format!("no element named '{}'", self.source)));
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        file.create(cx)?;
        file.print("<?xml version='1.0' standalone='yes'?>", cx);
        let name = cx.handler_call(&format!("{}.filename", self.source), false).ok();
        let name = name.and_then(|call| cx.read(&call).ok()).unwrap_or_default();
        self.position = cx.handler_call(&format!("{}.packet_filepos", self.source), false).ok();
        match name.trim_ascii() {
            "" => file.print("<trace>", cx),
            name => file.print(&format!("<trace file='{name}'>"), cx),
        }
        Ok(())
    }

    /// Statistics of a new flow.
    pub(super) fn first_packet(&self, time: u64, cx: &mut Context<'_>) -> Statistics {
        let position = self.position.as_ref().and_then(|call| cx.read(call).ok());
        let position = position.and_then(|text| text.trim_ascii().parse().ok()).unwrap_or(0);
        Statistics { first: time, packets: [0; 2], position }
    }

    /// Writes a flow that has ended.
    pub(super) fn describe(&mut self, flow: Identity, last: u64, about: &Statistics, cx: &mut Context<'_>) {
        let Some(file) = &mut self.file else { return };
        let (number, [source, destination]) = flow;
        let [source_ip, destination_ip] = [source, destination].map(|end| Ipv4Addr::from_bits(end.0));
        let time = |time: u64| format!("{}.{:09}", time / SECOND, time % SECOND);
        let mut line = format!(
            "<flow aggregate='{number}' src='{source_ip}' sport='{}' dst='{destination_ip}' dport='{}' \
             begin='{}' duration='{}'",
            source.1,
            destination.1,
            time(about.first),
            time(last.saturating_sub(about.first)),
        );
        if about.position > 0 {
            line += &format!(" filepos='{}'", about.position);
        }
        let [there, back] = about.packets;
        line +=
            &format!(">\n  <stream dir='0' packets='{there}' /><stream dir='1' packets='{back}' />\n</flow>");
        file.print(&line, cx);
    }

    /// Writes the closing tag.
    pub(super) fn end(&mut self, cx: &mut Context<'_>) {
        if let Some(mut file) = self.file.take() {
            file.print("</trace>", cx);
            file.flush(cx);
        }
    }
}
