//! The way to a fabric of another host: `ringway guest receive` there ([`super::receiver`]), which ssh(1) starts.
//!
//! Both ends are authenticated by ssh, with the keys and settings of the user that runs this fabric. Nobody is asked
//! for anything, and a host whose key is not known is refused. Requests have one connection, and each guest's memory
//! has another one.

use super::limit::Limit;
use super::receiver::{Call, GREETING, Reply};
use ringway_linux_guests::image;
use ringway_spec::names::name;
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process_group};
use std::fmt;
use std::io::{self, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// What an address of another host begins with.
pub const SCHEME: &str = "ssh://";
/// How long ssh and the program there may take until they answer.
const GREET: Duration = Duration::from_secs(30);
/// Attack: a host that writes errors without end. The bytes of them that are read: what a pipe has room for.
const ERRORS: usize = 1 << 16;
/// The last lines of them that are shown.
const LINES: usize = 3;
/// The characters of a wrong greeting that are shown.
const SHOWN: usize = 80;
/// The longest name of a host (RFC 1035).
const LONGEST_HOST: usize = 253;
/// Settings that a user's own ones don't change; those for jump hosts are the user's. A host that is not reached any
/// more is given up after 15 s. Memory and requests have connections of their own, so that none waits for the other.
const SETTINGS: [&str; 12] = [
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    "ConnectTimeout=10",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ControlPath=none",
    "RemoteCommand=none",
    "PermitLocalCommand=no",
    "Tunnel=no",
];

/// A text that is no address of another host.
#[derive(Debug, thiserror::Error)]
#[error("\"{}\" is no address of another host: write {SCHEME}[USER@]HOST[:PORT][/FABRIC]", .0.escape_debug())]
pub struct AddressError(String);

/// A fabric of another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshAddress {
    user: Option<String>,
    host: String,
    port: Option<u16>,
    /// The only one that is up there, if none.
    fabric: Option<String>,
}

impl SshAddress {
    /// Reads `ssh://[USER@]HOST[:PORT][/FABRIC]`, with an IPv6 address in brackets.
    ///
    /// # Errors
    /// It is something else.
    pub fn parse(text: &str) -> Result<SshAddress, AddressError> {
        read(text).ok_or_else(|| AddressError(text.into()))
    }

    /// The words of ssh's command line.
    fn words(&self) -> Vec<String> {
        let mut words = vec!["-T".to_string()];
        words.extend(SETTINGS.iter().flat_map(|setting| ["-o".into(), setting.to_string()]));
        words.extend(self.port.into_iter().flat_map(|port| ["-p".into(), port.to_string()]));
        words.extend(self.user.iter().flat_map(|user| ["-l".into(), user.clone()]));
        words.extend(["--".into(), self.host.clone(), "ringway".into()]);
        words.extend(self.fabric.iter().flat_map(|fabric| ["--fabric".into(), fabric.clone()]));
        words.extend(["guest".into(), "receive".into()]);
        words
    }
}

impl fmt::Display for SshAddress {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SshAddress { user, host, port, fabric } = self;
        let user = user.as_ref().map_or(String::new(), |user| format!("{user}@"));
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let port = port.map_or(String::new(), |port| format!(":{port}"));
        let fabric = fabric.as_ref().map_or(String::new(), |fabric| format!("/{fabric}"));
        write!(to, "{SCHEME}{user}{host}{port}{fabric}")
    }
}

/// Attack: whoever gives an address makes ssh read it as an option, or a shell on the other host as a command. Only
/// characters of names are taken.
fn read(text: &str) -> Option<SshAddress> {
    let text = text.strip_prefix(SCHEME)?;
    let (place, fabric) = match text.split_once('/') {
        Some((place, "")) => (place, None),
        Some((place, fabric)) => (place, Some(name(fabric).ok()?.to_string())),
        None => (text, None),
    };
    let (user, place) = match place.split_once('@') {
        Some((user, place)) => (Some(word(user)?), place),
        None => (None, place),
    };
    let (host, port) = match place.strip_prefix('[') {
        Some(place) => {
            let (address, port) = place.split_once(']')?;
            let address: std::net::Ipv6Addr = address.parse().ok()?;
            let port = if port.is_empty() { None } else { Some(port.strip_prefix(':')?) };
            (address.to_string(), port)
        }
        None => match place.split_once(':') {
            Some((host, port)) => (word(host)?, Some(port)),
            None => (word(place)?, None),
        },
    };
    let number = |port: &str| port.parse::<u16>().ok().filter(|port| *port > 0);
    let port = match port {
        Some(port) => Some(number(port)?),
        None => None,
    };
    Some(SshAddress { user, host, port, fabric })
}

/// A name of a user or a host.
fn word(text: &str) -> Option<String> {
    let is_good = text.len() <= LONGEST_HOST
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && text.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '_');
    is_good.then(|| text.into())
}

/// A running ssh, which leads a process group and is ended with it when this is dropped.
#[derive(Debug)]
pub struct Ssh {
    child: Child,
    has_ended: bool,
}

impl Ssh {
    /// The last lines of what it has said, once it has ended.
    fn said(&mut self) -> String {
        self.end();
        let Some(mut errors) = self.child.stderr.take() else { return String::new() };
        // A program that it has started may have it open still.
        if rustix::fs::fcntl_setfl(&errors, OFlags::NONBLOCK).is_err() {
            return String::new();
        }
        let mut bytes = vec![0; ERRORS];
        let mut len = 0;
        while let Some(free) = bytes.get_mut(len..).filter(|free| !free.is_empty()) {
            match errors.read(free) {
                Ok(read) if read > 0 => len += read,
                _ => break,
            }
        }
        bytes.truncate(len);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        lines[lines.len().saturating_sub(LINES)..].join("; ")
    }

    fn end(&mut self) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        // With what it has started, such as the ssh to a jump host. It may have ended, but nobody has waited for it, so
        // that the group is its own one still.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

impl Drop for Ssh {
    fn drop(&mut self) {
        self.end();
    }
}

/// A connection to `ringway guest receive` on another host.
#[derive(Debug)]
pub struct Session {
    stream: BufReader<UnixStream>,
    ssh: Ssh,
}

impl Session {
    /// Connects. Blocks until the program there answers, for 30 s or up to the limit.
    ///
    /// # Errors
    /// There is no ssh, no answer in time, or what ssh or the program there says.
    pub fn open(address: &SshAddress, limit: Limit<'_>) -> io::Result<Session> {
        let none = || io::Error::other("there is no program ssh on this host; install an SSH client");
        Session::start(image::program("ssh").ok_or_else(none)?, &address.words(), limit)
    }

    fn start(program: PathBuf, words: &[String], limit: Limit<'_>) -> io::Result<Session> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(program);
        command.args(words).process_group(0).env("SSH_ASKPASS_REQUIRE", "never");
        command.stdin(OwnedFd::from(theirs.try_clone()?)).stdout(OwnedFd::from(theirs));
        command.stderr(Stdio::piped());
        let ssh = Ssh { child: command.spawn()?, has_ended: false };
        // It has copies of the other end of the stream, which shall be open as long as ssh runs.
        drop(command);
        let mut session = Session { stream: BufReader::new(ours), ssh };
        let greeted = session.read(limit.at_most(GREET)).and_then(|line| match line == GREETING {
            true => Ok(()),
            false => {
                let said: String = line.chars().take(SHOWN).collect();
                let why = format!(
                    "it says {said:?}, not {GREETING:?}: another version of ringway, or a start-up file of \
                     the shell there that prints"
                );
                Err(io::Error::other(why))
            }
        });
        greeted.map_err(|error| session.reason(error))?;
        Ok(session)
    }

    /// Why it failed: what ssh or the program there says, if they do.
    fn reason(&mut self, error: io::Error) -> io::Error {
        match self.ssh.said() {
            said if said.is_empty() => error,
            said => io::Error::new(error.kind(), said),
        }
    }

    fn read(&mut self, limit: Limit<'_>) -> io::Result<String> {
        limit.read_line(&mut self.stream)?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Makes a call, whose answer comes before `limit`. A session whose call fails is of no use any more.
    ///
    /// # Errors
    /// The connection is gone, or there is no answer in time.
    pub fn call(&mut self, call: &Call, limit: Limit<'_>) -> io::Result<Reply> {
        let mut line = serde_json::to_string(call).map_err(io::Error::other)?;
        line.push('\n');
        let done = limit.write(self.stream.get_mut(), line.as_bytes()).and_then(|()| self.read(limit));
        let line = done.map_err(|error| self.reason(error))?;
        serde_json::from_str(&line).map_err(|error| io::Error::other(format!("its reply is none: {error}")))
    }

    /// The stream, on which the program there expects a guest's memory, and the ssh that carries it.
    pub fn into_stream(self) -> (OwnedFd, Ssh) {
        (self.stream.into_inner().into(), self.ssh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::PidfdFlags;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn an_address_has_only_characters_of_names() {
        for text in [
            "ssh://b",
            "ssh://root@b.example:2222/other",
            "ssh://[2001:db8::2]/lab",
            "ssh://op_1@[::1]:22",
            "ssh://10.0.0.2/a-b_c",
        ] {
            assert_eq!(SshAddress::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(SshAddress::parse("ssh://b/").unwrap(), SshAddress::parse("ssh://b").unwrap());
        for text in [
            "b",
            "ssh://",
            "ssh:///lab",
            "ssh://-oProxyCommand=x",
            "ssh://-b@c",
            "ssh://@b",
            "ssh://b:0",
            "ssh://b:65536",
            "ssh://b:",
            "ssh://b/a;b",
            "ssh://b/-x",
            "ssh://b/a/b",
            "ssh://b c",
            "ssh://b\n",
            "ssh://[b]",
            "ssh://[::1",
            "ssh://[::1]x",
            "ssh://$(x)",
        ] {
            assert!(SshAddress::parse(text).is_err(), "{text}");
        }
        assert!(SshAddress::parse(&format!("ssh://{}", "x".repeat(254))).is_err());
    }

    #[test]
    fn the_command_line_asks_nobody_and_ends_options_before_the_host() {
        let words = SshAddress::parse("ssh://u@b:2222/other").unwrap().words().join(" ");
        assert!(words.starts_with("-T -o BatchMode=yes -o StrictHostKeyChecking=yes "), "{words}");
        let end = " -p 2222 -l u -- b ringway --fabric other guest receive";
        assert!(words.ends_with(end), "{words}");
        let words = SshAddress::parse("ssh://b").unwrap().words().join(" ");
        assert!(words.ends_with(" Tunnel=no -- b ringway guest receive"), "{words}");
    }

    /// A session with a shell script in ssh's place.
    fn script(text: &str) -> io::Result<Session> {
        Session::start("/bin/sh".into(), &["-c".into(), text.into()], GREET.into())
    }

    #[test]
    fn calls_are_lines_and_the_stream_is_left_for_memory() {
        let text = format!("echo '{GREETING}'; read line; echo '{{\"failed\":\"no\"}}'; exec cat");
        let mut session = script(&text).unwrap();
        let call = Call::Memory { guest: "vm".into(), ticket: "t".into() };
        let reply = session.call(&call, GREET.into()).unwrap();
        assert!(matches!(reply, Reply::Failed(why) if why == "no"));
        let (stream, ssh) = session.into_stream();
        let mut stream = UnixStream::from(stream);
        stream.write_all(b"memory").unwrap();
        let mut back = [0; 6];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"memory");
        drop(ssh);
        assert_eq!(stream.read(&mut back).unwrap(), 0, "it was ended");
    }

    #[test]
    fn what_ssh_says_is_the_reason() {
        let why = script("echo 'Warning: x' >&2; echo 'Host key verification failed.' >&2; exit 255");
        assert_eq!(why.unwrap_err().to_string(), "Warning: x; Host key verification failed.");
        assert_eq!(script("exit 1").unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let other = script("echo hello; exec cat").unwrap_err().to_string();
        assert!(other.starts_with("it says \"hello\", not \"ringway guest receive 1\""), "{other}");
        // Attack: errors without end.
        let flood = script("yes y | head -c 60000 >&2; echo last >&2").unwrap_err().to_string();
        assert_eq!(flood, "y; y; last");
        let mut session = script(&format!("echo '{GREETING}'; read line; echo gone >&2")).unwrap();
        let call = Call::Memory { guest: "vm".into(), ticket: "t".into() };
        assert_eq!(session.call(&call, GREET.into()).unwrap_err().to_string(), "gone");
        let mut silent = script(&format!("echo '{GREETING}'; exec sleep 60")).unwrap();
        let late = silent.call(&call, Duration::from_millis(50).into()).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn what_ssh_has_started_ends_with_it() {
        let text = format!("sleep 1000 & echo '{GREETING}'; read line; echo $!; exec cat");
        let mut session = script(&text).unwrap();
        let call = Call::Memory { guest: "vm".into(), ticket: "t".into() };
        let limit = Limit::from(GREET);
        limit
            .write(
                session.stream.get_mut(),
                format!("{}\n", serde_json::to_string(&call).unwrap()).as_bytes(),
            )
            .unwrap();
        let started: i32 = session.read(limit).unwrap().parse().unwrap();
        let started =
            rustix::process::pidfd_open(Pid::from_raw(started).unwrap(), PidfdFlags::empty()).unwrap();
        drop(session);
        let ended = ringway_host::wait_readable(&[started.as_fd()], Some(30_000_000_000)).unwrap();
        assert_eq!(ended, [true]);
    }
}
