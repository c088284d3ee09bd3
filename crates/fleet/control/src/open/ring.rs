//! Programs on rings and pipes: allocating their memory, and noticing when they disconnect.

use super::{EngineHandle, Watched, What};
use ringway_host::PageChoice;
use ringway_port::pipe::Pipe;
use ringway_port::ring::open::{Newcomer, Program, RingListener};
use ringway_ring::{Geometry, Hello};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;
use tokio::task::{AbortHandle, JoinSet};

/// Time limit for a program's hello message. Attack: a program that connects and sends nothing.
const HELLO_TIMEOUT: Duration = Duration::from_secs(1);
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
    let mut pending = PendingHellos::new(HELLO_TIMEOUT);
    if let Some((descriptors, connection)) = engine.take_peer() {
        match Program::adopt(connection, descriptors).map_err(io::Error::other).and_then(Watched::new) {
            Ok(program) => attend(&mut engine, &listener, program).await,
            Err(error) => engine.say(What::Left { serial: engine.serial, reason: error.to_string() }),
        }
    }
    engine.wait().await;
    loop {
        match next(&mut engine, &mut listener, &mut pending, &otherwise, pages).await {
            Ok((descriptors, program)) => {
                engine.hold(&program);
                engine.arrived(descriptors, true);
                attend(&mut engine, &listener, program).await;
            }
            Err(error) => engine.report(error).await,
        }
    }
}

/// Waits until a program has left.
async fn attend(engine: &mut EngineHandle, listener: &Watched<RingListener>, mut program: Watched<Program>) {
    let serial = engine.serial;
    let mut another = false;
    loop {
        tokio::select! {
            () = engine.wait() => break,
            () = hung_up(&mut program) => {
                engine.say(What::Left { serial, reason: "the program left".into() });
                break;
            }
            () = listener.readable(), if !another => {
                another = true;
                engine.another_waits();
            }
        }
    }
    // The program's socket stays open until `data` no longer uses the memory.
    engine.wait().await;
    engine.release();
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
            Ok((newcomer, hello)) => newcomer.welcome_in(pages, &hello, otherwise).map_err(io::Error::other),
            Err(error) => Err(error),
        };
        match welcomed {
            Ok(program) => {
                let descriptors = program.descriptors();
                let descriptors: io::Result<_> =
                    descriptors.iter().map(BorrowedFd::try_clone_to_owned).collect();
                return Ok((descriptors?, Watched::new(program)?));
            }
            Err(error) => engine.refused(&error),
        }
    }
}

async fn accept(listener: &mut Watched<RingListener>) -> io::Result<Newcomer> {
    listener.until(|listener| listener.accept().map_err(io::Error::other)).await
}

/// A connection and its hello, or why none was received.
type HelloResult = io::Result<(Newcomer, Hello)>;

/// Connections whose hello is awaited, each in a separate task.
struct PendingHellos {
    timeout: Duration,
    tasks: JoinSet<HelloResult>,
    /// The tasks, oldest connection first.
    waiting: VecDeque<AbortHandle>,
}

impl PendingHellos {
    fn new(timeout: Duration) -> PendingHellos {
        PendingHellos { timeout, tasks: JoinSet::new(), waiting: VecDeque::new() }
    }

    /// The next connection whose hello was received or failed; an error is the listener's. Cancel-safe.
    async fn next(&mut self, listener: &mut Watched<RingListener>) -> io::Result<HelloResult> {
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

    fn start(&mut self, newcomer: Newcomer) {
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
async fn read_hello(newcomer: Newcomer, timeout: Duration) -> HelloResult {
    let mut newcomer = Watched::new(newcomer)?;
    let hello_read = newcomer.until(|newcomer| newcomer.hello().map_err(io::Error::other));
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
    let mut pending = PendingHellos::new(HELLO_TIMEOUT);
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
        let mut pending = PendingHellos::new(Duration::from_secs(3600));
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
        let mut pending = PendingHellos::new(Duration::from_millis(1));
        let error = pending.next(&mut listener).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
