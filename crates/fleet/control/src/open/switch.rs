//! The socket of a switch, by which programs open ports.

use super::ring::{HELLO_TIMEOUT, PendingHellos};
use super::{OpenError, Watched, access};
use crate::engine::{Inbox, Message};
use crate::file::OpenAccess;
use crate::keeper::Keeper;
use ringway_fabric::LogLimit;
use ringway_host::listener::{Access, Listener};
use ringway_port::ring::open::{Newcomer, Opening, RingListener};
use ringway_ring::Hello;
use ringway_spec::Socket;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A program that opens a port.
#[derive(Debug)]
pub struct OpenRequest {
    /// The switch.
    pub switch: String,
    /// The name that the program gives the port.
    pub name: String,
    /// The program.
    pub newcomer: Newcomer,
    /// The ring that it requests.
    pub hello: Hello,
    /// Dropped once it is decided what becomes of the program. Attack: programs without end; only one of a switch is
    /// in the engine's queue.
    pub decided: Option<oneshot::Sender<()>>,
}

/// The name of what the keeper holds of a switch.
pub fn kept_switch(switch: &str) -> String {
    format!("switch/{switch}")
}

/// The socket of a switch. Its file is removed when this is dropped.
#[derive(Debug)]
pub struct SwitchSocket(JoinHandle<()>);

impl Drop for SwitchSocket {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl SwitchSocket {
    /// Listens at `path`, or goes on with the socket of a former `control`.
    pub fn open(
        switch: &str,
        open: &OpenAccess,
        path: &Path,
        (inbox, keeper): (&Inbox, &Keeper),
        adopted: Option<OwnedFd>,
    ) -> Result<SwitchSocket, OpenError> {
        let whose = format!("switch {switch}");
        let failed = |error| OpenError::Socket { whose: whose.clone(), error };
        let listener = match adopted {
            Some(socket) => Listener::adopt(path, socket),
            None => Listener::bind(path, rights(&whose, open)?),
        };
        let listener = listener.map_err(failed)?;
        keeper.put(&kept_switch(switch), "", [&listener]);
        let listener = Watched::new(RingListener::of(listener));
        let listener = listener.map_err(|error| OpenError::System { whose: whose.clone(), error })?;
        Ok(SwitchSocket(tokio::spawn(serve(switch.into(), listener, inbox.clone()))))
    }

    /// Closes the socket.
    pub async fn close(mut self, switch: &str, keeper: &Keeper) {
        self.0.abort();
        // The task was aborted, which is not an error.
        let _ = (&mut self.0).await;
        keeper.remove(&kept_switch(switch));
    }
}

/// The rights of a switch's socket.
fn rights(whose: &str, OpenAccess { mode, group, .. }: &OpenAccess) -> Result<Access, OpenError> {
    let socket = Socket { group: group.clone(), mode: Some(*mode), ..Socket::default() };
    access::resolve(whose, &socket)
}

async fn serve(switch: String, mut listener: Watched<RingListener>, inbox: Inbox) {
    let mut pending = PendingHellos::<Opening>::new(HELLO_TIMEOUT);
    let mut log = LogLimit::of_port();
    loop {
        let error = match pending.next(&mut listener).await {
            Ok(Ok((opening, (name, hello)))) => {
                let newcomer = opening.into_newcomer();
                let (decided, done) = oneshot::channel();
                let decided = Some(decided);
                let request = OpenRequest { switch: switch.clone(), name, newcomer, hello, decided };
                // Once nobody listens, the fabric is going down.
                let _ = inbox.send(Message::OpenPort(Box::new(request)));
                // The sender is dropped, which is received as an error.
                let _ = done.await;
                continue;
            }
            Ok(Err(error)) => error,
            Err(error) => {
                pause(&switch, &error, &mut log).await;
                continue;
            }
        };
        if log.allows(&switch) {
            tracing::warn!(switch, %error, "a program opens no port");
        }
    }
}

/// Waits after an error of the listener: most are temporary.
async fn pause(switch: &str, error: &io::Error, log: &mut LogLimit) {
    if log.allows(switch) {
        tracing::warn!(switch, %error, "its socket accepts no program");
    }
    tokio::time::sleep(super::PAUSE).await;
}
