//! TCP options (RFC 9293, RFC 7323, RFC 2018) as text, and back.
use super::scan::Scan;
use core::fmt::Write;
use ringway_click::prelude::*;
use ringway_wire::ip::options;
use ringway_wire::tcp::option::{END, MAX_SEGMENT_SIZE, NOP, SACK, SACK_PERMITTED, TIMESTAMPS, WINDOW_SCALE};

/// Maximum length of the options of a header.
const LONGEST: usize = 40;

/// The selected options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OptionSet {
    All,
    NoTimestamps,
    Sack,
}

impl OptionSet {
    fn includes(self, kind: u8) -> bool {
        match self {
            Self::All => true,
            Self::NoTimestamps => kind != TIMESTAMPS,
            Self::Sack => matches!(kind, SACK | SACK_PERMITTED),
        }
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Writes options; `?` if they are malformed, `.` if there are none.
pub(super) fn unparse(bytes: &[u8], set: OptionSet, out: &mut impl Write) -> core::fmt::Result {
    let mut text = String::new();
    for option in options(bytes) {
        let Some(option) = option else { return out.write_char('?') };
        if !set.includes(option[0]) {
            continue;
        }
        if one(option, &mut text).is_none() {
            return out.write_char('?');
        }
    }
    out.write_str(if text.is_empty() { "." } else { &text })
}

fn one(option: &[u8], text: &mut String) -> Option<()> {
    if !text.is_empty() {
        text.push(';');
    }
    let done = match (option[0], option.len()) {
        (MAX_SEGMENT_SIZE, 4) => write!(text, "mss{}", u16::from_be_bytes([option[2], option[3]])),
        (WINDOW_SCALE, 3) => write!(text, "wscale{}", option[2]),
        (SACK_PERMITTED, 2) => write!(text, "sackok"),
        (SACK, length) if length % 8 == 2 => {
            for (index, at) in (2..length).step_by(8).enumerate() {
                let separator = if index > 0 { ";" } else { "" };
                write!(text, "{separator}sack{}-{}", word(option, at)?, word(option, at + 4)?).ok()?;
            }
            Ok(())
        }
        (TIMESTAMPS, 10) => write!(text, "ts{}:{}", word(option, 2)?, word(option, 6)?),
        (MAX_SEGMENT_SIZE | WINDOW_SCALE | SACK_PERMITTED | SACK | TIMESTAMPS, _) => return None,
        _ => super::scan::unparse_unknown(option, text),
    };
    done.ok()
}

/// Copies the selected options.
pub(super) fn filter(bytes: &[u8], set: OptionSet, out: &mut Vec<u8>) {
    if set == OptionSet::All {
        out.extend_from_slice(bytes);
        return;
    }
    for option in options(bytes).map_while(|option| option) {
        if set.includes(option[0]) {
            out.extend_from_slice(option);
        }
    }
}

/// Parses options; `None` if the text is malformed or the options exceed a header.
pub(super) fn parse(text: &str, out: &mut Vec<u8>) -> Option<()> {
    out.clear();
    if text == "." {
        return Some(());
    }
    let mut scan = Scan::new(text);
    // Offset of the SACK option to which further blocks are added.
    let mut open = None;
    loop {
        open = option(&mut scan, open, out)?;
        // Attack: a dump whose options exceed any header.
        if out.len() > LONGEST {
            return None;
        }
        if scan.is_done() {
            break;
        }
        // As in Click, a comma adds a block to a SACK option, and a semicolon begins another option.
        if scan.take(";") {
            open = None;
        } else if !scan.take(",") {
            return None;
        }
    }
    pad(out);
    if out.len() > LONGEST { None } else { Some(()) }
}

/// Pads options that don't fill words at the front, as TCP stacks do.
fn pad(out: &mut Vec<u8>) {
    match (out.first(), out.len()) {
        (Some(&TIMESTAMPS), 10) => drop(out.splice(0..0, [NOP, NOP])),
        (Some(&SACK), length) if length % 4 == 2 => drop(out.splice(0..0, [NOP, NOP])),
        (Some(&SACK_PERMITTED), 2) => drop(out.splice(0..0, [NOP, NOP])),
        (Some(&WINDOW_SCALE), 3) => out.insert(0, NOP),
        _ => {}
    }
}

fn option(scan: &mut Scan<'_>, open: Option<usize>, out: &mut Vec<u8>) -> Option<Option<usize>> {
    if scan.take("mss") {
        out.extend([MAX_SEGMENT_SIZE, 4]);
        out.extend(u16::try_from(scan.number()?).ok()?.to_be_bytes());
    } else if scan.take("wscale") {
        out.extend([WINDOW_SCALE, 3, u8::try_from(scan.number()?).ok()?]);
    } else if scan.take("sackok") {
        out.extend([SACK_PERMITTED, 2]);
    } else if scan.take("sack") {
        let from = u32::try_from(scan.number()?).ok()?;
        if !scan.take("-") && !scan.take(":") {
            return None;
        }
        let to = u32::try_from(scan.number()?).ok()?;
        let at = open.unwrap_or_else(|| {
            out.extend([SACK, 2]);
            out.len() - 2
        });
        out[at + 1] = out[at + 1].checked_add(8)?;
        out.extend(from.to_be_bytes());
        out.extend(to.to_be_bytes());
        return Some(Some(at));
    } else if scan.take("ts") {
        out.extend([TIMESTAMPS, 10]);
        out.extend(u32::try_from(scan.number()?).ok()?.to_be_bytes());
        if !scan.take(":") {
            return None;
        }
        out.extend(u32::try_from(scan.number()?).ok()?.to_be_bytes());
    } else if scan.take("nop") {
        out.push(NOP);
    } else if scan.take("eol") {
        out.push(END);
    } else {
        scan.unknown(out)?;
    }
    Some(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(text: &str, set: OptionSet) -> Option<String> {
        let (mut bytes, mut out) = (Vec::new(), String::new());
        parse(text, &mut bytes)?;
        unparse(&bytes, set, &mut out).unwrap();
        Some(out)
    }

    #[test]
    fn options_are_read_and_written() {
        for text in
            [".", "wscale10", "mss1400;sackok;ts669063908:38382731", "sack95-98;sack1-2", "98", "99=0:5"]
        {
            assert_eq!(again(text, OptionSet::All).as_deref(), Some(text));
        }
        let text = "mss1400;sackok;ts1:2";
        assert_eq!(again(text, OptionSet::NoTimestamps).as_deref(), Some("mss1400;sackok"));
        assert_eq!(again(text, OptionSet::Sack).as_deref(), Some("sackok"));
        assert_eq!(again("sack1:18", OptionSet::All).as_deref(), Some("sack1-18"));
        let lengths = |text| {
            let mut bytes = Vec::new();
            parse(text, &mut bytes).map(|()| (bytes[0], bytes[1], bytes.len()))
        };
        assert_eq!(lengths("sack1-2;sack3-4"), Some((SACK, 10, 20)));
        assert_eq!(lengths("sack1-2,sack3-4"), Some((NOP, NOP, 20)));
        for wrong in ["mss", "mss99999999", "sack1", "ts1", "x", "", "mss1;", "256"] {
            assert_eq!(again(wrong, OptionSet::All), None, "{wrong}");
        }
    }

    #[test]
    fn options_without_timestamps_are_kept() {
        let mut out = Vec::new();
        filter(&[1, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0, 4, 2], OptionSet::NoTimestamps, &mut out);
        assert_eq!(out, [4, 2]);
    }
}
