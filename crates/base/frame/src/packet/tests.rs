use super::*;
use alloc::vec::Vec;

#[test]
fn clones_share_until_one_is_written_to() {
    let pool = Pool::new();
    let mut first = pool.copy(b"hello").unwrap();
    let mut second = first.clone();
    assert!(first.is_shared() && second.is_shared());
    second.data_mut()[0] = b'j';
    assert_eq!((first.data(), second.data()), (&b"hello"[..], &b"jello"[..]));
    assert!(!first.is_shared());
    first.notes_mut().set_u8(Annotations::PAINT, 3);
    assert_eq!(second.notes().paint(), 0);
    assert_eq!(second.headroom(), HEADROOM);
}

#[test]
fn pulled_bytes_can_be_restored() {
    let pool = Pool::new();
    let mut packet = pool.copy(b"0123456789").unwrap();
    packet.set_network_header(2, 4);
    packet.pull(4);
    assert_eq!(packet.data(), b"456789");
    assert_eq!(packet.network_header(), Some(-2));
    assert_eq!(packet.network_header_len(), Some(4));
    let clone = packet.clone();
    assert!(packet.unpull(4));
    assert_eq!(packet.data(), b"0123456789");
    assert_eq!(clone.data(), b"456789");
    packet.take(3);
    assert!(packet.put(3));
    assert_eq!(packet.len(), 10);
    assert_eq!(packet.network_data().unwrap()[..2], *b"23");
    // Bytes that are prepended anew overwrite the header.
    packet.pull(4);
    assert!(packet.push(4));
    assert_eq!(packet.network_header(), None);
}

#[test]
fn room_grows_and_headers_move_along() {
    let pool = Pool::new();
    let mut packet = pool.copy(b"abcdef").unwrap();
    packet.set_mac_header(0);
    packet.set_network_header(2, 2);
    assert!(packet.push(100));
    assert_eq!(packet.len(), 106);
    assert_eq!(&packet.data()[100..], b"abcdef");
    assert_eq!(packet.mac_data().unwrap(), b"abcdef");
    assert_eq!(packet.network_data().unwrap(), b"cdef");
    assert_eq!(packet.transport_data().unwrap(), b"ef");
    assert!(packet.put(5000));
    assert_eq!(packet.transport_data().unwrap()[..2], *b"ef");
    assert!(!packet.put(LARGEST_BUFFER));
    assert!(pool.make(LARGEST_BUFFER, 1, 0).is_none());
}

#[test]
fn memory_is_reused_and_outlives_the_pool() {
    let pool = Pool::new();
    let at = |packet: &Packet| packet.data().as_ptr();
    let packet = pool.copy(b"x").unwrap();
    let place = at(&packet);
    drop(packet);
    let packet = pool.copy(b"y").unwrap();
    assert_eq!(at(&packet), place);
    let clones: Vec<Packet> = (0..10).map(|_| packet.clone()).collect();
    drop(packet);
    drop(pool);
    assert!(clones.iter().all(|clone| clone.data() == b"y"));
}

#[test]
fn a_burst_filters_in_order() {
    let pool = Pool::new();
    let mut burst = PacketBurst::new();
    for byte in 0..100u8 {
        burst.push(pool.copy(&[byte]).unwrap());
    }
    assert_eq!(burst.len(), PACKETS);
    burst.filter_map(|packet| (packet.data()[0] % 2 == 0).then_some(packet));
    burst.retain(|packet| packet.data()[0] < 8);
    assert_eq!(burst.iter().map(|packet| packet.data()[0]).collect::<Vec<_>>(), [0, 2, 4, 6]);
}

proptest::proptest! {
    #[test]
    fn packets_equal_a_vector_model(steps in proptest::collection::vec((0u8..6, 0usize..300), 0..60)) {
        let pool = Pool::new();
        let mut packet = pool.copy(&[7; 40]).unwrap();
        let mut model = alloc::vec![7u8; 40];
        let mut clones = Vec::new();
        for (step, bytes) in steps {
            match step {
                0 => {
                    assert!(packet.push(bytes));
                    packet.data_mut()[..bytes].fill(1);
                    model.splice(0..0, core::iter::repeat_n(1, bytes));
                }
                1 => {
                    packet.pull(bytes);
                    model.drain(..bytes.min(model.len()));
                }
                2 => {
                    assert!(packet.put(bytes));
                    let at = model.len();
                    packet.data_mut()[at..].fill(2);
                    model.extend(core::iter::repeat_n(2, bytes));
                }
                3 => {
                    packet.take(bytes);
                    model.truncate(model.len().saturating_sub(bytes));
                }
                4 => packet.shift(bytes as isize - 150),
                _ => clones.push((packet.clone(), model.clone())),
            }
            assert_eq!(packet.data(), &model[..]);
        }
        for (clone, model) in clones {
            assert_eq!(clone.data(), &model[..]);
        }
    }
}

/// A burst of packets of one byte, numbered.
fn burst(numbers: core::ops::Range<u8>) -> PacketBurst {
    let (pool, mut burst) = (Pool::new(), PacketBurst::new());
    numbers.for_each(|number| burst.push(pool.copy(&[number]).unwrap()));
    burst
}

fn numbers(burst: &PacketBurst) -> Vec<u8> {
    burst.iter().map(|packet| packet.data()[0]).collect()
}

#[test]
fn a_burst_is_divided_in_order() {
    let (mut all, mut one, mut other) = (burst(0..64), PacketBurst::new(), burst(100..103));
    all.divide(|number| number % 3 == 0, &mut one, &mut other);
    assert!(all.is_empty());
    // Three have no room behind the other burst's own.
    assert_eq!(numbers(&one), (0..61).step_by(3).collect::<Vec<u8>>());
    let others = (100..103).chain((0..61).filter(|number| number % 3 != 0));
    assert_eq!(numbers(&other), others.collect::<Vec<u8>>());
}

#[test]
fn packets_that_do_not_fit_stay_in_the_other_burst() {
    let (mut all, mut more) = (burst(0..50), burst(50..60));
    all.append(&mut more);
    assert!(more.is_empty());
    more = burst(60..70);
    all.append(&mut more);
    assert_eq!(numbers(&all), (0..64).collect::<Vec<u8>>());
    assert_eq!(numbers(&more), (64..70).collect::<Vec<u8>>());
}
