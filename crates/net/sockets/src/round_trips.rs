//! How often threads sleep in a blocking round trip.

use crate::network::Sleeps;
use crate::{Config, Network, TcpListener, TcpStream, pair};
use std::io::{Read, Write};

const ROUND_TRIPS: u64 = 2000;
/// Runs, in one of which nobody else sleeps: where others take the cores, the networks' threads take over.
const RUNS: usize = 10;

/// A byte there and back, `count` times.
fn run(client: &mut TcpStream, server: &mut TcpStream, count: u64) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut byte = [0];
            for _ in 0..count {
                server.read_exact(&mut byte).unwrap();
                server.write_all(&byte).unwrap();
            }
        });
        let mut byte = [0];
        for number in 0..count {
            client.write_all(&[number as u8]).unwrap();
            client.read_exact(&mut byte).unwrap();
            assert_eq!(byte, [number as u8]);
        }
    });
}

/// How often more than before for each round trip, to the nearest number.
fn rate(count: impl Fn(Sleeps) -> u64, before: [Sleeps; 2], after: [Sleeps; 2]) -> u64 {
    let sum = |sleeps: [Sleeps; 2]| sleeps.map(&count).iter().sum::<u64>();
    (sum(after) - sum(before) + ROUND_TRIPS / 2) / ROUND_TRIPS
}

#[test]
fn only_the_two_callers_sleep_in_a_blocking_round_trip() {
    let (one, two) = pair().unwrap();
    let config = |last: u8| Config::new(format!("10.0.0.{last}/24").parse().unwrap());
    let networks = [Network::new(one, config(1)).unwrap(), Network::new(two, config(2)).unwrap()];
    let listener = TcpListener::bind(&networks[1], "10.0.0.2:7").unwrap();
    let mut client = TcpStream::connect(&networks[0], "10.0.0.2:7").unwrap();
    let (mut server, _) = listener.accept().unwrap();
    run(&mut client, &mut server, 100);
    let sleeps = || [networks[0].sleeps(), networks[1].sleeps()];
    let mut rates = || {
        let before = sleeps();
        run(&mut client, &mut server, ROUND_TRIPS);
        let after = sleeps();
        [|s: Sleeps| s.leading, |s: Sleeps| s.following, |s: Sleeps| s.thread, |s: Sleeps| s.signals]
            .map(|count| rate(count, before, after))
    };
    let is_quiet = |rates: &[u64; 4]| matches!(rates, [..=2, 0, 0, 0]);
    let mut seen = Vec::new();
    while seen.len() < RUNS && !seen.last().is_some_and(is_quiet) {
        seen.push(rates());
    }
    assert!(seen.last().is_some_and(is_quiet), "leading, following, threads, signals: {seen:?}");
}
