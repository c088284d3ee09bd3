//! Goodput and retransmissions of every controller on links of different loss, delay and buffer, in virtual
//! time, compared with `matrix.txt`. `BLESS=1` rewrites that file.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Line, Network, drain, fill};
use ringway_tcp::congestion::Algorithm;
use ringway_tcp::{MS, SECOND, Settings};
use std::fmt::Write;

/// 20 Mb/s.
const RATE: u64 = 2_500_000;
const TIME: u64 = 10 * SECOND;
/// Loss in millionths, round-trip time in microseconds, buffer in percent of the bandwidth-delay product.
const LOSSES: &[u64] = &[0, 1_000, 10_000, 50_000, 200_000];
const RTTS: &[u64] = &[1_000, 20_000, 200_000];
const BUFFERS: &[u64] = &[20, 100, 800];

/// Runs one cell: percent of the rate that reached the program, retransmitted percent, and the smoothed
/// round-trip time in milliseconds.
fn cell(algorithm: Algorithm, loss: u64, rtt: u64, buffer: u64) -> String {
    let bdp = RATE * rtt / 1_000_000;
    let forward = Line {
        rate: RATE,
        delay: rtt * 500,
        buffer: (bdp * buffer / 100).max(4 * 1514),
        loss,
        mark: if algorithm == Algorithm::Dctcp { (bdp / 5).max(20_000) } else { 0 },
        ..Line::default()
    };
    let settings = Settings {
        tcp_congestion_control: algorithm,
        tcp_rmem: [4096, 131_072, 32 << 20],
        tcp_wmem: [4096, 16_384, 32 << 20],
        ..Settings::default()
    };
    let mut network = Network::new(&settings, forward, 7 + loss + rtt + buffer);
    network.set(1, &Line { rate: RATE, delay: rtt * 500, ..Line::default() });
    let (client, server) = network.connect("10.0.0.2:80");
    let start = network.now;
    let (mut sent, mut read) = (0, 0);
    while network.now < start + TIME {
        let now = network.now;
        sent = fill(&mut network.hosts[0], now, client, sent, u64::MAX);
        read = drain(&mut network.hosts[1], now, server, read);
        network.step(start + TIME);
    }
    let info = network.hosts[0].info(client).unwrap();
    let goodput = read * 1000 / (RATE * TIME / SECOND);
    let again = info.tcpi_bytes_retrans * 1000 / info.tcpi_bytes_sent.max(1);
    format!("{:3}.{} {:2}.{} {:6}", goodput / 10, goodput % 10, again / 10, again % 10, info.tcpi_rtt / MS)
}

/// The rows of one loss.
fn rows(loss: u64) -> String {
    let mut table = String::new();
    for &rtt in RTTS {
        for &buffer in BUFFERS {
            let bdp = format!("{}.{}", buffer / 100, buffer % 100 / 10);
            write!(table, "{:>7} {:>6} {:>6}", loss as f64 / 10_000.0, rtt / 1000, bdp).unwrap();
            for &algorithm in Algorithm::ALL {
                write!(table, " | {}", cell(algorithm, loss, rtt, buffer)).unwrap();
            }
            table.push('\n');
        }
    }
    table
}

#[test]
fn goodput_and_retransmissions_equal_the_golden_file() {
    let mut table = String::from(
        "# 20 Mb/s for 10 s. For each controller: goodput in percent of the rate, retransmitted\n\
         # percent of the bytes sent, smoothed round-trip time in ms. BLESS=1 rewrites this file.\n",
    );
    write!(table, "{:>7} {:>6} {:>6}", "loss %", "rtt ms", "buffer").unwrap();
    for algorithm in Algorithm::ALL {
        write!(table, " | {:17}", algorithm.name()).unwrap();
    }
    table.push('\n');
    // A thread for each loss.
    let parts: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = LOSSES.iter().map(|&loss| scope.spawn(move || rows(loss))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    table.extend(parts);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/matrix.txt");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &table).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap_or_default();
    assert!(golden == table, "matrix.txt differs; if that is intended, run with BLESS=1. Now:\n{table}");
}
