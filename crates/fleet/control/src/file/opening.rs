//! `open` in `[switch.NAME]`: who may open ports on a switch while it runs.

use super::port::octal;
use ringway_spec::file::Section;
use ringway_spec::names;
use serde::{Deserialize, Serialize};

/// Ports that programs may have opened on a switch at the same time, by default, and at most. Attack: programs that
/// open ports without end.
const LIMIT: u16 = 32;
const MOST: u64 = 1024;

/// Who may open ports on a switch, and how many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenAccess {
    /// Permission bits of its socket.
    pub mode: u32,
    /// Name or number of the socket's group.
    pub group: Option<String>,
    /// Ports that programs may have opened at the same time.
    pub limit: u16,
}

/// Reads the keys `open`, `open-group` and `open-limit`.
pub fn opening(section: &mut Section<'_>) -> Option<OpenAccess> {
    let mode = octal(section, "open", "0660");
    let group = section.parsed("open-group", "kvm", |text| names::account(text).map(String::from));
    let limit = section.number("open-limit", 1..=MOST);
    for (key, is_there) in [("open-group", group.is_some()), ("open-limit", limit.is_some())] {
        if is_there && !section.has("open") {
            section.error(key, format!("`{key}` is of no use without `open`"), "add open = \"0660\"");
        }
    }
    Some(OpenAccess { mode: mode?, group, limit: limit.map_or(LIMIT, |limit| limit as u16) })
}
