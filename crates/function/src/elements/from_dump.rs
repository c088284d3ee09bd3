//! `FromDump(FILENAME, [STOP, TIMING, ACTIVE, FORCE_IP])`: makes packets of a capture file in tcpdump's format.
//!
//! Ports: one output, push or pull.
//!
//! Arguments:
//! - `FILENAME`: the file; `-` is standard input.
//! - `STOP`: whether the driver is stopped at the end.
//! - `TIMING`: keeps the packets' distances in time.
//! - `ACTIVE`: whether packets are emitted; true by default.
//! - `FORCE_IP`: emits IP packets only, with the place of their IP header noted.
//!
//! Handlers: `encap`, `filesize`, `filepos`, `count` (read); `active` (read, write); `stop` (write).
use crate::file::{Input, reason};
use ringway_click::arg::{Args, Filename};
use ringway_click::{
    Annotations, Class, Context, Element, Failed, Handler, HandlerError, Note, NoteKind, Packet, PacketBurst,
    Search, Task, Timer,
};
use ringway_wire::pcap::{HEADER_LEN, Header, RECORD_LEN};

/// Facts.
pub static CLASS: Class = Class::new("FromDump", || Box::<FromDump>::default()).ports("0/1");

/// Link types: Ethernet; packets without a link header, in several systems' numbers.
const ETHERNET: u16 = 1;
const RAW: [u16; 3] = [101, 12, 14];

/// Reads a capture file.
#[derive(Default)]
pub struct FromDump {
    path: String,
    stop: bool,
    timing: bool,
    active: bool,
    force_ip: bool,
    input: Option<Input>,
    header: Option<Header>,
    record: Vec<u8>,
    body: Vec<u8>,
    waiting: Option<Packet>,
    offset: Option<i64>,
    count: u64,
    task: Option<Task>,
    timer: Option<Timer>,
    note: Option<Note>,
}

/// Notes where the IP header is. False if it is no IP packet.
fn note_ip(packet: &mut Packet, link: u16) -> bool {
    let data = packet.data();
    let at = match link {
        _ if RAW.contains(&link) => 0,
        ETHERNET if matches!(data.get(12..14), Some([8, 0])) => 14,
        ETHERNET if matches!(data.get(12..18), Some([0x81, 0, _, _, 8, 0])) => 18,
        _ => return false,
    };
    let Some(first) = data.get(at).copied() else { return false };
    let header = usize::from(first & 15) * 4;
    if first >> 4 != 4 || header < 20 || data.len() < at + header {
        return false;
    }
    let destination: Option<&[u8; 4]> = data.get(at + 16..).and_then(<[u8]>::first_chunk);
    let destination = destination.copied().unwrap_or_default();
    packet.notes_mut().set_dst_ip(destination);
    packet.set_network_header(at as isize, header);
    true
}

impl FromDump {
    /// Reads the next record. Nothing at the end, or after an error that was said.
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
            let is_ip = note_ip(&mut packet, header.link_type);
            if !self.force_ip || is_ip {
                return Some(packet);
            }
        }
    }

    fn next_packet(&mut self, cx: &mut Context<'_>) -> Option<Packet> {
        let Some(packet) = self.waiting.take().or_else(|| self.read_packet(cx)) else {
            self.input = None;
            if std::mem::take(&mut self.stop) {
                cx.stop();
            }
            return None;
        };
        if self.timing && !self.is_due(packet.notes().timestamp, cx) {
            self.waiting = Some(packet);
            return None;
        }
        self.count += 1;
        Some(packet)
    }

    fn is_due(&mut self, time: u64, cx: &mut Context<'_>) -> bool {
        let (now, time) = (cx.steady() as i64, time as i64);
        let offset = *self.offset.get_or_insert(now.wrapping_sub(time));
        let due = time.wrapping_add(offset);
        if now < due
            && let Some(timer) = self.timer
        {
            cx.set_timer(timer, due as u64);
        }
        now >= due
    }

    fn set_active(&mut self, active: bool, cx: &mut Context<'_>) {
        self.active = active;
        match (self.task, self.note) {
            (Some(task), _) if active => cx.reschedule(task),
            (_, Some(note)) if active => cx.wake(note),
            (_, Some(note)) => cx.sleep(note),
            _ => {}
        }
    }
}

impl Element for FromDump {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut path = Filename::default();
        self.active = true;
        args.read_mp("FILENAME", &mut path);
        args.read_p("TIMING", &mut self.timing);
        args.read("STOP", &mut self.stop);
        args.read("ACTIVE", &mut self.active);
        args.read("FORCE_IP", &mut self.force_ip);
        self.path = path.0;
        self.note = Some(cx.new_note(NoteKind::Empty, Search::Stop));
        args.complete()
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut input = Input::open(&self.path)
            .map_err(|error| cx.error(format!("{}: {}", self.path, reason(&error))))?;
        let read = input.read_bytes(HEADER_LEN, &mut self.record);
        let header = match (read, Header::parse(&self.record)) {
            (Ok(true), Ok(Some(header))) => header,
            (_, Err(error)) => return Err(cx.error(format!("{}: {error}", input.name))),
            _ => return Err(cx.error(format!("{}: not a tcpdump file (too short)", input.name))),
        };
        if self.force_ip && header.link_type != ETHERNET && !RAW.contains(&header.link_type) {
            let text = format!("{}: unknown linktype {}", input.name, header.link_type);
            return Err(cx.error(text));
        }
        (self.header, self.input) = (Some(header), Some(input));
        if cx.output_is_push(0) {
            self.task = Some(cx.new_task(self.active));
        }
        self.timer = Some(cx.new_timer());
        Ok(())
    }

    fn run_task(&mut self, task: Task, cx: &mut Context<'_>) -> bool {
        if !self.active {
            return false;
        }
        for _ in 0..cx.burst() {
            let Some(packet) = self.next_packet(cx) else { return false };
            cx.push(0, packet);
        }
        cx.reschedule(task);
        true
    }

    fn run_timer(&mut self, _: Timer, cx: &mut Context<'_>) {
        if self.active {
            self.set_active(true, cx);
        }
    }

    fn pull(&mut self, _: usize, max: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for _ in 0..if self.active { max } else { 0 } {
            let Some(packet) = self.next_packet(cx) else { break };
            burst.push(packet);
        }
        if burst.is_empty()
            && let Some(note) = self.note
        {
            cx.sleep(note);
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        let read = ["encap", "filesize", "filepos", "count"].map(Handler::read);
        let mut handlers = Vec::from(read);
        handlers.extend([Handler::both("active").checkbox(), Handler::write("stop").button()]);
        handlers
    }

    fn read(&mut self, name: &str, _: &str, _: &mut Context<'_>) -> Result<String, HandlerError> {
        let input = self.input.as_ref();
        Ok(match name {
            "encap" => match self.header {
                Some(header) if RAW.contains(&header.link_type) => "IP".to_string(),
                _ => "ETHER".to_string(),
            },
            "filesize" => input.and_then(|input| input.size).map_or("-".into(), |size| size.to_string()),
            "filepos" => input.map_or(0, |input| input.position).to_string(),
            "count" => self.count.to_string(),
            _ => self.active.to_string(),
        })
    }

    fn write(&mut self, name: &str, value: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        if name == "stop" {
            self.set_active(false, cx);
            cx.stop();
            return Ok(());
        }
        let active = cx.parse(value).map_err(|_| HandlerError::failed("type mismatch"))?;
        self.set_active(active, cx);
        Ok(())
    }
}
