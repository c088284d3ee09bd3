//! Streams over links that lose, reorder, duplicate and corrupt frames arrive unchanged.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{LONG, Line, Network, drain, fill};
use proptest::prelude::*;
use ringway_frame::Needs;
use ringway_netstack::congestion::Algorithm;
use ringway_netstack::{MS, Pacing, Settings, SocketError};

/// Sends streams in both directions until both ends have read everything and are closed.
fn exchange(network: &mut Network, address: &str, lens: [u64; 2]) {
    let (client, server) = network.connect(address);
    let sockets = [client, server];
    let (mut sent, mut read, mut shut) = ([0; 2], [0; 2], [false; 2]);
    while read[0] < lens[1] || read[1] < lens[0] {
        for end in 0..2 {
            let now = network.now;
            sent[end] = fill(&mut network.hosts[end], now, sockets[end], sent[end], lens[end]);
            if sent[end] == lens[end] && !shut[end] {
                network.hosts[end].shutdown(now, sockets[end]).unwrap();
                shut[end] = true;
            }
            read[end] = drain(&mut network.hosts[end], now, sockets[end], read[end]);
        }
        let info = network.hosts.iter().zip(sockets).map(|(host, socket)| host.info(socket));
        let stopped = || format!("at {} ns: {:?}", network.now, info.collect::<Vec<_>>());
        if let Some(error) = network.hosts.iter().zip(sockets).find_map(|(h, s)| h.error(s).ok()?) {
            panic!("{error} {}", stopped());
        }
        if read[0] < lens[1] || read[1] < lens[0] {
            assert!(network.now < LONG, "{}", stopped());
            assert!(network.step(LONG), "the streams stop {read:?} {sent:?}");
        }
    }
    while network.step(network.now + 100_000 * MS) {
        let now = network.now;
        for end in 0..2 {
            read[end] = drain(&mut network.hosts[end], now, sockets[end], read[end]);
        }
    }
    let now = network.now;
    for (host, socket) in network.hosts.iter_mut().zip(sockets) {
        assert_eq!(host.recv(now, socket, &mut [0]), Ok(0), "no end of the stream");
        host.close(now, socket).unwrap();
    }
    network.run(now + 200_000 * MS);
    for (host, socket) in network.hosts.iter_mut().zip(sockets) {
        assert_eq!(host.recv(network.now, socket, &mut [0]), Err(SocketError::BadSocket));
    }
}

#[test]
fn a_perfect_link() {
    for (address, offloads) in
        [("10.0.0.2:80", Needs::NONE), ("[fd00::2]:80", Needs::NONE), ("10.0.0.2:80", Needs::ALL)]
    {
        let line = Line { delay: MS, ..Line::default() };
        let mut network = Network::with_offloads(&Settings::default(), line, 1, offloads);
        exchange(&mut network, address, [3_000_000, 1000]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn any_link(
        seed: u64, loss in 0u64..100_000, duplicate in 0u64..50_000, corrupt in 0u64..50_000,
        reorder in 0u64..300_000, jitter in 0u64..50, delay in 0u64..50, rate in 0u64..3,
        there in 0u64..400_000, back in 0u64..100_000, options in 0u8..16, six: bool, tso: bool,
        algorithm in 0usize..16,
    ) {
        let line = Line {
            rate: [0, 1_000_000, 20_000_000][rate as usize],
            buffer: if rate == 0 { 0 } else { 60_000 },
            delay: delay * MS, jitter: jitter * MS, loss, duplicate, corrupt, reorder, mark: 0,
        };
        let settings = Settings {
            tcp_sack: options & 1 != 0,
            tcp_timestamps: options & 2 != 0,
            tcp_window_scaling: options & 4 != 0,
            pacing: if options & 8 != 0 { Pacing::Always } else { Pacing::Required },
            tcp_congestion_control: Algorithm::ALL[algorithm % Algorithm::ALL.len()],
            tcp_retries2: 40,
            ..Settings::default()
        };
        let offloads = if tso { Needs::ALL } else { Needs::NONE };
        // A frame whose checksum is left to others can't show that it is corrupt.
        let line = if tso { Line { corrupt: 0, ..line } } else { line };
        let mut network = Network::with_offloads(&settings, line, seed, offloads);
        exchange(&mut network, if six { "[fd00::2]:80" } else { "10.0.0.2:80" }, [there, back]);
    }
}
