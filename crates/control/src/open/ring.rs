//! Programs on rings and pipes: making their memory, watching whether they are still there.

use super::{Desk, Watched, What};
use ringway_host::PageChoice;
use ringway_port::pipe::Pipe;
use ringway_port::ring::open::{Newcomer, Program, RingListener};
use ringway_ring::{Geometry, Hello};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// Attack: a program that connects and says nothing keeps others out for so long.
const PATIENCE: Duration = Duration::from_secs(5);

/// A ring: one program after the other.
pub async fn serve(mut desk: Desk, mut door: Watched<RingListener>, otherwise: Geometry, pages: PageChoice) {
    loop {
        match next(&mut door, &otherwise, pages).await {
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
    door: &mut Watched<RingListener>,
    otherwise: &Geometry,
    pages: PageChoice,
) -> io::Result<(Vec<OwnedFd>, Watched<Program>)> {
    loop {
        let newcomer = accept(door).await?;
        let welcomed = match greet(newcomer).await {
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
            Err(error) => tracing::warn!(%error, "a program gets no ring"),
        }
    }
}

async fn accept(door: &mut Watched<RingListener>) -> io::Result<Newcomer> {
    door.until(|door| door.accept().map_err(io::Error::other)).await
}

/// Waits for what a newcomer asks for.
async fn greet(newcomer: Newcomer) -> io::Result<(Newcomer, Hello)> {
    let mut newcomer = Watched::new(newcomer)?;
    let said = newcomer.until(|newcomer| newcomer.hello().map_err(io::Error::other));
    let hello = tokio::time::timeout(PATIENCE, said).await.map_err(|_| io::ErrorKind::TimedOut)??;
    Ok((newcomer.into_inner(), hello))
}

async fn hung_up(program: &mut Watched<Program>) {
    // An error on the socket is as good as its end.
    let _ = program.until(|program| Ok(program.is_gone().then_some(()))).await;
}

/// A pipe: two programs at a time; `data` has no part in it.
pub async fn join(desk: Desk, mut door: Watched<RingListener>, otherwise: Geometry, pages: PageChoice) {
    let mut pipe = Pipe::new(otherwise).in_pages(pages);
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
            newcomer = accept(&mut door) => {
                let joined = match newcomer {
                    Ok(newcomer) => greet(newcomer).await,
                    Err(error) => Err(error),
                };
                let joined =
                    joined.and_then(|(newcomer, hello)| pipe.join(newcomer, hello).map_err(io::Error::other));
                if let Err(error) = joined {
                    desk.trouble(error).await;
                }
            }
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
