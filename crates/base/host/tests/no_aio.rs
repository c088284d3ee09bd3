//! A process that can't use asynchronous I/O, as when other processes have used up the limit.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ringway_host::{Budget, EventFd, Signal, prepare_signals, signal_once, wait_readable};
use rustix::fs::OFlags;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter_all_threads};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Makes `io_setup` fail on every thread.
fn refuse() {
    let rules = [(libc::SYS_io_setup, Vec::new())].into();
    let refused = SeccompAction::Errno(libc::EAGAIN as u32);
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, arch).unwrap();
    apply_filter_all_threads(&BpfProgram::try_from(filter).unwrap()).unwrap();
}

/// A peer's eventfd that is blocking and full.
fn full() -> (EventFd, Arc<OwnedFd>) {
    let event = EventFd::new().unwrap();
    rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    rustix::fs::fcntl_setfl(&event, OFlags::empty()).unwrap();
    let copy = event.as_fd().try_clone_to_owned().unwrap();
    (event, Arc::new(copy))
}

#[test]
fn a_full_blocking_eventfd_blocks_no_sender_without_aio() {
    refuse();
    assert!(prepare_signals().is_err(), "the missing facility is reported");
    let (event, copy) = full();
    let (done, is_done) = channel();
    std::thread::spawn(move || {
        let signal = Signal::of(copy).unwrap();
        (0..1000).for_each(|_| signal.send());
        done.send(signal).unwrap();
    });
    let signal =
        is_done.recv_timeout(Duration::from_secs(60)).expect("nobody waits for the eventfd's reader");
    // After it has been read, it is signalled again.
    for _ in 0..3 {
        assert!(wait_readable(&[event.as_fd()], None).unwrap()[0] && event.clear());
        signal.send();
    }
    assert!(wait_readable(&[event.as_fd()], None).unwrap()[0]);
    let once = EventFd::new().unwrap();
    signal_once(once.as_fd());
    assert!(wait_readable(&[once.as_fd()], None).unwrap()[0]);
    // Attack: eventfds that are never read.
    let (_event, copy) = full();
    let blocked = |signal: Result<Signal, _>| {
        // Each helper blocks forever.
        signal.is_ok_and(|signal| {
            signal.send();
            true
        })
    };
    let budgets = [(); 2].map(|()| Arc::new(Budget::default()));
    for budget in &budgets {
        let of_peer = (0..5000).take_while(|_| blocked(Signal::charged_to(copy.clone(), budget))).count();
        assert_eq!(of_peer, 64, "one peer leaves the rest to others");
    }
    let more = (0..5000).take_while(|_| blocked(Signal::of(copy.clone()))).count();
    assert!((64..=1024 - 128).contains(&more), "{more}");
}
