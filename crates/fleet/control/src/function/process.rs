//! The process of a function: starting it, connecting it to its ports, noticing its end.

use super::admission::{self, Admission, Admitted, Ordered};
use super::runner::{Ended, Launch, Runner, Tell, What};
use super::spare::Spare;
use super::{First, FunctionMessage, Order, ending, lines};
use ringway_fabric::{Link, LinkError, LogLimit};
use ringway_host::{receive_with, send_with};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Attack: a process that asks for connections to its ports without end, each of which a port's opener accepts.
/// Connections a second: more than a function has ports.
const DOORS: u32 = 256;
/// How long a process waits after [`DOORS`] connections in a second.
const PAUSE: Duration = Duration::from_millis(10);

/// A running process. Dropping it kills the process.
#[derive(Debug)]
pub struct Process {
    pid: u32,
    descriptor: OwnedFd,
    /// Whether this program has killed the process.
    killed: Arc<AtomicBool>,
    /// The link to the process, which ends when the link is closed.
    link: Arc<Link>,
    /// Snapshots that it has not reported.
    ordered: Ordered,
}

impl Process {
    /// Starts this program with arguments that make it a function's process, or gives the spare one its order.
    pub fn start(launch: Launch<'_>) -> io::Result<Process> {
        let Launch { name, start, arguments, spare, listener, memory, port_sockets, tell, .. } = launch;
        let (keeper, asker) = UnixStream::pair()?;
        let waiting = spare.map_or_else(|| Spare::own(arguments), Ok)?;
        let thread = |what: &str| std::thread::Builder::new().name(format!("function-{what}"));
        let killed = Arc::new(AtomicBool::new(false));
        let (give, given) = mpsc::channel();
        let (owner, ours, end) = (name.to_string(), killed.clone(), tell.clone());
        // The first thread: whatever fails below, it waits for the process, which otherwise stays a zombie.
        thread("ends").spawn(move || {
            if let Ok(child) = given.recv() {
                end(What::Ended(ended(&owner, child, &ours)));
            }
        })?;
        let (mut child, link) = waiting.take()?;
        let link = Arc::new(link);
        let process = match identify(&child) {
            Ok(descriptor) => {
                let ordered = Ordered::default();
                Process { pid: child.id(), descriptor, killed, link: link.clone(), ordered }
            }
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(error);
            }
        };
        let out = child.stdout.take();
        // Can't fail: the thread waits for it.
        let _ = give.send(child);
        thread("port_sockets").spawn(move || connect_ports(&keeper, &port_sockets))?;
        let (receiver, speaker) = (link.clone(), name.to_string());
        let (descriptor, killed) = (process.descriptor.try_clone()?, process.killed.clone());
        let admission = Admission::new(process.ordered.clone());
        thread("says")
            .spawn(move || listen(&speaker, &receiver, admission, &tell, || kill(&descriptor, &killed)))?;
        let printer = name.to_string();
        // Both pipes are read until their end; the process would block on a full pipe.
        thread("prints").spawn(move || out.map(|out| lines::log(&printer, out)))?;
        // If the process has ended already, the thread that waits for it reports that.
        let mut descriptors = vec![listener.as_fd(), asker.as_fd()];
        descriptors.extend(memory.map(AsFd::as_fd));
        if let Err(error) = link.send(&First::Start(Box::new(start)), &descriptors) {
            let LinkError::Host(error) = error else { return Err(io::Error::other(error)) };
            tracing::warn!(function = name, %error, "it ended at once");
        }
        Ok(process)
    }
}

impl Runner for Process {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn ask_to_end(&self) {
        // The process may have ended already.
        let _ = pidfd_send_signal(&self.descriptor, Signal::TERM);
        self.resume();
    }

    /// Stops all its threads.
    fn suspend(&self) {
        let _ = pidfd_send_signal(&self.descriptor, Signal::STOP);
    }

    fn resume(&self) {
        // A process that has ended needs no order.
        let _ = self.link.send(&Order::Thaw, &[]);
        let _ = pidfd_send_signal(&self.descriptor, Signal::CONT);
    }

    fn kill(&self) {
        kill(&self.descriptor, &self.killed);
    }

    fn snapshot(&self, file: OwnedFd, freeze: bool) -> io::Result<()> {
        let order = if freeze { Order::Freeze } else { Order::Snapshot };
        // A snapshot whose order can't be sent is never reported.
        self.ordered.fetch_add(1, SeqCst);
        self.link.send(&order, &[file.as_fd()]).map_err(io::Error::other)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        let _ = rustix::net::shutdown(self.link.as_fd(), rustix::net::Shutdown::Both);
    }
}

fn kill(descriptor: &OwnedFd, killed: &AtomicBool) {
    killed.store(true, Relaxed);
    let _ = pidfd_send_signal(descriptor, Signal::KILL);
}

/// Passes a process's messages on until it closes its link. One that breaks the rules is ended, with a reason.
fn listen(name: &str, link: &Link, mut admission: Admission, tell: &Tell, end: impl FnOnce()) {
    let wrong = loop {
        let message = match link.receive_plain::<FunctionMessage>(admission::LARGEST) {
            Ok(message) => message,
            Err(LinkError::Closed | LinkError::Host(_)) => break None,
            Err(error) => break Some(error.to_string()),
        };
        match admission.admit(&message) {
            Admitted::Yes => tell(What::Message(message)),
            Admitted::No => {}
            Admitted::TooMany => break Some("it sent too many messages that nobody waits for".into()),
        }
    };
    if admission.dropped() > 0 {
        tracing::warn!(
            function = name,
            "{} messages that nobody waits for were dropped",
            admission.dropped()
        );
    }
    if let Some(wrong) = wrong {
        tell(What::Message(FunctionMessage::Wrong(format!("it was ended: {wrong}"))));
        end();
    }
}

/// Logs what a function's process writes as errors until its end, and waits for that.
fn ended(name: &str, mut child: Child, ours: &AtomicBool) -> Ended {
    let before = ending::killed_for_memory();
    let last = child.stderr.take().map(|errors| lines::log(name, errors)).unwrap_or_default();
    let status = match child.wait() {
        Ok(status) => {
            let more = ending::killed_for_memory().saturating_sub(before);
            ending::in_words(status, more, ours.load(Relaxed))
        }
        Err(error) => error.to_string(),
    };
    Ended { status, last: last.join("; ") }
}

fn identify(child: &Child) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(child.id().cast_signed()).ok_or(io::ErrorKind::NotFound)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Connects to ports that the process requests by number, and sends it the sockets, until the process has ended. The
/// process is confined and can't connect by itself.
fn connect_ports(keeper: &UnixStream, port_sockets: &[PathBuf]) {
    let (mut request, mut limit) = ([0], LogLimit::new(DOORS, Duration::from_secs(1)));
    while let Ok((1, _)) = receive_with(keeper.as_fd(), &mut request, 0) {
        while limit.take(Instant::now()).is_none() {
            std::thread::sleep(PAUSE);
        }
        let port_socket =
            port_sockets.get(usize::from(request[0])).ok_or_else(|| io::ErrorKind::NotFound.into());
        let answered = match port_socket.and_then(UnixStream::connect) {
            Ok(socket) => send_with(keeper.as_fd(), &[0], &[socket.as_fd()]),
            Err(error) => {
                let number = error.raw_os_error().and_then(|number| u8::try_from(number).ok());
                send_with(keeper.as_fd(), &[number.filter(|number| *number > 0).unwrap_or(1)], &[])
            }
        };
        if answered.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// What `control` hears of a process that sends these bytes, and whether it is ended for it.
    fn heard(send: impl FnOnce(&Link) + Send + 'static) -> (Vec<FunctionMessage>, bool) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let sender = std::thread::spawn(move || send(&Link::new(theirs.into())));
        let heard = Arc::new(Mutex::new(Vec::new()));
        let all = heard.clone();
        let tell: Tell = Arc::new(move |what| {
            if let What::Message(message) = what {
                all.lock().unwrap().push(message);
            }
        });
        let mut killed = false;
        listen("f", &Link::new(ours.into()), Admission::default(), &tell, || killed = true);
        sender.join().unwrap();
        let heard = std::mem::take(&mut *heard.lock().unwrap());
        (heard, killed)
    }

    #[test]
    fn a_process_that_repeats_itself_without_end_is_ended() {
        let (messages, killed) = heard(|link| while link.send(&FunctionMessage::Up, &[]).is_ok() {});
        let [FunctionMessage::Up, FunctionMessage::Wrong(why)] = &messages[..] else {
            panic!("{messages:?}")
        };
        assert!(killed && why.contains("too many messages"), "{why}");
        let (messages, killed) = heard(|link| {
            (0..10).for_each(|_| link.send(&FunctionMessage::Up, &[]).unwrap());
        });
        assert!(matches!(messages[..], [FunctionMessage::Up]) && !killed, "{messages:?}");
    }

    #[test]
    fn a_message_that_is_too_large_or_unknown_ends_its_process() {
        let long =
            |link: &Link| drop(link.send(&FunctionMessage::Wrong("x".repeat(admission::LARGEST)), &[]));
        let unknown = |link: &Link| drop(link.send(&"nonsense", &[]));
        for (messages, killed) in [heard(long), heard(unknown)] {
            assert!(killed && matches!(messages[..], [FunctionMessage::Wrong(_)]), "{messages:?}");
        }
    }
}
