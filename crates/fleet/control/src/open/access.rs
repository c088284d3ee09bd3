//! The owner and group of a socket: names to numbers.

use super::OpenError;
use crate::file::number;
use ringway_host::listener::Access;
use ringway_spec::Socket;

/// The numbers of the owner and the group of a socket of `whose`.
pub fn resolve(whose: &str, socket: &Socket) -> Result<Access, OpenError> {
    let find = |name: &Option<String>, what, file: &'static str| {
        let Some(name) = name else { return Ok(None) };
        let text = std::fs::read_to_string(format!("/etc/{file}")).unwrap_or_default();
        let nobody = || OpenError::Nobody { whose: whose.into(), what, name: name.clone(), file };
        number(name, &text).ok_or_else(nobody).map(Some)
    };
    let (owner, group) = (find(&socket.owner, "user", "passwd")?, find(&socket.group, "group", "group")?);
    Ok(Access { owner, group, mode: socket.mode })
}
