//! Connections that move from one stack to another.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{Dice, LONG, Line, Network, byte, drain, fill, host};
use proptest::prelude::*;
use ringway_frame::{Needs, Offload};
use ringway_netstack::congestion::Algorithm;
use ringway_netstack::{
    ConnectionError, Diverted, Frames, MS, RepairError, SECOND, Settings, SocketError, SocketId,
    SocketOptions, Source, Stack, State, TcpInfo,
};
use std::sync::Arc;

fn settings(algorithm: Algorithm, options: u8) -> Settings {
    Settings {
        tcp_congestion_control: algorithm,
        tcp_sack: options & 1 != 0,
        tcp_timestamps: options & 2 != 0,
        tcp_window_scaling: options & 4 != 0,
        tcp_mtu_probing: if options & 8 != 0 { 2 } else { 0 },
        tcp_ecn: 1,
        tcp_retries2: 40,
        ..Settings::default()
    }
}

/// Moves a connection to a new stack with the addresses of its host, which takes the host's place.
fn replace(network: &mut Network, end: usize, socket: SocketId) -> SocketId {
    let mut new = host(end as u8 + 1, network.hosts[end].settings().clone(), Needs::NONE);
    // Figures are those of the last call's time.
    network.hosts[end].expire(network.now);
    let before = network.hosts[end].info(socket).unwrap();
    let bytes = network.hosts[end].detach(network.now, socket).unwrap();
    let moved = new.attach(network.now, &bytes).unwrap();
    assert_eq!(new.info(moved).unwrap(), before);
    network.hosts[end] = new;
    moved
}

/// Streams in both directions. Each `every` steps the connection of an end leaves its stack: for a new one, or, if it
/// `returns`, for the same. Returns when all was read, and the figures of both ends then.
fn exchange(
    network: &mut Network,
    lens: [u64; 2],
    every: u64,
    returns: bool,
    dice: &mut Dice,
) -> (u64, [TcpInfo; 2]) {
    let (client, server) = network.connect("10.0.0.2:80");
    let mut sockets = [client, server];
    let (mut sent, mut read, mut shut) = ([0; 2], [0; 2], [false; 2]);
    // The reader is late now and then, so that windows become small.
    let mut reads_at = [0; 2];
    while read[0] < lens[1] || read[1] < lens[0] {
        for end in 0..2 {
            let now = network.now;
            sent[end] = fill(&mut network.hosts[end], now, sockets[end], sent[end], lens[end]);
            if sent[end] == lens[end] && !shut[end] {
                network.hosts[end].shutdown(now, sockets[end]).unwrap();
                shut[end] = true;
            }
            if now >= reads_at[end] {
                let before = read[end];
                read[end] = drain(&mut network.hosts[end], now, sockets[end], read[end]);
                reads_at[end] = now + if read[end] / 20_000 > before / 20_000 { 300 * MS } else { 0 };
            }
            let moves = dice.next().is_multiple_of(2 * every) && every < u64::MAX / 2;
            let state = network.hosts[end].info(sockets[end]).unwrap().tcpi_state;
            if moves
                && !matches!(state, State::TimeWait | State::Closed)
                && network.hosts[end].error(sockets[end]) == Ok(None)
            {
                if !returns {
                    sockets[end] = replace(network, end, sockets[end]);
                } else {
                    let bytes = network.hosts[end].detach(now, sockets[end]).unwrap();
                    assert_eq!(network.hosts[end].attach(now, &bytes), Ok(sockets[end]));
                }
            }
            assert_eq!(network.hosts[end].error(sockets[end]), Ok(None));
        }
        if read[0] < lens[1] || read[1] < lens[0] {
            let wakes = reads_at.into_iter().filter(|&at| at > network.now).min().unwrap_or(LONG);
            let goes_on = network.step(wakes) || wakes < LONG;
            assert!(goes_on && network.now < LONG, "the streams stop {read:?} {sent:?}");
        }
    }
    let now = network.now;
    let infos = [0, 1].map(|end| {
        network.hosts[end].expire(now);
        network.hosts[end].info(sockets[end]).unwrap()
    });
    for (host, socket) in network.hosts.iter_mut().zip(sockets) {
        assert_eq!(host.recv(now, socket, &mut [0]), Ok(0), "no end of the stream");
        host.close(now, socket).unwrap();
    }
    network.run(now + 200 * SECOND);
    for (host, socket) in network.hosts.iter_mut().zip(sockets) {
        assert_eq!(host.recv(network.now, socket, &mut [0]), Err(SocketError::BadSocket));
    }
    (now, infos)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn streams_arrive_unchanged(
        seed: u64, loss in 0u64..60_000, duplicate in 0u64..50_000, reorder in 0u64..300_000,
        jitter in 0u64..50, delay in 0u64..50, rate in 0u64..3, there in 0u64..300_000,
        back in 0u64..100_000, options in 0u8..16,
        algorithm in 0usize..5, every in 2u64..100,
    ) {
        let line = Line {
            rate: [0, 1_000_000, 20_000_000][rate as usize],
            buffer: if rate == 0 { 0 } else { 60_000 },
            delay: delay * MS, jitter: jitter * MS, loss, duplicate, corrupt: 0, reorder, mark: 20_000,
        };
        let settings = settings(Algorithm::ALL[algorithm], options);
        let mut network = Network::new(&settings, line, seed);
        exchange(&mut network, [there, back], every, false, &mut Dice(seed | 1));
    }

    /// The controllers without randomness do the same as if the connection had stayed, to the nanosecond.
    #[test]
    fn a_move_changes_nothing(
        seed: u64, loss in 0u64..60_000, duplicate in 0u64..50_000, reorder in 0u64..300_000,
        jitter in 0u64..50, delay in 1u64..50, rate in 0u64..3, there in 0u64..300_000,
        back in 0u64..100_000, options in 0u8..16,
        algorithm in 0usize..3, every in 1u64..20,
    ) {
        let line = Line {
            rate: [0, 1_000_000, 20_000_000][rate as usize],
            buffer: if rate == 0 { 0 } else { 60_000 },
            delay: delay * MS, jitter: jitter * MS, loss, duplicate, corrupt: 0, reorder, mark: 20_000,
        };
        let algorithm = [Algorithm::Reno, Algorithm::Cubic, Algorithm::Dctcp][algorithm];
        let settings = settings(algorithm, options);
        let [stays, moves] = [u64::MAX / 2, every].map(|every| {
            let mut network = Network::new(&settings, line.clone(), seed);
            exchange(&mut network, [there, back], every, true, &mut Dice(seed | 1))
        });
        prop_assert_eq!(stays, moves);
    }
}

/// Goodput of a stream over a link with loss, in bytes a second; its sender moves each `every` nanoseconds.
fn goodput(algorithm: Algorithm, every: u64) -> u64 {
    let line = Line {
        rate: 2_500_000,
        delay: 20 * MS,
        buffer: 100_000,
        loss: 10_000,
        mark: 50_000,
        ..Line::default()
    };
    let mut network = Network::new(&settings(algorithm, 7), line, 3);
    let (mut client, server) = network.connect("10.0.0.2:80");
    let (begin, time) = (network.now, 20 * SECOND);
    let (mut sent, mut read, mut moves_at) = (0, 0, begin + every);
    while network.now < begin + time {
        let now = network.now;
        if now >= moves_at {
            client = replace(&mut network, 0, client);
            moves_at = now + every;
        }
        sent = fill(&mut network.hosts[0], now, client, sent, u64::MAX);
        read = drain(&mut network.hosts[1], now, server, read);
        network.step(begin + time);
    }
    read * SECOND / time
}

#[test]
fn the_model_of_a_path_moves_with_a_connection() {
    for algorithm in [Algorithm::Bbr1, Algorithm::Bbr3] {
        let [stays, moves] = [LONG, SECOND].map(|every| goodput(algorithm, every));
        assert!(moves * 10 >= stays * 9, "{algorithm:?}: {moves} instead of {stays}");
    }
}

/// Lets both ends come to rest.
fn settle(network: &mut Network) {
    network.run(network.now + SECOND);
}

fn state(network: &Network, end: usize, socket: SocketId) -> State {
    network.hosts[end].info(socket).unwrap().tcpi_state
}

#[test]
fn each_state_with_a_program_moves_and_ends_as_it_would() {
    let line = Line { delay: MS, ..Line::default() };
    // Which ends shut down, whether the other end's segments arrive before the move, and the state of the first end.
    let cases = [
        ([false, false], true, State::Established),
        ([true, false], false, State::FinWait1),
        ([true, false], true, State::FinWait2),
        ([false, true], true, State::CloseWait),
        ([true, true], false, State::Closing),
        ([false, true], false, State::LastAck),
    ];
    for (shuts, settles, expected) in cases {
        let mut network = Network::new(&settings(Algorithm::Cubic, 7), line.clone(), 5);
        let (client, server) = network.connect("10.0.0.2:80");
        settle(&mut network);
        let (now, sockets) = (network.now, [client, server]);
        for end in (0..2).filter(|end| shuts[*end]) {
            network.hosts[end].shutdown(now, sockets[end]).unwrap();
        }
        match expected {
            // Both FINs cross.
            State::Closing => network.run(now + 3 * MS / 2),
            State::LastAck => {
                settle(&mut network);
                let now = network.now;
                network.hosts[0].shutdown(now, client).unwrap();
            }
            _ if settles => settle(&mut network),
            _ => {}
        }
        assert_eq!(state(&network, 0, client), expected);
        let client = replace(&mut network, 0, client);
        assert_eq!(state(&network, 0, client), expected);
        let now = network.now;
        for (end, socket) in [(0, client), (1, server)] {
            let _ = network.hosts[end].shutdown(now, socket);
        }
        network.run(now + 200 * SECOND);
        for (end, socket) in [(0, client), (1, server)] {
            assert_eq!(state(&network, end, socket), State::Closed, "from {expected:?}");
            assert_eq!(network.hosts[end].error(socket), Ok(None), "from {expected:?}");
        }
    }
}

#[test]
fn connections_without_a_stream_stay() {
    let mut network = Network::new(&Settings::default(), Line { delay: MS, ..Line::default() }, 5);
    let opening = network.hosts[0].connect(0, "10.0.0.2:81".parse().unwrap()).unwrap();
    let listener = network.hosts[0].listen("0.0.0.0:80".parse().unwrap(), 1).unwrap();
    let (client, server) = network.connect("10.0.0.2:80");
    let now = network.now;
    let itself = network.hosts[0].connect(now, "10.0.0.1:80".parse().unwrap()).unwrap();
    network.hosts[0].shutdown(now, client).unwrap();
    settle(&mut network);
    let now = network.now;
    network.hosts[1].shutdown(now, server).unwrap();
    settle(&mut network);
    assert_eq!(state(&network, 0, client), State::TimeWait);
    let now = network.now;
    assert_eq!(network.hosts[0].detach(now, listener), Err(SocketError::BadSocket.into()));
    for socket in [client, itself, opening] {
        assert_eq!(network.hosts[0].detach(now, socket), Err(RepairError::NotMovable));
        assert!(network.hosts[0].info(socket).is_ok());
    }
}

/// A connection with bytes in both directions, in flight, lost and unread.
fn busy(algorithm: Algorithm, options: u8, seed: u64) -> (Network, SocketId, SocketId) {
    let line = Line {
        rate: 1_000_000,
        delay: 10 * MS,
        loss: 50_000,
        reorder: 100_000,
        jitter: 10 * MS,
        mark: 20_000,
        ..Line::default()
    };
    let mut network = Network::new(&settings(algorithm, options), line, seed);
    let (client, server) = network.connect("10.0.0.2:80");
    let begin = network.now;
    let mut sent = [0; 2];
    for _ in 0..seed % 200 {
        let now = network.now;
        sent[0] = fill(&mut network.hosts[0], now, client, sent[0], LONG);
        sent[1] = fill(&mut network.hosts[1], now, server, sent[1], 100_000);
        let _ = network.hosts[1].recv(now, server, &mut [0; 3000]);
        network.step(begin + 10 * SECOND);
    }
    (network, client, server)
}

/// Another stack with the same address may have all other connections.
#[test]
fn only_what_begins_a_connection_is_for_a_listener() {
    // With a handshake that is stored, and with cookies.
    for (tcp_syncookies, expected) in [(1, 1), (2, 2)] {
        let settings = Settings { tcp_syncookies, ..Settings::default() };
        let mut server = host(1, settings.clone(), Needs::NONE);
        let mut twin = host(1, settings.clone(), Needs::NONE);
        let mut client = host(2, settings, Needs::NONE);
        let address = ([10, 0, 0, 1], 80).into();
        let listeners = [&mut server, &mut twin].map(|stack| stack.listen(address, 9).unwrap());
        let own = client.connect(0, address).unwrap();
        let (mut begins, mut goes_on, mut twins) = (0, 0, 0);
        let mut pass = |server: &mut Stack, client: &mut Stack, now: u64| {
            for _ in 0..10 {
                let mut sent = Frames::default();
                client.transmit(now, 0, &mut sent);
                for (frame, offload) in sent.iter() {
                    begins += u32::from(server.is_for_listener(0, frame, 0));
                    goes_on += u32::from(server.is_for_connection(0, frame, 0));
                    twins += u32::from(twin.is_for_listener(0, frame, 0));
                    server.receive(now, 0, frame, offload);
                }
                let mut answers = Frames::default();
                server.transmit(now, 0, &mut answers);
                answers.iter().for_each(|(frame, offload)| client.receive(now, 0, frame, offload));
            }
            (begins, goes_on, twins)
        };
        let (begun, ..) = pass(&mut server, &mut client, MS);
        assert_eq!((begun, server.half_open(listeners[0])), (expected, Ok(0)));
        assert_eq!(client.half_open(own), Err(SocketError::BadSocket));
        client.send(2 * MS, own, b"hello").unwrap();
        // One that has seen nothing of it would take the SYN alone.
        let (begun, went_on, taken) = pass(&mut server, &mut client, 2 * MS);
        assert!(begun == expected && went_on > 0 && taken == 1);
        // The next connection is left to another stack.
        server.stop_admitting(listeners[0]).unwrap();
        client.connect(3 * MS, address).unwrap();
        let (begun, _, taken) = pass(&mut server, &mut client, 3 * MS);
        // But for what acknowledges the cookie that it has sent here.
        assert_eq!((begun, taken), (expected + u32::from(tcp_syncookies == 2), 2));
    }
}

#[test]
fn what_arrives_for_a_connection_that_has_left_is_given_to_the_caller() {
    let mut network = Network::new(&Settings::default(), Line { delay: MS, ..Line::default() }, 5);
    let (client, server) = network.connect("10.0.0.2:80");
    settle(&mut network);
    let now = network.now;
    let ends = network.hosts[0].addresses(client).unwrap();
    let bytes = network.hosts[0].detach(now, client).unwrap();
    assert_eq!(network.hosts[0].info(client), Err(SocketError::BadSocket));
    assert_eq!(network.hosts[0].connect_from(now, ends.0, ends.1), Err(SocketError::AddressInUse));

    // A segment is neither answered nor lost.
    network.hosts[1].send(now, server, b"hello").unwrap();
    let mut frames = Frames::default();
    network.hosts[1].transmit(now, 0, &mut frames);
    let (frame, _) = frames.iter().next().unwrap();
    let frame = frame.to_vec();
    assert!(!network.hosts[0].is_for_connection(0, &frame, 0));
    network.hosts[0].receive(now, 0, &frame, Offload::default());
    assert_eq!((network.hosts[0].statistics().resets_sent, network.hosts[0].next_deadline()), (0, None));
    let diverted = network.hosts[0].next_diverted().unwrap();
    assert_eq!((diverted.socket(), network.hosts[0].next_diverted()), (client, None));
    let mut other = host(1, Settings::default(), Needs::NONE);
    assert!(!other.receive_diverted(now, 0, &diverted));
    let moved = other.attach(now, &bytes).unwrap();
    assert!(other.is_for_connection(0, &frame, 0) && !other.is_for_connection(0, &frame[..40], 0));
    assert!(other.receive_diverted(now, 0, &diverted));
    let mut read = [0; 9];
    assert_eq!((other.recv(now, moved, &mut read), &read[..5]), (Ok(5), &b"hello"[..]));

    // So is an error that says what the path carries.
    other.send(now, moved, &[1; 1400]).unwrap();
    for _ in 0..2 {
        // The first time for the neighbour.
        let mut sent = Frames::default();
        other.transmit(now, 0, &mut sent);
        sent.iter().for_each(|(frame, offload)| network.hosts[1].receive(now, 0, frame, offload));
        let mut answers = Frames::default();
        network.hosts[1].transmit(now, 0, &mut answers);
        answers.iter().for_each(|(frame, offload)| other.receive(now, 0, frame, offload));
    }
    assert_eq!(other.info(moved).unwrap().tcpi_pmtu, 1500);
    let mut sent = Frames::default();
    other.send(now, moved, &[2; 1400]).unwrap();
    other.transmit(now, 0, &mut sent);
    let quoted = sent.iter().next().unwrap().0[14..].to_vec();
    let error = needs_fragmentation(&quoted, 1000);
    network.hosts[0].receive(now, 0, &error, Offload::default());
    let diverted = network.hosts[0].next_diverted().unwrap();
    let bytes = diverted.to_bytes();
    assert_eq!(Diverted::from_bytes(&bytes).as_ref(), Some(&diverted));
    assert!((0..bytes.len()).all(|len| Diverted::from_bytes(&bytes[..len]).is_none()));
    assert!(other.receive_diverted(now, 0, &diverted));
    assert_eq!(other.info(moved).unwrap().tcpi_pmtu, 1000);

    // What was not fetched is received when the connection comes back.
    network.hosts[1].send(now, server, b"again").unwrap();
    let bytes = other.detach(now, moved).unwrap();
    network.hosts[1].expire(now);
    let mut frames = Frames::default();
    network.hosts[1].transmit(now, 0, &mut frames);
    frames.iter().for_each(|(frame, offload)| network.hosts[0].receive(now, 0, frame, offload));
    assert_eq!(network.hosts[0].attach(now, &bytes), Ok(client));
    assert_eq!((network.hosts[0].recv(now, client, &mut read), &read[..5]), (Ok(5), &b"again"[..]));
    assert_eq!(network.hosts[0].next_diverted(), None);

    // The one that has left for good frees the addresses.
    other.close(now, moved).unwrap();
    assert_eq!(other.close(now, moved), Err(SocketError::BadSocket));
    assert!(other.connect_from(now, ends.0, ends.1).is_ok());
}

#[test]
fn only_the_state_of_the_connection_that_left_brings_it_back() {
    let (mut network, ..) = busy(Algorithm::Cubic, 7, 3);
    let (one, _) = network.connect("10.0.0.2:81");
    let (two, _) = network.connect("10.0.0.2:82");
    settle(&mut network);
    let now = network.now;
    let stack = &mut network.hosts[0];
    let [first, second] = [one, two].map(|socket| stack.detach(now, socket).unwrap());
    assert_eq!(stack.attach_again(now, one, &second), Err(RepairError::Invalid));
    assert_eq!(stack.attach_again(now, one, &first[..first.len() - 1]), Err(RepairError::Invalid));
    assert_eq!(stack.attach_again(now, one, &first), Ok(()));
    assert_eq!(stack.attach_again(now, one, &first), Err(SocketError::BadSocket.into()));
    assert_eq!(stack.attach_again(now, two, &second), Ok(()));
    assert_eq!(stack.send(now, two, b"on"), Ok(2));
}

#[test]
fn the_peer_of_a_connection_whose_stack_is_lost_is_reset() {
    // With a listener on the port, and without.
    for listens in [false, true] {
        for moved in 0..2 {
            let line = Line { delay: MS, ..Line::default() };
            let mut network = Network::new(&settings(Algorithm::Cubic, 7), line, 5);
            let sockets: [SocketId; 2] = network.connect("10.0.0.2:80").into();
            settle(&mut network);
            let now = network.now;
            let (socket, peer) = (sockets[moved], sockets[1 - moved]);
            let ends = network.hosts[moved].addresses(socket).unwrap();
            network.hosts[moved].detach(now, socket).unwrap();
            if listens {
                let _ = network.hosts[moved].listen(ends.0, 4);
            }
            assert_eq!(network.hosts[moved].lose(now, peer), Err(SocketError::BadSocket));
            assert_eq!(network.hosts[moved].lose(now, socket), Ok(()));
            assert_eq!(network.hosts[moved].lose(now, socket), Err(SocketError::BadSocket));
            network.run(now + 10 * MS);
            let error = network.hosts[1 - moved].error(peer).unwrap();
            assert_eq!(error, Some(ConnectionError::Reset), "{listens} {moved}");
            // The addresses are free.
            assert!(network.hosts[moved].connect_from(now, ends.0, ends.1).is_ok());
        }
    }
}

/// An ICMP message from 10.0.0.2 to 10.0.0.1 that a packet is too large for a path.
fn needs_fragmentation(quoted: &[u8], mtu: u16) -> Vec<u8> {
    let sum = |bytes: &[u8]| {
        let words =
            bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
        let sum: u32 = words.sum();
        !(((sum & 0xffff) + (sum >> 16) + (((sum & 0xffff) + (sum >> 16)) >> 16)) as u16)
    };
    let mut icmp = vec![3, 4, 0, 0, 0, 0];
    icmp.extend_from_slice(&mtu.to_be_bytes());
    icmp.extend_from_slice(&quoted[..28]);
    let check = sum(&icmp).to_be_bytes();
    icmp[2..4].copy_from_slice(&check);
    let mut ip = vec![0x45, 0, 0, 20 + icmp.len() as u8, 0, 0, 0, 0, 64, 1, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1];
    let check = sum(&ip).to_be_bytes();
    ip[10..12].copy_from_slice(&check);
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0][..], &ip, &icmp].concat()
}

#[test]
fn bytes_that_are_not_copied_and_records_move() {
    let mut network = Network::new(&Settings::default(), Line { delay: MS, ..Line::default() }, 5);
    let (client, server) = network.connect("10.0.0.2:80");
    settle(&mut network);
    let now = network.now;
    let stack = &mut network.hosts[0];
    stack.send(now, client, &[byte(0), byte(1), byte(2)]).unwrap();
    stack.end_record(client).unwrap();
    let bytes: Vec<u8> = (0..9000).map(byte).collect();
    let shared: Arc<dyn Source> = Arc::new(bytes);
    stack.send_shared(now, client, &shared, 3..9000).unwrap();
    let client = replace(&mut network, 0, client);
    let mut read = 0;
    while read < 9000 {
        assert!(network.step(LONG));
        let now = network.now;
        read = drain(&mut network.hosts[1], now, server, read);
    }
    // One for the record of three bytes.
    let info = network.hosts[0].info(client).unwrap();
    assert_eq!((info.tcpi_bytes_sent, info.tcpi_data_segs_out), (9000, 1 + 8997_u64.div_ceil(1448)));
}

#[test]
fn a_stack_takes_only_connections_that_it_can_have() {
    let (mut network, client, _) = busy(Algorithm::Cubic, 7, 150);
    let now = network.now;
    let bytes = network.hosts[0].detach(now, client).unwrap();
    let mut wrong = host(7, Settings::default(), Needs::NONE);
    assert_eq!(wrong.attach(now, &bytes), Err(SocketError::AddressNotAvailable.into()));
    let mut full = host(1, Settings { max_sockets: 0, ..Settings::default() }, Needs::NONE);
    assert_eq!(full.attach(now, &bytes), Err(SocketError::TooManySockets.into()));
    let mut early = host(1, Settings::default(), Needs::NONE);
    assert_eq!(early.attach(now / 2, &bytes), Err(RepairError::Invalid), "times in the future");
    let mut right = host(1, Settings::default(), Needs::NONE);
    assert!(right.attach(now, &bytes).is_ok());
    assert_eq!(right.attach(now, &bytes), Err(SocketError::AddressInUse.into()));
    for len in 0..bytes.len() {
        assert_eq!(early.attach(now, &bytes[..len]), Err(RepairError::Invalid), "{len} bytes");
    }
}

/// Two processors may show the same clock slightly differently.
#[test]
fn a_busy_connection_moves_to_a_stack_whose_clock_is_slightly_behind() {
    for algorithm in Algorithm::ALL {
        let (mut network, client, server) = busy(*algorithm, 7, 150);
        let now = network.now;
        let bytes = network.hosts[0].detach(now, client).unwrap();
        let mut behind = host(1, Settings::default(), Needs::NONE);
        let moved = behind.attach(now - 5 * MS, &bytes).unwrap();
        let bytes = behind.detach(now - 5 * MS, moved).unwrap();
        assert_eq!(behind.attach(now - 5 * MS, &bytes), Ok(moved));
        assert_eq!(
            host(1, Settings::default(), Needs::NONE).attach(now - 20 * MS, &bytes),
            Err(RepairError::Invalid),
            "a time that is far ahead"
        );
        network.hosts[0] = behind;
        let acked = |network: &Network| network.hosts[0].info(moved).unwrap().tcpi_bytes_acked;
        let (before, end) = (acked(&network), network.now + 60 * SECOND);
        while acked(&network) < before + 10_000 {
            let _ = network.hosts[1].recv(network.now, server, &mut [0; 3000]);
            assert!(network.step(end), "{algorithm:?}: it stands still");
        }
    }
}

/// Uses a stack that has taken hostile bytes as a program would.
fn use_it(mut stack: Stack, socket: SocketId, network: &mut Network, server: SocketId, steps: u64) {
    stack.set_trace(socket, 100).unwrap();
    network.hosts[0] = stack;
    for step in 0..steps {
        let now = network.now;
        let _ = network.hosts[0].info(socket);
        let _ = network.hosts[0].send(now, socket, &[0; 3000]);
        let _ = network.hosts[0].recv(now, socket, &mut [0; 3000]);
        let _ = network.hosts[1].recv(now, server, &mut [0; 3000]);
        if step == steps / 2 {
            let options = SocketOptions { tcp_nodelay: true, so_keepalive: true, ..SocketOptions::default() };
            let _ = network.hosts[0].set_options(now, socket, options);
            let _ = network.hosts[0].shutdown(now, socket);
            if let Ok(bytes) = network.hosts[0].detach(now, socket) {
                assert_eq!(network.hosts[0].attach(now, &bytes), Ok(socket));
            }
        }
        network.step(now + 10 * SECOND);
    }
    let now = network.now;
    network.hosts[0].close(now, socket).unwrap();
    network.run(now + 1000 * SECOND);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Numbers of a true connection are changed, mostly to values at which sums overflow.
    #[test]
    fn hostile_bytes_are_refused_or_harmless(
        seed: u64, algorithm in 0usize..5, options in 0u8..16, steps in 1u64..60,
        changes in
            prop::collection::vec((any::<prop::sample::Index>(), 0u32..64, any::<u64>(), 0u8..8), 1..4),
    ) {
        let (mut network, client, server) = busy(Algorithm::ALL[algorithm], options, seed);
        let now = network.now;
        let Ok(mut bytes) = network.hosts[0].detach(now, client) else { return Ok(()) };
        // The numbers are at the begin; after them are the bytes of the stream, and after those the records.
        let tail = bytes.len().saturating_sub(4096);
        let mut places: Vec<usize> = (0..bytes.len().min(2048)).collect();
        places.extend(tail..bytes.len());
        for (place, shift, random, kind) in changes {
            let at = places[place.index(places.len())];
            let value = match kind {
                0 => u64::MAX,
                1 => 0,
                2 => 1 << shift,
                3 => (1u64 << shift).wrapping_sub(1),
                4 => now.wrapping_add(random % 1000),
                _ => random >> shift,
            };
            let width = if kind == 7 { 1 } else { 8.min(bytes.len() - at) };
            bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
        }
        let mut stack = host(1, network.hosts[0].settings().clone(), Needs::NONE);
        if let Ok(socket) = stack.attach(now, &bytes) {
            use_it(stack, socket, &mut network, server, steps);
        }
    }

    #[test]
    fn any_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
        let mut stack = host(1, Settings::default(), Needs::NONE);
        prop_assert_eq!(stack.attach(0, &bytes), Err(RepairError::Invalid));
    }
}
