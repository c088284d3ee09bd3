//! Programs on rings and pipes: allocating their memory, and noticing when they disconnect.

use super::{EngineHandle, Watched, What};
use ringway_host::listener::OpenError;
use ringway_host::{PageChoice, on_node};
use ringway_port::pipe::Pipe;
use ringway_port::ring::open::{GreetError, Newcomer, Opening, Program, RingListener};
use ringway_ring::{Geometry, Hello};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use tokio::task::{AbortHandle, JoinSet};

/// Time limit for a program's hello message. Attack: a program that connects and sends nothing.
pub(super) const HELLO_TIMEOUT: Duration = Duration::from_secs(1);
/// Largest number of connections that have not sent their hello. Attack: endless connections that send nothing; the
/// oldest is closed for a new one.
const PENDING: usize = 64;

/// Serves a ring port: one program at a time.
pub async fn serve(
    mut engine: EngineHandle,
    mut listener: Watched<RingListener>,
    otherwise: Geometry,
    pages: PageChoice,
) {
    let mut pending = PendingHellos::<Newcomer>::new(HELLO_TIMEOUT);
    if let Some((descriptors, connection)) = engine.take_peer() {
        match Program::adopt(connection, descriptors).map_err(io::Error::other).and_then(Watched::new) {
            Ok(program) => attend(&mut engine, Some(&listener), program).await,
            Err(error) => engine.left(&error.to_string()),
        }
    }
    engine.wait().await;
    loop {
        match next(&mut engine, &mut listener, &mut pending, &otherwise, pages).await {
            Ok((descriptors, program)) => {
                engine.hold(&program);
                engine.arrived(descriptors, true);
                attend(&mut engine, Some(&listener), program).await;
            }
            Err(error) => engine.report(error).await,
        }
    }
}

/// Serves a port that a program has opened, for as long as it is there.
pub async fn serve_opener(mut engine: EngineHandle, otherwise: Geometry, pages: PageChoice) {
    if let Some((descriptors, connection)) = engine.take_peer() {
        match Program::adopt(connection, descriptors).map_err(io::Error::other).and_then(Watched::new) {
            Ok(program) => attend(&mut engine, None, program).await,
            Err(error) => engine.left(&error.to_string()),
        }
    } else if let Some((newcomer, hello)) = engine.take_newcomer() {
        let welcomed = on_node(engine.node(), || newcomer.welcome_in(pages, &hello, &otherwise));
        let welcomed = welcomed.inspect(|program| engine.welcomed(&hello, program)).map_err(io::Error::other);
        match welcomed.and_then(with_descriptors) {
            Ok((descriptors, program)) => {
                engine.hold(&program);
                engine.arrived(descriptors, true);
                attend(&mut engine, None, program).await;
            }
            Err(error) => engine.refused(&error),
        }
    }
    engine.wait().await;
    engine.say(What::Over);
    // The engine stops this task.
    std::future::pending().await
}

/// A program, and the descriptors for `data`.
fn with_descriptors(program: Program) -> io::Result<(Vec<OwnedFd>, Watched<Program>)> {
    let descriptors: io::Result<_> =
        program.descriptors().iter().chain(&program.pool()).map(BorrowedFd::try_clone_to_owned).collect();
    Ok((descriptors?, Watched::new(program)?))
}

/// Waits until a program has left.
async fn attend(
    engine: &mut EngineHandle,
    listener: Option<&Watched<RingListener>>,
    mut program: Watched<Program>,
) {
    let serial = engine.serial;
    let mut another = false;
    loop {
        tokio::select! {
            () = engine.wait() => break,
            () = hung_up(&mut program) => {
                engine.say(What::Left { serial, reason: "the program left".into() });
                break;
            }
            () = readable(listener), if !another => {
                another = true;
                engine.another_waits();
            }
        }
    }
    // The program's socket stays open until `data` no longer uses the memory.
    engine.wait().await;
    engine.release();
}

/// Waits for another program, which only a port with a socket has.
async fn readable(listener: Option<&Watched<RingListener>>) {
    match listener {
        Some(listener) => listener.readable().await,
        None => std::future::pending().await,
    }
}

/// Waits for the next program and allocates its ring; returns the descriptors for `data` as well.
async fn next(
    engine: &mut EngineHandle,
    listener: &mut Watched<RingListener>,
    pending: &mut PendingHellos,
    otherwise: &Geometry,
    pages: PageChoice,
) -> io::Result<(Vec<OwnedFd>, Watched<Program>)> {
    loop {
        let welcomed = match pending.next(listener).await? {
            Ok((newcomer, hello)) => on_node(engine.node(), || newcomer.welcome_in(pages, &hello, otherwise))
                .inspect(|program| engine.welcomed(&hello, program))
                .map_err(io::Error::other),
            Err(error) => Err(error),
        };
        match welcomed {
            Ok(program) => return with_descriptors(program),
            Err(error) => engine.refused(&error),
        }
    }
}

/// A connection whose request is awaited.
pub(super) trait Arriving: AsFd + Send + Sized + 'static {
    /// What it requests.
    type Request: Send + 'static;

    /// The next one, if one is waiting.
    fn accept(listener: &RingListener) -> Result<Option<Self>, OpenError>;

    /// What it requests, once all of that has arrived.
    fn request(&mut self) -> Result<Option<Self::Request>, GreetError>;
}

impl Arriving for Newcomer {
    type Request = Hello;

    fn accept(listener: &RingListener) -> Result<Option<Newcomer>, OpenError> {
        listener.accept()
    }

    fn request(&mut self) -> Result<Option<Hello>, GreetError> {
        self.hello()
    }
}

impl Arriving for Opening {
    type Request = (String, Hello);

    fn accept(listener: &RingListener) -> Result<Option<Opening>, OpenError> {
        listener.accept_opening()
    }

    fn request(&mut self) -> Result<Option<(String, Hello)>, GreetError> {
        self.hello()
    }
}

async fn accept<A: Arriving>(listener: &mut Watched<RingListener>) -> io::Result<A> {
    listener.until(|listener| A::accept(listener).map_err(io::Error::other)).await
}

/// A connection and its request, or why none was received.
type RequestResult<A> = io::Result<(A, <A as Arriving>::Request)>;

/// Connections whose requests are awaited, each in a separate task.
pub(super) struct PendingHellos<A: Arriving = Newcomer> {
    timeout: Duration,
    tasks: JoinSet<RequestResult<A>>,
    /// The tasks, oldest connection first.
    waiting: VecDeque<AbortHandle>,
}

impl<A: Arriving> PendingHellos<A> {
    pub(super) fn new(timeout: Duration) -> PendingHellos<A> {
        PendingHellos { timeout, tasks: JoinSet::new(), waiting: VecDeque::new() }
    }

    /// The next connection whose hello was received or failed; an error is the listener's. Cancel-safe.
    pub(super) async fn next(
        &mut self,
        listener: &mut Watched<RingListener>,
    ) -> io::Result<RequestResult<A>> {
        loop {
            tokio::select! {
                // Connections with a hello have priority over new ones.
                biased;
                Some(done) = self.tasks.join_next() => {
                    // An error means that the task was aborted in favour of a newer connection.
                    if let Ok(greeted) = done {
                        return Ok(greeted);
                    }
                }
                newcomer = accept(listener) => self.start(newcomer?),
            }
        }
    }

    fn start(&mut self, newcomer: A) {
        self.waiting.retain(|task| !task.is_finished());
        if self.waiting.len() == PENDING
            && let Some(first) = self.waiting.pop_front()
        {
            first.abort();
        }
        self.waiting.push_back(self.tasks.spawn(read_hello(newcomer, self.timeout)));
    }
}

/// Waits for a connection's hello.
async fn read_hello<A: Arriving>(newcomer: A, timeout: Duration) -> RequestResult<A> {
    let mut newcomer = Watched::new(newcomer)?;
    let hello_read = newcomer.until(|newcomer| newcomer.request().map_err(io::Error::other));
    let hello = tokio::time::timeout(timeout, hello_read).await.map_err(|_| io::ErrorKind::TimedOut)??;
    Ok((newcomer.into_inner(), hello))
}

async fn hung_up(program: &mut Watched<Program>) {
    // An error on the socket counts as its end.
    let _ = program.until(|program| Ok(program.is_gone().then_some(()))).await;
}

/// Serves a pipe port: two programs at a time, without `data`.
pub async fn join(
    mut engine: EngineHandle,
    mut listener: Watched<RingListener>,
    otherwise: Geometry,
    pages: PageChoice,
) {
    let mut pipe = Pipe::new(otherwise).in_pages(pages);
    let mut pending = PendingHellos::<Newcomer>::new(HELLO_TIMEOUT);
    loop {
        // Duplicates, since the pipe owns the original sockets.
        let watched: io::Result<Vec<_>> =
            pipe.sockets().map(|socket| socket.try_clone_to_owned().and_then(Watched::new)).collect();
        let watched = match watched {
            Ok(watched) => watched,
            Err(error) => {
                engine.report(error).await;
                continue;
            }
        };
        engine.say(What::Programs(pipe.programs()));
        tokio::select! {
            greeted = pending.next(&mut listener) => match greeted {
                Ok(greeted) => {
                    let joined = greeted
                        .and_then(|(newcomer, hello)| pipe.join(newcomer, hello).map_err(io::Error::other));
                    if let Err(error) = joined {
                        engine.refused(&error);
                    }
                }
                Err(error) => engine.report(error).await,
            },
            () = any(&watched) => {
                pipe.sweep();
            }
        }
    }
}

/// Waits until one of the sockets may have something to read.
async fn any(sockets: &[Watched<OwnedFd>]) {
    match sockets {
        [] => std::future::pending().await,
        [one] => one.readable().await,
        [one, two, ..] => tokio::select! {
            () = one.readable() => {}
            () = two.readable() => {}
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_host::listener::Access;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::path::PathBuf;

    fn listener(name: &str) -> (PathBuf, Watched<RingListener>) {
        let path = std::env::temp_dir().join(format!("ringway-greet-{}-{name}", std::process::id()));
        let listener = RingListener::bind(&path, Access::default()).unwrap();
        (path, Watched::new(listener).unwrap())
    }

    /// Whether the other end of the socket was closed.
    fn is_let_go(mut stream: &UnixStream) -> bool {
        stream.set_nonblocking(true).unwrap();
        stream.read(&mut [0]).is_ok_and(|count| count == 0)
    }

    /// The time limit is longer than the test, so that only the limit on connections can close silent ones.
    #[tokio::test]
    async fn silent_programs_delay_no_others() {
        let (path, mut listener) = listener("silent");
        let mut pending = PendingHellos::<Newcomer>::new(Duration::from_secs(3600));
        let silent: Vec<_> = (0..PENDING + 4).map(|_| UnixStream::connect(&path).unwrap()).collect();
        for _ in 0..3 {
            let mut program = UnixStream::connect(&path).unwrap();
            program.write_all(&Hello::default().to_bytes()).unwrap();
            assert!(pending.next(&mut listener).await.unwrap().is_ok());
        }
        // The first program displaced a fifth silent connection; its own slot was then free for the next two programs.
        let is_let_go: Vec<bool> = silent.iter().map(is_let_go).collect();
        assert_eq!(is_let_go.iter().position(|gone| !gone), Some(5), "those who waited longest");
        assert!(!is_let_go[5..].contains(&true));
    }

    #[tokio::test]
    async fn a_silent_program_times_out() {
        let (path, mut listener) = listener("timeout");
        let _silent = UnixStream::connect(&path).unwrap();
        let mut pending = PendingHellos::<Newcomer>::new(Duration::from_millis(1));
        let error = pending.next(&mut listener).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
