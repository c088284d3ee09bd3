//! Who may use a socket: names to numbers.

use super::OpenError;
use crate::file::Socket;
use ringway_port::vhost_user::open::Access;

/// The numbers of a socket's owner and group.
pub fn resolve(port: &str, socket: &Socket) -> Result<Access, OpenError> {
    let find = |name: &Option<String>, what, file: &'static str| {
        let Some(name) = name else { return Ok(None) };
        let text = std::fs::read_to_string(format!("/etc/{file}")).unwrap_or_default();
        let nobody = || OpenError::Nobody { port: port.into(), what, name: name.clone(), file };
        number(name, &text).ok_or_else(nobody).map(Some)
    };
    let (owner, group) = (find(&socket.owner, "user", "passwd")?, find(&socket.group, "group", "group")?);
    Ok(Access { owner, group, mode: socket.mode })
}

/// The number of `name` in a file such as passwd(5) or group(5), or the number that it is.
fn number(name: &str, file: &str) -> Option<u32> {
    if let Ok(number) = name.parse() {
        return Some(number);
    }
    file.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == name).then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn names_and_numbers_are_found() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nkvm:x:107:\n";
        assert_eq!(number("kvm", passwd), Some(107));
        assert_eq!(number("1000", passwd), Some(1000));
        assert_eq!(number("nobody", passwd), None);
        assert_eq!(number("", "\n:::\n"), None);
    }
}
