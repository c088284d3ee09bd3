//! vhost-user front-ends: accepting them as a server, or connecting to them as a client.

use super::{EngineHandle, Watched, What};
use ringway_host::listener::{self, Listener, Retry};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Server: accepts front-ends, one at a time. A new connection never displaces the front-end that is served;
/// otherwise any client with access to the socket could take over a running guest's port. The next front-end waits,
/// connected but not served, until the previous one is gone; so a VMM can restart and reconnect before the end of its
/// previous connection was noticed.
pub async fn serve(mut engine: EngineHandle, mut listener: Watched<Listener>) {
    // For the end of a front-end that is there from before this process.
    engine.wait().await;
    loop {
        match listener.until(|listener| listener.accept().map_err(io::Error::other)).await {
            Ok(socket) => {
                engine.arrived(vec![socket], true);
                engine.wait().await;
            }
            Err(error) => engine.report(error).await,
        }
    }
}

/// Client: connects to the front-end, and reconnects without end.
pub async fn connect(engine: EngineHandle, path: PathBuf) {
    connect_with(engine, path, tokio::time::sleep).await;
}

async fn connect_with<S: Future>(mut engine: EngineHandle, path: PathBuf, sleep: impl Fn(Duration) -> S) {
    let mut retry = Retry::default();
    let mut reported = false;
    engine.wait().await;
    loop {
        match listener::connect(&path) {
            Ok(socket) => {
                (retry, reported) = (Retry::default(), false);
                engine.arrived(vec![socket], true);
                engine.wait().await;
            }
            Err(error) if !reported => {
                reported = true;
                engine.say(What::Failed(error.to_string()));
            }
            Err(_) => {}
        }
        // A front-end that disconnects at once must not keep this task busy.
        sleep(retry.wait()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Envelope, Message, Messages, inbox};
    use crate::keeper::Keeper;
    use crate::open::PeerEvent;
    use ringway_host::listener::Access;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use tokio::sync::watch;

    /// The next front-end that arrived: its serial number and its socket.
    async fn arrival(inbox: &mut Messages) -> (u64, UnixStream) {
        match inbox.recv().await.map(Envelope::into_message) {
            Some(Message::Peer(PeerEvent {
                what: What::Arrived { serial, mut descriptors, .. }, ..
            })) => (serial, UnixStream::from(descriptors.remove(0))),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_front_end_waits_until_its_predecessor_is_gone() {
        let path = std::env::temp_dir().join(format!("ringway-control-{}-second", std::process::id()));
        let listener = Listener::bind(&path, Access::default()).unwrap();
        let (sender, mut inbox) = inbox();
        let (done, watched) = watch::channel(0);
        let engine = EngineHandle::new("p".into(), 1, sender, watched, Keeper::thread().unwrap());
        let task = tokio::spawn(serve(engine, Watched::new(listener).unwrap()));
        let mut fronts = [(); 3].map(|()| UnixStream::connect(&path).unwrap());
        for (serial, front) in (1..).zip(&mut fronts) {
            let (number, mut served) = arrival(&mut inbox).await;
            assert_eq!(number, serial);
            // The sockets are those of this one, in the order in which they came.
            served.write_all(&[serial as u8]).unwrap();
            let mut byte = [0];
            std::io::Read::read_exact(front, &mut byte).unwrap();
            assert_eq!(byte, [serial as u8]);
            // No other front-end arrives, even if other tasks run.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            assert!(inbox.is_empty());
            done.send(serial).unwrap();
        }
        task.abort();
    }

    /// The front-end's process ends while connections wait, and another one comes 90 s later, in virtual time.
    #[tokio::test]
    async fn a_front_end_is_found_again_after_a_dying_listener_and_a_long_outage() {
        let path = std::env::temp_dir().join(format!("ringway-control-{}-dying", std::process::id()));
        let bind = || {
            let _ = std::fs::remove_file(&path);
            std::os::unix::net::UnixListener::bind(&path).unwrap()
        };
        let (sender, mut inbox) = inbox();
        let (done, watched) = watch::channel(0);
        let engine = EngineHandle::new("p".into(), 1, sender, watched, Keeper::thread().unwrap());
        let time = Arc::new(AtomicU64::new(0));
        let now = || time.load(Relaxed);
        let mut dying = bind();
        let clock = time.clone();
        let sleep = move |pause: Duration| {
            clock.fetch_add(pause.as_millis() as u64, Relaxed);
            tokio::task::yield_now()
        };
        let task = tokio::spawn(connect_with(engine, path.clone(), sleep));
        // Each connection succeeds, and breaks with the listener that did not accept it.
        for serial in 1..=5 {
            let (number, mut front) = arrival(&mut inbox).await;
            assert_eq!(number, serial);
            drop(std::mem::replace(&mut dying, bind()));
            assert!(front.write_all(b"message").is_err(), "nobody will read it");
            done.send(serial).unwrap();
        }
        let (_, front) = arrival(&mut inbox).await;
        drop(dying);
        drop(front);
        done.send(6).unwrap();
        let until = now() + 90_000;
        while now() < until {
            tokio::task::yield_now().await;
        }
        // It has said so once.
        let failed = inbox.recv().await.map(Envelope::into_message);
        assert!(matches!(failed, Some(Message::Peer(PeerEvent { what: What::Failed(_), .. }))), "{failed:?}");
        assert!(inbox.is_empty());
        let (listener, back) = (bind(), now());
        let (number, mut served) = arrival(&mut inbox).await;
        assert!(number == 7 && now() - back <= 2_000, "after {} ms", now() - back);
        served.write_all(b"x").unwrap();
        listener.accept().unwrap();
        task.abort();
        std::fs::remove_file(&path).unwrap();
    }
}
