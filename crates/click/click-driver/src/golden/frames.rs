//! Frames of a test file: as lines of an IP summary dump, as hexadecimal bytes, or in a capture file.
use super::Complaint;
use super::file::{Section, Text};
use crate::elements::mark_ip;
use ringway_click::{HEADROOM, Packet, Pool};
use ringway_elements::summary::{Item, Reader, Writer};
use ringway_host::read_argument;
use ringway_wire::pcap;
use std::fmt::Write;
use std::path::Path;

/// Largest file of frames, in bytes.
const LARGEST: usize = 64 << 20;
/// Ethernet header of packets of a dump that has no Ethernet fields.
const ETHERNET: [u8; 14] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
/// Nanoseconds between frames without a time.
const GAP: u64 = 1000;

/// A frame and its time, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) time: u64,
    pub(crate) data: Vec<u8>,
}

/// Frames as a section has them.
pub(super) enum Frames {
    Text(Text),
    Capture(Vec<Frame>),
}

impl Frames {
    /// The frames of a section or of its file.
    pub(super) fn of(section: &Section, folder: &Path) -> Result<Self, Complaint> {
        let Some(file) = section.arguments.get(1) else { return Ok(Self::Text(section.body.clone())) };
        let path = folder.join(file);
        let wrong = |error: &dyn std::fmt::Display| section.wrong(format!("{}: {error}", path.display()));
        let bytes = read_argument(&path, LARGEST).map_err(|error| wrong(&error))?;
        if let Ok(Some(_)) = pcap::Header::parse(&bytes) {
            return capture(&bytes).map(Self::Capture).map_err(|error| wrong(&error));
        }
        let text =
            String::from_utf8(bytes).map_err(|_| wrong(&"neither a capture in pcap's format nor text"))?;
        Ok(Self::Text(Text { file: path.display().to_string(), first: 1, text }))
    }

    /// The frames to receive, from `time` on if they have no times.
    pub(super) fn read(self, time: &mut u64) -> Result<Vec<Frame>, Complaint> {
        let text = match self {
            Self::Capture(frames) => {
                *time = frames.last().map_or(*time, |last| last.time);
                return Ok(frames);
            }
            Self::Text(text) => text,
        };
        let mut reader = Reader::default();
        reader.checksums = true;
        let pool = Pool::new();
        let is_dump = is_dump(&text);
        let mut frames = Vec::new();
        for (number, line) in text.lines() {
            let (at, data) = if is_dump {
                let item = reader.line(line, &mut |length| pool.make(HEADROOM, length, 0));
                let Some(packet) =
                    packet(item, line).map_err(|(column, what)| text.complaint(number, column, what))?
                else {
                    continue;
                };
                let at = packet.timestamp();
                let link: &[u8] = if packet.mac_header().is_some() { &[] } else { &ETHERNET };
                ((at > 0).then_some(at), [link, packet.data()].concat())
            } else {
                let read = timed(line).and_then(|(at, hex, column)| Ok((at, bytes(hex, column)?)));
                read.map_err(|(column, what)| text.complaint(number, column, what))?
            };
            *time = at.unwrap_or(*time + GAP);
            frames.push(Frame { time: *time, data });
        }
        Ok(frames)
    }

    /// The differences between the frames sent to a port and the expected ones. `section` expects them.
    pub(super) fn compare(&self, section: &Section, sent: &[Frame]) -> Vec<Complaint> {
        match self {
            Self::Text(text) => compare_text(text, sent),
            Self::Capture(expected) => compare_capture(section, expected, sent),
        }
    }

    /// The text with the frames that were sent in place of the expected ones.
    pub(super) fn rewritten(text: &Text, sent: &[Frame]) -> Result<String, Complaint> {
        let form = Form::of(text)?;
        let keeps = |line: &&str| line.starts_with(['!', '#']);
        let head = text.text.lines().take_while(keeps).map(String::from);
        let mut new: String =
            head.chain(sent.iter().map(|frame| form.show(frame))).map(|line| line + "\n").collect();
        if text.text.ends_with("\n\n") || text.text == "\n" {
            new.push('\n');
        }
        Ok(new)
    }
}

/// A capture file with these frames.
pub(super) fn to_capture(frames: &[Frame]) -> Vec<u8> {
    let header = pcap::Header::ethernet();
    let mut file = header.to_bytes().to_vec();
    for Frame { time, data } in frames {
        let length = data.len() as u32;
        file.extend(header.record_header(*time, length, length));
        file.extend(data);
    }
    file
}

/// The frames of a capture; times are relative to the first one.
fn capture(file: &[u8]) -> Result<Vec<Frame>, pcap::PcapError> {
    let mut first = None;
    let frames = pcap::Reader::new(file)?.map(|record| {
        let pcap::Record { time, data, .. } = record?;
        let time = time.saturating_sub(*first.get_or_insert(time));
        Ok(Frame { time, data: data.to_vec() })
    });
    frames.collect()
}

fn is_dump(text: &Text) -> bool {
    text.lines().next().is_some_and(|(_, line)| line.starts_with('!'))
}

/// The packet of a dump's line, or the column and text of an error.
fn packet(item: Item, line: &str) -> Result<Option<Packet>, (usize, String)> {
    match item {
        Item::Nothing => Ok(None),
        Item::Packet(packet) => Ok(Some(packet)),
        Item::Binary => Err((1, "binary dumps are not supported here".into())),
        Item::Warning(what) | Item::Error(what) => {
            let quoted = what.split('\'').nth(1).and_then(|word| line.find(word));
            Err((quoted.map_or(1, |at| at + 1), what))
        }
    }
}

/// Splits `@SECONDS` off a line. Returns the time, the rest, and its column.
fn timed(line: &str) -> Result<(Option<u64>, &str, usize), (usize, String)> {
    let Some((time, rest)) = line.strip_prefix('@').map(|line| line.split_once(' ').unwrap_or((line, "")))
    else {
        return Ok((None, line, 1));
    };
    let time = seconds(time).ok_or((2, "no time in seconds after `@`".to_string()))?;
    Ok((Some(time), rest, line.len() - rest.len() + 1))
}

/// A time in seconds as nanoseconds.
pub(super) fn seconds(text: &str) -> Option<u64> {
    let time = text.parse::<f64>().ok().filter(|time| (0.0..1e9).contains(time))?;
    Some((time * 1e9).round() as u64)
}

/// The bytes of a line in hexadecimal that begins at `column`.
fn bytes(line: &str, column: usize) -> Result<Vec<u8>, (usize, String)> {
    let mut digits = Vec::new();
    for (at, letter) in line.char_indices().filter(|(_, letter)| !letter.is_whitespace()) {
        let digit = letter
            .to_digit(16)
            .ok_or_else(|| (column + at, format!("'{letter}' is no hexadecimal digit")))?;
        digits.push(digit as u8);
    }
    let (pairs, []) = digits.as_chunks::<2>() else {
        return Err((column + line.len(), "a byte has two digits".into()));
    };
    Ok(pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

/// How frames are written.
enum Form {
    Hex,
    Dump(Writer),
}

impl Form {
    fn of(text: &Text) -> Result<Self, Complaint> {
        if !is_dump(text) {
            return Ok(Self::Hex);
        }
        let named = text.lines().find_map(|(line, text)| Some((line, text.strip_prefix("!data ")?)));
        let Some((line, names)) = named else {
            return Err(text.complaint(text.first, 1, "no `!data` line; it names the fields to compare"));
        };
        let writer = Writer::new(names, false).map_err(|wrong| text.complaint(line, 7, wrong.join("; ")))?;
        Ok(Self::Dump(writer))
    }

    /// A frame as a line.
    fn show(&self, frame: &Frame) -> String {
        let mut line = String::new();
        let Self::Dump(writer) = self else {
            for byte in &frame.data {
                let _ = write!(line, "{byte:02x}");
            }
            return line;
        };
        let Some(mut packet) = Pool::new().copy(&frame.data) else { return line };
        packet.set_mac_header(0);
        packet.set_timestamp(frame.time);
        // All fields of frames other than IP are shown as `-`, except the time.
        let _ = mark_ip(&mut packet, pcap::ETHERNET);
        let mut shown = Vec::new();
        writer.packet(&mut packet, &mut shown);
        String::from_utf8_lossy(&shown).trim_end().to_string()
    }

    /// The column of the first difference between two lines, and its description.
    fn difference(&self, wanted: &str, sent: &str) -> Option<(usize, String)> {
        match self {
            Self::Hex => hex_difference(wanted, sent),
            Self::Dump(writer) => {
                let (wanted, sent) = (words(wanted), words(sent));
                for (index, field) in writer.fields.iter().enumerate() {
                    let (_, is) = sent.get(index)?;
                    let (column, should) = wanted.get(index).copied().unwrap_or((1, ""));
                    if *is != should {
                        return Some((column, format!("{} is {is}, not {should}", field.name())));
                    }
                }
                let (column, word) = wanted.get(writer.fields.len())?;
                Some((*column, format!("'{word}' belongs to no field")))
            }
        }
    }
}

fn hex_difference(wanted: &str, sent: &str) -> Option<(usize, String)> {
    let (wanted, sent) = match (bytes(wanted, 1), bytes(sent, 1)) {
        (Ok(expected), Ok(sent)) => ((wanted, expected), sent),
        (Err(wrong), _) | (_, Err(wrong)) => return Some(wrong),
    };
    let (line, wanted) = wanted;
    let at = wanted.iter().zip(&sent).position(|(wanted, sent)| wanted != sent);
    let column = |byte: usize| {
        let mut digits = line.char_indices().filter(|(_, letter)| !letter.is_whitespace());
        digits.nth(2 * byte).map_or(line.len() + 1, |(at, _)| at + 1)
    };
    match at {
        Some(at) => Some((column(at), format!("byte {at} is {:02x}, not {:02x}", sent[at], wanted[at]))),
        None if wanted.len() == sent.len() => None,
        None => {
            let what = format!("it has {} bytes, not {}", sent.len(), wanted.len());
            Some((column(wanted.len().min(sent.len())), what))
        }
    }
}

/// The words of a line with their columns; a string in double quotes is one word.
fn words(line: &str) -> Vec<(usize, &str)> {
    let mut words = Vec::new();
    let (mut begin, mut quoted, mut escaped) = (None, false, false);
    for (at, letter) in line.char_indices().chain([(line.len(), ' ')]) {
        if letter.is_whitespace() && (!quoted || at == line.len()) {
            words.extend(begin.take().map(|begin| (begin + 1, &line[begin..at])));
            continue;
        }
        begin.get_or_insert(at);
        quoted ^= letter == '"' && !escaped;
        escaped = letter == '\\' && !escaped;
    }
    words
}

fn compare_text(text: &Text, sent: &[Frame]) -> Vec<Complaint> {
    let form = match Form::of(text) {
        Ok(form) => form,
        Err(wrong) => return vec![wrong],
    };
    let expected: Vec<(usize, &str)> = text.lines().filter(|(_, line)| !line.starts_with('!')).collect();
    let mut wrong = Vec::new();
    for (index, ((line, wanted), frame)) in expected.iter().zip(sent).enumerate() {
        if let Some((column, what)) = form.difference(wanted, &form.show(frame)) {
            wrong.push(text.complaint(*line, column, format!("frame {}: {what}", index + 1)));
        }
    }
    if let Some((line, _)) = expected.get(sent.len()) {
        let what = format!("expected {} frames, {} were sent", expected.len(), sent.len());
        wrong.push(text.complaint(*line, 1, what));
    }
    if let Some(next) = sent.get(expected.len()) {
        let line = expected.last().map_or(text.first - 1, |(line, _)| *line);
        let what =
            format!("{} more frames were sent, the next is {}", sent.len() - expected.len(), form.show(next));
        wrong.push(text.complaint(line.max(1), 1, what));
    }
    wrong
}

fn compare_capture(section: &Section, expected: &[Frame], sent: &[Frame]) -> Vec<Complaint> {
    let mut wrong = Vec::new();
    for (index, (wanted, frame)) in expected.iter().zip(sent).enumerate() {
        if wanted.data != frame.data {
            let at = wanted.data.iter().zip(&frame.data).take_while(|(wanted, sent)| wanted == sent).count();
            wrong.push(section.wrong(format!("frame {} differs from byte {at} on", index + 1)));
        }
    }
    if expected.len() != sent.len() {
        let what = format!("expected {} frames, {} were sent", expected.len(), sent.len());
        wrong.push(section.wrong(what));
    }
    wrong
}
