//! The peers that Ringway is compared with.

pub mod net;
pub mod ovs;
pub mod packet;
pub mod relay;
pub mod testpmd;

use crate::Failure;
use rustix::process::{Pid, Signal};
use std::path::PathBuf;
use std::process::{Child, Output};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// The path of a program on this host, or an error to skip a benchmark with.
pub fn program(name: &str) -> Result<PathBuf, Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/local/bin", "/usr/bin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut folders = std::env::split_paths(&path).chain(usual);
    let found = folders.find_map(|folder| Some(folder.join(name)).filter(|path| path.is_file()));
    found.ok_or_else(|| format!("{name} is not installed").into())
}

/// A peer, stopped except while it is measured.
pub trait Peer {
    /// Continues or stops it.
    fn run(&self, on: bool) -> Result<(), Failure>;
}

/// Sends a signal to a peer's process.
pub fn signal(child: &Child, signal: Signal) -> Result<(), Failure> {
    let process = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or("no process")?;
    Ok(rustix::process::kill_process(process, signal)?)
}

/// The output of a peer's program, which is killed after `limit`.
pub fn finish(child: Child, limit: Duration) -> Result<Output, Failure> {
    let process = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or("no process")?;
    let (ended, end) = channel::<()>();
    let watch = std::thread::spawn(move || {
        let hangs = end.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
        // The process may have just ended.
        hangs && rustix::process::kill_process(process, Signal::KILL).is_ok()
    });
    let output = child.wait_with_output();
    drop(ended);
    if watch.join().unwrap_or(false) {
        return Err(format!("the peer took longer than {:.0} s", limit.as_secs_f64()).into());
    }
    Ok(output?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_hung_peer_is_killed() {
        let shell =
            |command: &str| Command::new("sh").args(["-c", command]).stdout(Stdio::piped()).spawn().unwrap();
        assert_eq!(finish(shell("echo 5"), Duration::from_secs(60)).unwrap().stdout, b"5\n");
        let error = finish(shell("exec sleep infinity"), Duration::ZERO).unwrap_err();
        assert_eq!(error.to_string(), "the peer took longer than 0 s");
    }
}
