//! What other processes and the program may write: anything, anywhere, at any time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::fuzzing::{self, BOTH, SIZES, Shared, Step, pass, port};
use crate::handles::{store, stored};
use crate::monitor::{RECEIVED, RETURNED, SENT};
use crate::monitor_server::Request;
use crate::port::Port;
use crate::region::{Place, Region, Sizes};
use crate::rings::{Rings, Slot};
use crate::shared::STATE;
use crate::transfer::{RX, TX};
use proptest::prelude::*;
use ringway_host::{descriptor_store, store_descriptors, stored_descriptors};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

fn give(rings: &Rings, at: u32, fill: u8) {
    let slot = rings.slot(TX, at);
    rings.region.buffer(slot.buf_idx, 60).unwrap().write(&[fill; 60]);
    rings.set_slot(TX, at, Slot { len: 60, flags: 0, ..slot });
    rings.set_position(TX, (at + 1, at + 1));
}

#[test]
fn another_process_goes_on_with_stored_descriptors() {
    let (mut port, mut other, _) = port();
    give(&port.rings, 0, 7);
    assert_eq!(port.sync(TX), Ok(true));
    for turn in 1..20 {
        // Nobody else has its region, as in a process that did not make it.
        let mut next = Port::adopt(port.store().try_clone_to_owned().unwrap(), |_| None).unwrap();
        assert_eq!(next.identity(), port.identity());
        give(&next.rings, turn, turn as u8);
        assert_eq!(next.sync(TX), Ok(true));
        assert!(other.tx.push(&[turn as u8; 70]).unwrap());
        other.sync().unwrap();
        assert_eq!((next.sync(RX), next.positions(RX).tail), (Ok(true), turn));
        drop(port);
        port = next;
    }
    let mut out = [0; 64];
    for turn in 0..20 {
        let first = if turn == 0 { 7 } else { turn };
        assert_eq!(other.rx.pop(&mut out).unwrap().map(|frame| (frame.len, out[0])), Some((60, first)));
    }
}

#[test]
fn room_is_given_until_it_ends_and_taken_back() {
    let region = Region::new(SIZES, |_| false).unwrap();
    let one = Sizes { slots: [64, 64], extra: 0, is_in_place: false };
    let all: Vec<Rings> = std::iter::from_fn(|| region.give(one).ok()).collect();
    assert_eq!(all.len(), 64);
    // Another process, or a message, has its socket.
    let store = descriptor_store(true).unwrap();
    store_descriptors(&store, &[1], &[]).unwrap();
    let copy = store.try_clone().unwrap();
    region.take_back(all[9].place, store.as_fd(), None);
    drop(store);
    let handle = descriptor_store(true).unwrap();
    store_descriptors(&handle, &[1], &[copy.as_fd()]).unwrap();
    drop(copy);
    assert!(region.give(SIZES).is_err() && region.give(one).is_err());
    drop(handle);
    assert!(region.give(SIZES).is_err() && region.give(one).unwrap().place == all[9].place);
    let numbers: Vec<u32> = std::iter::from_fn(|| region.give_interface().ok()).collect();
    assert_eq!(numbers, (0..64).collect::<Vec<_>>());
    region.take_interface_back(5);
    assert_eq!((region.give_interface(), region.give_interface()), (Ok(5), Err(libc::ENOMEM)));
    let handle = descriptor_store(true).unwrap();
    region.take_handle_back(7, None, handle.as_fd());
    assert_eq!(region.give_interface(), Err(libc::ENOMEM));
    drop(handle);
    assert_eq!(region.give_interface(), Ok(7));
    // Each has other buffers and another place.
    let mut firsts: Vec<(u32, u64)> =
        all.iter().map(|rings| (rings.place.first, rings.place.rings[0])).collect();
    firsts.dedup();
    assert_eq!(firsts.len(), 64);
}

#[test]
fn a_monitor_gets_each_frame_at_its_time_and_room_is_taken_back() {
    let (mut port, mut other, _) = port();
    let made = |port: &mut Port, kinds| port.make_monitor(Request { kinds, slots: 64 }, b"a");
    let all = [SENT | RECEIVED, RECEIVED | RETURNED].map(|kinds| made(&mut port, kinds).unwrap());
    // What a program finds in the first slots, which it gives back.
    let mut at = [0; 2];
    let mut fills = |port: &mut Port, which: usize| {
        let (own, place) = all[which];
        port.sync_for(own, RX).unwrap();
        let rings = Rings::adopt(port.rings.region.clone(), place).unwrap();
        let mut found = Vec::new();
        while at[which] != rings.state.side(RX, 64).unwrap().tail {
            let slot = rings.slot(RX, at[which]);
            let buffer = rings.region.buffer(slot.buf_idx, slot.len.into()).unwrap();
            found.push((slot.len, buffer.as_span().read_array::<1>().unwrap()[0]));
            at[which] += 1;
        }
        rings.set_position(RX, (at[which], at[which]));
        found
    };
    give(&port.rings, 0, 7);
    port.sync(TX).unwrap();
    assert!(other.tx.push(&[8; 70]).unwrap());
    other.sync().unwrap();
    assert_eq!((fills(&mut port, 0), fills(&mut port, 1)), (vec![(60, 7), (70, 8)], vec![]));
    port.sync(RX).unwrap();
    assert_eq!((fills(&mut port, 0), fills(&mut port, 1)), (vec![], vec![]));
    port.rings.set_position(RX, (1, 1));
    port.sync(RX).unwrap();
    assert_eq!((fills(&mut port, 0), fills(&mut port, 1)), (vec![], vec![(70, 8)]));
    let rest = [made(&mut port, SENT).unwrap(), made(&mut port, SENT).unwrap()];
    assert_eq!(made(&mut port, SENT).err(), Some(libc::EBUSY));
    let handle = descriptor_store(true).unwrap();
    let place = port.rings.place.state;
    port.rings.region.take_handle_back(rest[0].0.number, Some((place, 2)), handle.as_fd());
    assert_eq!(made(&mut port, SENT).err(), Some(libc::EBUSY));
    drop(handle);
    let (own, _) = made(&mut port, SENT).unwrap();
    assert_eq!((own.monitor, own.number), (Some(2), rest[0].0.number));
}

/// The descriptors that a port stores.
fn stored_of(port: &Port) -> (Vec<u8>, Vec<OwnedFd>) {
    let mut bytes = vec![0; 96];
    let (count, fds) = stored_descriptors(port.store(), &mut bytes, 8).unwrap();
    assert_eq!(count, 96);
    (bytes, fds)
}

/// Attack: a process makes the eventfd of monitors blocking, and fills it; or stores a pipe that nobody reads.
#[test]
fn whoever_wakes_monitors_does_not_wait() {
    let (mut port, _other, _) = port();
    let (own, _) = port.make_monitor(Request { kinds: SENT, slots: 64 }, b"a").unwrap();
    let (mut bytes, mut fds) = stored_of(&port);
    let mut wake = File::from(fds.pop().unwrap());
    // SAFETY: the call changes flags of the eventfd alone.
    assert_eq!(unsafe { libc::fcntl(wake.as_raw_fd(), libc::F_SETFL, 0) }, 0);
    wake.write_all(&(u64::MAX - 1).to_ne_bytes()).unwrap();
    for turn in 0..20 {
        assert!(port.arm(own, libc::POLLIN));
        give(&port.rings, turn, 7);
        assert_eq!(port.sync(TX), Ok(true));
        assert_eq!(port.poll(own, libc::POLLIN), libc::POLLIN);
        let rings = Rings::adopt(port.rings.region.clone(), monitor_place(&port)).unwrap();
        rings.set_position(RX, (turn + 1, turn + 1));
        assert_eq!(port.poll(own, libc::POLLIN), 0);
    }
    let mut count = [0; 8];
    wake.read_exact(&mut count).unwrap();
    assert_eq!(u64::from_ne_bytes(count), u64::MAX);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    bytes[88] ^= 1;
    let all = fds.iter().map(AsFd::as_fd).chain([writer.as_fd()]).collect::<Vec<_>>();
    store_descriptors(port.store(), &bytes, &all).unwrap();
    let adopted = Port::adopt(port.store().try_clone_to_owned().unwrap(), |_| None);
    assert_eq!(adopted.err(), Some(libc::EINVAL));
    // One that has the port already looks there, too, when it has changed.
    port.rings.state.set_version(port.rings.state.version() + 1);
    assert_eq!(port.sync(TX), Err(libc::ENXIO));
}

fn monitor_place(port: &Port) -> Place {
    crate::monitor::rings(&port.rings.region, &port.rings.state, 0).unwrap().place
}

#[test]
fn room_of_monitors_is_taken_back_whatever_their_size() {
    let (mut port, _other, _) = port();
    // A handle that can't store it.
    for _ in 0..6 {
        let stored = port.store_monitor(-1, Request { kinds: SENT, slots: 64 }, b"a");
        assert_eq!(stored.unwrap_err(), libc::EBADF);
    }
    for slots in [0, 65, 70, 256, 300, 400, 1000, 2000, 3000, u32::MAX] {
        let request = Request { kinds: SENT, slots };
        let all: Vec<_> = (0..4).map(|_| port.make_monitor(request, b"a").unwrap()).collect();
        assert!(all.iter().all(|(_, place)| place.sizes.slots[RX] >= slots.min(4096)));
        for _ in 0..100 {
            assert_eq!(port.make_monitor(request, b"a").unwrap_err(), libc::EBUSY);
        }
        // Attack: another process writes that a monitor has the port's own rings.
        let words = port.rings.state.monitor(0).unwrap();
        let own = port.rings.place;
        let at = own.rings.map(|at| at as u32);
        port.rings
            .state
            .set_monitor(0, [words[0], at[TX], at[RX], own.sizes.slots[RX], own.first, own.state]);
        all.iter().for_each(|(own, _)| port.remove_monitor(*own));
    }
    let next = port.rings.region.give(Sizes { slots: [64, 128], extra: 0, is_in_place: false }).unwrap();
    assert_ne!(next.place.rings, port.rings.place.rings);
}

/// Attack: a handle whose port and host port are one.
#[test]
fn a_handle_does_not_have_one_port_twice() {
    let (port, other) = (port().0, port().0);
    let handle = descriptor_store(true).unwrap();
    let fd = handle.as_raw_fd();
    store(fd, BOTH, &port, Some(&port)).unwrap();
    assert_eq!(stored(fd).unwrap_err(), libc::EINVAL);
    // In two memories.
    store(fd, BOTH, &port, Some(&other)).unwrap();
    assert_eq!(stored(fd).unwrap_err(), libc::EINVAL);
    let host = Port::of_nothing(port.rings.region.give(SIZES).unwrap()).unwrap();
    store(fd, BOTH, &port, Some(&host)).unwrap();
    assert!(stored(fd).is_ok());
    store(fd, BOTH, &host, Some(&port)).unwrap();
    assert!(stored(fd).is_ok());
}

#[test]
fn programs_map_no_page_of_the_states() {
    for extra in 0..3 {
        let region = Region::new(Sizes { extra, ..SIZES }, |_| false).unwrap();
        assert!(region.states_at().is_multiple_of(4096) && region.states_at() >= region.bytes());
        let port = region.give(SIZES).unwrap();
        port.state.set_header_len(12);
        assert_eq!(region.load(region.states_at() + 16), 12);
    }
}

fn number() -> impl Strategy<Value = u32> {
    prop_oneof![0..200_u32, any::<u32>(), Just(u32::MAX)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..5000_u64, number()).prop_map(|(at, value)| Step::Program(at, value)),
        (0..2 * STATE / 4, number()).prop_map(|(at, value)| Step::State(at, value)),
        (0..3000_u64, number()).prop_map(|(at, value)| Step::Other(at, value)),
        (0..2_usize, 0..140_u32, 0..140_u32).prop_map(|(dir, head, cur)| Step::Positions(dir, head, cur)),
        (0..2_usize).prop_map(Step::Sync),
        any::<i16>().prop_map(Step::Poll),
        (0..9000_u16).prop_map(Step::Send),
    ]
}

/// The kind, size and first words of an option.
fn option() -> impl Strategy<Value = (u32, u64, [u64; 2])> {
    (0..8_u32, prop_oneof![0..100_u64, any::<u64>()], any::<[u64; 2]>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(4)))]

    /// Whatever they write, no call panics or reads beyond the memory, and positions are a ring's.
    #[test]
    fn anything_may_be_written(steps in prop::collection::vec(step(), 1..200)) {
        let mut shared = Shared::copied();
        for step in steps {
            shared.step(step);
        }
    }

    /// A program passes something that looks like a handle's port.
    #[test]
    fn anything_may_be_stored(
        words in prop::collection::vec(prop_oneof![0..20_u64, 8192..9000_u64, any::<u64>()], 11),
        kinds in prop::collection::vec(0..3_u8, 0..8), number in 0..70_u64,
    ) {
        pass(words.try_into().unwrap(), &kinds, number);
    }

    /// Whatever a request says, with whatever options and body, it is answered, and what it registers works.
    #[test]
    fn anything_may_be_requested(
        (kind, is_old) in (0..20_u16, any::<bool>()),
        version in prop_oneof![Just(14_u16), Just(15), any::<u16>()],
        name in prop::sample::select(vec![&b""[..], b"nothing", b"../x", b"nothing{", &[0xff; 64]]),
        mut body in prop::collection::vec(number(), 64), mode in 0..10_u32,
        options in prop::collection::vec(option(), 0..8),
    ) {
        let old = is_old.then_some(version % 2 == 0);
        if !is_old {
            // The mode of a request to register.
            body[9] = mode;
        }
        let done = fuzzing::Request { old, kind, version, name, body, options }.ask();
        prop_assert!(done.is_ok() || done.is_err_and(|error| (1..200).contains(&error)));
    }

    /// Places that are not within the memory are refused.
    #[test]
    fn a_place_is_within_its_memory(
        rings in [any::<u64>(), any::<u64>()], slots in [number(), number()],
        extra in number(), first in number(), state in number(),
    ) {
        let region: Arc<Region> = Region::new(SIZES, |_| false).unwrap();
        let place = Place { rings, sizes: Sizes { slots, extra, is_in_place: false }, first, state };
        if region.has(&place) {
            prop_assert!(rings.iter().all(|at| at + 256 <= region.buffers_at()));
        }
        prop_assert!(region.state(state).is_some() == (state < 64));
    }
}
