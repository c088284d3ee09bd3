//! IP options (RFC 791) as text, and back.
use super::scan::Scan;
use alloc::vec::Vec;
use core::fmt::Write;
use ringway_wire::ip::options;
use ringway_wire::ipv4::option::{END, LOOSE_ROUTE, NOP, RECORD_ROUTE, STRICT_ROUTE, TIMESTAMP};

/// Maximum length of the options of a header.
const LONGEST: usize = 40;

/// Route options and their names.
const ROUTES: [(&str, u8); 3] = [("rr", RECORD_ROUTE), ("ssrr", STRICT_ROUTE), ("lsrr", LOOSE_ROUTE)];

/// Writes options, except padding; `?` if they are malformed, `.` if there are none.
pub(super) fn unparse(bytes: &[u8], out: &mut impl Write) -> core::fmt::Result {
    let mut text = alloc::string::String::new();
    for option in options(bytes) {
        let Some(option @ [kind, ..]) = option else { return out.write_char('?') };
        if !text.is_empty() {
            text.push(';');
        }
        let sound = match *kind {
            kind @ (RECORD_ROUTE | LOOSE_ROUTE | STRICT_ROUTE) => route(kind, option, &mut text),
            TIMESTAMP => timestamps(option, &mut text),
            _ => {
                super::scan::unparse_unknown(option, &mut text)?;
                Some(())
            }
        };
        if sound.is_none() {
            return out.write_char('?');
        }
    }
    out.write_str(if text.is_empty() { "." } else { &text })
}

fn address(bytes: &[u8]) -> Option<core::net::Ipv4Addr> {
    Some((*bytes.first_chunk::<4>()?).into())
}

/// A route option: addresses in braces, `^` at the pointer, `+N` for free slots of a record route option.
fn route(kind: u8, option: &[u8], out: &mut impl Write) -> Option<()> {
    let pointer = usize::from(*option.get(2)?).checked_sub(4)?;
    let places = option.get(3..)?;
    out.write_str(ROUTES.iter().find(|(_, own)| *own == kind)?.0).ok()?;
    out.write_char('{').ok()?;
    let recorded = kind == RECORD_ROUTE;
    let mut at = 0;
    for place in places.as_chunks::<4>().0 {
        if at == pointer && recorded {
            break;
        }
        let separator = if at == pointer { "^" } else { "," };
        let separator = if at == 0 && at != pointer { "" } else { separator };
        write!(out, "{separator}{}", core::net::Ipv4Addr::from(*place)).ok()?;
        at += 4;
    }
    if at == pointer && at == places.len() && !recorded {
        out.write_char('^').ok()?;
    }
    out.write_char('}').ok()?;
    let room = places.len().saturating_sub(at) / 4;
    if recorded && at == pointer && room > 0 {
        write!(out, "+{room}").ok()?;
    }
    Some(())
}

/// Timestamps in braces, `+N` for free slots, `++N` for the overflow count.
fn timestamps(option: &[u8], out: &mut impl Write) -> Option<()> {
    let pointer = usize::from(*option.get(2)?).checked_sub(5)?;
    let (flag, overflow) = (option.get(3)? & 15, option.get(3)? >> 4);
    let places = option.get(4..)?;
    let size = if (1..=3).contains(&flag) { 8 } else { 4 };
    match flag {
        0 => out.write_str("ts{").ok()?,
        1 => out.write_str("ts.ip{").ok()?,
        3 => out.write_str("ts.preip{").ok()?,
        _ => write!(out, "ts.{flag}{{").ok()?,
    }
    let mut at = 0;
    while let Some(place) = places.get(at..at + size) {
        if at == pointer && flag != 3 {
            break;
        }
        match (at == pointer, at) {
            (true, _) => out.write_char('^').ok()?,
            (false, 0) => {}
            _ => out.write_char(',').ok()?,
        }
        let time = place.last_chunk::<4>().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        if size == 8 {
            write!(out, "{}", address(place)?).ok()?;
        }
        if flag != 3 || at < pointer {
            let equals = if size == 8 { "=" } else { "" };
            let mark = if time >> 31 == 1 { "!" } else { "" };
            write!(out, "{equals}{mark}{}", time & 0x7fff_ffff).ok()?;
        }
        at += size;
    }
    if at == pointer && at == places.len() {
        out.write_char('^').ok()?;
    }
    out.write_char('}').ok()?;
    let room = places.len().saturating_sub(at) / size;
    if at == pointer && room > 0 {
        write!(out, "+{room}").ok()?;
    }
    if overflow > 0 {
        write!(out, "++{overflow}").ok()?;
    }
    Some(())
}

/// Parses options; `None` if the text is malformed or the options exceed a header.
pub(super) fn parse(text: &str, out: &mut Vec<u8>) -> Option<()> {
    out.clear();
    if text == "." {
        return Some(());
    }
    let mut scan = Scan::new(text);
    loop {
        option(&mut scan, out)?;
        // Attack: a dump whose options exceed any header.
        if out.len() > LONGEST {
            return None;
        }
        if scan.is_done() {
            return Some(());
        }
        if !scan.take(";") && !scan.take(",") {
            return None;
        }
    }
}

fn option(scan: &mut Scan<'_>, out: &mut Vec<u8>) -> Option<()> {
    for (name, kind) in ROUTES {
        if scan.take_word(name, "{") {
            return parse_route(kind, scan, out);
        }
    }
    if scan.take_word("ts", "{") {
        // Addresses may appear although the option's name does not announce them.
        let mut ahead = *scan;
        let flag = u8::from(ahead.address().is_some());
        return parse_timestamps(flag, scan, out);
    }
    if scan.take("ts.") {
        let flag = if scan.take("ip") {
            1
        } else if scan.take("preip") {
            3
        } else {
            u8::try_from(scan.number()?).ok().filter(|flag| *flag < 16)?
        };
        return if scan.take("{") { parse_timestamps(flag, scan, out) } else { None };
    }
    if scan.take("nop") {
        out.push(NOP);
        return Some(());
    }
    if scan.take("eol") {
        out.push(END);
        return Some(());
    }
    scan.unknown(out)
}

/// Allocates the option's slots: free slots after the given ones are written as `+N`.
fn room(size: usize, scan: &mut Scan<'_>, begin: usize, out: &mut Vec<u8>) -> Option<()> {
    if scan.follows_number("+") {
        let room = scan.number()?.min(LONGEST as u64) as usize;
        out.resize(out.len() + room * size, 0);
    }
    out[begin + 1] = u8::try_from(out.len() - begin).ok()?;
    Some(())
}

fn parse_route(kind: u8, scan: &mut Scan<'_>, out: &mut Vec<u8>) -> Option<()> {
    let begin = out.len();
    out.extend([kind, 0, 0]);
    let mut pointer = None;
    loop {
        if scan.take("^") {
            pointer.get_or_insert(out.len() - begin + 1);
        }
        let Some(address) = scan.address() else { break };
        out.extend(address);
        scan.take(",");
        // Attack: an endless list.
        if out.len() > LONGEST {
            return None;
        }
    }
    if !scan.take("}") {
        return None;
    }
    out[begin + 2] = u8::try_from(pointer.unwrap_or(out.len() - begin + 1)).ok()?;
    room(4, scan, begin, out)
}

fn parse_timestamps(flag: u8, scan: &mut Scan<'_>, out: &mut Vec<u8>) -> Option<()> {
    let begin = out.len();
    out.extend([TIMESTAMP, 0, 0, flag]);
    let addresses = (1..=3).contains(&flag);
    let mut pointer = None;
    loop {
        if scan.take("^") {
            pointer.get_or_insert(out.len() - begin + 1);
        }
        if addresses {
            let Some(address) = scan.address() else { break };
            out.extend(address);
        }
        let mut time = None;
        if (!addresses || scan.take("=")) && !scan.take("?") {
            let marked = scan.take("!");
            time = scan.number().map(|time| time as u32 | u32::from(marked) << 31);
            if time.is_none() && (addresses || marked) {
                return None;
            }
        }
        if !addresses && time.is_none() {
            break;
        }
        // Timestamps after the pointer are not set yet.
        if time.is_none() && addresses && pointer.is_none() {
            return None;
        }
        out.extend(time.unwrap_or(0).to_be_bytes());
        scan.take(",");
        // Attack: an endless list.
        if out.len() > LONGEST {
            return None;
        }
    }
    if !scan.take("}") {
        return None;
    }
    out[begin + 2] = u8::try_from(pointer.unwrap_or(out.len() - begin + 1)).ok()?;
    room(if addresses { 8 } else { 4 }, scan, begin, out)?;
    if scan.follows_number("++") {
        out[begin + 3] |= u8::try_from(scan.number()?).ok().filter(|count| *count < 16)? << 4;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    fn again(text: &str) -> Option<String> {
        let (mut bytes, mut out) = (Vec::new(), String::new());
        parse(text, &mut bytes)?;
        unparse(&bytes, &mut out).unwrap();
        Some(out)
    }

    #[test]
    fn options_are_read_and_written() {
        for text in [
            ".",
            "ssrr{128.4.45.60,128.4.49.61^1.1.1.1,2.2.2.2}",
            "rr{2.3.4.5}+3",
            "rr{}+1",
            "ts.ip{1.0.0.1=!8320,1.0.0.2=8321^}++5",
            "ts.preip{1.0.0.1=1^1.0.0.3,1.0.0.4}",
            "ts.preip{^1.0.0.3}",
            "ts{1,10000,!45}+2;rr{}+1",
            "98",
            "99=0:5:10",
        ] {
            assert_eq!(again(text).as_deref(), Some(text));
        }
        assert_eq!(again("nop;nop;eol").as_deref(), Some("."));
        let found = again("ts{1.0.0.1=!8320,1.0.0.2=8321}++5");
        assert_eq!(found.as_deref(), Some("ts.ip{1.0.0.1=!8320,1.0.0.2=8321^}++5"));
        assert_eq!(again("ts{1,10000,!45,^0,0}").as_deref(), Some("ts{1,10000,!45}+2"));
        let preset = again("ts.3{1.0.0.1=1,^1.0.0.3,1.0.0.4=?}+1");
        assert_eq!(preset.as_deref(), Some("ts.preip{1.0.0.1=1^1.0.0.3,1.0.0.4,0.0.0.0}"));
        for wrong in ["rr{", "rr{1.2.3}", "ts{1", "ts.99{}", "rr{}+99", "x", "", "rr{};;"] {
            assert_eq!(again(wrong), None, "{wrong}");
        }
        let mut out = String::new();
        unparse(&[7, 9], &mut out).unwrap();
        assert_eq!(out, "?");
    }
}
