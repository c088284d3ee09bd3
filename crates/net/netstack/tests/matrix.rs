//! Goodput, retransmissions and queue of every controller on links of different loss, delay and buffer, in virtual
//! time, compared with `matrix.txt`. `BLESS=1` rewrites that file.

#![allow(clippy::unwrap_used)]

use crate::common::{Line, Network, drain, fill};
use ringway_netstack::congestion::Algorithm;
use ringway_netstack::{MS, SECOND, Settings};
use std::fmt::Write;

/// Loss in millionths, buffer in percent of the bandwidth-delay product.
const LOSSES: &[u64] = &[0, 1_000, 10_000, 50_000, 200_000];
const BUFFERS: &[u64] = &[10, 100, 1_600];
/// Frames that the buffer has at least.
const LEAST: u64 = 2;

/// A path, and for how long it is used.
struct Path {
    /// Round-trip time in microseconds.
    rtt: u64,
    /// Bytes a second. The bandwidth-delay product is 8 frames or more.
    rate: u64,
    time: u64,
}

const PATHS: &[Path] = &[
    Path { rtt: 100, rate: 125_000_000, time: 300 * MS },
    Path { rtt: 1_000, rate: 25_000_000, time: SECOND },
    Path { rtt: 20_000, rate: 2_500_000, time: 10 * SECOND },
    Path { rtt: 200_000, rate: 2_500_000, time: 20 * SECOND },
];

/// Runs one cell: percent of the rate that reached the program, retransmitted percent, and the mean queue in percent
/// of the bandwidth-delay product.
fn cell(algorithm: Algorithm, loss: u64, path: &Path, buffer: u64) -> String {
    let Path { rtt, rate, time } = *path;
    let bdp = rate * rtt / 1_000_000;
    let forward = Line {
        rate,
        delay: rtt * 500,
        buffer: (bdp * buffer / 100).max(LEAST * 1514),
        loss,
        mark: if algorithm == Algorithm::Dctcp { (bdp / 5).max(LEAST * 1514) } else { 0 },
        ..Line::default()
    };
    let settings = Settings {
        tcp_congestion_control: algorithm,
        tcp_rmem: [4096, 131_072, 32 << 20],
        tcp_wmem: [4096, 16_384, 32 << 20],
        ..Settings::default()
    };
    let mut network = Network::new(&settings, forward, 7 + loss + rtt + buffer);
    network.set(1, &Line { rate, delay: rtt * 500, ..Line::default() });
    let (client, server) = network.connect("10.0.0.2:80");
    let start = network.now;
    let (mut sent, mut read, mut queue) = (0, 0, 0);
    while network.now < start + time {
        let now = network.now;
        sent = fill(&mut network.hosts[0], now, client, sent, u64::MAX);
        read = drain(&mut network.hosts[1], now, server, read);
        let waiting = network.waiting(0);
        network.step(start + time);
        queue += waiting as u128 * u128::from(network.now - now);
    }
    let info = network.hosts[0].info(client).unwrap();
    let goodput = read * 1000 / (rate * time / SECOND);
    let again = info.tcpi_bytes_retrans * 1000 / info.tcpi_bytes_sent.max(1);
    let queue = queue * 100 / u128::from(time) / u128::from(bdp);
    format!("{:3}.{} {:2}.{} {queue:5}", goodput / 10, goodput % 10, again / 10, again % 10)
}

/// The rows of one loss.
fn rows(loss: u64) -> String {
    let mut table = String::new();
    for path in PATHS {
        for &buffer in BUFFERS {
            let bdp = format!("{}.{}", buffer / 100, buffer % 100 / 10);
            let [loss_percent, rtt] = [loss as f64 / 10_000.0, path.rtt as f64 / 1000.0];
            write!(table, "{loss_percent:>7} {rtt:>6} {bdp:>6}").unwrap();
            for &algorithm in Algorithm::ALL {
                write!(table, " | {}", cell(algorithm, loss, path, buffer)).unwrap();
            }
            table.push('\n');
        }
    }
    table
}

#[test]
fn goodput_retransmissions_and_queues_equal_the_golden_file() {
    let mut table = String::from(
        "# 1 Gb/s for 0.3 s with 0.1 ms, 200 Mb/s for 1 s with 1 ms, 20 Mb/s for 10 s with 20 ms and for\n\
         # 20 s with 200 ms. Buffers are in bandwidth-delay products, 2 frames at least. For each controller:\n\
         # goodput in percent of the rate, retransmitted percent of the bytes sent, mean queue in percent of\n\
         # the bandwidth-delay product. BLESS=1 rewrites this file.\n",
    );
    write!(table, "{:>7} {:>6} {:>6}", "loss %", "rtt ms", "buffer").unwrap();
    for algorithm in Algorithm::ALL {
        write!(table, " | {:16}", algorithm.name()).unwrap();
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
