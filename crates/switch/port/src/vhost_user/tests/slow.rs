//! Front-ends that make waking them slow.

use super::session::{agree, port, shared, shared_file, vring};
use super::{Backend, BackendError};
use crate::SocketError;
use ringway_host::{Epoll, EventFd};
use ringway_mem::Reader;
use ringway_vhost_user::{Request, VringFd};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::Relaxed;

/// Attack: epoll instances that watch duplicates of a descriptor.
pub(crate) fn watch_by_thousands(what: impl AsFd) -> (Vec<Epoll>, Vec<OwnedFd>) {
    let copies: Vec<OwnedFd> = (0..200).map(|_| what.as_fd().try_clone_to_owned().unwrap()).collect();
    let watchers: Vec<Epoll> = (0..200).map(|_| Epoll::new().unwrap()).collect();
    for watcher in &watchers {
        copies.iter().for_each(|copy| watcher.add_edge(copy.as_fd(), 0).unwrap());
    }
    (watchers, copies)
}

#[test]
fn a_guest_with_slow_interrupts_loses_its_port() {
    let (mut backend, mut queues, counters) = port();
    let file = shared_file(1 << 20);
    let call = EventFd::new().unwrap();
    let _watchers = watch_by_thousands(&call);
    let mut reader = Reader::register().unwrap();
    let mut front = agree(&mut backend);
    front.set_memory(vec![shared(&file, 0, 1 << 20, 0)]).unwrap();
    front.start(vring(0, 0)).unwrap();
    let mut interrupts = 0;
    while front.transport().take_end().is_none() {
        // A replaced call descriptor is signalled, since the last interrupt may have gone to the old one.
        let call = call.as_fd().try_clone_to_owned().unwrap();
        let _ = front.set(Request::SetVringCall(VringFd { index: 0, fd: Some(call) }));
        queues[0].rx.caps(&reader.turn(1));
        reader.rest();
        interrupts += 1;
        assert!(interrupts < 100, "interrupts that take milliseconds, again and again");
        front.transport().is_over();
    }
    assert!(interrupts > 2, "not for one that may have been slow by chance");
    assert_eq!(counters.faults.load(Relaxed), 1);
    assert!(backend.rest(0) > 0, "the next front-end comes after a while");
    // A front-end that reconnects and does the same is disconnected sooner: at once, unless so much time has passed
    // meanwhile that some of its budget is back.
    let mut front = agree(&mut backend);
    front.set_memory(vec![shared(&file, 0, 1 << 20, 0)]).unwrap();
    let (ring, call_again) = (vring(0, 0), &call);
    let call = call.as_fd().try_clone_to_owned().unwrap();
    front.start(ringway_vhost_user::Vring { call: Some(call), ..ring }).unwrap();
    queues[0].rx.caps(&reader.turn(1));
    reader.rest();
    let mut again = 1;
    while !front.transport().is_over() {
        again += 1;
        assert!(again < interrupts, "it is disconnected as late as the first");
        let call = call_again.as_fd().try_clone_to_owned().unwrap();
        let _ = front.set(Request::SetVringCall(VringFd { index: 0, fd: Some(call) }));
        queues[0].rx.caps(&reader.turn(1));
        reader.rest();
    }
}

#[test]
fn a_front_end_with_a_slow_socket_is_disconnected() {
    let (mut backend, _queues, counters): (Backend, _, _) = port();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let _watchers = watch_by_thousands(&ours);
    backend.connect(theirs.into()).unwrap();
    let bytes = Request::GetFeatures.encode(false).bytes;
    let end = (0..100).find_map(|_| {
        ours.write_all(&bytes).unwrap();
        let end = backend.readable().err();
        end.or_else(|| ours.read_exact(&mut [0; 20]).err().map(|error| BackendError::Socket(error.into())))
    });
    assert!(matches!(end, Some(BackendError::Socket(SocketError::Slow))), "{end:?}");
    assert_eq!(counters.faults.load(Relaxed), 1);
}

#[test]
fn a_front_end_is_disconnected_if_receiving_from_its_socket_is_slow() {
    let (mut backend, _queues, counters): (Backend, _, _) = port();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let _watchers = watch_by_thousands(&ours);
    backend.connect(theirs.into()).unwrap();
    let bytes = Request::SetOwner.encode(false).bytes;
    let end = (0..100).find_map(|_| {
        ours.write_all(&bytes).unwrap();
        backend.readable().err()
    });
    assert!(matches!(end, Some(BackendError::Socket(SocketError::Slow))), "{end:?}");
    assert_eq!(counters.faults.load(Relaxed), 1);
}
