//! Fast and long lines with losses, in virtual time: what limits a stream there must be the line.

#![allow(clippy::unwrap_used)]

use crate::common::{Line, Network};
use ringway_netstack::congestion::Algorithm;
use ringway_netstack::{MS, SECOND, Settings, SocketId, TcpInfo};

/// Time between two looks of a host at its frames: what a busy one finds in its ring at once.
const EVERY: u64 = 50_000;

/// A line with losses, and its stream.
struct Stream {
    network: Network,
    client: SocketId,
    server: SocketId,
    block: Vec<u8>,
    read: u64,
}

impl Stream {
    fn new(line: &Line, buffer: usize) -> Stream {
        let settings = Settings {
            tcp_congestion_control: Algorithm::Bbr1,
            tcp_rmem: [4096, 131_072, buffer],
            tcp_wmem: [4096, 16_384, buffer],
            tcp_mem: [1 << 30, 1 << 30, 2 << 30],
            ..Settings::default()
        };
        let mut network = Network::new(&settings, line.clone(), 5);
        network.set(1, &Line { delay: line.delay, ..Line::default() });
        network.every = EVERY;
        let (client, server) = network.connect("10.0.0.2:80");
        Stream { network, client, server, block: vec![0x5a; 128 << 10], read: 0 }
    }

    /// Runs for a time; bits a second that the program received.
    fn run(&mut self, time: u64) -> f64 {
        let (end, before) = (self.network.now + time, self.read);
        while self.network.now < end {
            let now = self.network.now;
            while self.network.hosts[0].send(now, self.client, &self.block).is_ok() {}
            let host = &mut self.network.hosts[1];
            while let Ok([one, two]) = host.received(self.server)
                && !one.is_empty()
            {
                // As much as a program reads at once.
                let count = (one.len() + two.len()).min(self.block.len());
                host.consume(now, self.server, count).unwrap();
                self.read += count as u64;
            }
            self.network.step(end);
        }
        (self.read - before) as f64 * 8e9 / time as f64
    }

    fn info(&self, end: usize) -> TcpInfo {
        let socket = [self.client, self.server][end];
        self.network.hosts[end].info(socket).unwrap()
    }
}

/// A stream on a line with 100 ms, of whose frames 1% is lost: whether its windows of `buffer` seconds at the line's
/// rate limited it. It must have `least` of the rate, without a timeout. The rate is 1 Gb/s, and 10 Gb/s in
/// `make soak`, which sets RINGWAY_ROUNDS.
fn is_limited_by_windows(buffer: f64, least: f64) -> bool {
    let is_long = std::env::var_os("RINGWAY_ROUNDS").is_some();
    let bytes: u64 = if is_long { 1_250_000_000 } else { 125_000_000 };
    let line = Line { rate: bytes, delay: 50 * MS, buffer: bytes / 10, loss: 10_000, ..Line::default() };
    let mut stream = Stream::new(&line, (buffer * bytes as f64) as usize);
    stream.run(3 * SECOND);
    let before = stream.info(0);
    let rate = stream.run(2 * SECOND);
    let info = stream.info(0);
    let part = rate / (bytes * 8) as f64;
    assert!(part >= least, "{part} of the rate with windows of {buffer} s");
    assert_eq!(info.tcpi_total_rto, 0, "no timeout");
    let limited = |info: &TcpInfo| info.tcpi_rwnd_limited + info.tcpi_sndbuf_limited;
    limited(&info) - limited(&before) > SECOND
}

/// Bytes that are lost, and whose retransmission is lost too, hold up the stream for three round trips, and one of a
/// hundred of these for four. At 10 Gb/s, each round trip needs 125 MB in both windows, and there are eight such losses
/// in it, so that windows for two round trips are full for a part of the time.
#[test]
fn bbr_fills_a_line_of_which_a_percent_is_lost_as_far_as_its_windows_do() {
    assert!(is_limited_by_windows(0.21, 0.5));
}

/// The line limits the rate if a connection may use four round trips' bytes.
#[test]
fn bbr_fills_a_line_of_which_a_percent_is_lost() {
    is_limited_by_windows(0.42, 0.8);
}

#[test]
fn nothing_that_arrived_is_sent_again_although_frames_arrive_in_bursts() {
    let line = Line { rate: 125_000_000, delay: 5 * MS, buffer: 1 << 20, loss: 100_000, ..Line::default() };
    let mut stream = Stream::new(&line, 8 << 20);
    // Some 80 frames at once, of which eight are lost: more ranges than an acknowledgment reports.
    stream.network.every = MS;
    stream.run(2 * SECOND);
    let (sender, receiver) = (stream.info(0), stream.info(1));
    assert!(sender.tcpi_data_segs_out > 50_000, "{sender:?}");
    let again = receiver.tcpi_dsack_dups * 1000 / sender.tcpi_data_segs_out;
    assert!(again < 5, "{again} of a thousand segments arrived twice: {receiver:?}");
}
