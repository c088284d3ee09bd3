//! Monitors of ports that another program of the same user has opened.
//!
//! Whoever has opened a port listens on a socket in the folder of pipes. A program that wants a monitor connects, says
//! what it wants, and gets a handle, as if it had been passed one. Attack: a program connects and says nothing, or
//! anything: it is answered within a call of the port's program, and what it says is one message of a fixed size.

use crate::clients::Clients;
use crate::{Result, names, pipe};
use ringway_host::{receive_with, send_with, try_receive_with, wait_readable};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const MAGIC: u64 = u64::from_le_bytes(*b"rw-moni1");
/// A request: the number above, kinds, slots.
const REQUEST: usize = 16;
/// How long a program that has connected may take to say what it wants.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the port's program may take to answer: until its next call, or its wait is over.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// At most so often is it looked whether a program has connected, by a port's program that does not wait.
const ACCEPT_INTERVAL: Duration = Duration::from_millis(20);

/// What a program wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub kinds: u32,
    pub slots: u32,
}

impl Request {
    fn bytes(self) -> [u8; REQUEST] {
        let mut bytes = [0; REQUEST];
        bytes[..8].copy_from_slice(&MAGIC.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.kinds.to_ne_bytes());
        bytes[12..].copy_from_slice(&self.slots.to_ne_bytes());
        bytes
    }

    fn of(bytes: [u8; REQUEST]) -> Option<Request> {
        let word = |at: usize| bytes[at..].first_chunk().map_or(0, |word| u32::from_ne_bytes(*word));
        let is_one = bytes.first_chunk() == Some(&MAGIC.to_ne_bytes());
        is_one.then(|| Request { kinds: word(8), slots: word(12) })
    }
}

/// A program that has connected.
#[derive(Debug)]
pub struct Client(UnixStream);

impl Client {
    /// Gives it a handle, or says why not.
    pub fn answer(self, handle: Result<OwnedFd>) {
        let (error, handles) = match &handle {
            Ok(handle) => (0, vec![handle.as_fd()]),
            Err(error) => (*error, Vec::new()),
        };
        // A program that has gone gets none.
        let _ = send_with(&self.0, &error.to_ne_bytes(), &handles);
    }
}

/// The socket of a port.
#[derive(Debug)]
pub struct MonitorServer {
    clients: Clients,
    path: PathBuf,
    looked: Instant,
}

/// The socket of a port with this key in a folder: a path has room for 107 bytes.
fn socket(folder: &Path, key: &Path) -> PathBuf {
    let hash = key.as_os_str().as_encoded_bytes().iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    folder.join(format!("monitors-{hash:016x}"))
}

impl MonitorServer {
    /// Listens for a port that this process has opened: nobody else has it.
    pub fn bind(folder: &Path, key: &Path) -> Result<MonitorServer> {
        pipe::folder(folder)?;
        let path = socket(folder, key);
        let clients = Clients::bind(&path, REQUEST_TIMEOUT).map_err(|_| libc::EACCES)?;
        Ok(MonitorServer { clients, path, looked: Instant::now() })
    }

    /// Its descriptors.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [self.clients.listener()].into_iter().chain(self.clients.pending())
    }

    /// Whether it is time to look again.
    pub fn is_due(&mut self) -> bool {
        let is_due = self.looked.elapsed() >= ACCEPT_INTERVAL;
        if is_due {
            self.looked = Instant::now();
        }
        is_due
    }

    /// A program, and what it wants, if there is one. It does not block.
    pub fn accept(&mut self) -> Option<(Client, Request)> {
        let stream = self.clients.next()?;
        let mut bytes = [0; REQUEST];
        match try_receive_with(&stream, &mut bytes, 0) {
            Ok(Some((REQUEST, _))) => Some((Client(stream), Request::of(bytes)?)),
            Ok(_) | Err(_) => None,
        }
    }
}

impl Drop for MonitorServer {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Asks the program that has opened a port for a monitor; its handle. Attack: another user has made the folder, in one
/// where everybody may, or listens there, and gives a handle of its own.
///
/// # Errors
/// EINVAL, as netmap's for a port that is not open: no program of this user has opened it; EACCES: the folder or the
/// program is another user's; EBUSY: it does not answer; what it answers.
pub fn ask(folder: &Path, key: &Path, request: Request) -> Result<OwnedFd> {
    match pipe::own_folder(folder) {
        Err(libc::ENOENT) => return Err(libc::EINVAL),
        checked => checked?,
    }
    let stream = ringway_host::listener::connect_now(&socket(folder, key)).map_err(|_| libc::EINVAL)?;
    if !ringway_host::peer(&stream).is_ok_and(|peer| peer.user == names::user()) {
        return Err(libc::EACCES);
    }
    send_with(&stream, &request.bytes(), &[]).map_err(|_| libc::EINVAL)?;
    if !wait_readable(&[stream.as_fd()], Some(ANSWER_TIMEOUT.as_nanos() as u64))
        .is_ok_and(|ready| ready == [true])
    {
        return Err(libc::EBUSY);
    }
    let mut error = [0; 4];
    let (count, fds) = receive_with(&stream, &mut error, 1).map_err(|_| libc::EIO)?;
    match (count, i32::from_ne_bytes(error), fds.into_iter().next()) {
        (4, 0, Some(handle)) => Ok(handle),
        (4, error @ 1..4096, _) => Err(error),
        _ => Err(libc::EIO),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    /// Attack: programs that say nothing, too little or something else.
    #[test]
    fn one_program_after_the_other_is_served() {
        let base = std::env::temp_dir().join(format!("ringway-netmap-monitors-{}", std::process::id()));
        let (key, request) = (Path::new("/run/a.sock"), Request { kinds: 3, slots: 64 });
        assert_eq!(ask(&base, key, request).unwrap_err(), libc::EINVAL);
        let mut server = MonitorServer::bind(&base, key).unwrap();
        let path = server.path.clone();
        let silent = UnixStream::connect(&path).unwrap();
        assert!(server.accept().is_none() && server.descriptors().count() == 2);
        UnixStream::connect(&path).unwrap().write_all(b"x").unwrap();
        UnixStream::connect(&path).unwrap().write_all(&[7; 64]).unwrap();
        drop(silent);
        for _ in 0..3 {
            assert!(server.accept().is_none());
        }
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| ask(&base, key, request));
            let (client, wanted) = loop {
                if let Some(found) = server.accept() {
                    break found;
                }
                std::thread::yield_now();
            };
            assert_eq!(wanted, request);
            client.answer(Err(libc::EBUSY));
            assert_eq!(asked.join().unwrap().unwrap_err(), libc::EBUSY);
            let asked = scope.spawn(|| ask(&base, key, request));
            let client = loop {
                if let Some((client, _)) = server.accept() {
                    break client;
                }
                std::thread::yield_now();
            };
            client.answer(ringway_host::descriptor_store(true).map_err(|_| libc::EMFILE));
            assert!(asked.join().unwrap().is_ok());
        });
        drop(server);
        assert!(!path.exists());
        assert_eq!(ask(&base, key, request).unwrap_err(), libc::EINVAL);
        std::fs::remove_dir_all(&base).unwrap();
    }

    /// Attack: a folder where others make files, or that is a link to one.
    #[test]
    fn nobody_is_asked_in_a_folder_of_others() {
        let base = std::env::temp_dir().join(format!("ringway-netmap-others-{}", std::process::id()));
        let (key, request) = (Path::new("/run/a.sock"), Request { kinds: 3, slots: 64 });
        let _server = MonitorServer::bind(&base, key).unwrap();
        let link = base.with_extension("link");
        std::os::unix::fs::symlink(&base, &link).unwrap();
        assert_eq!(ask(&link, key, request).unwrap_err(), libc::EACCES);
        std::fs::set_permissions(&base, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(ask(&base, key, request).unwrap_err(), libc::EACCES);
        std::fs::remove_file(&link).unwrap();
        std::fs::remove_dir_all(&base).unwrap();
    }
}
