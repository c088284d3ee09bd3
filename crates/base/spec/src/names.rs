//! Names that the file, the API and the command line take: each function returns the checked name, or what is wrong
//! with it and the remedy.

use crate::file::units::Wrong;
use std::path::{Component, Path, PathBuf};

/// The syntax of names, for messages.
pub const NAME: &str = "letters, digits, `-` and `_`, a letter or digit first, 64 at most";

/// Longest name of an interface in bytes: Linux' `IFNAMSIZ` less the zero.
pub const INTERFACE_NAME: usize = 15;

/// Longest path of a UNIX socket: `sun_path` of unix(7) less the zero.
pub const SOCKET_PATH: usize = 107;

/// Longest name of a file: Linux' `NAME_MAX`.
const FILE_NAME: usize = 255;

/// Longest excerpt of a wrong text in a message, in characters. Attack: a name of megabytes.
const SHOWN: usize = 80;

/// A wrong text as messages show it: quoted, without control characters, shortened.
pub fn shown(text: &str) -> String {
    let end = text.char_indices().nth(SHOWN).map_or(text.len(), |(at, _)| at);
    let more = if end < text.len() { "..." } else { "" };
    format!("\"{}{more}\"", text[..end].escape_debug())
}

/// The name of a part of a fabric: safe in messages, file names and thread names.
///
/// # Errors
/// The name has other characters, or too many.
pub fn name(text: &str) -> Result<&str, Wrong> {
    let is_good = text.len() <= 64
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        && text.starts_with(|first: char| first.is_ascii_alphanumeric());
    if is_good { Ok(text) } else { Err((format!("{} can't be a name", shown(text)), format!("use {NAME}"))) }
}

/// The name of a configuration's parameter.
///
/// # Errors
/// The name has other characters than a variable of Click's language.
pub fn parameter(text: &str) -> Result<&str, Wrong> {
    let is_good = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let wrong = || (format!("{} can't be a parameter", shown(text)), "use letters, digits and `_`".into());
    if is_good { Ok(text) } else { Err(wrong()) }
}

/// The name of a network interface to create, as Linux' `dev_valid_name()` and `dev_alloc_name()` accept it.
///
/// # Errors
/// Linux refuses the name, or replaces it: `%d` becomes a number.
pub fn interface(text: &str) -> Result<&str, Wrong> {
    let wrong = |fix: String| Err((format!("an interface can't be called {}", shown(text)), fix));
    if text.is_empty() {
        return wrong("write a name such as \"rw0\"".into());
    }
    if text.len() > INTERFACE_NAME {
        return wrong(format!("it has {} bytes; use {INTERFACE_NAME} at most", text.len()));
    }
    if text == "." || text == ".." {
        return wrong("it would be a folder in /sys/class/net; write a name such as \"rw0\"".into());
    }
    // Linux creates `lo` in every namespace, and has folders of settings for all interfaces and for new ones; the
    // driver of bonds has a file beside the interfaces.
    if matches!(text, "lo" | "all" | "default" | "bonding_masters") {
        return wrong("Linux uses this name itself; write a name such as \"rw0\"".into());
    }
    if text.contains('%') {
        return wrong("Linux replaces `%d` by a number; write the number".into());
    }
    // The kernel's isspace() is true for 0xa0, the no-break space of Latin-1, which is part of other characters too.
    let is_refused = |byte: u8| b"/: ".contains(&byte) || byte.is_ascii_control() || byte == 0xa0;
    if text.bytes().any(is_refused) {
        return wrong("use letters, digits and signs, without spaces, `/` and `:`".into());
    }
    Ok(text)
}

/// A network namespace: its name as in `ip netns`, or its path.
///
/// # Errors
/// No namespace can have that name.
pub fn namespace(text: &str) -> Result<&str, Wrong> {
    let fix = "write a name that `ip netns` shows, or the path of a namespace's file";
    let is_path = text.contains('/');
    if is_path && !text.starts_with('/') {
        let what = format!("{} is a relative path", shown(text));
        return Err((what, "start it with /, or write a name that `ip netns` shows".into()));
    }
    match file_name(text) && (is_path || text.len() <= FILE_NAME) {
        true => Ok(text),
        false => Err((format!("{} can't be a network namespace", shown(text)), fix.into())),
    }
}

/// Whether a path ends with the name of a file that can be created: not with `/`, `.` or `..`.
fn file_name(text: &str) -> bool {
    let last = text.rsplit('/').next().unwrap_or_default();
    !matches!(last, "" | "." | "..") && !text.contains('\0')
}

/// The path of a UNIX socket, possibly relative to the run directory; `example` is for the remedy.
///
/// # Errors
/// The path names a folder, or is too long for a socket's address.
pub fn socket_path<'t>(text: &'t str, example: &str) -> Result<&'t Path, Wrong> {
    if text.len() > SOCKET_PATH {
        let fix = format!("a UNIX socket's path has {SOCKET_PATH} at most");
        return Err((format!("the socket's path has {} bytes", text.len()), fix));
    }
    if text.contains('\0') {
        return Err(("the socket's path has a zero byte".into(), "take it out".into()));
    }
    match file_name(text) {
        true => Ok(Path::new(text)),
        false => Err((format!("{} is a folder, not a socket", shown(text)), format!("write {example}"))),
    }
}

/// The path of a run directory.
///
/// # Errors
/// The path is relative, `/`, or has a component `..`, so that it isn't the folder it seems to be.
pub fn run_directory(text: &str) -> Result<PathBuf, Wrong> {
    let path = Path::new(text);
    let wrong = |fix: &str| Err((format!("{} can't be a run directory", shown(text)), fix.into()));
    if !path.is_absolute() {
        return wrong("write an absolute path: start it with /");
    }
    if text.contains('\0') {
        return wrong("take out the zero byte");
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return wrong("write the path without `..`");
    }
    if path.file_name().is_none() {
        return wrong("name a folder of the fabric's own, such as /run/ringway/demo");
    }
    Ok(path.to_path_buf())
}

/// The name or the number of a user or a group.
///
/// # Errors
/// No user has such a name: passwd(5) has fields between colons.
pub fn account(text: &str) -> Result<&str, Wrong> {
    let is_good = !matches!(text, "" | "." | "..")
        && text.len() <= FILE_NAME
        && !text.contains(|c: char| c == ':' || c == '/' || c.is_whitespace() || c.is_control());
    let fix = "use a name without spaces, `:` and `/`, or a number";
    if is_good { Ok(text) } else { Err((format!("{} can't be a user or a group", shown(text)), fix.into())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Linux' `dev_valid_name()`, with the bytes that its `isspace()` knows.
    fn dev_valid_name(name: &[u8]) -> bool {
        let is_space = |byte: u8| matches!(byte, b'\t'..=b'\r' | b' ' | 0xa0);
        !name.is_empty()
            && name.len() < 16
            && name != b"."
            && name != b".."
            && !name.iter().any(|byte| matches!(byte, b'/' | b':') || is_space(*byte))
    }

    proptest! {
        #[test]
        fn linux_accepts_every_accepted_interface_as_it_is(text in "[a-z.%/: \\tà\u{a0}]{0,17}|\\PC{0,17}") {
            if interface(&text).is_ok() {
                prop_assert!(dev_valid_name(text.as_bytes()) && !text.contains('%'), "{text:?}");
            }
        }

        #[test]
        fn accepted_names_are_names_of_files(text in "\\PC{0,70}|[a-z./-]{0,5}") {
            if name(&text).is_ok() {
                prop_assert!(interface(&text).is_ok() || text.len() > INTERFACE_NAME);
                prop_assert!(socket_path(&text, "").is_ok() && namespace(&text).is_ok());
            }
        }
    }

    #[test]
    fn folders_are_no_names() {
        for text in [".", ".."] {
            assert!(name(text).is_err() && interface(text).is_err() && namespace(text).is_err(), "{text}");
            assert!(account(text).is_err() && parameter(text).is_err() && run_directory(text).is_err());
        }
        for text in ["", ".", "..", "/", "a/", "a/.", "../..", "/tmp/.."] {
            assert!(socket_path(text, "a.sock").is_err(), "{text}");
        }
        for text in ["a.sock", "./a.sock", "../a.sock", "/tmp/a", ".hidden"] {
            assert!(socket_path(text, "a.sock").is_ok(), "{text}");
        }
        for text in ["/", "/run/..", "/run/../x", "run/x", ""] {
            assert!(run_directory(text).is_err(), "{text}");
        }
        assert!(run_directory("/run/ringway/x/").is_ok());
        for text in ["a/b", "/run/netns/", "/run/netns/.."] {
            assert!(namespace(text).is_err(), "{text}");
        }
        assert!(namespace("/proc/1/ns/net").is_ok() && namespace("red.1").is_ok());
    }

    #[test]
    fn messages_say_what_to_write() {
        let replaced = interface("rw%d").unwrap_err();
        assert_eq!(replaced.0, "an interface can't be called \"rw%d\"");
        assert_eq!(replaced.1, "Linux replaces `%d` by a number; write the number");
        for reserved in ["lo", "all", "default", "bonding_masters"] {
            let (what, fix) = interface(reserved).unwrap_err();
            assert_eq!(what, format!("an interface can't be called \"{reserved}\""));
            assert_eq!(fix, "Linux uses this name itself; write a name such as \"rw0\"");
        }
        assert_eq!(interface("interface-of-mine").unwrap_err().1, "it has 17 bytes; use 15 at most");
        assert_eq!(name(&"x".repeat(1 << 20)).unwrap_err().0.len(), SHOWN + "\"...\" can't be a name".len());
    }
}
