//! The graph of the whole fabric: who has ports, what joins them, and what passes.

use crate::api::{
    ChainView, FabricGraphView, FabricNode, FabricView, FunctionView, GuestView, HostView, LinkView,
    PortStats, PortView, StatsView,
};
use crate::svg::{BOX, Drawing, MARGIN, Node, Point, compact};
use ringway_port::link::KIND as LINK;
use std::collections::BTreeMap;

/// Distances between boxes, and between the rows that a long row is cut into.
const GAP: (usize, usize) = (24, 64);
const CUT: usize = 16;
/// Boxes in a row that is not cut yet; longer rows get as many lines as make the drawing about twice as wide as high.
const WIDE: usize = 8;

/// Totals at the beginning or the end of a sample.
pub struct Totals {
    /// The counters of ports.
    pub stats: StatsView,
    /// The counters of links.
    pub links: Vec<LinkView>,
}

/// The parts of a fabric.
pub struct Parts {
    /// Its switches.
    pub fabric: FabricView,
    /// Its ports.
    pub ports: Vec<PortView>,
    /// Its hosts.
    pub hosts: Vec<HostView>,
    /// Its guests.
    pub guests: Vec<GuestView>,
    /// Its functions.
    pub functions: Vec<FunctionView>,
    /// Its chains.
    pub chains: Vec<ChainView>,
}

/// What passed: frames sent, received and dropped.
type Passed = [u64; 3];

/// The graph, with what passed between two readings of the counters. A port that was added meanwhile counts from 0.
pub fn graph(parts: &Parts, before: &Totals, after: &Totals) -> FabricGraphView {
    let passed = passed(&before.stats, &after.stats);
    let of = |ports: &[String]| {
        let each = ports.iter().filter_map(|port| passed.get(port.as_str()));
        each.fold([0; 3], |sum, more| std::array::from_fn(|at| sum[at] + more[at]))
    };
    let mut graph = FabricGraphView {
        nanoseconds: after.stats.at.saturating_sub(before.stats.at),
        ..FabricGraphView::default()
    };
    let mut add = |what: &str, name: &str, detail: String, [tx_frames, rx_frames, drops]: Passed| {
        graph.nodes.push(FabricNode {
            what: what.into(),
            name: name.into(),
            detail,
            tx_frames,
            rx_frames,
            drops,
        });
        graph.nodes.len() - 1
    };
    let (mut ports, mut switches, mut edges) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    for port in parts.ports.iter().filter(|port| port.kind != LINK.name) {
        let detail = format!("{}, {}", port.kind, port.state);
        ports.insert(&*port.name, add("port", &port.name, detail, of(std::slice::from_ref(&port.name))));
    }
    for switch in &parts.fabric.switches {
        let detail = format!("switch, {}", switch.lookup);
        switches.insert(&*switch.name, add("switch", &switch.name, detail, of(&switch.ports)));
    }
    for link in &after.links {
        let earlier = before.links.iter().find(|earlier| earlier.name == link.name);
        let node = add("link", &link.name, settings(link), crossed(earlier, link));
        let end = |name: &str| ports.get(name).or(switches.get(name)).copied();
        edges.extend(link.directions.iter().filter_map(|one| Some((end(&one.from)?, node))));
    }
    for host in &parts.hosts {
        let own: Vec<String> = host.interfaces.iter().map(|interface| interface.port.clone()).collect();
        let addresses = host.interfaces.iter().flat_map(|interface| &interface.addresses);
        let addresses = addresses.map(|address| &**address).collect::<Vec<_>>().join(", ");
        let detail = if addresses.is_empty() { "host".into() } else { addresses };
        let node = add("host", &host.name, detail, of(&own));
        edges.extend(own.iter().filter_map(|port| Some((*ports.get(&**port)?, node))));
    }
    let guests =
        parts.guests.iter().map(|guest| ("guest", &guest.name, &guest.kind, &guest.state, &guest.ports));
    let kinds: Vec<String> = parts.functions.iter().map(|one| kind(&one.name, &parts.chains)).collect();
    let functions = parts.functions.iter().zip(&kinds);
    let functions = functions.map(|(one, kind)| ("function", &one.name, kind, &one.state, &one.ports));
    for (what, name, kind, state, own) in guests.chain(functions) {
        let node = add(what, name, format!("{kind}, {state}"), of(own));
        edges.extend(own.iter().filter_map(|port| Some((*ports.get(&**port)?, node))));
    }
    for port in &parts.ports {
        let Some(from) = ports.get(&*port.name) else { continue };
        let to = match port.to.split_once(' ') {
            Some(("switch", name)) => switches.get(name),
            // Both ports of a patch name the other one.
            Some(("patch", name)) => ports.get(name).filter(|to| from < to),
            _ => None,
        };
        edges.extend(to.map(|to| (*from, *to)));
    }
    graph.edges = edges;
    graph
}

/// What a function is: its chain and its place there, if it has one.
fn kind(function: &str, chains: &[ChainView]) -> String {
    let place = |chain: &ChainView| {
        let at = chain.functions.iter().position(|name| name == function)?;
        Some(format!("{} {}/{}", chain.name, at + 1, chain.functions.len()))
    };
    chains.iter().find_map(place).unwrap_or_else(|| "function".into())
}

/// Frames by port between two readings of the counters.
fn passed<'a>(before: &StatsView, after: &'a StatsView) -> BTreeMap<&'a str, Passed> {
    let total = |port: &PortStats| [port.total.tx_frames, port.total.rx_frames, port.total.drops()];
    let earlier: BTreeMap<&str, Passed> =
        before.ports.iter().map(|port| (&*port.name, total(port))).collect();
    let each = after.ports.iter().map(|port| {
        let (now, then) = (total(port), earlier.get(&*port.name).copied().unwrap_or_default());
        (&*port.name, since(now, then))
    });
    each.collect()
}

/// Differences of totals. A port that was replaced begins at 0 again.
fn since(now: Passed, then: Passed) -> Passed {
    std::array::from_fn(|at| now[at].checked_sub(then[at]).unwrap_or(now[at]))
}

fn crossed(earlier: Option<&LinkView>, now: &LinkView) -> Passed {
    let total = |link: &LinkView| {
        link.directions.iter().fold([0; 3], |[sent, received, drops], one| {
            [sent + one.sent, received + one.received, drops + one.drops.values().sum::<u64>()]
        })
    };
    since(total(now), earlier.map(total).unwrap_or_default())
}

/// Rate, delay and loss of a link's first direction. A rate needs no name, other values do.
fn settings(link: &LinkView) -> String {
    let first = link.directions.first();
    let value = |key: &str| first.and_then(|direction| direction.settings.get(key));
    let values = ["rate", "delay", "loss"].iter().filter_map(|key| {
        let value = value(key)?;
        Some(if *key == "rate" { value.clone() } else { format!("{key} {value}") })
    });
    let values: Vec<String> = values.collect();
    if values.is_empty() { "link".into() } else { values.join(", ") }
}

/// The graph as SVG: guests and hosts above their ports, switches and links in the middle, functions below their ports.
pub fn svg(name: &str, graph: &FabricGraphView) -> String {
    let (places, size) = places(graph);
    let seconds = graph.nanoseconds as f64 / 1e9;
    let mut drawing = Drawing::new(size, &format!("{name}, {seconds:.1} s"));
    for &(from, to) in &graph.edges {
        let (one, other) = (&graph.nodes[from], &graph.nodes[to]);
        let (upper, lower) = if places[from].1 <= places[to].1 { (from, to) } else { (to, from) };
        let (from, to) = (places[upper], places[lower]);
        let middle = BOX.0 / 2;
        let port = if one.what == "port" { one } else { other };
        let moved = port.tx_frames + port.rx_frames > 0;
        // Ports of a patch may be beside each other.
        let end = if from.1 == to.1 { to.1 + BOX.1 } else { to.1 };
        drawing.curve((from.0 + middle, from.1 + BOX.1), (to.0 + middle, end), GAP.1 / 2, moved, false);
    }
    for (node, at) in graph.nodes.iter().zip(&places) {
        draw(&mut drawing, node, *at, seconds);
    }
    drawing.end()
}

fn draw(drawing: &mut Drawing, node: &FabricNode, at: Point, seconds: f64) {
    let FabricNode { what, name, detail, tx_frames, rx_frames, drops } = node;
    let rate = |frames: u64| compact(if seconds > 0.0 { frames as f64 / seconds } else { 0.0 });
    let mut rates = match (what.as_str(), tx_frames + rx_frames) {
        (_, 0) => String::new(),
        ("switch", _) => format!("{}/s", rate(*tx_frames)),
        _ => format!("tx {}/s rx {}/s", rate(*tx_frames), rate(*rx_frames)),
    };
    if *drops > 0 {
        rates = format!("{rates} drops {}/s", rate(*drops));
    }
    let fill = match what.as_str() {
        _ if *drops > 0 => "#fecaca",
        "switch" => "#dbeafe",
        "link" => "#fef3c7",
        "guest" | "host" => "#dcfce7",
        "function" => "#f3e8ff",
        _ => "#fafafa",
    };
    let title =
        format!("{what} {name}: {detail}; {tx_frames} frames sent, {rx_frames} received, {drops} dropped");
    drawing.node(&Node { at, fill, title: &title, lines: [name, detail, rates.trim()] });
}

/// The row of each node: guests, their ports and others', switches and links, functions' ports, functions.
fn rows(graph: &FabricGraphView) -> [Vec<usize>; 5] {
    let is = |node: usize, what: &str| graph.nodes[node].what == what;
    let mut below = vec![false; graph.nodes.len()];
    for &(port, owner) in &graph.edges {
        below[port] |= is(owner, "function");
    }
    let mut rows: [Vec<usize>; 5] = Default::default();
    for (at, (node, below)) in graph.nodes.iter().zip(&below).enumerate() {
        let row = match node.what.as_str() {
            "guest" | "host" => 0,
            "switch" | "link" => 2,
            "function" => 4,
            _ if *below => 3,
            _ => 1,
        };
        rows[row].push(at);
    }
    rows
}

/// Each node's upper left corner, and the drawing's size.
fn places(graph: &FabricGraphView) -> (Vec<Point>, Point) {
    let mut rows = rows(graph);
    let longest = rows.iter().map(Vec::len).max().unwrap_or(0);
    let columns = WIDE.max((longest as f64 * 0.7).sqrt().ceil() as usize);
    let mut neighbours: Vec<Vec<usize>> = vec![Vec::new(); graph.nodes.len()];
    for &(one, other) in &graph.edges {
        neighbours[one].push(other);
        neighbours[other].push(one);
    }
    // Places in the rows; a row is sorted by the mean place of its nodes' neighbours in the rows before it.
    let mut order: Vec<Option<f64>> = vec![None; graph.nodes.len()];
    for row in [2, 1, 3, 0, 4] {
        let mean = |node: &usize| {
            let known: Vec<f64> = neighbours[*node].iter().filter_map(|near| order[*near]).collect();
            if known.is_empty() { f64::MAX } else { known.iter().sum::<f64>() / known.len() as f64 }
        };
        rows[row].sort_by(|one, other| mean(one).total_cmp(&mean(other)));
        let count = rows[row].len() as f64;
        rows[row].iter().enumerate().for_each(|(at, node)| order[*node] = Some((at as f64 + 0.5) / count));
    }
    let width = |count: usize| (count * (BOX.0 + GAP.0)).saturating_sub(GAP.0);
    let whole = width(longest.clamp(1, columns));
    let (mut places, mut top) = (vec![(0, 0); graph.nodes.len()], MARGIN + 24);
    for row in rows.iter().filter(|row| !row.is_empty()) {
        for line in row.chunks(columns) {
            let left = MARGIN + (whole - width(line.len())) / 2;
            for (at, node) in line.iter().enumerate() {
                places[*node] = (left + at * (BOX.0 + GAP.0), top);
            }
            top += BOX.1 + CUT;
        }
        top += GAP.1 - CUT;
    }
    (places, (whole + 2 * MARGIN, (top + MARGIN).saturating_sub(GAP.1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Counts, DirectionView, HostInterfaceView, SwitchView};

    fn port(name: &str, kind: &str, to: &str) -> PortView {
        let (state, empty) = ("up".to_string(), String::new);
        PortView {
            name: name.into(),
            kind: kind.into(),
            state,
            peer: empty(),
            to: to.into(),
            worker: empty(),
            detail: empty(),
            policy: BTreeMap::new(),
            reason: empty(),
        }
    }

    fn stats(at: u64, frames: &[(&str, u64, u64, u64)]) -> StatsView {
        let of = |&(name, tx_frames, rx_frames, drops): &(&str, u64, u64, u64)| {
            let tx_drops = BTreeMap::from([("full".to_string(), drops)]);
            let total = Counts { tx_frames, rx_frames, tx_drops, ..Counts::default() };
            PortStats { name: name.into(), total, queues: Vec::new() }
        };
        StatsView { at, ports: frames.iter().map(of).collect() }
    }

    fn parts() -> Parts {
        let ports = ["guest", "in", "out", "near", "far"].map(String::from);
        let [guest, input, output, near, far] = ports;
        let switch = SwitchView {
            name: "main".into(),
            lookup: "learning".into(),
            flows: None,
            ports: vec![guest.clone(), input.clone()],
        };
        let seen = |kind: &str| GuestView {
            name: "left".into(),
            kind: kind.into(),
            state: "running".into(),
            ports: vec![guest.clone()],
            ..serde_json::from_str(
                r#"{"name":"","kind":"","state":"","note":"","pid":0,"ports":[],"console":"","reason":""}"#,
            )
            .unwrap()
        };
        let wall = serde_json::from_str(
            r#"{"name":"wall","state":"running","pid":1,"ports":["in","out"],"configuration":"inline",
                "handlers":"","restarts":0,"reason":""}"#,
        );
        let host = HostView {
            name: "far-host".into(),
            state: "up".into(),
            namespace: String::new(),
            interfaces: vec![HostInterfaceView {
                name: "eth0".into(),
                port: far.clone(),
                state: "up".into(),
                addresses: vec!["10.0.0.7/24".into()],
            }],
            programs: Vec::new(),
            output: String::new(),
        };
        let web = ChainView {
            name: "web".into(),
            state: "up".into(),
            ports: vec![input.clone(), output.clone()],
            functions: ["first", "wall"].map(String::from).into(),
            reason: String::new(),
        };
        Parts {
            fabric: FabricView { switches: vec![switch], ..FabricView::default() },
            ports: vec![
                port(&guest, "vhost-user", "switch main"),
                port(&input, "ring", "switch main"),
                port(&output, "ring", "patch near"),
                port(&near, "ring", "patch out"),
                port(&far, "ring", ""),
                port("wan/near", "link", "patch far"),
            ],
            hosts: vec![host],
            guests: vec![seen("uml")],
            functions: vec![wall.unwrap()],
            chains: vec![web],
        }
    }

    fn wan(sent: u64) -> LinkView {
        let settings = [("delay", "25ms"), ("loss", "1%")];
        let settings = settings.map(|(key, value)| (key.to_string(), value.to_string())).into();
        let one =
            DirectionView { from: "far".into(), to: "near".into(), settings, sent, ..Default::default() };
        LinkView { name: "wan".into(), directions: vec![one] }
    }

    fn sampled() -> FabricGraphView {
        let before = Totals { stats: stats(1_000_000_000, &[("guest", 10, 20, 0)]), links: vec![wan(5)] };
        let frames = [("guest", 2010, 20, 3), ("in", 0, 2000, 0)];
        let after = Totals { stats: stats(3_000_000_000, &frames), links: vec![wan(105)] };
        graph(&parts(), &before, &after)
    }

    #[test]
    fn a_fabric_is_a_graph_of_what_passed() {
        let graph = sampled();
        let at = |name: &str| graph.nodes.iter().position(|node| node.name == name).unwrap();
        let joined = |one: &str, other: &str| {
            let (one, other) = (at(one), at(other));
            graph.edges.contains(&(one, other)) || graph.edges.contains(&(other, one))
        };
        let pairs = [("guest", "left"), ("guest", "main"), ("in", "main"), ("in", "wall"), ("out", "wall")];
        assert!(pairs.iter().chain(&[("out", "near"), ("far", "wan")]).all(|(a, b)| joined(a, b)));
        assert_eq!((graph.nodes.len(), graph.edges.len()), (10, 8), "the link's own ports are not nodes");
        let node = |name: &str| graph.nodes.get(at(name)).unwrap();
        let frames = |name: &str| (node(name).tx_frames, node(name).rx_frames, node(name).drops);
        assert_eq!(frames("guest"), (2000, 0, 3));
        assert_eq!(frames("left"), (2000, 0, 3));
        assert_eq!(frames("main"), (2000, 2000, 3));
        assert_eq!(frames("wall"), (0, 2000, 0));
        assert_eq!(frames("wan"), (100, 0, 0));
        assert_eq!(node("wan").detail, "delay 25ms, loss 1%");
        assert_eq!(node("far-host").detail, "10.0.0.7/24");
        assert!(joined("far-host", "far"));
        assert_eq!(node("wall").detail, "web 2/2, running");
    }

    #[test]
    fn boxes_do_not_overlap_and_rows_are_in_order() {
        let graph = sampled();
        let (places, size) = places(&graph);
        for (at, one) in places.iter().enumerate() {
            assert!(one.0 + BOX.0 + MARGIN <= size.0 && one.1 + BOX.1 + MARGIN <= size.1, "{one:?} {size:?}");
            let apart = |other: &Point| one.0.abs_diff(other.0) >= BOX.0 || one.1.abs_diff(other.1) >= BOX.1;
            assert!(places[..at].iter().all(apart), "{places:?}");
        }
        let row = |name: &str| places[graph.nodes.iter().position(|node| node.name == name).unwrap()].1;
        assert!(row("left") < row("guest") && row("guest") < row("main") && row("main") < row("in"));
        assert!(row("in") == row("out") && row("in") < row("wall") && row("main") == row("wan"));
    }

    #[test]
    fn a_long_row_is_cut() {
        let node = |at| FabricNode { what: "port".into(), name: format!("p{at}"), ..FabricNode::default() };
        let graph = FabricGraphView { nodes: (0..400).map(node).collect(), ..Default::default() };
        let (places, (width, height)) = places(&graph);
        let mut all = places.clone();
        all.dedup();
        assert_eq!(all.len(), 400);
        assert!(width < 3 * height * 2 && width < 10_000, "{width} {height}");
    }

    #[test]
    fn a_drawing_has_names_and_rates() {
        let svg = svg("lab", &sampled());
        for part in
            ["lab, 2.0 s", ">left<", ">uml, running<", ">switch, learning<", ">tx 1.0 k/s rx 0/s drops 2/s<"]
        {
            assert!(svg.contains(part), "{part}: {svg}");
        }
    }
}
