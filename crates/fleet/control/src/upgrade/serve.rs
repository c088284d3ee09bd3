//! Serves the socket for upgrades.

use super::binary::{check_client, check_program};
use super::{CHECK, Running, UpgradeAnswer, UpgradeRequest, Verdict};
use crate::engine::{EngineRequest, Failure, Inbox};
use crate::open::Watched;
use ringway_fabric::MessageStream;
use ringway_host::listener::Listener;
use ringway_host::{constant_memfd, wait_readable};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;
use tokio::runtime::Handle;

/// How long a client may take to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a program may take to check whether it can go on with the fabric, in nanoseconds.
const CHECK_TIMEOUT: u64 = 20_000_000_000;
/// Most bytes of a program's verdict, and of its other output in a message.
const MAX_VERDICT_LEN: u64 = 1 << 20;
const MAX_OUTPUT_LEN: usize = 400;
/// Delay after a temporary error, such as a lack of file descriptors.
const ERROR_DELAY: Duration = Duration::from_secs(1);

/// Serves clients, one after the other.
pub async fn serve(listener: Listener, inbox: Inbox) -> io::Result<()> {
    let mut listener = Watched::new(listener)?;
    loop {
        let accepted = listener.until(|listener| listener.accept().map_err(io::Error::other)).await;
        let socket = match accepted {
            Ok(socket) => socket,
            Err(error) => {
                tracing::warn!(%error, "the socket for upgrades");
                tokio::time::sleep(ERROR_DELAY).await;
                continue;
            }
        };
        let (inbox, runtime) = (inbox.clone(), Handle::current());
        let served = tokio::task::spawn_blocking(move || serve_client(socket, &inbox, &runtime)).await;
        if let Err(error) = served.unwrap_or_else(|panic| Err(panic.into())) {
            tracing::debug!(%error, "a client that upgrades");
        }
    }
}

fn serve_client(
    socket: OwnedFd,
    inbox: &Inbox,
    runtime: &Handle,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let socket = UnixStream::from(socket);
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    let (allowed, waiting) = (check_client(&socket), OwnedFd::from(socket.try_clone()?));
    let stream = MessageStream::new(socket.into());
    let refuse = |why: Vec<String>| {
        tracing::warn!(why = why.join("; "), "an upgrade is refused");
        stream.send(&UpgradeAnswer::Refused(why), &[])
    };
    if let Err(why) = allowed {
        return Ok(refuse(vec![why])?);
    }
    let (request, descriptors) = stream.receive::<UpgradeRequest>()?;
    let Some(binary) = descriptors.into_iter().next() else {
        return Ok(refuse(vec!["the program's descriptor is missing".into()])?);
    };
    let running = runtime.block_on(inbox.ask(EngineRequest::Running)).map_err(Failure::reason)?;
    let to = match check_all(&binary, &running, request.disconnect) {
        Ok(to) => to,
        Err(why) => return Ok(refuse(why)?),
    };
    let notes = running.notes.iter().chain(running.losses.iter()).cloned().collect();
    stream.send(&UpgradeAnswer::Checked { from: running.version, to, notes }, &[])?;
    if request.only_check {
        return Ok(());
    }
    tracing::info!("moving the fabric to another program");
    // Answers only if it fails: this process ends, and the keeper tells the client how it went.
    if let Err(failure) =
        runtime.block_on(inbox.ask(|answer| EngineRequest::Upgrade([binary, waiting], answer)))
    {
        stream.send(&UpgradeAnswer::Failed(failure.reason()), &[])?;
    }
    Ok(())
}

/// Checks a program, and lets it check the fabric; returns its version.
fn check_all(binary: &OwnedFd, running: &Running, disconnect: bool) -> Result<String, Vec<String>> {
    check_program(binary).map_err(|why| vec![why])?;
    let Verdict { version, mut problems } = ask_program(binary, running).map_err(|why| vec![why])?;
    if !disconnect {
        problems.extend(running.losses.iter().map(|loss| format!("{loss}; --disconnect accepts that")));
    }
    if problems.is_empty() { Ok(version) } else { Err(problems) }
}

/// Runs a program, which says whether it can go on with the fabric.
fn ask_program(binary: &OwnedFd, running: &Running) -> Result<Verdict, String> {
    let failed = |error: &dyn std::fmt::Display| format!("the program can't check the fabric: {error}");
    let text = serde_json::to_vec(running).map_err(|error| failed(&error))?;
    let input = constant_memfd("ringway-fabric", &text).map_err(|error| failed(&error))?;
    let mut input = File::from(input);
    input.rewind().map_err(|error| failed(&error))?;
    let output = || memfd_create("ringway-verdict", MemfdFlags::CLOEXEC).map(File::from);
    let (said, errors) =
        (output().map_err(|error| failed(&error))?, output().map_err(|error| failed(&error))?);
    let copy = |file: &File| file.try_clone().map_err(|error| failed(&error));
    // Resolved by the new process, before it closes its copy of the descriptor.
    let mut command = Command::new(format!("/proc/self/fd/{}", binary.as_raw_fd()));
    command
        .arg0("ringway")
        .arg(CHECK)
        .stdin(input)
        .stdout(copy(&said)?)
        .stderr(copy(&errors)?)
        .process_group(0);
    let mut child = command.spawn().map_err(|error| failed(&error))?;
    let process = Pid::from_raw(child.id().cast_signed());
    let process = process.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let ended = process.map(|process| wait_readable(&[process.as_fd()], Some(CHECK_TIMEOUT)));
    if !matches!(&ended, Some(Ok(ready)) if ready.contains(&true)) {
        // The program may have ended by now.
        let _ = child.kill();
        let _ = child.wait();
        return Err(failed(&format!("it did not answer within {} s", CHECK_TIMEOUT / 1_000_000_000)));
    }
    let status = child.wait().map_err(|error| failed(&error))?;
    match serde_json::from_slice(&content(said)) {
        Ok(verdict) if status.success() => Ok(verdict),
        _ => {
            let errors = String::from_utf8_lossy(&content(errors)).trim().to_string();
            let said = &errors[..errors.floor_char_boundary(MAX_OUTPUT_LEN)];
            let what = if said.is_empty() { String::new() } else { format!(", and says: {said}") };
            Err(failed(&format!("it knows no `ringway {CHECK}` as this version has it ({status}){what}")))
        }
    }
}

/// What a file has, from its beginning.
fn content(mut file: File) -> Vec<u8> {
    let mut bytes = Vec::new();
    // What can't be read is not there.
    let _ = file.rewind().and_then(|()| file.take(MAX_VERDICT_LEN).read_to_end(&mut bytes));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_program_that_is_not_ringway_is_refused_with_what_it_says() {
        let folder = std::env::temp_dir().join(format!("ringway-no-upgrade-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let ask = |from: &str| {
            let program = folder.join("program");
            std::fs::copy(from, &program).unwrap();
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
            check_all(&File::open(&program).unwrap().into(), &Running::default(), false)
                .unwrap_err()
                .join("; ")
        };
        let cat = ask("/bin/cat");
        assert!(
            cat.contains("no `ringway upgrade-check`") && cat.contains("upgrade-check: No such file"),
            "{cat}"
        );
        let truth = ask("/bin/true");
        assert!(truth.contains("no `ringway upgrade-check`") && !truth.contains("says"), "{truth}");
        let text = ask("Cargo.toml");
        assert!(text.contains("can't check the fabric"), "{text}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
