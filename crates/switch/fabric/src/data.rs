//! The `data` process: a fabric, controlled over the stream.

use crate::fabric::{Done, Fabric, FabricError, Job};
use crate::page::SharedPage;
use crate::proto::{Call, DataMessage, Reply, Request};
use crate::records::Record;
use crate::stream::{MessageStream, StreamError};
use ringway_host::{Clock, EndNotice, EventFd, HostError, try_receive_with, wait_readable};
use ringway_port::{PeerRecord, PeerRecords, PortKind};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Why `data` ended.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The stream to `control` broke.
    #[error("the stream to the control process: {0}")]
    MessageStream(#[from] StreamError),
    /// The first message was not `start`, or lacked a descriptor.
    #[error("the control process did not begin with `start` and its three descriptors")]
    NotStarted,
    /// The fabric could not start.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The system refused.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A bug in this program.
    #[error("a session thread failed because of a bug in Ringway; see the log")]
    Panicked,
}

/// Runs the `data` process over `socket`, its end of the stream, until `control` sends `Stop`, or `control` and whoever
/// keeps the records are gone. Its kinds of port are [`ringway_port::KINDS`] and `more`.
pub fn run(socket: OwnedFd, more: &'static [PortKind]) -> Result<(), DataError> {
    let stream = MessageStream::new(socket);
    let seed = ringway_host::random()?;
    ringway_host::catch_sigbus()?;
    // Confines the process before the first thread is created, so that every thread is confined.
    ringway_host::confine_data()?;
    // It may be long until another process in place of which this one waits ends.
    let (call, descriptors) = match stream.receive::<Call>() {
        Err(StreamError::Closed) => return Ok(()),
        received => received?,
    };
    let Request::Start { workers, counters } = call.request else { return Err(DataError::NotStarted) };
    let [page, keeper, notice] = descriptors.try_into().map_err(|_| DataError::NotStarted)?;
    EndNotice::map(&notice)?.register()?;
    drop(notice);
    let page = Arc::new(SharedPage::map(page, counters as usize)?);
    let control = Arc::new(ControlStream::new(stream, keeper));
    let mut fabric = Fabric::start(&workers, page, seed, more)?;
    fabric.keep_in(control.clone());
    let wakeup = fabric.wakeup().clone();
    let (ended, end) = channel();
    let (clock, leader) = (Clock::new(), Mutex::default());
    let (tables, changed) = sync_channel(1);
    let (fabric, keeping) = (Mutex::new(fabric), Mutex::default());
    let data = Arc::new(Data { fabric, wakeup, control, clock, leader, ended, tables, keeping });
    keep_changed(&data, changed)?;
    data.reply(call.id, Reply::Done);
    let watched = Arc::downgrade(&data);
    let look = move || _ = watched.upgrade().inspect(Data::look_at_leader);
    locked(&data.fabric).at_each_look(Arc::new(look));
    data.lead(&mut locked(&data.leader))?;
    drop(data);
    end.recv().unwrap_or(Err(DataError::Panicked))
}

/// Nanoseconds after which peers are checked at the latest, since a worker doesn't signal a guest's fault.
const CHECK_INTERVAL: u64 = 500_000_000;

/// When all peers were last checked.
struct LastCheck(u64);

impl LastCheck {
    /// Whether other descriptors must be polled again: nothing else is left to do, or the last poll was long
    /// ago. Attack: a front-end that sends endlessly, so that other front-ends are never served. `pauses`: whether
    /// the thread waited only for a session's pause to end.
    fn is_over(&mut self, now: u64, ready: &[bool], pauses: bool) -> bool {
        let is_over = now.saturating_sub(self.0) >= CHECK_INTERVAL || !(pauses || ready.contains(&true));
        if is_over {
            self.0 = now;
        }
        is_over
    }
}

/// Nanoseconds that workers may take to end their turns before this process ends, and how often that is looked at.
const REST: u64 = 200_000_000;
const REST_POLL: Duration = Duration::from_micros(50);

/// Nanoseconds that a job may take before another thread serves the other ports.
const SLOW: u64 = 20_000_000;

/// The leader: the thread that receives messages and handles them.
#[derive(Default)]
struct Leader {
    /// Number of the leader; a thread with an older number stops after its job.
    number: u64,
    /// Start of the leader's current job; 0 if there is none.
    since: u64,
}

/// The stream to `control`, and the socket to whoever keeps records.
struct ControlStream {
    /// None while there is no `control`. Only the leader receives from it.
    stream: Mutex<Option<Arc<MessageStream>>>,
    sending: Mutex<()>,
    keeper: OwnedFd,
}

impl ControlStream {
    fn new(stream: MessageStream, keeper: OwnedFd) -> ControlStream {
        ControlStream { stream: Mutex::new(Some(Arc::new(stream))), sending: Mutex::default(), keeper }
    }

    fn stream(&self) -> Option<Arc<MessageStream>> {
        locked(&self.stream).clone()
    }

    /// Sends a message. Without `control` it is dropped: the next one asks for the state of all.
    fn send(&self, message: &DataMessage) {
        let _sending = locked(&self.sending);
        let Some(stream) = self.stream() else { return };
        if let Err(error) = stream.send(message, &[]) {
            tracing::warn!(%error, "the stream to the control process");
            self.lose(&stream);
        }
    }

    /// `control` is gone; the next one brings another stream.
    fn lose(&self, stream: &Arc<MessageStream>) {
        locked(&self.stream).take_if(|current| Arc::ptr_eq(current, stream));
    }

    /// The next call of `control`; `None` if there is none now.
    ///
    /// # Errors
    /// Neither `control` nor whoever keeps records is there any more.
    fn receive(&self) -> Result<Option<(Call, Vec<OwnedFd>)>, StreamError> {
        if let Some(stream) = self.stream() {
            let received = stream.receive::<Call>();
            if let Err(error @ (StreamError::Closed | StreamError::Host(_))) = &received {
                tracing::warn!(%error, "the control process ended; frames go on");
                self.lose(&stream);
                return Ok(None);
            }
            return received.map(Some);
        }
        match try_receive_with(self.keeper.as_fd(), &mut [0; 1], 1)? {
            Some((0, _)) => Err(StreamError::Closed),
            Some((_, descriptors)) => {
                let stream = descriptors.into_iter().next().map(|new| Arc::new(MessageStream::new(new)));
                *locked(&self.stream) = stream;
                Ok(None)
            }
            None => Ok(None),
        }
    }
}

impl PeerRecords for ControlStream {
    fn keep(&self, port: &str, key: u32, message: Option<(&[u8], &[OwnedFd])>) {
        let record = Record { port, key, bytes: message.map(|(bytes, _)| bytes) };
        let fds: Vec<_> = message.map_or(&[][..], |(_, fds)| fds).iter().map(AsFd::as_fd).collect();
        // Without who keeps it, this process is not replaced.
        let _ = record.send(&self.keeper, &fds);
    }
}

struct Data {
    /// No thread holds this lock while it waits for a worker or a peer.
    fabric: Mutex<Fabric>,
    wakeup: Arc<EventFd>,
    control: Arc<ControlStream>,
    clock: Clock,
    leader: Mutex<Leader>,
    ended: Sender<Result<(), DataError>>,
    /// Tells the thread that keeps tables that some have changed.
    tables: SyncSender<()>,
    /// Held by the thread that keeps tables.
    keeping: Mutex<()>,
}

/// Starts the thread that keeps what switches have learned. Attack: guests that fill a table, which takes long to read:
/// the thread that serves sessions does not wait for it.
fn keep_changed(data: &Arc<Data>, changed: Receiver<()>) -> Result<(), HostError> {
    let (data, guard) = (Arc::downgrade(data), Guard(data.ended.clone()));
    ringway_host::spawn("tables", None, move || {
        let _guard = guard;
        while let (Ok(()), Some(data)) = (changed.recv(), data.upgrade()) {
            data.keep_tables(false);
        }
    })
    .map(drop)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panics ends the process.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a thread leads on after a job.
enum Lead {
    Kept,
    /// It ends: another thread is the leader, or the process ends.
    Lost,
}

impl Data {
    /// Starts another leader.
    fn lead(self: &Arc<Data>, leader: &mut Leader) -> Result<(), HostError> {
        let (data, number) = (self.clone(), leader.number + 1);
        ringway_host::spawn("sessions", None, move || {
            let _guard = Guard(data.ended.clone());
            if let Err(error) = data.serve(number) {
                let _ = data.ended.send(Err(error));
            }
        })?;
        *leader = Leader { number, since: 0 };
        Ok(())
    }

    /// Starts another leader if the leader's job takes long.
    ///
    /// Attack: a peer that blocks the thread that serves its session, through its worker or through memory that it
    /// removes.
    fn look_at_leader(self: &Arc<Data>) {
        let mut leader = locked(&self.leader);
        if leader.since != 0
            && self.clock.now().saturating_sub(leader.since) > SLOW
            && let Err(error) = self.lead(&mut leader)
        {
            tracing::warn!(%error, "a port holds the sessions of the others");
        }
    }

    fn reply(&self, id: u64, reply: Reply) {
        self.control.send(&DataMessage::Reply { id, reply });
    }

    /// Serves as leader `number`.
    fn serve(&self, number: u64) -> Result<(), DataError> {
        let mut last_check = LastCheck(self.clock.now());
        loop {
            let fabric = locked(&self.fabric);
            let (ids, sessions): (Vec<_>, Vec<_>) =
                fabric.sessions().map(|(id, fd)| (id, fd.clone())).unzip();
            let pause = fabric.pause();
            drop(fabric);
            let stream = self.control.stream();
            let inlet = stream.as_ref().map_or(self.control.keeper.as_fd(), |stream| stream.as_fd());
            let mut sockets = vec![inlet, self.wakeup.as_fd()];
            sockets.extend(sessions.iter().map(|session| session.as_fd()));
            let timeout = pause.unwrap_or(CHECK_INTERVAL).min(CHECK_INTERVAL);
            let ready = wait_readable(&sockets, Some(timeout))?;
            drop(sockets);
            drop(sessions);
            for (id, _) in ids.iter().zip(&ready[2..]).filter(|(_, ready)| **ready) {
                let name = locked(&self.fabric).name_of(*id);
                if let Some(name) = name
                    && let Lead::Lost = self.work(number, &name, Job::Serve, None)?
                {
                    return Ok(());
                }
            }
            if last_check.is_over(self.clock.now(), &ready, pause.is_some()) || ready[1] {
                let (events, jobs) = locked(&self.fabric).due();
                if locked(&self.fabric).has_changed_tables() {
                    // The thread may have it before it.
                    let _ = self.tables.try_send(());
                }
                for (id, traced) in locked(&self.fabric).traced() {
                    self.reply(id, replied(traced.map(Reply::Traced)));
                }
                for event in events {
                    self.control.send(&DataMessage::Event(event));
                }
                for (name, job) in jobs {
                    if let Lead::Lost = self.work(number, &name, job, None)? {
                        return Ok(());
                    }
                }
            }
            if ready[0]
                && let Lead::Lost = self.handle_requests(number)?
            {
                return Ok(());
            }
        }
    }

    /// Keeps what switches have learned since it was kept last: of tables that may be read now, or of all.
    fn keep_tables(&self, all: bool) {
        let _keeping = locked(&self.keeping);
        let changed = locked(&self.fabric).changed_tables(all);
        let read = changed.keep(|| self.clock.now());
        locked(&self.fabric).kept_tables(read);
    }

    /// Does a job, and those that arrived for the same port meanwhile.
    fn work(&self, number: u64, port: &str, job: Job, call: Option<u64>) -> Result<Lead, DataError> {
        let begun = locked(&self.fabric).begin(port, job, call);
        let mut next = match begun {
            Ok(next) => next,
            Err(error) => {
                self.done(Done { call, result: Err(error), event: None });
                None
            }
        };
        while let Some(mut work) = next {
            self.at_job(number, self.clock.now());
            work.run();
            let is_leader = self.at_job(number, 0);
            let done;
            (done, next) = locked(&self.fabric).end(work);
            done.into_iter().for_each(|done| self.done(done));
            if !is_leader {
                // The leader must wait for the port's session again.
                self.wakeup.signal();
            }
        }
        Ok(if locked(&self.leader).number == number { Lead::Kept } else { Lead::Lost })
    }

    /// Records that leader `number` began or ended a job; returns whether it is still the leader.
    fn at_job(&self, number: u64, since: u64) -> bool {
        let mut leader = locked(&self.leader);
        if leader.number == number {
            leader.since = since;
        }
        leader.number == number
    }

    fn done(&self, done: Done) {
        if let Some(event) = done.event {
            self.control.send(&DataMessage::Event(event));
        }
        if let Some(id) = done.call {
            self.reply(id, replied(done.result.map(|()| Reply::Done)));
        }
    }

    /// Does the jobs that give a function its ports or take them back, and replies to call `id`.
    fn join(
        &self,
        number: u64,
        id: u64,
        jobs: Result<Vec<(String, Job)>, FabricError>,
    ) -> Result<Lead, DataError> {
        let (jobs, reply) = match jobs {
            Ok(jobs) => (jobs, Ok(Reply::Done)),
            Err(error) => (Vec::new(), Err(error)),
        };
        let mut after = Lead::Kept;
        for (port, job) in jobs {
            if let Lead::Lost = self.work(number, &port, job, None)? {
                after = Lead::Lost;
            }
        }
        self.reply(id, replied(reply));
        Ok(after)
    }

    /// Handles the requests of `control`.
    fn handle_requests(&self, number: u64) -> Result<Lead, DataError> {
        let (Call { id, request }, descriptors) = match self.control.receive() {
            Ok(Some(received)) => received,
            Ok(None) => return Ok(Lead::Kept),
            // Who could send further requests is gone.
            Err(StreamError::Closed) => {
                let _ = self.ended.send(Ok(()));
                return Ok(Lead::Lost);
            }
            Err(error) => return Err(error.into()),
        };
        match request {
            Request::RemovePort { name } => return self.work(number, &name, Job::Remove, Some(id)),
            Request::MovePort { name, worker } => {
                return self.work(number, &name, Job::Move(worker), Some(id));
            }
            Request::ChangePort { port } if !locked(&self.fabric).changes_policy_only(&port) => {
                let name = port.name.clone();
                return self.work(number, &name, Job::Change(Box::new(port)), Some(id));
            }
            Request::Attach { port, resumed } => {
                let job = locked(&self.fabric).attachment(&port, resumed, descriptors);
                return self.work(number, &port, job, Some(id));
            }
            Request::Detach { port } => return self.work(number, &port, Job::Detach, Some(id)),
            Request::StartFunction { number: function, function: what, handlers } => {
                let callers = descriptors.into_iter().next();
                let callers = callers.ok_or(FabricError::Limit("a function's socket belongs to it"));
                let started = callers.and_then(|callers| {
                    locked(&self.fabric).start_function(function, *what, (handlers, callers))
                });
                return self.join(number, id, started);
            }
            Request::StopFunction { number: function } => {
                let jobs = locked(&self.fabric).stop_function(function);
                return self.join(number, id, Ok(jobs));
            }
            Request::SuspendFunction { number: function, suspended } => {
                locked(&self.fabric).suspend_function(function, suspended);
                self.reply(id, Reply::Done);
                return Ok(Lead::Kept);
            }
            // A worker answers it.
            Request::Trace(trace) => {
                let begun = locked(&self.fabric).trace(id, *trace);
                if let Err(error) = begun {
                    self.reply(id, replied(Err(error)));
                }
                return Ok(Lead::Kept);
            }
            Request::Leave => {
                self.rest();
                self.reply(id, Reply::Done);
                // Without this process's destructors, which would end its peers' sessions.
                std::process::exit(0);
            }
            Request::Stop => {
                self.reply(id, Reply::Done);
                let _ = self.ended.send(Ok(()));
                return Ok(Lead::Lost);
            }
            _ => {}
        }
        let reply = self.execute(request, descriptors);
        self.reply(id, replied(reply));
        Ok(Lead::Kept)
    }

    /// Ends all workers' turns, and waits for jobs of former leaders. Attack: a peer whose memory blocks them: after a
    /// while this process ends all the same, as if it was killed.
    fn rest(&self) {
        let until = self.clock.now().saturating_add(REST);
        locked(&self.fabric).stop_workers();
        while !locked(&self.fabric).is_at_rest() && self.clock.now() < until {
            std::thread::sleep(REST_POLL);
        }
        self.keep_tables(true);
    }

    /// Handles a request that doesn't block.
    fn execute(&self, request: Request, descriptors: Vec<OwnedFd>) -> Result<Reply, FabricError> {
        let mut fabric = locked(&self.fabric);
        match request {
            Request::Profile { time } => return Ok(Reply::Profile(fabric.profile(time))),
            Request::AddSwitch(switch) => fabric.add_switch(switch)?,
            Request::RemoveSwitch { name } => fabric.remove_switch(&name)?,
            Request::AddPort { port, counters } => fabric.add_port(port, counters)?,
            Request::RestoreTable { switch, bytes } => fabric.restore_table(&switch, &bytes)?,
            Request::Restore { port, key, bytes } => {
                fabric.restore(&port, PeerRecord { key, bytes, fds: descriptors })?;
            }
            Request::Watch { worker, thread } => {
                let files = descriptors.try_into();
                let files = files.map_err(|_| FabricError::Limit("two files belong to a thread"))?;
                fabric.watch(&worker, thread, files)?;
            }
            // Only the policy: see `begin`.
            Request::ChangePort { port } => fabric.change_port(port)?,
            Request::Hold { ports, held, watched } => fabric.hold(&ports, held, watched),
            Request::Arrival { ports, step } => fabric.arrival(&ports, &step),
            Request::Departure { ports, step } => {
                if let Some(delivered) = fabric.departure(&ports, step) {
                    return Ok(Reply::Delivered(delivered));
                }
            }
            Request::Quiet { ports } => return Ok(Reply::Quiet(fabric.is_quiet(&ports))),
            Request::Join { ports, held } => fabric.join_ports(&ports, &held)?,
            Request::Assign { function, open, there } => fabric.assign_instances(&function, open, there)?,
            Request::Load { function, counts } => {
                return Ok(Reply::Load(fabric.instance_load(&function, counts)?));
            }
            Request::Capture { number, capture } => {
                let memory = descriptors.first().ok_or(FabricError::Limit("a memfd belongs to a capture"))?;
                fabric.capture(number, capture, memory)?;
            }
            Request::EndCapture { number } => fabric.end_capture(number),
            Request::State => return Ok(Reply::State(fabric.state())),
            Request::Exits { port } => return Ok(Reply::Exits(fabric.exits(&port)?)),
            Request::Flows { switch, order } => return fabric.flow_order(&switch, order),
            Request::AddressCounts => return Ok(Reply::AddressCounts(fabric.address_counts())),
            Request::Groups { switch } => return Ok(Reply::Groups(fabric.groups(&switch)?)),
            Request::Table { switch } => return Ok(Reply::Table(fabric.table(&switch)?)),
            _ => return Err(FabricError::Limit("the fabric is started already")),
        }
        Ok(Reply::Done)
    }
}

fn replied(result: Result<Reply, FabricError>) -> Reply {
    result.unwrap_or_else(|error| {
        // `control` logs it, within the port's limit of log lines.
        tracing::debug!(%error, "a change was refused");
        Reply::Refused(error.to_string())
    })
}

/// Ends the process if a leader panics.
struct Guard(Sender<Result<(), DataError>>);

impl Drop for Guard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.0.send(Err(DataError::Panicked));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_always_ready_peer_does_not_starve_others() {
        let mut last_check = LastCheck(7);
        let busy = [false, false, true];
        assert!(!last_check.is_over(7 + CHECK_INTERVAL - 1, &busy, false));
        assert!(last_check.is_over(7 + CHECK_INTERVAL, &busy, false));
        assert!(!last_check.is_over(8 + CHECK_INTERVAL, &busy, false));
        assert!(!last_check.is_over(8 + CHECK_INTERVAL, &[false; 3], true), "only a pause ended");
        assert!(last_check.is_over(8 + CHECK_INTERVAL, &[false; 3], false));
    }
}
