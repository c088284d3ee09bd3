//! Programs on rings and pipes: making their memory, watching whether they are still there.

use super::{Desk, Watched, What};
use ringway_host::PageChoice;
use ringway_port::pipe::Pipe;
use ringway_port::ring::open::{Newcomer, Program, RingListener};
use ringway_ring::{Geometry, Hello};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;
use tokio::task::{AbortHandle, JoinSet};

/// How long a program may take to say what it asks for. Attack: a program that connects and says nothing.
const PATIENCE: Duration = Duration::from_secs(1);
/// How many programs may be about to say so. Attack: programs without end that say nothing; the one that has waited
/// longest is let go for the next.
const GREETED: usize = 64;

/// A ring: one program after the other.
pub async fn serve(mut desk: Desk, mut door: Watched<RingListener>, otherwise: Geometry, pages: PageChoice) {
    let mut greetings = Greetings::new(PATIENCE);
    loop {
        match next(&mut desk, &mut door, &mut greetings, &otherwise, pages).await {
            Ok((descriptors, mut program)) => {
                desk.arrived(descriptors, true);
                let serial = desk.serial;
                tokio::select! {
                    () = desk.wait() => {}
                    () = hung_up(&mut program) => {
                        desk.say(What::Left { serial, reason: "the program left".into() });
                    }
                }
                // Until `data` no longer uses the memory; then the program's end of it is closed.
                desk.wait().await;
            }
            Err(error) => desk.trouble(error).await,
        }
    }
}

/// The next program that has its ring, and what `data` needs for it.
async fn next(
    desk: &mut Desk,
    door: &mut Watched<RingListener>,
    greetings: &mut Greetings,
    otherwise: &Geometry,
    pages: PageChoice,
) -> io::Result<(Vec<OwnedFd>, Watched<Program>)> {
    loop {
        let welcomed = match greetings.next(door).await? {
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
            Err(error) => desk.refused(&error),
        }
    }
}

async fn accept(door: &mut Watched<RingListener>) -> io::Result<Newcomer> {
    door.until(|door| door.accept().map_err(io::Error::other)).await
}

/// A program and what it asks for, or why nothing was heard of it.
type Greeted = io::Result<(Newcomer, Hello)>;

/// Programs that are about to say what they ask for, each heard by itself.
struct Greetings {
    patience: Duration,
    tasks: JoinSet<Greeted>,
    /// In the order in which they came.
    waiting: VecDeque<AbortHandle>,
}

impl Greetings {
    fn new(patience: Duration) -> Greetings {
        Greetings { patience, tasks: JoinSet::new(), waiting: VecDeque::new() }
    }

    /// The next program of which something is known; an error is the door's. May be dropped at any time.
    async fn next(&mut self, door: &mut Watched<RingListener>) -> io::Result<Greeted> {
        loop {
            tokio::select! {
                // Whoever has said what it asks for comes first.
                biased;
                Some(done) = self.tasks.join_next() => {
                    // An error: it was let go for another.
                    if let Ok(greeted) = done {
                        return Ok(greeted);
                    }
                }
                newcomer = accept(door) => self.greet(newcomer?),
            }
        }
    }

    fn greet(&mut self, newcomer: Newcomer) {
        self.waiting.retain(|task| !task.is_finished());
        if self.waiting.len() == GREETED
            && let Some(first) = self.waiting.pop_front()
        {
            first.abort();
        }
        self.waiting.push_back(self.tasks.spawn(greet(newcomer, self.patience)));
    }
}

/// Waits for what a newcomer asks for.
async fn greet(newcomer: Newcomer, patience: Duration) -> Greeted {
    let mut newcomer = Watched::new(newcomer)?;
    let said = newcomer.until(|newcomer| newcomer.hello().map_err(io::Error::other));
    let hello = tokio::time::timeout(patience, said).await.map_err(|_| io::ErrorKind::TimedOut)??;
    Ok((newcomer.into_inner(), hello))
}

async fn hung_up(program: &mut Watched<Program>) {
    // An error on the socket is as good as its end.
    let _ = program.until(|program| Ok(program.is_gone().then_some(()))).await;
}

/// A pipe: two programs at a time; `data` has no part in it.
pub async fn join(mut desk: Desk, mut door: Watched<RingListener>, otherwise: Geometry, pages: PageChoice) {
    let mut pipe = Pipe::new(otherwise).in_pages(pages);
    let mut greetings = Greetings::new(PATIENCE);
    loop {
        // Duplicates, since what watches a socket can't share it with the pipe.
        let watched: io::Result<Vec<_>> =
            pipe.sockets().map(|socket| socket.try_clone_to_owned().and_then(Watched::new)).collect();
        let mut watched = match watched {
            Ok(watched) => watched,
            Err(error) => {
                desk.trouble(error).await;
                continue;
            }
        };
        desk.say(What::Programs(pipe.programs()));
        tokio::select! {
            greeted = greetings.next(&mut door) => match greeted {
                Ok(greeted) => {
                    let joined = greeted
                        .and_then(|(newcomer, hello)| pipe.join(newcomer, hello).map_err(io::Error::other));
                    if let Err(error) = joined {
                        desk.refused(&error);
                    }
                }
                Err(error) => desk.trouble(error).await,
            },
            () = any(&mut watched) => {
                pipe.sweep();
            }
        }
    }
}

/// Waits until one of the sockets may have something to read.
async fn any(sockets: &mut [Watched<OwnedFd>]) {
    match sockets {
        [] => std::future::pending().await,
        [one] => news(one).await,
        [one, two, ..] => tokio::select! {
            () = news(one) => {}
            () = news(two) => {}
        },
    }
}

async fn news(socket: &mut Watched<OwnedFd>) {
    // An error shows as well when the pipe looks at the socket.
    let _ = socket.until(|_| Ok(Some(()))).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_host::listener::Access;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::path::PathBuf;

    fn door(name: &str) -> (PathBuf, Watched<RingListener>) {
        let path = std::env::temp_dir().join(format!("ringway-greet-{}-{name}", std::process::id()));
        let listener = RingListener::bind(&path, Access::default()).unwrap();
        (path, Watched::new(listener).unwrap())
    }

    /// Whether its end was closed.
    fn is_let_go(mut stream: &UnixStream) -> bool {
        stream.set_nonblocking(true).unwrap();
        stream.read(&mut [0]).is_ok_and(|count| count == 0)
    }

    /// With no time-out that could help: silent programs are waited for during the test and longer.
    #[tokio::test]
    async fn programs_that_say_nothing_delay_nobody() {
        let (path, mut door) = door("silent");
        let mut greetings = Greetings::new(Duration::from_secs(3600));
        let silent: Vec<_> = (0..GREETED + 4).map(|_| UnixStream::connect(&path).unwrap()).collect();
        for _ in 0..3 {
            let mut program = UnixStream::connect(&path).unwrap();
            program.write_all(&Hello::default().to_bytes()).unwrap();
            assert!(greetings.next(&mut door).await.unwrap().is_ok());
        }
        // The first program took the place of a fifth, and left it to the next two.
        let is_let_go: Vec<bool> = silent.iter().map(is_let_go).collect();
        assert_eq!(is_let_go.iter().position(|gone| !gone), Some(5), "those who waited longest");
        assert!(!is_let_go[5..].contains(&true));
    }

    #[tokio::test]
    async fn a_program_that_says_nothing_is_not_waited_for_long() {
        let (path, mut door) = door("patience");
        let _silent = UnixStream::connect(&path).unwrap();
        let mut greetings = Greetings::new(Duration::from_millis(1));
        let error = greetings.next(&mut door).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
