//! The `data` process, from the side of `control`: starting it, sending it requests, noticing its end.

mod early_end;
mod page;
mod standby;

pub use page::{Page, PageError};
pub use standby::Standby;

use crate::engine::{Inbox, Message, Undelivered};
use crate::keeper::{Keeper, Outliving};
use early_end::EarlyEnd;
use ringway_fabric::proto::{Call, DataMessage, Reply, Request};
use ringway_fabric::{MessageStream, StreamError};
use ringway_host::{send_with, wait_readable};
use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use standby::Parts;
use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// Time limit for a change in `data`. A change takes microseconds, except when it takes a port from a worker that is
/// blocked.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long `data` may take to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a request to `data` failed.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// `data` could not be started.
    #[error("the data process can't be started: {0}")]
    Start(#[source] io::Error),
    /// `data` ended.
    #[error("the data process is gone; it is being started again")]
    Gone,
    /// `data` does not answer.
    #[error("the data process did not answer within {} s", CHANGE_TIMEOUT.as_secs())]
    Silent,
    /// `data` refused the request.
    #[error("{0}")]
    Refused(String),
}

/// Reply channels of pending calls, by call number; `None` once the stream to `data` is closed.
type Pending = Arc<Mutex<Option<HashMap<u64, oneshot::Sender<Reply>>>>>;

/// A running `data` process. Dropping the value ends the process.
#[derive(Debug)]
pub struct Data {
    /// The process ID.
    pub pid: u32,
    /// Number of this `data` process since the start of the fabric, from 1.
    pub generation: u64,
    outbox: Option<Sender<(Call, Vec<OwnedFd>)>>,
    pending: Pending,
    ended: Arc<Ended>,
    next: u64,
}

/// What the keeper holds of a `data` process, with a descriptor of it.
#[derive(Debug, Serialize, Deserialize)]
pub struct KeptData {
    pid: u32,
    /// As [`Data::generation`].
    pub generation: u64,
    /// Number of `control` processes that have had it.
    controls: u64,
}

impl KeptData {
    fn store(&self, keeper: &Keeper, process: &Outliving, notice: Option<&OwnedFd>) {
        let notice = notice.map(AsFd::as_fd);
        keeper.put_value(KEPT, self, [process.as_fd()].iter().chain(notice.as_ref()));
    }
}

#[cfg(test)]
impl KeptData {
    /// One with all fields, for the test of formats.
    pub fn example() -> KeptData {
        KeptData { pid: 4711, generation: 2, controls: 3 }
    }
}

/// What the keeper must get to know of a new `data` process.
pub struct Unregistered {
    kept: KeptData,
    process: Outliving,
    records: OwnedFd,
    notice: OwnedFd,
}

impl Unregistered {
    /// Makes the keeper take records from the process, in place of a former one, and lets later `control` processes
    /// find it.
    pub fn register(self, keeper: &Keeper) {
        keeper.data(&self.records);
        self.kept.store(keeper, &self.process, Some(&self.notice));
    }
}

/// A `data` process; its end of the socket for records, and the memory of the notice of its end; and what the keeper
/// must get to know.
pub type Spawned = (Data, [OwnedFd; 2], Unregistered);

/// The keeper's name for [`KeptData`].
pub const KEPT: &str = "data";
/// Numbers of calls that a `control` process has for itself.
const CALLS: u64 = 1 << 40;

#[derive(Debug, Default)]
struct Ended {
    status: Mutex<Option<ExitStatus>>,
    changed: std::sync::Condvar,
}

impl Data {
    /// Starts `data` number `generation`, or takes the one that waits. Its events and its end are sent to `inbox`.
    pub fn spawn(
        generation: u64,
        (standby, arguments): (Option<Standby>, &[OsString]),
        inbox: Inbox,
        keeper: &Keeper,
    ) -> Result<Spawned, DataError> {
        let gone = || DataError::Start(io::ErrorKind::BrokenPipe.into());
        let parts = match standby.and_then(Standby::take) {
            Some(parts) => parts,
            None => Standby::start(arguments)?.take().ok_or_else(gone)?,
        };
        let Parts { child, stream, records: [records, kept_records], notice } = parts;
        let pid = child.id();
        let process = Outliving::started(Pid::from_child(&child), keeper).map_err(DataError::Start)?;
        let kept = KeptData { pid, generation, controls: 1 };
        let theirs = notice.try_clone().map_err(DataError::Start)?;
        let new = Unregistered { kept, process: process.clone(), records: kept_records, notice };
        let data = Data::with(&new.kept, stream.into(), (process, Some(&new.notice)), inbox)?;
        Ok((data, [records, theirs], new))
    }

    /// Goes on with a `data` process whose `control` ended: `process` is its descriptor, with the memory of the notice
    /// of its end, and by `socket` it gets another stream.
    pub fn adopt(
        mut kept: KeptData,
        (process, notice): (OwnedFd, Option<OwnedFd>),
        socket: &OwnedFd,
        inbox: Inbox,
        keeper: &Keeper,
    ) -> Result<Data, DataError> {
        let pid = Pid::from_raw(kept.pid.cast_signed()).ok_or(DataError::Gone)?;
        let process = Outliving::adopted(pid, process, keeper);
        if process.has_ended() {
            process.status();
            return Err(DataError::Gone);
        }
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(DataError::Start)?;
        send_with(socket, &[0], &[theirs.as_fd()]).map_err(|_| DataError::Gone)?;
        kept.controls += 1;
        kept.store(keeper, &process, notice.as_ref());
        Data::with(&kept, ours.into(), (process, notice.as_ref()), inbox)
    }

    /// The process at the other end of `ours`.
    fn with(
        kept: &KeptData,
        ours: OwnedFd,
        (process, notice): (Outliving, Option<&OwnedFd>),
        inbox: Inbox,
    ) -> Result<Data, DataError> {
        let KeptData { pid, generation, controls } = *kept;
        let stream = Arc::new(MessageStream::new(ours));
        let pending: Pending = Arc::new(Mutex::new(Some(HashMap::new())));
        let ended = Arc::new(Ended::default());
        let (outbox, calls) = channel();
        let (writer, answers, watched) = (stream.clone(), pending.clone(), ended.clone());
        let thread = |name: &str| std::thread::Builder::new().name(format!("data-{name}"));
        thread("calls").spawn(move || write(&writer, &calls)).map_err(DataError::Start)?;
        let early = match notice {
            Some(notice) => Some(EarlyEnd::watch(notice, &process, &stream).map_err(DataError::Start)?),
            None => None,
        };
        thread("answers")
            .spawn(move || {
                read(&stream, &answers, &inbox);
                // `data` ends when its stream does.
                let _ = rustix::net::shutdown(stream.as_fd(), rustix::net::Shutdown::Both);
                // No more replies can come: pending calls fail.
                answers.lock().unwrap_or_else(PoisonError::into_inner).take();
                let early = early.and_then(EarlyEnd::status);
                let status = early.unwrap_or_else(|| process.status());
                *watched.status.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
                watched.changed.notify_all();
                // Fails only if `control` is ending too.
                let _ = inbox.send(Message::DataEnded { generation, status });
                if early.is_some() {
                    process.status();
                }
            })
            .map_err(DataError::Start)?;
        // A reply to a former `control` answers no call of this one.
        let next = controls.wrapping_mul(CALLS);
        Ok(Data { pid, generation, outbox: Some(outbox), pending, ended, next })
    }

    /// Sends a request to `data`. The returned future waits for the reply, for at most `CHANGE_TIMEOUT`.
    pub fn call(
        &mut self,
        request: Request,
        descriptors: Vec<OwnedFd>,
    ) -> Result<impl Future<Output = Result<Reply, DataError>> + Send + 'static, DataError> {
        let posted = self.post(request, descriptors)?;
        Ok(async { tokio::time::timeout(CHANGE_TIMEOUT, posted).await.unwrap_or(Err(DataError::Silent)) })
    }

    /// Sends a request to `data`, which handles requests for the same port in order. The returned future waits for the
    /// reply.
    pub fn post(
        &mut self,
        request: Request,
        descriptors: Vec<OwnedFd>,
    ) -> Result<impl Future<Output = Result<Reply, DataError>> + Send + 'static, DataError> {
        let id = self.next;
        self.next += 1;
        let (answer, answered) = oneshot::channel();
        match self.pending.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            Some(pending) => pending.insert(id, answer),
            None => return Err(DataError::Gone),
        };
        let outbox = self.outbox.as_ref().ok_or(DataError::Gone)?;
        outbox.send((Call { id, request }, descriptors)).map_err(|_| DataError::Gone)?;
        Ok(async {
            match answered.await {
                Ok(Reply::Refused(why)) => Err(DataError::Refused(why)),
                Ok(reply) => Ok(reply),
                Err(_) => Err(DataError::Gone),
            }
        })
    }

    /// Kills the process.
    pub fn kill(&self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.pid.cast_signed()) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }

    /// Waits until the process has ended, within a time limit.
    pub async fn ended(&self) {
        let until = tokio::time::Instant::now() + STOP_TIMEOUT;
        let has_ended = || self.ended.status.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        while !has_ended() && tokio::time::Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Asks `data` to end, and kills it if it does not.
    pub async fn stop(mut self) {
        if let Ok(stopped) = self.post(Request::Stop, Vec::new()) {
            let _ = tokio::time::timeout(STOP_TIMEOUT, stopped).await;
        }
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        // Closing the stream ends `data`; a process that hangs is killed.
        self.outbox = None;
        let status = self.ended.status.lock().unwrap_or_else(PoisonError::into_inner);
        let (status, _) = self
            .ended
            .changed
            .wait_timeout_while(status, STOP_TIMEOUT, |status| status.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        let running = status.is_none();
        drop(status);
        if running {
            tracing::warn!(pid = self.pid, "the data process does not end; killing it");
            self.kill();
        }
    }
}

/// Sends calls until the channel is closed, then shuts the stream down for writing, which tells `data` to end.
fn write(stream: &MessageStream, calls: &Receiver<(Call, Vec<OwnedFd>)>) {
    while let Ok((call, descriptors)) = calls.recv() {
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        if let Err(error) = stream.send(&call, &descriptors) {
            tracing::warn!(%error, "the stream to the data process");
            break;
        }
    }
    let _ = rustix::net::shutdown(stream.as_fd(), rustix::net::Shutdown::Write);
}

/// Dispatches replies and events of `data` until the stream is closed.
fn read(stream: &MessageStream, pending: &Pending, inbox: &Inbox) {
    loop {
        match stream.receive::<DataMessage>() {
            Ok((DataMessage::Reply { id, reply }, _)) => {
                let mut pending = pending.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(answer) = pending.as_mut().and_then(|pending| pending.remove(&id)) {
                    // The caller may have timed out.
                    let _ = answer.send(reply);
                }
            }
            Ok((DataMessage::Event(event), _)) => {
                // Attack: a `data` process that was taken over and sends endless events. Dropping one would leave a
                // port without its peer: the process is started again instead, with all ports as described.
                if inbox.send(Message::FromData(event)) == Err(Undelivered::Full) {
                    tracing::error!("the data process sends more events than can be handled");
                    return;
                }
            }
            Err(StreamError::Closed) => return,
            Err(error) => {
                tracing::warn!(%error, "the stream to the data process");
                return;
            }
        }
    }
}

/// Ends a process that can't be gone on with, and waits until it has ended.
pub fn end_process(process: &OwnedFd) {
    // It may have ended.
    let _ = rustix::process::pidfd_send_signal(process, rustix::process::Signal::KILL);
    let _ = wait_readable(&[process.as_fd()], Some(STOP_TIMEOUT.as_nanos() as u64));
}
