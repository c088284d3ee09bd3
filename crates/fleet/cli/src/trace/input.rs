//! The frame to trace, from the command line, standard input or a capture.

use crate::arguments::TraceArguments;
use crate::command_error::CommandError;
use ringway_host::{read_argument, read_whole};
use ringway_wire::fields::{Described, FieldsError, hex};
use ringway_wire::pcapng::{Block, Decoder};
use ringway_wire::{pcap as classic, pcapng};

/// Largest capture or text, in bytes.
const MAX_INPUT_LEN: usize = 1 << 30;
/// How a frame is given, for messages.
const HINT: &str = "give the frame, such as `tcp,dl_dst=02:00:00:00:00:02,nw_dst=10.0.0.2,tp_dst=80`";

/// A frame, and the port that it enters.
#[derive(Debug, PartialEq, Eq)]
pub struct Input {
    /// The port.
    pub port: String,
    /// The frame in the form that the API reads.
    pub frame: String,
}

/// Reads the frame that the command line names.
pub fn read(arguments: &TraceArguments) -> Result<Input, CommandError> {
    let TraceArguments { port, description, read, frame: number, .. } = arguments;
    let index = number.map_or(0, |number| number - 1);
    // A single word with fields is the frame.
    let is_frame = |word: &String| word == "-" || word.contains(['=', ',']);
    let (port, description) = match (port, description) {
        (Some(word), None) if read.is_none() && is_frame(word) => (None, Some(word)),
        (port, description) => (port.clone(), description.as_ref()),
    };
    let (text, frame) = match (read, description.map(|text| &**text)) {
        (Some(file), _) => {
            let name = file.display().to_string();
            let failed = |error| CommandError::Failed(format!("{name}: {error}; give the path of a capture"));
            let bytes = read_argument(file, MAX_INPUT_LEN).map_err(failed)?;
            (None, captured(&bytes, &name, index)?)
        }
        (None, Some("-")) => {
            let bytes = read_whole(std::io::stdin(), MAX_INPUT_LEN).map_err(CommandError::because)?;
            match is_capture(&bytes) {
                true => (None, captured(&bytes, "standard input", index)?),
                false => {
                    let text = String::from_utf8_lossy(&bytes).trim_end().to_string();
                    (Some(text.clone()), text)
                }
            }
        }
        (None, Some(text)) => (Some(text.to_string()), text.to_string()),
        (None, None) => return Err(CommandError::Failed(format!("there is no frame; {HINT}"))),
    };
    if text.is_some() && number.is_some() {
        return Err(CommandError::Failed(
            "--frame is the number of a frame in a capture; leave it out".into(),
        ));
    }
    let Some(text) = text else {
        let port = port.ok_or_else(|| {
            CommandError::Failed("name the port that the frame enters, before --read".into())
        })?;
        return Ok(Input { port, frame });
    };
    let described = Described::read(&text).map_err(|error| CommandError::Failed(placed(&text, &error)))?;
    let port = match (port, described.in_port) {
        (Some(port), Some((other, column))) if port != other => {
            let other = other.escape_debug();
            let what = format!("in_port is \"{other}\", but the port is \"{port}\"; leave one out");
            return Err(CommandError::Failed(placed(&text, &FieldsError { column, what })));
        }
        (Some(port), _) | (None, Some((port, _))) => port,
        (None, None) => {
            let what =
                format!("the frame has no port: name it before the frame, or as in in_port=NAME,{text}");
            return Err(CommandError::Failed(what));
        }
    };
    Ok(Input { port, frame })
}

/// An error in a text, with its line if there are several.
fn placed(text: &str, error: &FieldsError) -> String {
    let FieldsError { column, what } = error;
    let before: String = text.chars().take(column.saturating_sub(1)).collect();
    match text.contains('\n') {
        true => {
            let line = before.matches('\n').count() + 1;
            let column = before.chars().rev().take_while(|letter| *letter != '\n').count() + 1;
            format!("the frame, line {line}, column {column}: {what}")
        }
        false => format!("the frame \"{}\", column {column}: {what}", text.escape_debug()),
    }
}

fn is_capture(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]) || matches!(classic::Header::parse(bytes), Ok(Some(_)))
}

/// A frame of a capture, in hexadecimal.
fn captured(file: &[u8], name: &str, index: u64) -> Result<String, CommandError> {
    let wrong = |what: String| CommandError::Failed(format!("{name}: {what}"));
    let mut count = 0;
    let mut found = None;
    let mut frame = |len: u32, data: &[u8], is_ethernet: bool| {
        if count == index {
            found = Some((len, data.to_vec(), is_ethernet));
        }
        count += 1;
        found.is_some()
    };
    let damaged = if file.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]) {
        let (mut decoder, mut rest) = (Decoder::new(), file);
        loop {
            match decoder.next(rest) {
                Ok(Some((block, len))) => {
                    if let Block::Packet(pcapng::Packet { interface, original_len, data, .. }) = block {
                        let interface = decoder.interfaces().get(interface as usize);
                        let is_ethernet = interface.is_some_and(|one| one.link_type == classic::ETHERNET);
                        if frame(original_len, data, is_ethernet) {
                            break None;
                        }
                    }
                    rest = rest.get(len..).unwrap_or(&[]);
                    if rest.is_empty() {
                        break None;
                    }
                }
                Ok(None) => break Some("it ends within a block".to_string()),
                Err(error) => break Some(error.to_string()),
            }
        }
    } else {
        let reader = classic::Reader::new(file).map_err(|error| wrong(error.to_string()))?;
        let is_ethernet = reader.header().link_type == classic::ETHERNET;
        let mut damaged = None;
        for record in reader {
            match record {
                Ok(record) if frame(record.original_len, record.data, is_ethernet) => break,
                Ok(_) => {}
                Err(error) => damaged = Some(error.to_string()),
            }
        }
        damaged
    };
    let number = index + 1;
    match found {
        None => {
            let end = damaged.map_or_else(String::new, |why| format!("; {why}"));
            Err(wrong(format!("there is no frame {number}; it has {count}{end}")))
        }
        Some((.., false)) => Err(wrong(format!("frame {number} is no Ethernet frame"))),
        Some((len, data, _)) if (data.len() as u64) < u64::from(len) => {
            let what = format!("frame {number} was cut by its recorder: {} of {len} bytes", data.len());
            Err(wrong(format!("{what}; record without a limit")))
        }
        Some((_, data, _)) => Ok(hex(&data)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Arguments, Command};
    use clap::Parser;

    fn parse(words: &[&str]) -> Result<Input, String> {
        let words = ["ringway", "trace"].iter().chain(words);
        let arguments = Arguments::try_parse_from(words).map_err(|error| error.to_string())?;
        let Command::Trace(arguments) = arguments.command else { return Err("other".into()) };
        read(&arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn the_port_is_before_the_frame_or_in_it() {
        let input = |port: &str, frame: &str| Ok(Input { port: port.into(), frame: frame.into() });
        assert_eq!(parse(&["left", "udp"]), input("left", "udp"));
        assert_eq!(parse(&["in_port=left,udp"]), input("left", "in_port=left,udp"));
        assert_eq!(parse(&["left", "0200"]), input("left", "0200"));
        let wrong = |words: &[&str]| parse(words).unwrap_err();
        assert!(wrong(&["left"]).starts_with("there is no frame; give the frame"), "{}", wrong(&["left"]));
        assert!(wrong(&["udp,tp_dst=1"]).starts_with("the frame has no port"));
        assert_eq!(
            wrong(&["left", "udp,in_port=right"]),
            "the frame \"udp,in_port=right\", column 13: in_port is \"right\", but the port is \"left\"; \
             leave one out"
        );
        assert_eq!(
            wrong(&["left", "tcp,nw_dts=10.0.0.2"]),
            "the frame \"tcp,nw_dts=10.0.0.2\", column 5: unknown word `nw_dts`; the fields are those of \
             `man ovs-fields`"
        );
        assert!(wrong(&["left", "udp", "--frame", "2"]).starts_with("--frame is"));
        assert!(wrong(&["left", "udp", "--live", "2"]).contains("cannot be used with"));
    }

    #[test]
    fn a_frame_of_a_capture_is_found_by_its_number() {
        let header = classic::Header::ethernet();
        let mut file = header.to_bytes().to_vec();
        for number in 0..3u8 {
            file.extend_from_slice(&header.record_header(0, 20, if number == 1 { 90 } else { 20 }));
            file.extend_from_slice(&[number; 20]);
        }
        assert!(is_capture(&file) && !is_capture(b"tcp,nw_dst=10.0.0.2"));
        assert_eq!(captured(&file, "f", 2).map_err(|error| error.to_string()), Ok("02".repeat(20)));
        let error = |file: &[u8], index| captured(file, "f", index).unwrap_err().to_string();
        assert_eq!(
            error(&file, 1),
            "f: frame 2 was cut by its recorder: 20 of 90 bytes; record without a limit"
        );
        assert_eq!(error(&file, 3), "f: there is no frame 4; it has 3");
        assert!(error(&file[..file.len() - 1], 2).starts_with("f: there is no frame 3; it has 2; "));
        assert!(error(b"nonsense", 0).starts_with("f: "));
        let mut new = Vec::new();
        pcapng::write_section(&mut new);
        pcapng::write_interface(&mut new, "x");
        let direction = pcapng::Direction::Unknown;
        let packet = pcapng::Packet { interface: 0, time: 5, original_len: 3, direction, data: &[7; 3] };
        pcapng::write_packet(&mut new, &packet);
        assert_eq!(captured(&new, "f", 0).map_err(|error| error.to_string()), Ok("070707".into()));
        assert_eq!(error(&new, 1), "f: there is no frame 2; it has 1");
    }

    #[test]
    fn errors_of_several_lines_have_their_line() {
        let error = Described::read("0200\n0g").unwrap_err();
        assert_eq!(placed("0200\n0g", &error), "the frame, line 2, column 2: `g` is no hexadecimal digit");
    }
}
