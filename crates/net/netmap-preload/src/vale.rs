//! The ports of switches, which programs list as those of VALE. The fabrics are asked, by their API.

use crate::{Result, names};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long a fabric may need to answer, and most bytes of an answer.
const TIMEOUT: Duration = Duration::from_secs(2);
const LONGEST: u64 = 16 << 20;

/// Switches in order, each with its ports in order.
pub type Switches = Vec<(String, Vec<String>)>;

/// The ports of all fabrics that this user may ask.
pub fn list() -> Switches {
    let mut switches = Switches::new();
    for folder in names::runs() {
        let ports = ask(&folder.join("api.sock")).unwrap_or_default();
        for (switch, port) in ports {
            match switches.iter_mut().find(|(name, _)| *name == switch) {
                Some((_, ports)) => ports.push(port),
                None => switches.push((switch, vec![port])),
            }
        }
    }
    switches
}

fn ask(socket: &Path) -> Option<Vec<(String, String)>> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).ok()?;
    stream.write_all(b"GET /v1/ports HTTP/1.1\r\nHost: ringway\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.take(LONGEST).read_to_string(&mut answer).ok()?;
    Some(ports_of(answer.split_once("\r\n\r\n")?.1))
}

/// Switches and ports of the API's list; ports that are on no switch are left out.
fn ports_of(body: &str) -> Vec<(String, String)> {
    let ports: Vec<serde_json::Value> = serde_json::from_str(body).unwrap_or_default();
    let text = |port: &serde_json::Value, key: &str| port.get(key)?.as_str().map(str::to_string);
    let on_switch = |port: &serde_json::Value| {
        let switch = text(port, "to")?.strip_prefix("switch ")?.to_string();
        // A port that a program opened is called SWITCH:PORT.
        let name = text(port, "name")?;
        let name = name.strip_prefix(&format!("{switch}:")).unwrap_or(&name).to_string();
        Some((switch, name))
    };
    ports.iter().filter_map(on_switch).collect()
}

/// The next port from an index of a switch and one of its ports on, with its indices and its name.
pub fn next(switches: &Switches, from: (usize, usize)) -> Result<(usize, usize, String)> {
    let mut first = from.1;
    for (index, (switch, ports)) in switches.iter().enumerate().skip(from.0) {
        if let Some(port) = ports.get(first) {
            return Ok((index, first, format!("vale{switch}:{port}")));
        }
        first = 0;
    }
    Err(libc::ENOENT)
}

/// The indices of a switch and its port; of the switch alone without a port.
pub fn find(switches: &Switches, name: &str) -> Result<(usize, usize)> {
    let name = name.strip_prefix("vale").ok_or(libc::EINVAL)?;
    let (switch, port) = name.split_once(':').unwrap_or((name, ""));
    let index = switches.iter().position(|(name, _)| name == switch).ok_or(libc::ENOENT)?;
    let ports = &switches[index].1;
    let place = ports.iter().position(|name| name == port).or_else(|| port.is_empty().then_some(0));
    Ok((index, place.ok_or(libc::ENOENT)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_switches_are_listed_in_order() {
        let body = r#"[{"name":"a","to":"switch s"},{"name":"LAN:b","to":"switch LAN"},
            {"name":"c","to":"patch"},{}]"#;
        let ports = ports_of(body);
        assert_eq!(ports, [("s".into(), "a".into()), ("LAN".into(), "b".into())]);
        assert!(ports_of("{").is_empty());
        let switches: Switches =
            vec![("s".into(), vec!["a".into(), "c".into()]), ("t".into(), vec!["b".into()])];
        assert_eq!(next(&switches, (0, 0)), Ok((0, 0, "vales:a".into())));
        assert_eq!(next(&switches, (0, 2)), Ok((1, 0, "valet:b".into())));
        for beyond in [(1, 1), (2, 0), (usize::MAX, usize::MAX)] {
            assert_eq!(next(&switches, beyond), Err(libc::ENOENT));
        }
        assert_eq!((find(&switches, "vales:c"), find(&switches, "valet")), (Ok((0, 1)), Ok((1, 0))));
        assert_eq!(
            (find(&switches, "vales:b"), find(&switches, "s:a")),
            (Err(libc::ENOENT), Err(libc::EINVAL))
        );
    }
}
