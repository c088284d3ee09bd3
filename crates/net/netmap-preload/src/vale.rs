//! The ports of switches, which programs list as those of VALE, and persistent VALE ports (`vale-ctl -n`), which they
//! attach to a switch and detach. The fabrics are asked, by their API.
//!
//! A persistent port is one of kind `ring` with a socket of a name of its own, by which it is known: no other port is
//! changed. While it is on no switch for programs, it is on one of its own, which is not listed.

use crate::{Result, names};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a fabric may need to answer, and most bytes of an answer.
const TIMEOUT: Duration = Duration::from_secs(2);
const LONGEST: u64 = 16 << 20;

/// The state of a port that no program has.
const WITHOUT_PROGRAM: &str = "waiting";
/// How long a fabric may need to notice that a program has closed its port, and between two looks.
const RELEASE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(10);

/// Switches in order, each with its ports in order.
pub type Switches = Vec<(String, Vec<String>)>;

/// The ports of all fabrics that this user may ask.
pub fn list() -> Switches {
    let mut switches = Switches::new();
    for folder in names::runs() {
        let ports = ask(&folder).unwrap_or_default();
        for (switch, port) in ports {
            match switches.iter_mut().find(|(name, _)| *name == switch) {
                Some((_, ports)) => ports.push(port),
                None => switches.push((switch, vec![port])),
            }
        }
    }
    switches
}

/// A status, and a body.
type Answered = (u16, String);

/// Asks a fabric.
fn request(run: &Path, method: &str, path: &str, body: &str) -> Result<Answered> {
    let errno = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => libc::EACCES,
        _ => libc::ENXIO,
    };
    let mut stream = UnixStream::connect(run.join("api.sock")).map_err(errno)?;
    stream.set_read_timeout(Some(TIMEOUT)).map_err(errno)?;
    let head = format!("{method} {path} HTTP/1.1\r\nHost: ringway\r\nConnection: close\r\n");
    let len = body.len();
    let body = match body {
        "" => "\r\n".to_string(),
        body => format!("Content-Type: application/json\r\nContent-Length: {len}\r\n\r\n{body}"),
    };
    stream.write_all((head + &body).as_bytes()).map_err(errno)?;
    let mut answer = String::new();
    stream.take(LONGEST).read_to_string(&mut answer).map_err(errno)?;
    status_of(&answer).ok_or(libc::EIO)
}

fn status_of(answer: &str) -> Option<Answered> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_string()))
}

fn ask(run: &Path) -> Option<Vec<(String, String)>> {
    let (_, body) = request(run, "GET", "/v1/ports", "").ok()?;
    Some(ports_of(&body))
}

/// What is known about a port.
#[derive(Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default)]
struct Seen {
    name: String,
    state: String,
    peer: String,
    to: String,
}

impl Seen {
    /// Its switch, if it is on another one than its own.
    fn switch(&self) -> Option<&str> {
        self.to.strip_prefix("switch ").filter(|switch| *switch != own_switch(&self.name))
    }

    /// Whether it is a persistent VALE port.
    fn is_persistent(&self) -> bool {
        Path::new(&self.peer).file_name().is_some_and(|name| *name == *names::persistent(&self.name))
    }
}

fn seen(run: &Path) -> Result<Vec<Seen>> {
    let (_, body) = request(run, "GET", "/v1/ports", "")?;
    serde_json::from_str(&body).map_err(|_| libc::EIO)
}

/// The switch of a port that is on no other one.
fn own_switch(port: &str) -> String {
    format!("{port}-alone")
}

fn errno_of(status: u16) -> Result<()> {
    match status {
        200..300 => Ok(()),
        403 => Err(libc::EACCES),
        404 => Err(libc::ENXIO),
        409 => Err(libc::EBUSY),
        422 => Err(libc::EINVAL),
        _ => Err(libc::EIO),
    }
}

/// Adds a persistent port, on a switch or on its own.
fn add(run: &Path, port: &str, switch: Option<&str>) -> Result<()> {
    let own = own_switch(port);
    let new_switch = serde_json::json!({"name": own}).to_string();
    if switch.is_none() {
        // It may be there already.
        request(run, "POST", "/v1/switches", &new_switch)?;
    }
    let (socket, to) = (names::persistent(port), switch.unwrap_or(&own));
    let body = serde_json::json!({"name": port, "kind": "ring", "socket": socket, "switch": to});
    let done = errno_of(request(run, "POST", "/v1/ports", &body.to_string())?.0);
    if switch.is_some() && done.is_ok() {
        let _ = request(run, "DELETE", &format!("/v1/switches/{own}"), "");
    }
    // There is no such switch.
    done.map_err(|error| if switch.is_some() && error == libc::EINVAL { libc::ENXIO } else { error })
}

fn delete(run: &Path, kind: &str, name: &str) -> Result<()> {
    errno_of(request(run, "DELETE", &format!("/v1/{kind}/{name}"), "")?.0)
}

/// The run directory of the fabric that has a port, and the port, which is changed only if it is persistent and no
/// program uses it. One that has just closed it is gone soon. `refusal` is the error of another port.
fn changeable(port: &str, refusal: i32) -> Result<(PathBuf, Seen)> {
    let end = Instant::now() + RELEASE;
    loop {
        match changeable_now(port, refusal)? {
            (_, seen) if seen.state != WITHOUT_PROGRAM && Instant::now() >= end => return Err(libc::EBUSY),
            (_, seen) if seen.state != WITHOUT_PROGRAM => std::thread::sleep(PAUSE),
            found => return Ok(found),
        }
    }
}

fn changeable_now(port: &str, refusal: i32) -> Result<(PathBuf, Seen)> {
    let mut error = libc::ENXIO;
    for run in names::runs() {
        match seen(&run) {
            Ok(ports) => match ports.into_iter().find(|seen| seen.name == port) {
                Some(seen) if seen.is_persistent() => return Ok((run, seen)),
                Some(_) => error = refusal,
                None => {}
            },
            Err(libc::EACCES) if error == libc::ENXIO => error = libc::EACCES,
            Err(_) => {}
        }
    }
    Err(error)
}

/// Makes a persistent port (`NETMAP_REQ_VALE_NEWIF`), on no switch.
pub fn create(port: &str) -> Result<()> {
    if !names::is_name(port) || port.starts_with("vale") {
        return Err(libc::EINVAL);
    }
    let runs: Vec<PathBuf> = names::runs().into_iter().filter(|run| run.join("api.sock").exists()).collect();
    // Which fabric is meant, only the variable says.
    let run = match runs.as_slice() {
        [] => return Err(libc::ENXIO),
        [run] => run,
        _ => return Err(libc::ENOTUNIQ),
    };
    if seen(run)?.iter().any(|seen| seen.name == port) {
        return Err(libc::EEXIST);
    }
    add(run, port, None)
}

/// Removes such a port (`NETMAP_REQ_VALE_DELIF`), if it is on no switch.
pub fn remove(port: &str) -> Result<()> {
    let (run, seen) = changeable(port, libc::EINVAL)?;
    if seen.switch().is_some() {
        return Err(libc::EBUSY);
    }
    delete(&run, "ports", port)?;
    delete(&run, "switches", &own_switch(port))
}

/// The switch and the port of a name.
fn parts(name: &str) -> Result<(&str, &str)> {
    let parts = name.strip_prefix("vale").and_then(|rest| rest.split_once(':')).ok_or(libc::EINVAL)?;
    if names::is_name(parts.0) && names::is_name(parts.1) { Ok(parts) } else { Err(libc::EINVAL) }
}

/// Puts such a port on a switch (`NETMAP_REQ_VALE_ATTACH`). Its ring is a new one.
pub fn attach(name: &str) -> Result<()> {
    let (switch, port) = parts(name)?;
    let (run, seen) = changeable(port, libc::EBUSY)?;
    if seen.switch().is_some() {
        return Err(libc::EBUSY);
    }
    delete(&run, "ports", port)?;
    add(&run, port, Some(switch)).inspect_err(|_| _ = add(&run, port, None))
}

/// Takes such a port off its switch (`NETMAP_REQ_VALE_DETACH`).
pub fn detach(name: &str) -> Result<()> {
    let (switch, port) = parts(name)?;
    let (run, seen) = changeable(port, libc::EBUSY)?;
    if seen.switch() != Some(switch) {
        return Err(libc::ENXIO);
    }
    delete(&run, "ports", port)?;
    add(&run, port, None)
}

/// Switches and ports of the API's list; ports that are on no switch are left out.
fn ports_of(body: &str) -> Vec<(String, String)> {
    let ports: Vec<Seen> = serde_json::from_str(body).unwrap_or_default();
    let on_switch = |port: &Seen| {
        let switch = port.switch()?.to_string();
        // A port that a program opened is called SWITCH:PORT.
        let name = port.name.strip_prefix(&format!("{switch}:")).unwrap_or(&port.name).to_string();
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
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn persistent_ports_are_known_by_their_socket() {
        let ports: Vec<Seen> = serde_json::from_str(
            r#"[{"name":"v0","peer":"/run/f/v0.vale","to":"switch s"},{"name":"v1","peer":"/run/f/v1.sock"},
                {"name":"v2","peer":"/run/f/v0.vale","to":"switch v2-alone"}]"#,
        )
        .unwrap();
        let known: Vec<bool> = ports.iter().map(Seen::is_persistent).collect();
        assert_eq!(
            (known, ports[0].switch(), ports[2].switch()),
            (vec![true, false, false], Some("s"), None)
        );
        assert_eq!((parts("vales:v0"), parts("v0")), (Ok(("s", "v0")), Err(libc::EINVAL)));
        assert_eq!((parts("vale:v0"), parts("vales:../v")), (Err(libc::EINVAL), Err(libc::EINVAL)));
        assert_eq!(
            (create("vale0"), create("a/b"), create("")),
            (Err(libc::EINVAL), Err(libc::EINVAL), Err(libc::EINVAL))
        );
        assert_eq!(status_of("HTTP/1.1 409 Conflict\r\nx: y\r\n\r\n{}"), Some((409, "{}".into())));
        assert_eq!((status_of("HTTP/1.1 409"), status_of("\r\n\r\n")), (None, None));
    }

    #[test]
    fn ports_of_switches_are_listed_in_order() {
        let body = r#"[{"name":"a","to":"switch s"},{"name":"LAN:b","to":"switch LAN"},
            {"name":"c","to":"patch b","state":"up"},{}]"#;
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
