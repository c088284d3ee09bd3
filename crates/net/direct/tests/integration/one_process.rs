//! The image in one process, in virtual time.

use crate::lab::{Lab, drain, fill};
use ringway_direct::{DirectError, Image, LockError, Ready};
use ringway_netstack::{ConnectionError, RepairError, SocketError};

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
    locked.close(lab.now, near[0]).0.unwrap();
    drop(locked);
    lab.agent.attach_again(lab.now, tcp, &state).unwrap();
    lab.far.send(lab.now, far[0], b"hello").unwrap();
    lab.step();
    assert_eq!(lab.agent.recv(lab.now, tcp, &mut [0; 9]), Ok(5));

    // The agent's listener has what begins now.
    assert_eq!(lab.image.lock().unwrap().stop_listening(lab.now, listener).0, Ok(0));
    connect(&mut lab);
    assert!(lab.agent.has_connections(own));
    assert_eq!(lab.agent.statistics().resets_sent + lab.far.statistics().resets_sent, 0);
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
