//! TCP options (RFC 9293, RFC 7323, RFC 2018) as text, and back.
use super::scan::Scan;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

const END: u8 = 0;
const NOP: u8 = 1;
const SEGMENT: u8 = 2;
const SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMP: u8 = 8;

/// Bytes of options that a header can hold.
const LONGEST: usize = 40;

/// Which options are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    All,
    NoTimestamps,
    Sack,
}

impl Wanted {
    fn includes(self, kind: u8) -> bool {
        match self {
            Self::All => true,
            Self::NoTimestamps => kind != TIMESTAMP,
            Self::Sack => matches!(kind, SACK | SACK_PERMITTED),
        }
    }
}

/// The options one by one, without padding; an error for what is none.
fn split(mut options: &[u8]) -> impl Iterator<Item = Result<&[u8], ()>> {
    core::iter::from_fn(move || {
        while options.first() == Some(&NOP) {
            options = &options[1..];
        }
        let kind = *options.first()?;
        if kind == END {
            return None;
        }
        let length = usize::from(options.get(1).copied().unwrap_or(0));
        let Some((option, rest)) = options.split_at_checked(length).filter(|_| length >= 2) else {
            options = &[];
            return Some(Err(()));
        };
        options = rest;
        Some(Ok(option))
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Writes options; `?` if they are broken, `.` if there are none.
pub(super) fn unparse(options: &[u8], wanted: Wanted, out: &mut impl Write) -> core::fmt::Result {
    let mut text = String::new();
    for option in split(options) {
        let Ok(option) = option else { return out.write_char('?') };
        if !wanted.includes(option[0]) {
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
        (SEGMENT, 4) => write!(text, "mss{}", u16::from_be_bytes([option[2], option[3]])),
        (SCALE, 3) => write!(text, "wscale{}", option[2]),
        (SACK_PERMITTED, 2) => write!(text, "sackok"),
        (SACK, length) if length % 8 == 2 => {
            for (index, at) in (2..length).step_by(8).enumerate() {
                let separator = if index > 0 { ";" } else { "" };
                write!(text, "{separator}sack{}-{}", word(option, at)?, word(option, at + 4)?).ok()?;
            }
            Ok(())
        }
        (TIMESTAMP, 10) => write!(text, "ts{}:{}", word(option, 2)?, word(option, 6)?),
        (SEGMENT | SCALE | SACK_PERMITTED | SACK | TIMESTAMP, _) => return None,
        _ => super::scan::unparse_unknown(option, text),
    };
    done.ok()
}

/// Those options that are wanted, as bytes.
pub(super) fn filter(options: &[u8], wanted: Wanted, out: &mut Vec<u8>) {
    if wanted == Wanted::All {
        out.extend_from_slice(options);
        return;
    }
    for option in split(options).map_while(Result::ok) {
        if wanted.includes(option[0]) {
            out.extend_from_slice(option);
        }
    }
}

/// Reads options; nothing if the text is none or they would not fit a header.
pub(super) fn parse(text: &str, out: &mut Vec<u8>) -> Option<()> {
    out.clear();
    if text == "." {
        return Some(());
    }
    let mut scan = Scan::new(text);
    // Where the SACK option is that further blocks are added to.
    let mut open = None;
    loop {
        open = option(&mut scan, open, out)?;
        // Attack: a dump whose options are longer than any header.
        if out.len() > LONGEST {
            return None;
        }
        if scan.is_done() {
            break;
        }
        if !scan.take(";") && !scan.take(",") {
            return None;
        }
    }
    pad(out);
    if out.len() > LONGEST { None } else { Some(()) }
}

/// Options that don't fill words get their padding in front, where stacks put it.
fn pad(out: &mut Vec<u8>) {
    match (out.first(), out.len()) {
        (Some(&TIMESTAMP), 10) => drop(out.splice(0..0, [NOP, NOP])),
        (Some(&SACK), length) if length % 4 == 2 => drop(out.splice(0..0, [NOP, NOP])),
        (Some(&SACK_PERMITTED), 2) => drop(out.splice(0..0, [NOP, NOP])),
        (Some(&SCALE), 3) => out.insert(0, NOP),
        _ => {}
    }
}

fn option(scan: &mut Scan<'_>, open: Option<usize>, out: &mut Vec<u8>) -> Option<Option<usize>> {
    if scan.take("mss") {
        out.extend([SEGMENT, 4]);
        out.extend(u16::try_from(scan.number()?).ok()?.to_be_bytes());
    } else if scan.take("wscale") {
        out.extend([SCALE, 3, u8::try_from(scan.number()?).ok()?]);
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
        out.extend([TIMESTAMP, 10]);
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

    fn again(text: &str, wanted: Wanted) -> Option<String> {
        let (mut bytes, mut out) = (Vec::new(), String::new());
        parse(text, &mut bytes)?;
        unparse(&bytes, wanted, &mut out).unwrap();
        Some(out)
    }

    #[test]
    fn options_are_read_and_written() {
        for text in
            [".", "wscale10", "mss1400;sackok;ts669063908:38382731", "sack95-98;sack1-2", "98", "99=0:5"]
        {
            assert_eq!(again(text, Wanted::All).as_deref(), Some(text));
        }
        let text = "mss1400;sackok;ts1:2";
        assert_eq!(again(text, Wanted::NoTimestamps).as_deref(), Some("mss1400;sackok"));
        assert_eq!(again(text, Wanted::Sack).as_deref(), Some("sackok"));
        assert_eq!(again("sack1:18", Wanted::All).as_deref(), Some("sack1-18"));
        for wrong in ["mss", "mss99999999", "sack1", "ts1", "x", "", "mss1;", "256"] {
            assert_eq!(again(wrong, Wanted::All), None, "{wrong}");
        }
    }

    #[test]
    fn options_without_timestamps_are_kept() {
        let mut out = Vec::new();
        filter(&[1, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0, 4, 2], Wanted::NoTimestamps, &mut out);
        assert_eq!(out, [4, 2]);
    }
}
