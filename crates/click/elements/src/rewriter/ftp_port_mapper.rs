//! `FTPPortMapper(CONTROL_REWRITER, DATA_REWRITER, DATA_REWRITER_INPUT)`: rewrites FTP's PORT commands of clients
//! behind a rewriter (RFC 959), and adds a flow for the announced data connection.
//!
//! Ports: one input, one output, push or pull. It precedes the control connection's rewriter.
//!
//! Arguments:
//! - `CONTROL_REWRITER`: the TCPRewriter or IPRewriter that follows for control packets.
//! - `DATA_REWRITER`: the rewriter for data connections.
//! - `DATA_REWRITER_INPUT`: its input whose specification is used for them.
//!
//! No handlers.
use super::base::{Rewriter, RewriterKind};
use super::key::FlowKey;
use core::ops::Range;
use ringway_click::prelude::*;
use ringway_wire::checksum::update;
use ringway_wire::{Header, Ipv4, Protocol, Tcp};

pub static CLASS: Class = Class::new("FTPPortMapper", || Box::<FtpPortMapper>::default())
    .ports("1/1")
    .metadata(Metadata::Resolve)
    .live();

#[derive(Debug, Default)]
pub struct FtpPortMapper {
    control: Option<ElementId>,
    data: Option<ElementId>,
    input: usize,
}

/// A PORT command in a payload: the position of its argument, and the parsed argument.
struct Command {
    argument: Range<usize>,
    address: u32,
    port: u16,
}

/// Parses a PORT command at the start of a payload.
fn command(payload: &[u8]) -> Option<Command> {
    if !payload.get(..5)?.eq_ignore_ascii_case(b"PORT ") {
        return None;
    }
    let begin = 5 + payload[5..].iter().take_while(|byte| **byte == b' ').count();
    let is_part = |byte: &&u8| byte.is_ascii_digit() || **byte == b',';
    let end = begin + payload[begin..].iter().take_while(is_part).count();
    if !matches!(payload.get(end), Some(b'\r' | b'\n')) {
        return None;
    }
    let text = core::str::from_utf8(&payload[begin..end]).ok()?;
    let mut numbers = [0u8; 6];
    let mut parts = text.split(',');
    for number in &mut numbers {
        *number = parts.next()?.parse().ok()?;
    }
    if parts.next().is_some() {
        return None;
    }
    let [a, b, c, d, high, low] = numbers;
    let (address, port) = (u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([high, low]));
    Some(Command { argument: begin..end, address, port })
}

impl FtpPortMapper {
    /// Rewrites the PORT command of a packet, if there is one.
    fn map(&self, packet: &mut Packet, cx: &mut Context<'_>) -> Option<()> {
        let data = packet.network_data()?;
        let (ip, _, segment) = Ipv4::parse(data).filter(|(ip, ..)| ip.protocol == Protocol::TCP)?;
        let (header, own) = (ip.header_len(), Tcp::header_len_of(segment)?);
        let text = segment.get(own..)?;
        let found = command(text)?;
        let control = FlowKey::of(ip, segment)?;
        let (payload, length) = (header + own, text.len() as u32);
        let sequence = Tcp::padded(segment).sequence_number.get();
        let data = FlowKey {
            source: found.address,
            source_port: found.port,
            destination: control.destination,
            destination_port: control.destination_port.wrapping_sub(1),
        };
        let (control_id, data_id) = (self.control?, self.data?);
        let (flow, reply) = cx.element::<Rewriter>(control_id)?.find(Protocol::TCP, control)?;
        let note = cx.element::<Rewriter>(control_id)?.with_flow(flow, |flow| flow.reply_note)?;
        let to = cx.with(data_id, |rewriter: &mut Rewriter, cx| {
            let (flow, reply) = rewriter.find_or_add(Protocol::TCP, data, self.input, cx)?;
            rewriter.with_flow(flow, |flow| {
                flow.reply_note = note;
                flow.rewritten(reply)
            })
        })??;
        let ([a, b, c, d], [high, low]) = (to.source.to_be_bytes(), to.source_port.to_be_bytes());
        let argument = format!("{a},{b},{c},{d},{high},{low}");
        let range = payload + found.argument.start..payload + found.argument.end;
        let by = argument.len() as i32 - range.len() as i32;
        replace(packet, range, argument.as_bytes())?;
        fix(packet)?;
        cx.element::<Rewriter>(control_id)?.with_flow(flow, |flow| {
            flow.shifts.get_or_insert_default().add(reply, sequence.wrapping_add(length), by)
        });
        Some(())
    }
}

/// Replaces a range of bytes, counted from the network header.
fn replace(packet: &mut Packet, range: Range<usize>, bytes: &[u8]) -> Option<()> {
    let length = packet.network_data()?.len();
    if bytes.len() > range.len() && !packet.put(bytes.len() - range.len()) {
        return None;
    }
    let data = packet.network_data_mut()?;
    data.copy_within(range.end..length, range.start + bytes.len());
    data.get_mut(range.start..range.start + bytes.len())?.copy_from_slice(bytes);
    packet.take(range.len().saturating_sub(bytes.len()));
    Some(())
}

/// Updates lengths and checksums after the payload has changed.
fn fix(packet: &mut Packet) -> Option<()> {
    let data = packet.network_data_mut()?;
    let length = u16::try_from(data.len()).ok()?;
    let (ip, _, segment) = Ipv4::parse_mut(data)?;
    ip.checksum.set(update(ip.checksum.get(), ip.total_length.get(), length));
    ip.total_length.set(length);
    Tcp::fill_checksum(segment, ip.pseudo_header(length - ip.header_len() as u16))
}

impl Element for FtpPortMapper {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_mp("CONTROL_REWRITER", &mut self.control);
        args.read_mp("DATA_REWRITER", &mut self.data);
        args.read_mp("DATA_REWRITER_INPUT", &mut self.input);
        args.complete()
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let kind = |id: Option<ElementId>| cx.element::<Rewriter>(id?).map(Rewriter::kind);
        if !matches!(kind(self.control), Some(RewriterKind::Tcp | RewriterKind::Ip)) {
            return Err(cx.error("CONTROL_REWRITER: element is not a TCPRewriter"));
        }
        let Some(data) = self.data.and_then(|data| cx.element::<Rewriter>(data)) else {
            return Err(cx.error("DATA_REWRITER: element is not a rewriter"));
        };
        if self.input >= data.inputs() {
            return Err(cx.error("DATA_REWRITER_INPUT out of range"));
        }
        Ok(())
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for packet in burst.iter_mut() {
            let _ = self.map(packet, cx);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_commands_are_parsed() {
        let found = command(b"port  200,1,2,3,4,5\r\n").unwrap();
        assert_eq!((found.address, found.port), (0xc801_0203, 0x0405));
        assert_eq!(found.argument, 6..19);
        for wrong in
            [&b"PORT 1,2,3,4,5\n"[..], b"PORT 1,2,3,4,5,256\n", b"PORT 1,2,3,4,5,6", b"PASV\n", b"PORT"]
        {
            assert!(command(wrong).is_none());
        }
    }
}
