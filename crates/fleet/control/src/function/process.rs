//! The process of a function: starting it, connecting it to its ports, noticing its end.

use super::admission::{self, Admission, Admitted, Ordered};
use super::runner::{Ended, Launch, Runner, Tell, What};
use super::spare::Spare;
use super::{First, FunctionMessage, Order, ending, lines};
use crate::keeper::{Keeper, Outliving, StoredEntry};
use ringway_fabric::{LogLimit, MessageStream, StreamError};
use ringway_host::{receive_with, send_with};
use rustix::process::{Pid, Signal, pidfd_send_signal};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Attack: a process that asks for connections to its ports without end, each of which a port's opener accepts.
/// Connections a second: more than a function has ports.
const DOORS: u32 = 256;
/// How long a process waits after [`DOORS`] connections in a second.
const PAUSE: Duration = Duration::from_millis(10);

/// A running process. Dropping it kills the process.
#[derive(Debug)]
pub struct Process {
    process: Outliving,
    /// Whether this program has killed the process.
    killed: Arc<AtomicBool>,
    /// The stream to the process, which ends when all copies of the stream are closed.
    stream: Arc<MessageStream>,
    /// Snapshots that it has not reported.
    ordered: Ordered,
}

/// Our ends of what connects a process with `control`.
struct Ends {
    stream: OwnedFd,
    /// By it the process asks for connections to its ports.
    connector: OwnedFd,
    output: OwnedFd,
    errors: OwnedFd,
}

impl Ends {
    fn of(child: &mut Child, stream: &MessageStream, connector: UnixStream) -> io::Result<Ends> {
        let missing = || io::Error::other("the process has no outputs");
        Ok(Ends {
            stream: stream.as_fd().try_clone_to_owned()?,
            connector: connector.into(),
            output: child.stdout.take().ok_or_else(missing)?.into(),
            errors: child.stderr.take().ok_or_else(missing)?.into(),
        })
    }

    fn all<'e>(&'e self, process: &'e Outliving) -> [BorrowedFd<'e>; 5] {
        [
            process.as_fd(),
            self.stream.as_fd(),
            self.connector.as_fd(),
            self.output.as_fd(),
            self.errors.as_fd(),
        ]
    }
}

/// The keeper's name for the process of the start `number` of a function, of which it has the number and descriptors.
pub fn kept_process(function: &str, number: u64) -> String {
    format!("function-process/{function}/{number}")
}

impl Process {
    /// Starts this program with arguments that make it a function's process, or gives the spare one its order.
    pub fn start(launch: Launch<'_>) -> io::Result<Process> {
        let Launch {
            name,
            number,
            start,
            arguments,
            spare,
            listener,
            memory,
            port_sockets,
            tell,
            keeper,
            ..
        } = launch;
        let (connector, asker) = UnixStream::pair()?;
        let waiting = spare.map_or_else(|| Spare::start_own_program(arguments), Ok)?;
        let (mut child, stream) = waiting.take()?;
        let ends = Ends::of(&mut child, &stream, connector).inspect_err(|_| {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        })?;
        let process = Outliving::started(Pid::from_child(&child), keeper)?;
        let pid = process.pid().as_raw_nonzero().get();
        keeper.put_value(&kept_process(name, number), &pid, &ends.all(&process));
        let process = Process::attend((name, number), process, ends, port_sockets, tell, keeper)?;
        // If the process has ended already, the thread that waits for it reports that.
        let mut descriptors = vec![listener.as_fd(), asker.as_fd()];
        descriptors.extend(memory.map(AsFd::as_fd));
        if let Err(error) = stream.send(&First::Start(Box::new(start)), &descriptors) {
            let StreamError::Host(error) = error else { return Err(io::Error::other(error)) };
            tracing::warn!(function = name, %error, "it ended at once");
        }
        Ok(process)
    }

    /// Goes on with a process of a former `control`, which is asked whether its configuration runs.
    pub fn adopt(
        (name, number): (&str, u64),
        kept: StoredEntry,
        port_sockets: Vec<PathBuf>,
        tell: Tell,
        keeper: &Keeper,
    ) -> io::Result<Process> {
        let pid: i32 = serde_json::from_str(&kept.text)?;
        let descriptors: Result<[OwnedFd; 5], _> = kept.descriptors.try_into();
        let missing = |_| io::Error::other("the keeper has not all of its descriptors");
        let [process, stream, connector, output, errors] = descriptors.map_err(missing)?;
        let process = Outliving::kept(pid, process, keeper)?;
        let ends = Ends { stream, connector, output, errors };
        let process = Process::attend((name, number), process, ends, port_sockets, tell, keeper)?;
        // A process that has ended needs no order.
        let _ = process.stream.send(&Order::Report, &[]);
        Ok(process)
    }

    /// Starts the threads that attend to a process.
    fn attend(
        (name, number): (&str, u64),
        process: Outliving,
        ends: Ends,
        port_sockets: Vec<PathBuf>,
        tell: Tell,
        keeper: &Keeper,
    ) -> io::Result<Process> {
        let Ends { stream, connector, output, errors } = ends;
        let (stream, killed) = (Arc::new(MessageStream::new(stream)), Arc::new(AtomicBool::new(false)));
        // Whatever fails below: dropping it ends the process.
        let own = Process { process, killed, stream, ordered: Ordered::default() };
        let thread = |what: &str| std::thread::Builder::new().name(format!("function-{what}"));
        let (owner, process, killed, end) =
            (name.to_string(), own.process.clone(), own.killed.clone(), tell.clone());
        let (keeper, kept) = (keeper.clone(), kept_process(name, number));
        let waits = thread("ends").spawn(move || {
            let what = ended(&owner, File::from(errors), &process, &killed);
            keeper.remove(&kept);
            end(What::Ended(what));
        });
        // Nobody waits for it otherwise.
        waits.inspect_err(|_| {
            own.kill();
            own.process.status();
        })?;
        let connector = UnixStream::from(connector);
        thread("port_sockets").spawn(move || connect_ports(&connector, &port_sockets))?;
        let (receiver, speaker) = (own.stream.clone(), name.to_string());
        let (process, killed) = (own.process.clone(), own.killed.clone());
        let admission = Admission::new(own.ordered.clone());
        thread("says")
            .spawn(move || listen(&speaker, &receiver, admission, &tell, || kill(&process, &killed)))?;
        let printer = name.to_string();
        // Both pipes are read until their end; the process would block on a full pipe.
        thread("prints").spawn(move || lines::log(&printer, File::from(output)))?;
        Ok(own)
    }
}

impl Runner for Process {
    fn pid(&self) -> u32 {
        self.process.pid().as_raw_nonzero().get().unsigned_abs()
    }

    fn ask_to_end(&self) {
        // The process may have ended already.
        let _ = pidfd_send_signal(&self.process, Signal::TERM);
        self.resume();
    }

    /// Stops all its threads.
    fn suspend(&self) {
        let _ = pidfd_send_signal(&self.process, Signal::STOP);
    }

    fn resume(&self) {
        // A process that has ended needs no order.
        let _ = self.stream.send(&Order::Thaw, &[]);
        let _ = pidfd_send_signal(&self.process, Signal::CONT);
    }

    fn kill(&self) {
        kill(&self.process, &self.killed);
    }

    fn snapshot(&self, file: OwnedFd, freeze: bool) -> io::Result<()> {
        let order = if freeze { Order::Freeze } else { Order::Snapshot };
        // A snapshot whose order can't be sent is never reported.
        self.ordered.fetch_add(1, SeqCst);
        self.stream.send(&order, &[file.as_fd()]).map_err(io::Error::other)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        let _ = rustix::net::shutdown(self.stream.as_fd(), rustix::net::Shutdown::Both);
    }
}

fn kill(process: &Outliving, killed: &AtomicBool) {
    killed.store(true, Relaxed);
    let _ = pidfd_send_signal(process, Signal::KILL);
}

/// Passes a process's messages on until it closes its stream. One that breaks the rules is ended, with a reason.
fn listen(name: &str, stream: &MessageStream, mut admission: Admission, tell: &Tell, end: impl FnOnce()) {
    let wrong = loop {
        let message = match stream.receive_plain::<FunctionMessage>(admission::LARGEST) {
            Ok(message) => message,
            Err(StreamError::Closed | StreamError::Host(_)) => break None,
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
fn ended(name: &str, errors: File, process: &Outliving, ours: &AtomicBool) -> Ended {
    let before = ending::killed_for_memory();
    let last = lines::log(name, errors);
    let status = process.status();
    let more = ending::killed_for_memory().saturating_sub(before);
    Ended { status: ending::in_words(status, more, ours.load(Relaxed)), last: last.join("; ") }
}

/// Connects to ports that the process requests by number, and sends it the sockets, until the process has ended. The
/// process is confined and can't connect by itself.
fn connect_ports(connector: &UnixStream, port_sockets: &[PathBuf]) {
    let (mut request, mut limit) = ([0], LogLimit::new(DOORS, Duration::from_secs(1)));
    while let Ok((1, _)) = receive_with(connector.as_fd(), &mut request, 0) {
        while limit.take(Instant::now()).is_none() {
            std::thread::sleep(PAUSE);
        }
        let port_socket =
            port_sockets.get(usize::from(request[0])).ok_or_else(|| io::ErrorKind::NotFound.into());
        let answered = match port_socket.and_then(UnixStream::connect) {
            Ok(socket) => send_with(connector.as_fd(), &[0], &[socket.as_fd()]),
            Err(error) => {
                let number = error.raw_os_error().and_then(|number| u8::try_from(number).ok());
                send_with(connector.as_fd(), &[number.filter(|number| *number > 0).unwrap_or(1)], &[])
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
    fn heard(send: impl FnOnce(&MessageStream) + Send + 'static) -> (Vec<FunctionMessage>, bool) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let sender = std::thread::spawn(move || send(&MessageStream::new(theirs.into())));
        let heard = Arc::new(Mutex::new(Vec::new()));
        let all = heard.clone();
        let tell: Tell = Arc::new(move |what| {
            if let What::Message(message) = what {
                all.lock().unwrap().push(message);
            }
        });
        let mut killed = false;
        listen("f", &MessageStream::new(ours.into()), Admission::default(), &tell, || killed = true);
        sender.join().unwrap();
        let heard = std::mem::take(&mut *heard.lock().unwrap());
        (heard, killed)
    }

    #[test]
    fn a_process_that_repeats_itself_without_end_is_ended() {
        let (messages, killed) = heard(|stream| while stream.send(&FunctionMessage::Up, &[]).is_ok() {});
        let [FunctionMessage::Up, FunctionMessage::Wrong(why)] = &messages[..] else {
            panic!("{messages:?}")
        };
        assert!(killed && why.contains("too many messages"), "{why}");
        let (messages, killed) = heard(|stream| {
            (0..10).for_each(|_| stream.send(&FunctionMessage::Up, &[]).unwrap());
        });
        assert!(matches!(messages[..], [FunctionMessage::Up]) && !killed, "{messages:?}");
    }

    #[test]
    fn a_message_that_is_too_large_or_unknown_ends_its_process() {
        let long = |stream: &MessageStream| {
            drop(stream.send(&FunctionMessage::Wrong("x".repeat(admission::LARGEST)), &[]))
        };
        let unknown = |stream: &MessageStream| drop(stream.send(&"nonsense", &[]));
        for (messages, killed) in [heard(long), heard(unknown)] {
            assert!(killed && matches!(messages[..], [FunctionMessage::Wrong(_)]), "{messages:?}");
        }
    }
}
