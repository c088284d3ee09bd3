//! The image in one process, in virtual time.

use crate::lab::{Lab, drain, fill};
use ringway_direct::{DirectError, Image, LockError, Member, Ready, bounded_settings};
use ringway_host::Clock;
use ringway_netstack::{ConnectionError, RepairError, SocketError, SocketId};

const LEN: u64 = 3_000_000;

#[test]
fn a_connection_moves_there_and_back_while_bytes_go_both_ways() {
    let mut lab = Lab::new();
    let (mut near, far) = lab.connect(1)[0];
    let (mut sent, mut read) = ([0; 2], [0; 2]);
    let mut is_moved = false;
    for step in 0.. {
        // Every few milliseconds it changes its place, with what is on its way, unacknowledged and unread.
        if step % 7 == 6 {
            near = if is_moved {
                let bytes = lab.image.lock().unwrap().detach(lab.now, near).0.unwrap();
                lab.agent.attach(lab.now, &bytes).unwrap()
            } else {
                lab.move_in(near)
            };
            is_moved = !is_moved;
        }
        let now = lab.now;
        let mut locked = lab.image.lock().unwrap();
        if is_moved {
            sent[0] = fill(sent[0], LEN, |bytes| locked.send(now, near, bytes).0.ok());
            read[0] = drain(read[0], |out| locked.recv(now, near, out).0.ok());
        } else {
            sent[0] = fill(sent[0], LEN, |bytes| lab.agent.send(now, near, bytes).ok());
            read[0] = drain(read[0], |out| lab.agent.recv(now, near, out).ok());
        }
        drop(locked);
        sent[1] = fill(sent[1], LEN, |bytes| lab.far.send(now, far, bytes).ok());
        read[1] = drain(read[1], |out| lab.far.recv(now, far, out).ok());
        if read == [LEN; 2] {
            break;
        }
        assert!(step < 20_000, "the streams stop at {read:?} of {sent:?}");
        lab.step();
    }
    assert_eq!(lab.agent.statistics().resets_sent + lab.far.statistics().resets_sent, 0);
}

#[test]
fn a_stream_ends_in_the_image() {
    let mut lab = Lab::new();
    let (near, far) = lab.connect(1)[0];
    let near = lab.move_in(near);
    let now = lab.now;
    let ready = |lab: &Lab| lab.image.lock().unwrap().ready(lab.now, near).0;
    assert_eq!(ready(&lab), Ok(Ready { read: false, write: true, closed: false }));
    lab.far.send(now, far, b"hello").unwrap();
    lab.far.shutdown(now, far).unwrap();
    lab.step();
    assert_eq!(ready(&lab), Ok(Ready { read: true, write: true, closed: false }));
    let mut out = [0; 9];
    let now = lab.now;
    let mut locked = lab.image.lock().unwrap();
    assert_eq!((locked.recv(now, near, &mut out).0, &out[..5]), (Ok(5), &b"hello"[..]));
    assert_eq!(locked.recv(now, near, &mut out).0, Ok(0));
    assert_eq!(locked.send(now, near, b"bye").0, Ok(3));
    assert_eq!(locked.shutdown(now, near).0, Ok(()));
    assert_eq!(locked.send(now, near, b"more").0, Err(SocketError::BrokenPipe));
    drop(locked);
    lab.step();
    assert_eq!((lab.far.recv(lab.now, far, &mut out), &out[..3]), (Ok(3), &b"bye"[..]));
    assert_eq!(lab.far.recv(lab.now, far, &mut out), Ok(0));
    let mut locked = lab.image.lock().unwrap();
    assert_eq!(locked.close(lab.now, near).0, Ok(()));
    assert_eq!(locked.recv(lab.now, near, &mut out).0, Err(SocketError::BadSocket));
}

#[test]
fn a_listener_of_the_image_takes_connections_before_the_agents() {
    let mut lab = Lab::new();
    let (address, to) = (([0, 0, 0, 0], 80).into(), ([10, 0, 0, 1], 80).into());
    let own = lab.agent.listen(address, 9).unwrap();
    let listener = lab.image.lock().unwrap().listen(lab.now, address, 9).0.unwrap();
    let connect = |lab: &mut Lab| {
        let far = lab.far.connect(lab.now, to).unwrap();
        (0..10).for_each(|_| lab.step());
        far
    };
    let far = [(); 3].map(|()| connect(&mut lab));
    assert!(!lab.agent.has_connections(own));
    let now = lab.now;
    let mut locked = lab.image.lock().unwrap();
    assert_eq!(locked.listen(now, address, 9).0, Err(SocketError::AddressInUse));
    assert_eq!(locked.ready(now, listener).0, Ok(Ready { read: true, write: false, closed: false }));
    let near = [1, 2, 3].map(|process| locked.accept(now, listener, process).0.unwrap());
    assert_eq!(locked.accept(now, listener, 1).0, Err(SocketError::WouldBlock));

    // A process ends: what it has accepted is closed.
    assert_eq!(locked.undrained(now).0, 0);
    locked.end_process(now, 2);
    assert_ne!(locked.undrained(now).0, 0);
    assert_eq!(locked.recv(now, near[1], &mut [0; 9]).0, Err(SocketError::BadSocket));
    drop(locked);
    lab.step();
    assert_eq!(far.map(|far| lab.far.is_finished(far).unwrap()), [false, true, false]);

    // The agent adopts one that it has not known.
    let (peer, local) = lab.far.addresses(far[0]).unwrap();
    let tcp = lab.agent.reserve(local, peer).unwrap();
    assert_eq!(lab.agent.reserve(local, peer), Err(SocketError::AddressInUse));
    let mut locked = lab.image.lock().unwrap();
    let state = locked.detach(lab.now, near[0]).0.unwrap();
    drop(locked);
    lab.agent.attach_again(lab.now, tcp, &state).unwrap();
    lab.far.send(lab.now, far[0], b"hello").unwrap();
    lab.step();
    assert_eq!(lab.agent.recv(lab.now, tcp, &mut [0; 9]), Ok(5));

    // The agent's listener has what begins now.
    assert_eq!(lab.image.lock().unwrap().stop_listening(lab.now, listener).0, Ok(0));
    connect(&mut lab);
    assert!(lab.agent.has_connections(own));
    // For processes there is no such listener any more.
    let mut locked = lab.image.lock().unwrap();
    assert_eq!(locked.ready(lab.now, listener).0, Err(SocketError::BadSocket));
    assert_eq!(locked.accept(lab.now, listener, 1).0, Err(SocketError::BadSocket));
    drop(locked);
    assert_eq!(lab.agent.statistics().resets_sent + lab.far.statistics().resets_sent, 0);
}

/// A peer's connections to the agent's address, and the listeners for them: of the image, and of the agent.
fn listening(lab: &mut Lab) -> (SocketId, SocketId) {
    let address = ([0, 0, 0, 0], 80).into();
    let listener = lab.image.lock().unwrap().listen(lab.now, address, 9).0.unwrap();
    (listener, lab.agent.listen(address, 9).unwrap())
}

#[test]
fn a_listener_that_stops_gives_what_it_has_at_once_and_the_rest_later() {
    let mut lab = Lab::new();
    let (listener, _) = listening(&mut lab);
    let clock = Clock::new();
    let member = Member::new(lab.image.clone(), lab.notifiers(), clock);
    lab.now = clock.now();
    let to = ([10, 0, 0, 1], 80).into();
    let [small, large] = [3, 5000].map(|len| {
        let far = lab.far.connect(lab.now, to).unwrap();
        (0..10).for_each(|_| lab.step());
        lab.far.send(lab.now, far, &vec![7; len]).unwrap();
        lab.step();
        far
    });
    // The handshake of one more is slow.
    let late = lab.far.connect(lab.now, to).unwrap();
    lab.image.lock().unwrap().run(lab.now);
    lab.far_wire.pass(lab.now, &mut lab.far);
    lab.image.lock().unwrap().run(lab.now);
    let (states, is_gone) = member.stop_listener(listener, 9, 4000).unwrap();
    assert_eq!((states.len(), is_gone), (1, false));
    lab.now = lab.now.max(clock.now());
    let moved = lab.agent.attach(lab.now, &states[0]).unwrap();
    assert_eq!(lab.agent.recv(lab.now, moved, &mut [0; 9]), Ok(3));
    (0..10).for_each(|_| lab.step());
    // The one that did not fit is reset.
    assert_eq!(lab.far.error(large).unwrap(), Some(ConnectionError::Reset));
    assert_eq!(lab.far.error(small).unwrap(), None);
    lab.far.send(lab.now, late, b"late").unwrap();
    (0..10).for_each(|_| lab.step());
    let (states, is_gone) = member.stop_listener(listener, 9, 4000).unwrap();
    assert_eq!((states.len(), is_gone), (1, true));
    lab.now = lab.now.max(clock.now());
    let moved = lab.agent.attach(lab.now, &states[0]).unwrap();
    assert_eq!(lab.agent.recv(lab.now, moved, &mut [0; 9]), Ok(4));
    assert_eq!(member.stop_listener(listener, 9, 4000).unwrap(), (Vec::new(), true));
    // The address can be listened at again.
    let address = ([0, 0, 0, 0], 80).into();
    assert!(lab.image.lock().unwrap().listen(lab.now, address, 9).0.is_ok());
}

#[test]
fn segments_of_the_agents_connections_are_for_no_listener() {
    let mut lab = Lab::new();
    let address = ([0, 0, 0, 0], 80).into();
    let own = lab.agent.listen(address, 9).unwrap();
    let far = lab.far.connect(lab.now, ([10, 0, 0, 1], 80).into()).unwrap();
    (0..10).for_each(|_| lab.step());
    let near = lab.agent.accept(own).unwrap().socket;
    let ends = lab.agent.addresses(near).unwrap();
    let mut locked = lab.image.lock().unwrap();
    locked.listen(lab.now, address, 9).0.unwrap();
    assert_eq!(locked.reserve(lab.now, (ends.0, ([10, 0, 0, 2], 0).into())).0, Err(SocketError::Unreachable));
    locked.reserve(lab.now, ends).0.unwrap();
    assert_eq!(locked.reserve(lab.now, ends).0, Err(SocketError::AddressInUse));
    drop(locked);
    // The peer's host has restarted, and connects from the same port: the agent's connection answers.
    lab.far.abort(lab.now, far).unwrap();
    lab.far.connect_from(lab.now, ends.1, ends.0).unwrap();
    let image = lab.image.clone();
    lab.step();
    assert!(lab.agent.error(near).unwrap().is_some());
    let mut locked = image.lock().unwrap();
    locked.unreserve(lab.now, ends);
    assert_eq!(locked.reserve(lab.now, ends).0, Ok(()));
}

/// Attack: connections whose bytes nobody reads. There are as many as fit into the memory, and the others wait.
#[test]
fn connections_fit_into_the_memory_of_the_image() {
    let mut lab = Lab::with(|settings, memory| bounded_settings(&settings, memory));
    let most = lab.image_settings.max_sockets;
    let (address, to) = (([0, 0, 0, 0], 80).into(), ([10, 0, 0, 1], 80).into());
    let listener = lab.image.lock().unwrap().listen(lab.now, address, 4096).0.unwrap();
    let mut far = Vec::new();
    while far.len() < most + 500 {
        for _ in 0..50 {
            far.push(lab.far.connect(lab.now, to).unwrap());
        }
        (0..5).for_each(|_| lab.step());
    }
    for _ in 0..40 {
        for socket in &far {
            // Some are not connected, and have no more room.
            let _ = lab.far.send(lab.now, *socket, &[7; 16 << 10]);
        }
        (0..5).for_each(|_| lab.step());
    }
    let mut count = 0;
    let mut locked = lab.image.lock().unwrap();
    while let Ok(socket) = locked.accept(lab.now, listener, 1).0 {
        count += 1;
        assert!(locked.recv(lab.now, socket, &mut [0; 1 << 16]).0.is_ok());
    }
    assert!(count > most / 2 && count < most, "{count} of {most}");
}

#[test]
fn errors_of_the_stack_come_out() {
    let mut lab = Lab::new();
    let ends = lab.connect(2);
    let near = lab.move_in(ends[0].0);
    let now = lab.now;
    let mut locked = lab.image.lock().unwrap();
    assert_eq!(locked.recv(now, near, &mut [0; 9]).0, Err(SocketError::WouldBlock));
    assert_eq!(locked.attach(now, b"anything").0, Err(RepairError::Invalid));
    assert_eq!(locked.detach(now, ends[1].0).0, Err(SocketError::BadSocket.into()));
    assert!(matches!(lab.image.lock().err(), Some(LockError::Held)));
    drop(locked);
    assert!(matches!(lab.image.begin(&lab.agent.configuration(), [0; 2]), Err(DirectError::Host(_))));
    assert!(Image::map(&lab.files).is_err(), "it is mapped already");
    lab.far.abort(now, ends[0].1).unwrap();
    lab.step();
    let mut locked = lab.image.lock().unwrap();
    let reset = SocketError::Connection(ConnectionError::Reset);
    assert!(locked.ready(lab.now, near).0.unwrap().closed);
    assert_eq!(locked.recv(lab.now, near, &mut [0; 9]).0, Err(reset));
    drop(locked);
    // The other connection stays where it is.
    lab.agent.send(lab.now, ends[1].0, b"hello").unwrap();
    lab.step();
    assert_eq!(lab.far.recv(lab.now, ends[1].1, &mut [0; 9]), Ok(5));
}
