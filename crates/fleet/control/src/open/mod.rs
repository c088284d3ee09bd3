//! Openers: listening and accepting, connecting and reconnecting, opening interfaces.
//!
//! Each port that has peers has an [`Opener`], a task that brings one peer at a time: it reports
//! [`What::Arrived`], and waits for [`Opener::gone`] before it brings the next.

mod access;
pub(crate) mod interface;
pub(crate) mod ring;
pub(crate) mod switch;
pub(crate) mod vhost_user;
mod watched;

use crate::engine::{Inbox, Message};
use crate::keeper::{Keeper, StoredEntry};
use crate::kinds::PortControl;
use ringway_fabric::LogLimit;
use ringway_host::listener::{self, Listener};
use ringway_host::{PageChoice, on_node};
use ringway_port::ring::open::{Newcomer, Program, RingListener};
use ringway_ring::Hello;
use ringway_spec::Port;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
pub(crate) use watched::Watched;

/// Why a port can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its socket can't be created.
    #[error("{whose}: {error}")]
    Socket {
        /// The port, or the switch.
        whose: String,
        /// The error.
        error: listener::OpenError,
    },
    /// The owner or group of its socket does not exist.
    #[error("{whose}: there is no {what} \"{name}\"; use a name that /etc/{file} has, or a number")]
    Nobody {
        /// The port, or the switch.
        whose: String,
        /// `user` or `group`.
        what: &'static str,
        /// The name in the fabric file.
        name: String,
        /// The file that was searched for the name.
        file: &'static str,
    },
    /// The system refused.
    #[error("{whose}: {error}")]
    System {
        /// The port, or the switch.
        whose: String,
        /// The operating system's error.
        error: io::Error,
    },
}

/// Delay after a temporary error, such as a lack of file descriptors.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);

/// An event of a port's opener.
#[derive(Debug)]
pub struct PeerEvent {
    /// The port.
    pub port: String,
    /// Number of the opener; a port that was removed and added again has another.
    pub epoch: u64,
    /// What happened.
    pub what: What,
}

/// What happened to a peer.
#[derive(Debug)]
pub enum What {
    /// A peer has connected.
    Arrived {
        /// Its number, from 1.
        serial: u64,
        /// The descriptors that `data` needs for the peer.
        descriptors: Vec<OwnedFd>,
        /// Whether a restarted `data` can continue with the same descriptors.
        keep: bool,
    },
    /// A peer has disconnected.
    Left {
        /// Its number.
        serial: u64,
        /// The reason.
        reason: String,
    },
    /// Something about the peer, which stays.
    Noted(String),
    /// No peer can be brought for now; the opener retries.
    Failed(String),
    /// The number of programs connected to a pipe.
    Programs(usize),
    /// The program that opened the port has left: the port is removed.
    Over,
}

/// The task that brings a port its peers, until it is stopped.
#[derive(Debug)]
pub struct Opener {
    done: watch::Sender<u64>,
    task: JoinHandle<()>,
}

impl Opener {
    /// Opens a port. Permanent errors are returned at once. `None` for kinds without peers. Memory for peers is
    /// allocated in `pages`, preferably on `node`. With `adopted` it goes on where another `control` process ended.
    pub fn start(
        port: &Port,
        kind: &dyn PortControl,
        (epoch, inbox, keeper): (u64, &Inbox, &Keeper),
        (pages, node): (PageChoice, Option<u16>),
        adopted: Adopted,
    ) -> Result<Option<Opener>, OpenError> {
        let (done, watched) = watch::channel(0);
        let engine = EngineHandle {
            serial: adopted.peer.is_some().into(),
            adopted,
            node,
            ..EngineHandle::new(port.name.clone(), epoch, inbox.clone(), watched, keeper.clone())
        };
        let task = on_node(node, || kind.open(port, engine, pages))?;
        Ok(task.map(|task| Opener { done, task }))
    }

    /// Notifies the opener that peer number `serial` is detached, so that it brings the next one.
    pub fn gone(&self, serial: u64) {
        self.done.send_if_modified(|done| {
            let is_later = *done < serial;
            *done = serial.max(*done);
            is_later
        });
    }

    /// Closes the port, its sockets included.
    pub async fn stop(self) {
        self.task.abort();
        // The task was aborted, which is not an error.
        let _ = self.task.await;
    }
}

/// What a former `control` process had of a port.
#[derive(Debug, Default)]
pub struct Adopted {
    /// Its listening socket.
    listener: Option<OwnedFd>,
    /// Descriptors of its peer, which stays and has number 1; none if it can't be started again with them.
    pub peer: Option<Vec<OwnedFd>>,
    /// The connection to its peer, if that is not among them.
    connection: Option<OwnedFd>,
    /// The program that opens it.
    newcomer: Option<(Newcomer, Hello)>,
}

/// Programs for which ports are opened, and the rings that they request, by the names of the ports.
pub type Newcomers = BTreeMap<String, (Newcomer, Hello)>;

/// Names of what the keeper holds for openers.
fn listener_of(port: &str) -> String {
    format!("listener/{port}")
}

fn connection_of(port: &str) -> String {
    format!("connection/{port}")
}

/// Makes the keeper close what it holds for a port's opener.
pub fn forget(keeper: &Keeper, port: &str) {
    keeper.remove(&listener_of(port));
    keeper.remove(&connection_of(port));
}

impl Adopted {
    /// Of a new port, which this program may open.
    pub fn new(newcomer: Option<(Newcomer, Hello)>) -> Adopted {
        Adopted { newcomer, ..Adopted::default() }
    }

    /// What the keeper holds of a port whose peer, with these descriptors, stays.
    pub fn of(port: &str, found: &mut BTreeMap<String, StoredEntry>, peer: Option<Vec<OwnedFd>>) -> Adopted {
        let mut first = |name: &str| found.remove(name)?.descriptors.into_iter().next();
        let (listener, connection) = (first(&listener_of(port)), first(&connection_of(port)));
        Adopted { listener, connection: connection.filter(|_| peer.is_some()), peer, newcomer: None }
    }
}

/// The opener task's connection to the engine.
pub struct EngineHandle {
    port: String,
    epoch: u64,
    inbox: Inbox,
    serial: u64,
    done: watch::Receiver<u64>,
    log: LogLimit,
    keeper: Keeper,
    adopted: Adopted,
    node: Option<u16>,
}

impl EngineHandle {
    fn new(
        port: String,
        epoch: u64,
        inbox: Inbox,
        done: watch::Receiver<u64>,
        keeper: Keeper,
    ) -> EngineHandle {
        let (log, adopted) = (LogLimit::of_port(), Adopted::default());
        EngineHandle { port, epoch, inbox, serial: 0, done, log, keeper, adopted, node: None }
    }

    /// The NUMA node on which the port's memory is preferably allocated.
    pub fn node(&self) -> Option<u16> {
        self.node
    }

    /// Whether a peer is there from before this process: then [`EngineHandle::wait`] waits for its end.
    pub fn has_peer(&self) -> bool {
        self.adopted.peer.is_some()
    }

    /// A duplicate of a descriptor of the peer that is there from before this process.
    pub(crate) fn adopted_descriptor(&self, index: usize) -> Option<OwnedFd> {
        self.adopted.peer.as_ref()?.get(index)?.try_clone().ok()
    }

    /// The adopted peer's descriptors, and the connection to it.
    pub(crate) fn take_peer(&mut self) -> Option<(Vec<OwnedFd>, OwnedFd)> {
        Some((self.adopted.peer.take()?, self.adopted.connection.take()?))
    }

    /// The program that opens the port, and the ring that it requests.
    fn take_newcomer(&mut self) -> Option<(Newcomer, Hello)> {
        self.adopted.newcomer.take()
    }

    /// Closes the kept connection to a peer that is gone.
    pub(crate) fn release(&self) {
        self.keeper.remove(&connection_of(&self.port));
    }

    /// Keeps the connection to a peer, whose end tells that it is gone.
    pub(crate) fn hold(&self, connection: &impl AsFd) {
        self.keeper.put(&connection_of(&self.port), "", [connection]);
    }

    /// The port's settings.
    ///
    /// # Errors
    /// The settings are not those of the kind.
    pub fn settings<S: DeserializeOwned>(&self, port: &Port) -> Result<S, OpenError> {
        port.kind.settings().map_err(|error| self.no_door(io::Error::other(error)))
    }

    pub(crate) fn listen(&mut self, port: &Port) -> Result<Watched<Listener>, OpenError> {
        let listener = self.listener(port)?;
        Watched::new(listener).map_err(|error| self.no_door(error))
    }

    pub(crate) fn ring_listener(&mut self, port: &Port) -> Result<Watched<RingListener>, OpenError> {
        let listener = RingListener::of(self.listener(port)?);
        Watched::new(listener).map_err(|error| self.no_door(error))
    }

    /// The port's listening socket: a new one, or the one of a former `control`.
    fn listener(&mut self, port: &Port) -> Result<Listener, OpenError> {
        let socket = port.socket.clone().unwrap_or_default();
        let listener = match self.adopted.listener.take() {
            Some(adopted) => Listener::adopt(&socket.path, adopted),
            None => Listener::bind(&socket.path, access::resolve(&self.whose(), &socket)?),
        };
        let listener = listener.map_err(|error| self.no_socket(error))?;
        self.keeper.put(&listener_of(&self.port), "", [&listener]);
        Ok(listener)
    }

    fn whose(&self) -> String {
        format!("port {}", self.port)
    }

    fn no_socket(&self, error: listener::OpenError) -> OpenError {
        OpenError::Socket { whose: self.whose(), error }
    }

    /// The error for a system call that the port needs and that failed.
    pub fn no_door(&self, error: io::Error) -> OpenError {
        OpenError::System { whose: self.whose(), error }
    }

    /// Reports an error, and waits before a retry: most errors are temporary.
    pub async fn report(&self, error: io::Error) {
        self.say(What::Failed(error.to_string()));
        tokio::time::sleep(PAUSE).await;
    }

    /// Logs that a program got no ring; other programs are not affected.
    fn refused(&mut self, error: &io::Error) {
        if self.log.allows(&self.port) {
            tracing::warn!(port = self.port, %error, "a program gets no ring");
        }
    }

    /// Logs that a program's buffers are not used.
    fn welcomed(&mut self, hello: &Hello, program: &Program) {
        if hello.has_pool && program.pool().is_none() && self.log.allows(&self.port) {
            tracing::warn!(
                port = self.port,
                "a program's buffers are not used: a descriptor is being closed"
            );
        }
    }

    /// Logs that a program waits for the port until the present one has left.
    fn another_waits(&mut self) {
        if self.log.allows(&self.port) {
            tracing::info!(port = self.port, "another program waits until the present one has left");
        }
    }

    fn say(&self, what: What) {
        // Once nobody listens, the fabric is going down.
        let _ =
            self.inbox.send(Message::Peer(PeerEvent { port: self.port.clone(), epoch: self.epoch, what }));
    }

    /// Reports a new peer, with its descriptors for the data path. `keep`: a restarted `data` can continue with them.
    pub fn arrived(&mut self, descriptors: Vec<OwnedFd>, keep: bool) {
        self.serial += 1;
        self.say(What::Arrived { serial: self.serial, descriptors, keep });
    }

    /// Reports that the last reported peer is gone.
    pub fn left(&self, reason: &str) {
        self.say(What::Left { serial: self.serial, reason: reason.into() });
    }

    /// Tells people about the last reported peer, which stays.
    pub fn note(&self, text: String) {
        self.say(What::Noted(text));
    }

    /// Waits until the last reported peer is detached.
    pub async fn wait(&mut self) {
        let serial = self.serial;
        if self.done.wait_for(|done| *done >= serial).await.is_err() {
            // The opener is being dropped; its task ends here.
            std::future::pending::<()>().await;
        }
    }
}
