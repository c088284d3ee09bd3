//! A function between pipes whose other ends are here: in a VM, a process or a container.

use crate::Failure;
use crate::keys::Folder;
use ringway_control::function::spare::Spare;
use ringway_control::function::{First, FunctionMessage, Order, Start};
use ringway_fabric::MessageStream;
use ringway_host::{send_with, try_receive_with, wait_readable};
use ringway_port::pipe::Pipe;
use ringway_port::ring::open::{Newcomer, RingListener};
use ringway_ring::Geometry;
use ringway_ring_client::{PendingRing, Ring, RingOptions};
use ringway_spec::{Configuration, Function, Isolation};
use ringway_tests::fabric::program;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit for a start, and for an answer.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// What its process writes to its standard error.
const ERRORS: &str = "errors";
/// Interval at which a frame is sent again.
const AGAIN: Duration = Duration::from_micros(100);
/// Memory of a function.
pub const MEMORY: u64 = 32 << 20;
/// Memory of a function with large tables.
pub const LARGE: u64 = 1 << 30;

/// What runs a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// A VM, as the fabric starts it.
    Vm,
    /// A confined process, as the fabric starts it.
    Process,
    /// `ringway click` in namespaces of its own, by util-linux's `unshare`.
    Container,
}

/// A pipe, and its end here.
pub struct Door {
    /// Accepts the function.
    listener: Option<RingListener>,
    pipe: Pipe,
    newcomer: Option<Newcomer>,
    coming: Option<PendingRing>,
    ring: Option<Ring>,
}

impl Door {
    /// A pipe at `path` with so many slots in each direction.
    pub fn new(path: &Path, slots: u32) -> Result<Door, Failure> {
        let listener = RingListener::bind(path, Default::default())?;
        let options = RingOptions { slots: [slots; 2], ..RingOptions::default() };
        let coming = Some(PendingRing::connect(path, options)?);
        let (pipe, newcomer, ring) = (Pipe::new(Geometry::default()), None, None);
        let mut door = Door { listener: Some(listener), pipe, newcomer, coming, ring };
        while door.pipe.programs() == 0 {
            door.admit()?;
        }
        Ok(door)
    }

    /// Gives a program that waits the pipe's other end; whether both ends are taken.
    pub fn admit(&mut self) -> Result<bool, Failure> {
        if self.ring.is_some() {
            return Ok(true);
        }
        self.newcomer = match self.newcomer.take() {
            None => self.listener.as_ref().map(RingListener::accept).transpose()?.flatten(),
            newcomer => newcomer,
        };
        let hello = self.newcomer.as_mut().map(Newcomer::hello).transpose()?.flatten();
        if let Some((hello, newcomer)) = hello.and_then(|hello| Some((hello, self.newcomer.take()?))) {
            self.pipe.join(newcomer, hello)?;
        }
        if self.pipe.is_joined()
            && let Some(coming) = self.coming.take()
        {
            self.ring = Some(coming.ring(Some(TIMEOUT))?);
            // Thousands of functions need more descriptors than a process may have.
            self.listener = None;
        }
        Ok(self.ring.is_some())
    }

    /// The end here.
    pub fn ring(&mut self) -> Result<&mut Ring, Failure> {
        self.ring.as_mut().ok_or_else(|| "the function does not use its port".into())
    }
}

/// What to run.
pub struct Plan<'a> {
    /// What runs it.
    pub side: Side,
    /// The configuration, by how it names its first and last port.
    pub text: &'a dyn Fn(&str, &str) -> String,
    /// Largest memory in bytes.
    pub memory: u64,
    /// The core it is pinned to.
    pub core: Option<usize>,
    /// Slots in each direction of a pipe.
    pub slots: u32,
    /// Frames come back by the port from which they went.
    pub single: bool,
    /// The snapshot from which the function resumes.
    pub snapshot: Option<&'a (String, OwnedFd)>,
    /// Whether a process waits for the order, as `control` keeps one for VMs.
    pub spare: bool,
}

/// Time in which a process gets ready to wait.
const READY: Duration = Duration::from_millis(40);

/// A function that runs, or starts.
pub struct PipedFunction {
    /// The first port, and the last unless that is the same.
    pub doors: Vec<Door>,
    child: Child,
    /// The link to a process that the fabric would start.
    link: Option<MessageStream>,
    /// Its requests for ports.
    keeper: Option<UnixStream>,
    /// When the process was started, and when its configuration ran.
    pub begun: Instant,
    /// The process exists.
    pub spawned: Duration,
    /// Its configuration runs; zero until then.
    pub up: Duration,
    /// All rings are there; zero until then.
    pub attached: Duration,
    folder: Folder,
}

impl PipedFunction {
    /// Starts it, without waiting.
    pub fn start(plan: &Plan<'_>) -> Result<PipedFunction, Failure> {
        let folder = Folder::new()?;
        let names: &[&str] = if plan.single { &["in"] } else { &["in", "out"] };
        let doors = names.iter().map(|name| Door::new(&folder.path().join(name), plan.slots));
        let doors = doors.collect::<Result<Vec<Door>, Failure>>()?;
        let path = folder.path().join("handlers");
        let listener = UnixListener::bind(&path)?;
        let spare = if plan.spare {
            let spare = waiting(folder.path())?;
            spare.prepare();
            std::thread::sleep(READY);
            Some(spare)
        } else {
            None
        };
        let begun = Instant::now();
        let (child, link) = match plan.side {
            Side::Container => (contained(plan, folder.path(), names)?, None),
            _ => started(plan, spare, folder.path(), &path, &listener, names)?,
        };
        let (link, keeper) = link.unzip();
        let spawned = begun.elapsed();
        let (up, attached) = (Duration::ZERO, Duration::ZERO);
        Ok(PipedFunction { doors, child, link, keeper, begun, spawned, up, attached, folder })
    }

    /// Answers its requests; whether all its rings are there.
    pub fn serve(&mut self) -> Result<bool, Failure> {
        if let Some(keeper) = &self.keeper {
            open_doors(keeper, &["in", "out"].map(|name| self.folder.path().join(name)))?;
        }
        if let Some(link) = &self.link
            && self.up.is_zero()
            && wait_readable(&[link_fd(link)], Some(0))?[0]
        {
            match link.receive::<FunctionMessage>()?.0 {
                FunctionMessage::Up => self.up = self.begun.elapsed(),
                FunctionMessage::Wrong(why) | FunctionMessage::Fallback(why) => return Err(why.into()),
                FunctionMessage::Snapshot(_) => {}
            }
        }
        let mut all = true;
        for door in &mut self.doors {
            all &= door.admit()?;
        }
        if all && self.attached.is_zero() {
            self.attached = self.begun.elapsed();
        }
        Ok(all)
    }

    /// Serves it until its rings are there.
    pub fn attach(&mut self) -> Result<(), Failure> {
        while !self.serve()? {
            if self.begun.elapsed() > TIMEOUT {
                return Err("the function does not use its ports".into());
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Serves it until its rings are there and its configuration runs.
    pub fn settle(&mut self) -> Result<(), Failure> {
        self.attach()?;
        while self.link.is_some() && self.up.is_zero() {
            self.serve()?;
        }
        Ok(())
    }

    /// The ring to it, and the ring from it.
    pub fn ends(&mut self) -> Result<(&mut Ring, &mut Ring), Failure> {
        match &mut self.doors[..] {
            [from, to] => Ok((from.ring()?, to.ring()?)),
            _ => Err("the function has a single port".into()),
        }
    }

    /// Sends a frame by its first port, and tells whether one came by its last.
    pub fn exchange(&mut self, send: bool) -> Result<bool, Failure> {
        if send {
            let ring = self.doors.first_mut().ok_or("no port")?.ring()?;
            ring.tx.push(&FRAME)?;
            ring.sync()?;
        }
        let ring = self.doors.last_mut().ok_or("no port")?.ring()?;
        let came = ring.rx.available(1)?;
        ring.rx.advance(came.min(1));
        ring.rx.sync()?;
        Ok(came > 0)
    }

    /// Sends frames until one has passed: those that come before the function has all its rings are lost.
    pub fn first(&mut self) -> Result<Duration, Failure> {
        self.attach()?;
        let (mut came, mut next) = (false, Duration::ZERO);
        while !came {
            let now = self.begun.elapsed();
            if now > TIMEOUT {
                return Err("no frame comes through the function".into());
            }
            // The function may still ask for something.
            self.serve()?;
            came = self.exchange(now >= next)?;
            if now >= next {
                next = now + AGAIN;
            }
        }
        Ok(self.begun.elapsed())
    }

    /// Asks for another configuration; the answer comes by the connection.
    pub fn change(&self, text: &str) -> Result<UnixStream, Failure> {
        let mut stream = UnixStream::connect(self.folder.path().join("handlers"))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.write_all(format!("WRITEDATA hotconfig {}\r\n{text}", text.len()).as_bytes())?;
        Ok(stream)
    }

    /// Takes a snapshot of a VM.
    pub fn snapshot(&mut self) -> Result<(String, OwnedFd), Failure> {
        let link = self.link.as_ref().ok_or("only a VM has snapshots")?;
        let file = ringway_host::memfd("snapshot", MEMORY as usize)?;
        link.send(&Order::Snapshot, &[file.as_fd()])?;
        loop {
            if let FunctionMessage::Snapshot(taken) = link.receive::<FunctionMessage>()?.0 {
                return Ok((taken?, file));
            }
        }
    }

    /// Answers no more requests for ports: the function has its rings.
    pub fn rest(&mut self) {
        self.keeper = None;
    }

    /// ID of its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The end of its process, for an error message.
    pub fn why(&mut self) -> String {
        let mut text = String::new();
        if let Ok(Some(status)) = self.child.try_wait() {
            // What can't be read is not shown.
            let errors = File::open(self.folder.path().join(ERRORS));
            let _ = errors.and_then(|errors| errors.take(4096).read_to_string(&mut text));
            return format!("its process ended with {status}: {}", text.trim());
        }
        "its process runs".into()
    }
}

/// Waits for the answer to a change.
pub fn answered(mut stream: UnixStream) -> Result<(), Failure> {
    let (mut answer, mut some) = (Vec::new(), [0; 256]);
    while !answer.windows(5).any(|five| five == b"\r\n200") {
        match stream.read(&mut some)? {
            0 => return Err(String::from_utf8_lossy(&answer).into_owned().into()),
            count => answer.extend_from_slice(&some[..count]),
        }
    }
    Ok(())
}

impl Drop for PipedFunction {
    fn drop(&mut self) {
        // The process may have ended already. Its link ends it too, also the process within a container's `unshare`.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const FRAME: [u8; 60] = {
    let mut frame = [0; 60];
    let head = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
    let mut at = 0;
    while at < head.len() {
        frame[at] = head[at];
        at += 1;
    }
    frame
};

fn link_fd(link: &MessageStream) -> std::os::fd::BorrowedFd<'_> {
    link.as_fd()
}

/// A function's process as `ringway up` starts it, with its link and its socket for requests.
pub type Started = (Child, Option<(MessageStream, UnixStream)>);

/// Answers requests of a function's process for its ports, which are at these paths.
pub fn open_doors(keeper: &UnixStream, paths: &[PathBuf]) -> Result<(), Failure> {
    let mut request = [0];
    while let Some((1, _)) = try_receive_with(keeper, &mut request, 0)? {
        let path = paths.get(usize::from(request[0])).ok_or("no such port")?;
        let socket = UnixStream::connect(path)?;
        send_with(keeper, &[0], &[socket.as_fd()])?;
    }
    Ok(())
}

/// Starts a function's process with ports of these names; requests for them come by the socket.
pub fn started(
    plan: &Plan<'_>,
    spare: Option<Spare>,
    folder: &Path,
    path: &Path,
    listener: &UnixListener,
    names: &[&str],
) -> Result<Started, Failure> {
    let (first, last) = (names[0], names[names.len() - 1]);
    let function = Function {
        name: "bench".into(),
        configuration: Configuration { file: None, source: None, text: (plan.text)(first, last) },
        isolation: if plan.side == Side::Vm { Isolation::Vm } else { Isolation::Process },
        ports: names.iter().map(ToString::to_string).collect(),
        memory: plan.memory,
        core: plan.core,
        ..Function::default()
    };
    let mut start = Start::of(&function, "bench", path.display().to_string());
    start.snapshot = plan.snapshot.map(|(state, _)| state.clone());
    let (keeper, asker) = UnixStream::pair()?;
    let waiting = spare.map_or_else(|| waiting(folder), Ok)?;
    let (child, link) = waiting.take()?;
    let mut descriptors = vec![listener.as_fd(), asker.as_fd()];
    descriptors.extend(plan.snapshot.map(|(_, memory)| memory.as_fd()));
    link.send(&First::Start(Box::new(start)), &descriptors)?;
    Ok((child, Some((link, keeper))))
}

/// A process that waits for its order.
fn waiting(folder: &Path) -> Result<Spare, Failure> {
    let errors = File::create(folder.join(ERRORS))?;
    Ok(Spare::start(&program(), &["run-function".into()], Stdio::null(), errors.into())?)
}

fn contained(plan: &Plan<'_>, folder: &Path, names: &[&str]) -> Result<Child, Failure> {
    let unshare = crate::peer::program("unshare")?;
    let path = |name: &str| folder.join(name).display().to_string();
    let text = (plan.text)(&path(names[0]), &path(names[names.len() - 1]));
    let file: PathBuf = folder.join("function.click");
    std::fs::write(&file, text)?;
    let mut command = Command::new(unshare);
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--fork", "--kill-child"]);
    command.arg(program()).arg("click").arg(&file);
    Ok(command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(folder.join(ERRORS))?)
        .spawn()?)
}
