//! Traces of connections on a link that loses segments.
#![allow(clippy::unwrap_used)]

use crate::common::{LONG, Line, Network, drain, fill};
use ringway_netstack::congestion::{Algorithm, State};
use ringway_netstack::{MS, SECOND, Settings, Trace};

/// The trace of the sender of 8 MB at 100 Mb/s and 20 ms.
fn transfer(algorithm: Algorithm, loss: u64, points: usize) -> Trace {
    const LEN: u64 = 8 << 20;
    let settings = Settings { tcp_congestion_control: algorithm, ..Settings::default() };
    let line = Line { rate: 12_500_000, delay: 10 * MS, buffer: 250_000, ..Line::default() };
    let mut network = Network::new(&settings, line.clone(), 7);
    network.set(0, &Line { loss, ..line });
    let (client, server) = network.connect("10.0.0.2:80");
    network.hosts[0].set_trace(client, points).unwrap();
    let (mut sent, mut read) = (0, 0);
    while read < LEN || network.hosts[0].info(client).unwrap().tcpi_unacked > 0 {
        let now = network.now;
        sent = fill(&mut network.hosts[0], now, client, sent, LEN);
        read = drain(&mut network.hosts[1], now, server, read);
        assert!(read == LEN || network.step(LONG), "the stream stops at {read}");
        if read == LEN {
            network.step(LONG);
        }
    }
    let trace = network.hosts[0].trace(client).unwrap().unwrap().clone();
    let (info, last) = (network.hosts[0].info(client).unwrap(), trace.points().last().unwrap());
    assert_eq!(last.retransmissions, info.tcpi_total_retrans);
    assert_eq!(network.hosts[1].trace(server).unwrap().map(|trace| trace.points().len()), None);
    network.hosts[0].set_trace(client, 0).unwrap();
    assert!(network.hosts[0].trace(client).unwrap().is_none());
    trace
}

#[test]
fn a_trace_follows_bbr_through_its_states() {
    let trace = transfer(Algorithm::Bbr1, 0, 1 << 16);
    let mut modes: Vec<&str> = trace.points().iter().map(|point| point.mode).collect();
    modes.dedup();
    assert_eq!(modes[..3], ["startup", "drain", "probe_bw"]);
    let steady = trace.points().iter().filter(|point| point.mode == "probe_bw" && !point.app_limited);
    let mut rates: Vec<u64> = steady.map(|point| point.delivery_rate * 8 / 1_000_000).collect();
    rates.sort_unstable();
    assert!((85..=100).contains(&rates[rates.len() / 2]), "{} Mb/s", rates[rates.len() / 2]);
    let last = trace.points().last().unwrap();
    assert!((20 * MS..22 * MS).contains(&last.min_rtt) && last.rtt >= last.min_rtt, "{last:?}");
    assert!(last.pacing_rate.is_some() && last.delivered >= 8 << 20);
    assert!(trace.points().windows(2).all(|pair| pair[0].time <= pair[1].time));
    assert!(trace.svg().starts_with("<svg ") && trace.svg().contains(">probe_bw</text>"));
    assert!(trace.svg().contains(">time since the first point ("), "it has a time axis");
    // Each line has its name in the line's colour.
    let svg = trace.svg();
    let legends: Vec<(&str, &str)> = svg
        .lines()
        .filter_map(|line| {
            let (colour, name) = line.split_once("fill=\"#")?.1.split_once("\">")?;
            Some((colour, name.strip_suffix("</text>")?))
        })
        .collect();
    for name in ["retransmissions", "timeouts"] {
        let found = legends.iter().find(|(_, legend)| legend.contains(name));
        let (colour, _) = found.unwrap_or_else(|| panic!("{name}: {legends:?}"));
        assert!(svg.contains(&format!("stroke=\"#{colour}\"")), "{name}: {colour}");
    }
    assert_eq!(trace.csv().lines().count(), 1 + trace.points().len());
}

#[test]
fn a_trace_shows_losses_and_stays_within_its_points() {
    let trace = transfer(Algorithm::Cubic, 2000, 300);
    let points = trace.points();
    assert!((150..=300).contains(&points.len()), "{}", points.len());
    assert!(points.iter().any(|point| point.ca_state == State::Recovery && point.ssthresh.is_some()));
    let (first, last) = (&points[0], &points[points.len() - 1]);
    assert!(last.retransmissions > 0 && first.retransmissions == 0);
    assert!(last.time - first.time > SECOND / 2);
    assert!(points.iter().any(|point| point.in_flight > 100_000));
}
