//! Tests of programs that connect to a pipe and disconnect.

use super::{Pipe, PipeError};
use crate::ring::open::RingListener;
use ringway_host::{Mapping, receive_with};
use ringway_ring::*;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

struct Program {
    stream: UnixStream,
}

impl Program {
    /// The next welcome, and the memory that comes with it.
    fn got(&self) -> (Result<u32, String>, Option<RingMemory>) {
        let mut bytes = [0; Welcome::SIZE];
        let (count, descriptors) = receive_with(self.stream.as_fd(), &mut bytes, 3).unwrap();
        assert_eq!(count, Welcome::SIZE);
        let welcome = Welcome::from_bytes(&bytes).unwrap();
        let memory = descriptors
            .first()
            .map(|file: &OwnedFd| RingMemory::attach(Mapping::sealed(file).unwrap().region()).unwrap());
        (welcome.end().map_err(String::from), memory)
    }
}

fn listener(name: &str) -> RingListener {
    let path = std::env::temp_dir().join(format!("ringway-pipe-test-{}-{name}", std::process::id()));
    RingListener::bind(&path, Default::default()).unwrap()
}

fn join(listener: &RingListener, pipe: &mut Pipe, hello: Hello) -> (Program, Result<(), PipeError>) {
    let mut stream = UnixStream::connect(listener.path()).unwrap();
    stream.write_all(&hello.to_bytes()).unwrap();
    let mut newcomer = listener.accept().unwrap().unwrap();
    let hello = newcomer.hello().unwrap().unwrap();
    (Program { stream }, pipe.join(newcomer, hello))
}

#[test]
fn two_programs_share_memory_and_a_third_is_refused() {
    let listener = listener("two");
    let mut pipe = Pipe::new(Geometry::default());
    let (one, joined) = join(&listener, &mut pipe, Hello { slots: [64, 128], ..Hello::default() });
    joined.unwrap();
    assert!(!pipe.is_joined());
    let (two, joined) = join(&listener, &mut pipe, Hello::default());
    joined.unwrap();
    assert!(pipe.is_joined());
    let ((first, mine), (second, theirs)) = (one.got(), two.got());
    assert_eq!((first, second), (Ok(0), Ok(1)));
    let (mine, theirs) = (mine.unwrap(), theirs.unwrap());
    assert_eq!((theirs.header().slots, theirs.kind()), ([64, 128], RingKind::Pipe));
    let (mut producer, mut consumer) = (Producer::new(&mine, TX), Consumer::new(&theirs, TX));
    producer.room(&mine, 1).unwrap();
    producer.write(&mine, 0, Slot { buf_idx: 3, len: 60, ..Slot::default() });
    producer.advance(1);
    producer.publish(&mine);
    assert_eq!(consumer.available(&theirs, 1), Ok(1));
    assert_eq!(consumer.slot(&theirs, 0).buf_idx, 3);
    let (three, joined) = join(&listener, &mut pipe, Hello::default());
    assert!(matches!(joined, Err(PipeError::Taken)));
    assert!(three.got().0.unwrap_err().contains("two programs"));
    assert!(pipe.is_joined());
}

#[test]
fn the_remaining_end_gets_new_memory_with_the_next_peer() {
    let listener = listener("stays");
    let mut pipe = Pipe::new(Geometry::default());
    let (one, joined) = join(&listener, &mut pipe, Hello::default());
    joined.unwrap();
    let (two, joined) = join(&listener, &mut pipe, Hello::default());
    joined.unwrap();
    let old = two.got().1.unwrap();
    assert!(!pipe.sweep());
    drop(one);
    assert!(pipe.sweep());
    assert!(old.is_closed());
    assert_eq!(pipe.programs(), 1);
    let (three, joined) = join(&listener, &mut pipe, Hello::default());
    joined.unwrap();
    let ((first, new), (second, also_new)) = (three.got(), two.got());
    assert_eq!((first, second), (Ok(0), Ok(1)));
    let (new, also_new) = (new.unwrap(), also_new.unwrap());
    assert!(!new.is_closed() && !also_new.is_closed());
    let mut producer = Producer::new(&new, TX);
    assert_eq!(producer.room(&new, 512), Ok(512));
}

#[test]
fn an_invalid_request_leaves_the_end_free() {
    let listener = listener("impossible");
    let mut pipe = Pipe::new(Geometry::default());
    let (one, joined) = join(&listener, &mut pipe, Hello { slots: [1, 1], ..Hello::default() });
    assert!(joined.is_err());
    assert!(one.got().0.unwrap_err().contains("power of two"));
    assert_eq!(pipe.programs(), 0);
}
