//! Bringing ports their peers: listening, accepting, connecting again, opening.
//!
//! Each port that has peers has an [`Opener`], a task that brings one peer at a time: it reports
//! [`What::Arrived`], and waits to be told that this peer is gone before it brings the next.

mod access;
pub(crate) mod ring;
pub(crate) mod vhost_user;
mod watched;

use crate::engine::{Inbox, Message};
use crate::kinds::PortKind;
use ringway_fabric::LogLimit;
use ringway_host::PageChoice;
use ringway_host::listener::{self, Listener};
use ringway_port::ring::open::RingListener;
use ringway_spec::Port;
use serde::de::DeserializeOwned;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use watched::Watched;

/// Why a port can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its socket can't be made.
    #[error("port {port}: {error}")]
    Socket {
        /// The port.
        port: String,
        /// What is wrong.
        error: listener::OpenError,
    },
    /// Its socket is for somebody unknown.
    #[error("port {port}: there is no {what} \"{name}\"; use a name that /etc/{file} has, or a number")]
    Nobody {
        /// The port.
        port: String,
        /// `user` or `group`.
        what: &'static str,
        /// What the file says.
        name: String,
        /// Where it was looked for.
        file: &'static str,
    },
    /// The system refused.
    #[error("port {port}: {error}")]
    System {
        /// The port.
        port: String,
        /// What the system says.
        error: io::Error,
    },
}

/// How long to wait after something that passes, such as a want of descriptors.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);

/// News of a port's peer.
#[derive(Debug)]
pub struct PeerEvent {
    /// The port.
    pub port: String,
    /// Which opener says so: a port that went and came anew has another.
    pub epoch: u64,
    /// What happened.
    pub what: What,
}

/// What happened to a peer.
#[derive(Debug)]
pub enum What {
    /// One is there.
    Arrived {
        /// Its number, from 1.
        serial: u64,
        /// What `data` needs for it.
        descriptors: Vec<OwnedFd>,
        /// Whether another `data` could go on with the same descriptors.
        keep: bool,
    },
    /// It is gone.
    Left {
        /// Its number.
        serial: u64,
        /// Why.
        reason: String,
    },
    /// None can be brought for now; it is tried again.
    Trouble(String),
    /// So many programs are on a pipe.
    Programs(usize),
}

/// Brings a port its peers, as long as it lives.
#[derive(Debug)]
pub struct Opener {
    done: watch::Sender<u64>,
    task: JoinHandle<()>,
}

impl Opener {
    /// Opens a port. What can't work is said at once; `None` for kinds without peers.
    /// Memory that is made for them consists of `pages`.
    pub fn start(
        port: &Port,
        kind: &dyn PortKind,
        epoch: u64,
        inbox: &Inbox,
        pages: PageChoice,
    ) -> Result<Option<Opener>, OpenError> {
        let (done, watched) = watch::channel(0);
        let desk = Desk::new(port.name.clone(), epoch, inbox.clone(), watched);
        let task = kind.open(port, desk, pages)?;
        Ok(task.map(|task| Opener { done, task }))
    }

    /// Peer number `serial` is gone: the next may come.
    pub fn gone(&self, serial: u64) {
        self.done.send_if_modified(|done| {
            let news = *done < serial;
            *done = serial.max(*done);
            news
        });
    }

    /// Closes the port, its sockets included.
    pub async fn stop(self) {
        self.task.abort();
        // It ends by being aborted, which is no error.
        let _ = self.task.await;
    }
}

/// What the task that brings a port its peers reports to.
pub struct Desk {
    port: String,
    epoch: u64,
    inbox: Inbox,
    serial: u64,
    done: watch::Receiver<u64>,
    log: LogLimit,
}

impl Desk {
    fn new(port: String, epoch: u64, inbox: Inbox, done: watch::Receiver<u64>) -> Desk {
        Desk { port, epoch, inbox, serial: 0, done, log: LogLimit::of_port() }
    }

    /// The port's settings.
    ///
    /// # Errors
    /// They are not those of the kind.
    pub fn settings<S: DeserializeOwned>(&self, port: &Port) -> Result<S, OpenError> {
        port.kind.settings().map_err(|error| self.no_door(io::Error::other(error)))
    }

    pub(crate) fn listen(&self, port: &Port) -> Result<Watched<Listener>, OpenError> {
        let socket = port.socket.clone().unwrap_or_default();
        let access = access::resolve(&self.port, &socket)?;
        let listener = Listener::bind(&socket.path, access).map_err(|error| self.no_socket(error))?;
        Watched::new(listener).map_err(|error| self.no_door(error))
    }

    pub(crate) fn ring_door(&self, port: &Port) -> Result<Watched<RingListener>, OpenError> {
        let socket = port.socket.clone().unwrap_or_default();
        let access = access::resolve(&self.port, &socket)?;
        let listener = RingListener::bind(&socket.path, access).map_err(|error| self.no_socket(error))?;
        Watched::new(listener).map_err(|error| self.no_door(error))
    }

    fn no_socket(&self, error: listener::OpenError) -> OpenError {
        OpenError::Socket { port: self.port.clone(), error }
    }

    /// The system refused what the port needs.
    pub fn no_door(&self, error: io::Error) -> OpenError {
        OpenError::System { port: self.port.clone(), error }
    }

    /// Reports that something doesn't work, and waits a moment: most of it passes.
    pub async fn trouble(&self, error: io::Error) {
        self.say(What::Trouble(error.to_string()));
        tokio::time::sleep(PAUSE).await;
    }

    /// Says that a program gets no ring, which concerns that program alone.
    fn refused(&mut self, error: &io::Error) {
        if self.log.allows(&self.port) {
            tracing::warn!(port = self.port, %error, "a program gets no ring");
        }
    }

    fn say(&self, what: What) {
        // Once nobody listens, the fabric is going down.
        let _ =
            self.inbox.send(Message::Peer(PeerEvent { port: self.port.clone(), epoch: self.epoch, what }));
    }

    /// A peer is there, with these descriptors for the data path. `keep`: another `data` could go on with them.
    pub fn arrived(&mut self, descriptors: Vec<OwnedFd>, keep: bool) {
        self.serial += 1;
        self.say(What::Arrived { serial: self.serial, descriptors, keep });
    }

    /// Waits until the last peer is gone.
    pub async fn wait(&mut self) {
        let serial = self.serial;
        if self.done.wait_for(|done| *done >= serial).await.is_err() {
            // The opener is being dropped; its task ends here.
            std::future::pending::<()>().await;
        }
    }
}
