use super::*;
use crate::api::{Counts, DirectionView, PortStats, SwitchView, WorkerView};
use std::collections::BTreeSet;

fn port(name: &str, queues: usize) -> (PortView, PortStats) {
    let view = PortView {
        name: name.into(),
        kind: "ring".into(),
        state: "up".into(),
        peer: String::new(),
        to: "switch main".into(),
        worker: "w".into(),
        detail: String::new(),
        reason: String::new(),
        policy: BTreeMap::new(),
    };
    let drops = BTreeMap::from([("full".to_string(), 3)]);
    let queue = Counts { tx_frames: 5, rx_bytes: 7, rx_drops: drops, ..Counts::default() };
    let mut stats = PortStats { name: name.into(), ..PortStats::default() };
    for _ in 0..queues {
        stats.total.add(&queue);
        stats.queues.push(queue.clone());
    }
    (view, stats)
}

fn views(ports: usize) -> Views {
    let (ports, stats) = (0..ports).map(|number| port(&format!("p{number}"), 2)).unzip();
    let switch = SwitchView {
        name: "main".into(),
        lookup: "learning".into(),
        ports: vec!["p0".into()],
        flows: Some(3),
    };
    let worker = WorkerView {
        name: "w".into(),
        node: None,
        queues: 2,
        active: 1,
        turns: 9,
        sleeps: 8,
        busy: 2_500_000_000,
        note: String::new(),
    };
    let fabric = FabricView {
        name: "lab".into(),
        version: "1.2.3".into(),
        switches: vec![switch],
        workers: vec![worker],
        ..FabricView::default()
    };
    let one =
        DirectionView { from: "a".into(), to: "b".into(), delay_mean: 20_000_000, ..Default::default() };
    Views {
        fabric,
        addresses: BTreeMap::from([("main".to_string(), 4)]),
        ports,
        stats: StatsView { at: 0, ports: stats },
        links: vec![LinkView { name: "wan".into(), directions: vec![one] }],
        guests: Vec::new(),
        functions: Vec::new(),
        programs: Vec::new(),
        hosts: Vec::new(),
        chains: Vec::new(),
    }
}

fn text(views: Views) -> String {
    views.text(Instant::now())
}

#[test]
fn each_sample_is_in_base_units_and_has_its_labels() {
    let text = text(views(1));
    for line in [
        "ringway_fabric_info{fabric=\"lab\",version=\"1.2.3\"} 1",
        "ringway_data_up{fabric=\"lab\"} 0",
        "ringway_worker_busy_seconds_total{fabric=\"lab\",worker=\"w\"} 2.5",
        "ringway_switch_addresses{fabric=\"lab\",switch=\"main\"} 4",
        "ringway_port_transmit_frames_total{fabric=\"lab\",port=\"p0\",queue=\"1\"} 5",
        "ringway_port_receive_bytes_total{fabric=\"lab\",port=\"p0\",queue=\"0\"} 7",
        "ringway_port_drops_total{fabric=\"lab\",port=\"p0\",direction=\"receive\",reason=\"full\"} 6",
        "ringway_port_drops_total{fabric=\"lab\",port=\"p0\",direction=\"transmit\",reason=\"full\"} 0",
        "ringway_port_info{fabric=\"lab\",port=\"p0\",kind=\"ring\",to=\"switch main\"} 1",
        "ringway_link_delay_seconds{fabric=\"lab\",link=\"wan\",from=\"a\",to=\"b\"} 0.02",
    ] {
        assert!(text.lines().any(|it| it == line), "{line} is not in {text}");
    }
}

/// No label has a value for each address, flow or the like, and no series comes twice.
#[test]
fn labels_are_of_objects_only_and_series_are_unique() {
    let text = text(views(3));
    let known = [
        "fabric",
        "version",
        "worker",
        "switch",
        "lookup",
        "port",
        "kind",
        "to",
        "queue",
        "direction",
        "reason",
        "link",
        "from",
        "process",
        "guest",
        "function",
        "isolation",
        "program",
        "host",
        "chain",
    ];
    let mut seen = BTreeSet::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, _) = line.rsplit_once(' ').unwrap();
        assert!(seen.insert(series), "{series} comes twice");
        let labels = series.split_once('{').unwrap().1.trim_end_matches('}');
        for label in labels.split("\",") {
            assert!(known.contains(&label.split_once('=').unwrap().0), "{series}");
        }
    }
}

/// The answer of a fabric with 200 ports, and of the largest one, has its place within the bounds.
#[test]
fn a_large_fabric_has_a_bounded_answer() {
    assert!(text(views(200)).len() < 2 << 20);
    assert!(text(views(8_192)).len() < bounds().answers);
}

#[test]
fn only_names_of_this_host_are_served_at_loopback() {
    for own in ["localhost", "LOCALHOST:9468", "127.0.0.1", "127.0.0.1:9468", "[::1]:9468", "10.0.0.1:1"] {
        assert!(names_this_host(own), "{own}");
    }
    for other in
        ["", "evil.example", "evil.example:9468", "localhost.evil.example", "127.0.0.1.evil.example", "a b"]
    {
        assert!(!names_this_host(other), "{other}");
    }
}
