//! `ar` archives, which bundle a configuration with its additional files.
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

const MAGIC: &[u8] = b"!<arch>\n";
const HEADER: usize = 60;
const NAME: usize = 16;

/// A file in an archive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// The name; `config` for the configuration.
    pub name: String,
    /// Seconds since 1970.
    pub date: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Permissions.
    pub mode: u32,
    /// Contents.
    pub data: Vec<u8>,
}

/// Why an archive can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveError {
    /// The magic number is missing.
    NotAnArchive,
    /// A member's header lacks its magic number.
    Magic,
    /// A name refers to a missing entry of the name table.
    LongName,
    /// The archive ends within a member.
    Truncated,
}

impl fmt::Display for ArchiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAnArchive => "not an archive",
            Self::Magic => "bad archive: missing header magic number",
            Self::LongName => "bad long name in archive",
            Self::Truncated => "truncated archive",
        })
    }
}

impl core::error::Error for ArchiveError {}

/// Whether `bytes` are an archive rather than a configuration, by the first byte.
pub fn is_archive(bytes: &[u8]) -> bool {
    bytes.first() == Some(&b'!')
}

/// Reads an archive, with common names or GNU's or BSD's long names.
pub fn parse(bytes: &[u8]) -> Result<Vec<Member>, ArchiveError> {
    let mut rest =
        bytes.strip_prefix(MAGIC).filter(|rest| !rest.is_empty()).ok_or(ArchiveError::NotAnArchive)?;
    let mut members = Vec::new();
    let mut long_names: &[u8] = &[];
    while let Some((header, after)) = rest.split_at_checked(HEADER) {
        if &header[58..] != b"`\n" {
            return Err(ArchiveError::Magic);
        }
        // Attack: a size beyond the archive's end.
        let size = number(&header[48..58], 10).and_then(|size| usize::try_from(size).ok());
        let (data, after) =
            size.and_then(|size| after.split_at_checked(size)).ok_or(ArchiveError::Truncated)?;
        rest = if data.len() % 2 == 1 { after.get(1..).unwrap_or_default() } else { after };
        if header.starts_with(b"//") && header[2].is_ascii_whitespace() {
            long_names = data;
        } else {
            members.push(member(header, data, long_names)?);
        }
    }
    if rest.is_empty() { Ok(members) } else { Err(ArchiveError::Truncated) }
}

fn member(header: &[u8], mut data: &[u8], long_names: &[u8]) -> Result<Member, ArchiveError> {
    let name_end = |name: &[u8]| name.iter().position(|&byte| byte == b'/' || byte.is_ascii_whitespace());
    let until_end = |name: &[u8]| text(&name[..name_end(name).unwrap_or(name.len())]);
    let field = &header[..NAME];
    let digits_at = |at: usize| field.get(at).is_some_and(u8::is_ascii_digit);
    let name = if field[0] == b'/' && digits_at(1) {
        let offset = number(&field[1..], 10).and_then(|offset| usize::try_from(offset).ok());
        until_end(offset.and_then(|offset| long_names.get(offset..)).ok_or(ArchiveError::LongName)?)
    } else if field.starts_with(b"#1/") && digits_at(3) {
        let length = number(&field[3..], 10).and_then(|length| usize::try_from(length).ok());
        let (name, rest) =
            length.and_then(|length| data.split_at_checked(length)).ok_or(ArchiveError::LongName)?;
        data = rest;
        text(name)
    } else {
        until_end(field)
    };
    let small =
        |field: &[u8], radix| number(field, radix).and_then(|value| u32::try_from(value).ok()).unwrap_or(0);
    Ok(Member {
        name,
        date: number(&header[16..28], 10).unwrap_or(0),
        uid: small(&header[28..34], 10),
        gid: small(&header[34..40], 10),
        mode: small(&header[40..48], 8),
        data: data.to_owned(),
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn number(field: &[u8], radix: u32) -> Option<u64> {
    u64::from_str_radix(core::str::from_utf8(field).ok()?.trim_end(), radix).ok()
}

/// Writes an archive, with BSD's long names. Names are cut at their first slash.
pub fn unparse(members: &[Member]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    for member in members {
        let name = member.name.split('/').next().unwrap_or_default();
        let long = name.len() > NAME - 2
            || name.is_empty()
            || name.starts_with("#1/")
            || !name.bytes().all(|byte| byte.is_ascii_graphic());
        let field = if long { format!("#1/{}", name.len()) } else { name.into() };
        let size = member.data.len() + if long { name.len() } else { 0 };
        // Values are limited to what fits into their fields.
        let (date, mode) = (member.date.min(999_999_999_999), member.mode.min(0o77_777_777));
        let (uid, gid) = (member.uid.min(999_999), member.gid.min(999_999));
        out.extend(format!("{field:<16}{date:<12}{uid:<6}{gid:<6}{mode:<8o}{size:<10}`\n").bytes());
        if long {
            out.extend(name.bytes());
        }
        out.extend(&member.data);
        if size % 2 == 1 {
            out.push(b'\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_round_trip() {
        let member = |name: &str, data: &[u8]| Member {
            name: name.into(),
            date: 1,
            uid: 2,
            gid: 3,
            mode: 0o600,
            data: data.into(),
        };
        let members =
            [member("config", b"Idle;"), member("a long name of a member", b"\xff\0"), member("x y", b"")];
        assert_eq!(parse(&unparse(&members)).unwrap(), members);
    }

    #[test]
    fn gnu_names() {
        let header =
            |name: &str, size: usize| format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 0, 644);
        let text = format!(
            "!<arch>\n{}long_name_of_some_file/\n{}ab{}c\n",
            header("//", 24),
            header("/0", 2),
            header("x/", 1)
        );
        let members = parse(text.as_bytes()).unwrap();
        assert_eq!((&members[0].name[..], &members[0].data[..]), ("long_name_of_some_file", &b"ab"[..]));
        assert_eq!((&members[1].name[..], members[1].mode), ("x", 0o644));
    }

    #[test]
    fn broken() {
        let header = format!("!<arch>\n{:<16}{:<32}{:<10}`\n", "x", "", 9);
        assert_eq!(parse(header.as_bytes()), Err(ArchiveError::Truncated));
        assert_eq!(parse(b"!<arch>\nabc"), Err(ArchiveError::Truncated));
        assert_eq!(parse(b"!x"), Err(ArchiveError::NotAnArchive));
        assert_eq!(parse(&[MAGIC, &[b' '; 60]].concat()), Err(ArchiveError::Magic));
    }
}
