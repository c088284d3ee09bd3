//! FromPort and ToPort on one end of a pipe, and a program on the other.
#![allow(clippy::unwrap_used)]

use ringway_click_driver::click::{self, Recorder};
use ringway_port::pipe::Pipe;
use ringway_port::ring::open::RingListener;
use ringway_ring::Geometry;
use ringway_ring_client::{Ring, RingError, RingOptions, Wait};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const BOUND: Option<Duration> = Some(Duration::from_secs(20));

/// A pipe that connects programs while this exists.
struct Joined {
    path: PathBuf,
    over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Joined {
    fn new(name: &str) -> Joined {
        let path = std::env::temp_dir().join(format!("ringway-port-{}-{name}", std::process::id()));
        let listener = RingListener::bind(&path, Default::default()).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let stop = over.clone();
        let thread = std::thread::spawn(move || {
            let mut pipe = Pipe::new(Geometry::default());
            while !stop.load(Ordering::Relaxed) {
                pipe.sweep();
                let Some(mut newcomer) = listener.accept().unwrap() else {
                    std::thread::yield_now();
                    continue;
                };
                // A third program is refused, and retries.
                let _ = loop {
                    match newcomer.hello() {
                        Ok(Some(hello)) => break pipe.join(newcomer, hello).is_ok(),
                        Ok(None) => std::thread::yield_now(),
                        Err(_) => break false,
                    }
                };
            }
        });
        Joined { path, over, thread: Some(thread) }
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().unwrap().join();
    }
}

fn program(path: &Path, slot_size: u32) -> Ring {
    Ring::connect_with(path, RingOptions { slot_size, ..RingOptions::default() }, BOUND).unwrap()
}

/// Sends frames and receives each with swapped addresses.
fn mirrored(ring: &mut Ring, lengths: impl Iterator<Item = usize>) {
    let mut out = vec![0; 70_000];
    for length in lengths {
        let frame: Vec<u8> = (0..length).map(|at| (at * 7 + length) as u8).collect();
        let offload = [1, 0, 0, 0, 0, 0, 34, 0, 16, 0];
        assert!(ring.tx.push_with(&frame, offload).unwrap());
        assert!(ring.wait(Wait::RX, BOUND).unwrap());
        let received = ring.rx.pop(&mut out).unwrap().unwrap();
        assert_eq!((received.len, received.whole), (length, length));
        assert_eq!((&out[..6], &out[6..12]), (&frame[6..12], &frame[..6]));
        assert_eq!(&out[12..length], &frame[12..]);
        assert_eq!(received.offload, offload, "what is left undone is passed on");
        ring.rx.sync().unwrap();
    }
}

fn run(text: String, handlers: &str) -> std::thread::JoinHandle<(u8, String, String)> {
    let mut words: Vec<String> = handlers.split(' ').flat_map(|name| ["-h".into(), name.into()]).collect();
    words.extend(["--burst".into(), "64".into(), "-e".into(), text]);
    std::thread::spawn(move || {
        let console = Recorder::default();
        let status = click::run(&words, console.clone());
        (status, console.output(), console.chatter())
    })
}

#[test]
fn frames_pass_and_a_lost_ring_is_reattached() {
    let joined = Joined::new("mirror");
    let path = joined.path.display();
    let text = format!(
        "from :: FromPort({path}, OFFLOADS true, SPIN 0) -> EtherMirror
            -> Counter(COUNT_CALL 60 stop) -> to :: ToPort({path});"
    );
    let router = run(text, "from.count from.drops from.losses to.count to.drop_counts");
    let mut ring = program(&joined.path, 2048);
    mirrored(&mut ring, [60, 61, 1514, 2020, 2048, 9000, 65_000].into_iter().chain(100..122));
    drop(ring);
    // A frame takes several of the smaller slots.
    let mut ring = program(&joined.path, 256);
    mirrored(&mut ring, (0..30).map(|step| 60 + step * 100));
    assert!(ring.tx.push(&[3; 60]).unwrap());
    // The router may have ended already.
    assert!(matches!(ring.sync(), Ok(()) | Err(RingError::Closed)));
    let (status, stdout, chatter) = router.join().unwrap();
    assert_eq!((status, chatter.as_str()), (0, ""));
    let numbers: Vec<&str> = stdout.lines().filter(|line| !line.is_empty() && !line.ends_with(':')).collect();
    assert_eq!(numbers[..3], ["60", "0", "1"], "{stdout}");
}

#[test]
fn pulled_packets_wait_for_room_and_pushed_drops_are_counted() {
    let joined = Joined::new("room");
    let path = joined.path.display();
    let text = format!(
        "InfiniteSource(LIMIT 5000, BURST 50) -> queue :: Queue(5000) -> to :: ToPort({path});
         from :: FromPort({path}) -> Counter(COUNT_CALL 1 stop) -> Discard;"
    );
    let router = run(text, "to.count to.drops");
    let mut ring = program(&joined.path, 2048);
    let mut received = 0;
    while received < 5000 {
        assert!(ring.wait(Wait::RX, BOUND).unwrap());
        while ring.rx.pop(&mut [0; 100]).unwrap().is_some() {
            received += 1;
        }
    }
    assert!(ring.tx.push(&[1; 60]).unwrap());
    ring.sync().unwrap();
    let (status, stdout, chatter) = router.join().unwrap();
    assert_eq!((status, chatter.as_str()), (0, ""));
    assert!(stdout.contains("to.count:\n5000\n") && stdout.contains("to.drops:\n0\n"), "{stdout}");
}

#[test]
fn without_a_port_packets_are_dropped_and_counted() {
    let path = std::env::temp_dir().join(format!("ringway-port-{}-none", std::process::id()));
    let text = format!("InfiniteSource(LIMIT 10, STOP true) -> to :: ToPort({});", path.display());
    let (status, stdout, _) = run(text, "to.count to.drop_counts to.state").join().unwrap();
    assert_eq!(status, 1, "all packets were lost");
    assert!(stdout.contains("to.count:\n0\n") && stdout.contains("away 10\n"), "{stdout}");
    assert!(stdout.contains("to.state:\naway: "), "{stdout}");
}

/// Runs a configuration in virtual time; returns its status and what it printed for people.
fn click(configuration: &str) -> (u8, String) {
    let console = Recorder::default();
    let arguments = ["--simtime", "-e", configuration].map(String::from);
    (click::run(&arguments, console.clone()), console.chatter())
}

#[test]
fn a_program_that_waits_says_for_what() {
    let folder = std::env::temp_dir().join(format!("ringway-waits-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (none, busy) = (folder.join("none"), folder.join("busy"));
    let _listener = std::os::unix::net::UnixListener::bind(&busy).unwrap();
    let waits = |element: &str, time: &str| click(&format!("{element}; DriverManager(wait {time}, stop)"));
    let from = format!("f :: FromPort({}) -> Discard", none.display());
    assert_eq!(waits(&from, "0.9s"), (0, String::new()));
    let (status, text) = waits(&from, "10s");
    let line = format!("f :: FromPort: waits for {}: ", none.display());
    assert!(status == 0 && text.starts_with(&line) && text.lines().count() == 1, "{text}");
    // A program that is connected but gets no ring.
    let (_, text) = waits(&format!("f :: FromPort({}) -> Discard", busy.display()), "10s");
    let line = format!("f :: FromPort: waits for {}: connected", busy.display());
    assert!(text.starts_with(&line) && text.lines().count() == 1, "{text}");
    let (_, text) = waits(&format!("Idle -> f :: ToPort({})", none.display()), "10s");
    assert!(text.starts_with("f :: ToPort: waits for ") && text.lines().count() == 1, "{text}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn packets_for_a_port_that_never_came_are_an_error() {
    let folder = std::env::temp_dir().join(format!("ringway-never-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let none = folder.join("none");
    let to = |path: &std::path::Path| {
        click(&format!("InfiniteSource(LIMIT 3, STOP true) -> t :: ToPort({})", path.display()))
    };
    let (status, text) = to(&none);
    assert_eq!(status, 1);
    assert!(text.starts_with("t :: ToPort: all 3 packets were lost, since port "), "{text}");
    std::fs::write(folder.join("file"), "").unwrap();
    let (status, text) = to(&folder.join("file"));
    assert!(status == 1 && text.contains("is not a socket"), "{text}");
    assert_eq!(click("Idle -> ToPort(/nope); DriverManager(stop)"), (0, String::new()));
    std::fs::remove_dir_all(&folder).unwrap();
}
