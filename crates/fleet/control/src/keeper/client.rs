//! The client of the keeper, used by `control`.

use super::{Request, Response, store::Store};
use ringway_fabric::{DESCRIPTORS, MessageStream, StreamError};
use ringway_host::wait_readable;
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, waitpid};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The wait status of a process whose status nobody knows: exit code 1.
const UNKNOWN: i32 = 1 << 8;

/// What the keeper holds under a name.
#[derive(Debug, Default)]
pub struct StoredEntry {
    /// The text.
    pub text: String,
    /// The descriptors, in order.
    pub descriptors: Vec<OwnedFd>,
}

/// The stream to the keeper. Without a keeper, requests have no effect, and the fabric ends with this process.
#[derive(Clone, Debug)]
pub struct Keeper {
    stream: Arc<Mutex<Option<MessageStream>>>,
    /// Whether it is another process.
    is_process: bool,
}

impl Keeper {
    /// The keeper at the other end of a stream socket.
    pub fn new(socket: OwnedFd) -> Keeper {
        Keeper::with(socket, true)
    }

    fn with(socket: OwnedFd, is_process: bool) -> Keeper {
        Keeper { stream: Arc::new(Mutex::new(Some(MessageStream::new(socket)))), is_process }
    }

    /// Runs a keeper as a thread, which ends with this process.
    ///
    /// # Errors
    /// The socket pair or the thread can't be created.
    pub fn thread() -> io::Result<Keeper> {
        let (ours, theirs) = UnixStream::pair()?;
        let stream = MessageStream::new(theirs.into());
        std::thread::Builder::new().name("keeper".into()).spawn(move || {
            let mut store = Store::default();
            while serve(&mut store, &stream, None, None).is_ok() {}
        })?;
        Ok(Keeper::with(ours.into(), false))
    }

    /// Whether it is another process, to which processes of the fabric come when this one is killed.
    pub fn is_process(&self) -> bool {
        self.is_process
    }

    /// Holds a text and copies of descriptors under a name, in place of what had it.
    pub fn put<'d, F: AsFd + 'd>(
        &self,
        name: &str,
        text: &str,
        descriptors: impl IntoIterator<Item = &'d F>,
    ) {
        let all: Vec<BorrowedFd<'_>> = descriptors.into_iter().map(AsFd::as_fd).collect();
        let (first, rest) = all.split_at(all.len().min(DESCRIPTORS));
        let mut stream = self.lock();
        send(&mut stream, &Request::Put { name: name.into(), text: text.into() }, first);
        for more in rest.chunks(DESCRIPTORS) {
            send(&mut stream, &Request::More { name: name.into() }, more);
        }
    }

    /// As [`Keeper::put`], with a value as JSON.
    pub fn put_value<'d, F: AsFd + 'd>(
        &self,
        name: &str,
        value: &impl Serialize,
        descriptors: impl IntoIterator<Item = &'d F>,
    ) {
        match serde_json::to_string(value) {
            Ok(text) => self.put(name, &text, descriptors),
            Err(error) => {
                tracing::error!(name, %error, "not encoded; a later control process will not restore it")
            }
        }
    }

    /// Closes what has a name.
    pub fn remove(&self, name: &str) {
        self.request(Request::Remove { name: name.into() }, &[]);
    }

    /// Waits until all requests are carried out.
    pub fn flush(&self) {
        self.ask(&Request::Records { port: String::new() }, |_, _| {});
    }

    /// Opens a slot for the records of a port's new peer. Once it returns, `data` may send them.
    pub fn open(&self, port: &str, descriptors: usize) {
        self.ask(&Request::Open { port: port.into(), descriptors }, |_, _| {});
    }

    /// Closes the records of a port's peer.
    pub fn close(&self, port: &str) {
        self.request(Request::Close { port: port.into() }, &[]);
    }

    /// Takes records from a new `data` process.
    pub fn data(&self, socket: &OwnedFd) {
        self.request(Request::Data, &[socket.as_fd()]);
    }

    /// The records of a port's peer, in the order of their keys.
    pub fn records(&self, port: &str) -> Vec<(u32, Vec<u8>, Vec<OwnedFd>)> {
        let mut records = Vec::new();
        self.ask(&Request::Records { port: port.into() }, |response, descriptors| {
            if let Response::Record { key, bytes } = response {
                records.push((key, bytes, descriptors));
            }
        });
        records
    }

    /// Lets a process outlive this one: its exit status waits until it is asked for.
    pub fn watch(&self, process: Pid) {
        self.request(Request::Watch { process: process.as_raw_nonzero().get() }, &[]);
    }

    /// Forgets a process that was watched.
    pub fn unwatch(&self, process: Pid) {
        self.request(Request::Unwatch { process: process.as_raw_nonzero().get() }, &[]);
    }

    /// Takes the exit status of a process that was watched and has ended, whoever is its parent.
    pub fn status(&self, process: Pid) -> ExitStatus {
        let own = loop {
            match waitpid(Some(process), WaitOptions::empty()) {
                Err(Errno::INTR) => {}
                Ok(Some((_, status))) => break Some(status.as_raw()),
                _ => break None,
            }
        };
        let mut found = own;
        if own.is_none() {
            self.ask(&Request::Status { process: process.as_raw_nonzero().get() }, |response, _| {
                if let Response::Status { status } = response {
                    found = Some(status);
                }
            });
        }
        self.unwatch(process);
        ExitStatus::from_raw(found.unwrap_or(UNKNOWN))
    }

    /// All entries, but no records, by name.
    pub fn entries(&self) -> BTreeMap<String, StoredEntry> {
        let (mut all, mut last) = (BTreeMap::<String, StoredEntry>::new(), String::new());
        self.ask(&Request::Entries, |response, descriptors| match response {
            Response::Named { name, text } => {
                last.clone_from(&name);
                all.insert(name, StoredEntry { text, descriptors });
            }
            _ => all.entry(last.clone()).or_default().descriptors.extend(descriptors),
        });
        all
    }

    /// Lets the next `control` be that of the program in `binary`; who is at the other end of `client` is told how that
    /// went. To be called just before this process ends.
    pub fn upgrade(&self, binary: &OwnedFd, client: &OwnedFd) {
        self.request(Request::Upgrade, &[binary.as_fd(), client.as_fd()]);
    }

    /// Tells that this process serves the fabric, and that a trial ([`super::TRIAL`]) has succeeded.
    pub fn serving(&self, notes: Vec<String>) {
        self.request(Request::Serving { notes }, &[]);
    }

    fn request(&self, request: Request, descriptors: &[BorrowedFd<'_>]) {
        send(&mut self.lock(), &request, descriptors);
    }

    /// Calls `each` with every response but the last.
    fn ask(&self, request: &Request, mut each: impl FnMut(Response, Vec<OwnedFd>)) {
        let mut stream = self.lock();
        send(&mut stream, request, &[]);
        while let Some(open) = &*stream {
            match open.receive::<Response>() {
                Ok((Response::End, _)) => return,
                Ok((response, descriptors)) => each(response, descriptors),
                Err(error) => lose(&mut stream, &error),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<MessageStream>> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn send(stream: &mut Option<MessageStream>, request: &Request, descriptors: &[BorrowedFd<'_>]) {
    if let Some(Err(error)) = stream.as_ref().map(|stream| stream.send(request, descriptors)) {
        lose(stream, &error);
    }
}

fn lose(stream: &mut Option<MessageStream>, error: &StreamError) {
    tracing::error!(%error, "the keeper is lost: the control process can't be restarted after a crash");
    *stream = None;
}

/// Waits for requests and records, or until `other` is readable, or for so many nanoseconds, and carries them out.
///
/// # Errors
/// `control` is gone.
pub(super) fn serve(
    store: &mut Store,
    stream: &MessageStream,
    other: Option<BorrowedFd<'_>>,
    timeout: Option<u64>,
) -> Result<(), StreamError> {
    let data = store.data().map(AsFd::as_fd);
    let sockets: Vec<_> = [Some(stream.as_fd()), other, data].into_iter().flatten().collect();
    let ready = wait_readable(&sockets, timeout)?;
    if ready[0] {
        let (request, descriptors) = stream.receive::<Request>()?;
        store.handle(request, descriptors, stream)
    } else {
        store.take_records();
        Ok(())
    }
}
