//! The graph of a running function: its handler's text, and a drawing of it.

use super::handlers::{self, HandlerError};
use crate::api::{GraphConnection, GraphElement, GraphView};
use crate::svg::{BOX, Drawing, MARGIN, Node, Point, compact};
use ringway_spec::printable;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

/// Attack: a function that claims a graph of millions of elements. Largest numbers of elements and connections.
const MOST: usize = 1024;
/// Longest name of an element or class that is shown, in bytes. Attack: names of megabytes.
const NAME: usize = 256;
/// Distances between boxes.
const GAP: (usize, usize) = (40, 64);

/// Counts packets of a running function for a while, and returns its graph. If a profile is running already, its
/// counts are returned at once.
pub async fn sample(socket: &Path, time: Duration) -> Result<GraphView, HandlerError> {
    let graph = read(socket).await?;
    if graph.nanoseconds > 0 {
        return Ok(graph);
    }
    handlers::write(socket, "profile", b"true").await?;
    tokio::time::sleep(time).await;
    let graph = read(socket).await;
    handlers::write(socket, "profile", b"false").await?;
    graph
}

async fn read(socket: &Path) -> Result<GraphView, HandlerError> {
    let text = handlers::read(socket, "graph").await?;
    let text = String::from_utf8_lossy(&text);
    parse(&text).ok_or_else(|| HandlerError::Silent("its graph is malformed or too large".into()))
}

/// A name that is safe to show; `None` if it is too long.
fn shown(name: &str) -> Option<String> {
    (name.len() <= NAME).then(|| printable(name).into_owned())
}

/// Parses the value of the handler `graph`. The function is not trusted.
fn parse(text: &str) -> Option<GraphView> {
    let mut graph = GraphView::default();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match *words.as_slice() {
            ["profile", nanoseconds] => graph.nanoseconds = nanoseconds.parse().ok()?,
            ["element", name, class, packets, ticks] => graph.elements.push(GraphElement {
                name: shown(name)?,
                class: shown(class)?,
                packets: packets.parse().ok()?,
                ticks: ticks.parse().ok()?,
            }),
            ["connection", from, output, input, to, packets] => graph.connections.push(GraphConnection {
                from: from.parse().ok()?,
                output: output.parse().ok()?,
                input: input.parse().ok()?,
                to: to.parse().ok()?,
                packets: packets.parse().ok()?,
            }),
            _ => return None,
        }
    }
    let count = graph.elements.len();
    let exist = graph.connections.iter().all(|connection| connection.from.max(connection.to) < count);
    (exist && count <= MOST && graph.connections.len() <= MOST).then_some(graph)
}

/// Row and column of each element: packets go down, if possible.
fn places(graph: &GraphView) -> Vec<(usize, usize)> {
    let count = graph.elements.len();
    let mut next: Vec<Vec<usize>> = vec![Vec::new(); count];
    graph.connections.iter().for_each(|connection| next[connection.from].push(connection.to));
    // Without those that close a circle: a connection back to an element that leads to its start.
    let closes = |c: &GraphConnection| c.from >= c.to && leads(&next, c.to, c.from);
    let forward: Vec<&GraphConnection> = graph.connections.iter().filter(|c| !closes(c)).collect();
    let mut rows = vec![0; count];
    for _ in 0..count {
        for connection in &forward {
            rows[connection.to] = rows[connection.to].max(rows[connection.from] + 1);
        }
    }
    let mut used = vec![0; count + 1];
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|element| rows[*element]);
    let mut places = vec![(0, 0); count];
    for element in order {
        let row = rows[element];
        // As far left as the first element above it, so that chains are straight.
        let above = graph.connections.iter().filter(|connection| connection.to == element);
        let left = above.filter(|c| rows[c.from] < row).map(|c| places[c.from].1).min().unwrap_or(0);
        let column = left.max(used[row]);
        used[row] = column + 1;
        places[element] = (row, column);
    }
    places
}

/// Whether packets of an element can reach another one.
fn leads(next: &[Vec<usize>], from: usize, to: usize) -> bool {
    let mut seen = vec![false; next.len()];
    let mut open = vec![from];
    while let Some(element) = open.pop() {
        if element == to {
            return true;
        }
        if !std::mem::replace(&mut seen[element], true) {
            open.extend(&next[element]);
        }
    }
    false
}

/// The graph as SVG: an element is a box with its share of the time, a connection a line with packets and rate.
pub fn svg(name: &str, graph: &GraphView) -> String {
    let places: Vec<Point> = places(graph)
        .into_iter()
        .map(|(row, column)| (MARGIN + column * (BOX.0 + GAP.0), MARGIN + 24 + row * (BOX.1 + GAP.1)))
        .collect();
    let right = places.iter().map(|place| place.0).max().unwrap_or(0) + BOX.0 + MARGIN;
    let bottom = places.iter().map(|place| place.1).max().unwrap_or(0) + BOX.1 + MARGIN;
    let seconds = graph.nanoseconds as f64 / 1e9;
    let mut drawing = Drawing::new((right, bottom), &format!("{name}, {seconds:.1} s"));
    for connection in &graph.connections {
        let ends = (places[connection.from], places[connection.to]);
        draw_connection(&mut drawing, connection, ends, seconds);
    }
    let total = graph.elements.iter().map(|element| element.ticks).sum::<u64>().max(1);
    for (element, place) in graph.elements.iter().zip(&places) {
        draw_element(&mut drawing, element, *place, total);
    }
    drawing.end()
}

fn draw_connection(
    drawing: &mut Drawing,
    connection: &GraphConnection,
    (from, to): (Point, Point),
    seconds: f64,
) {
    // Outputs and inputs are spread over the middle of a box.
    let spread = |port: usize| BOX.0 / 2 + (port * 24).min(BOX.0 / 2 - 12);
    let (x1, y1) = (from.0 + spread(connection.output), from.1 + BOX.1);
    let (x2, y2) = (to.0 + spread(connection.input), to.1);
    drawing.curve((x1, y1), (x2, y2), GAP.1 / 2, connection.packets > 0, true);
    let mut label = match connection.output {
        0 => String::new(),
        output => format!("[{output}] "),
    };
    if connection.packets > 0 {
        let rate = if seconds > 0.0 { connection.packets as f64 / seconds } else { 0.0 };
        let _ = write!(label, "{} · {}/s", connection.packets, compact(rate));
    }
    if !label.is_empty() {
        drawing.text(((x1 + x2) / 2 + 5, (y1 + y2) / 2 + 4), label.trim_end());
    }
}

fn draw_element(drawing: &mut Drawing, element: &GraphElement, at: Point, total: u64) {
    let GraphElement { name, class, packets, ticks } = element;
    let share = *ticks as f64 / total as f64;
    // The box is redder, the more of the time the element takes.
    let pale = 245 - (share * 120.0) as u8;
    let each =
        if *packets > 0 { format!("{:.0} ticks", *ticks as f64 / *packets as f64) } else { String::new() };
    let counts =
        if *ticks > 0 { format!("{packets} · {each} · {:.0}%", share * 100.0) } else { String::new() };
    drawing.node(&Node {
        at,
        fill: &format!("rgb(250,{pale},{pale})"),
        title: &format!("{name} :: {class}"),
        lines: [name, class, &counts],
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "profile 2000000000\nelement in FromPort 3000 600000\n\
        element c Classifier 3000 300000\nelement out ToPort 2000 100000\nelement no Discard 1000 0\n\
        connection 0 0 0 1 3000\nconnection 1 0 0 2 2000\nconnection 1 1 0 3 1000\n";

    #[test]
    fn a_graph_is_drawn_with_packets_and_rates() {
        let graph = parse(TEXT).unwrap();
        assert_eq!((graph.nanoseconds, graph.elements.len(), graph.connections.len()), (2_000_000_000, 4, 3));
        assert_eq!(places(&graph), [(0, 0), (1, 0), (2, 0), (2, 1)]);
        let svg = svg("wall", &graph);
        for part in ["wall, 2.0 s", ">3000 · 1.5 k/s<", ">[1] 1000 · 500/s<", ">3000 · 200 ticks · 60%<"]
        {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        assert_eq!(svg.matches("<rect x=").count(), 4);
    }

    #[test]
    fn a_hostile_graph_is_refused_or_harmless() {
        assert_eq!(parse("element a b\n"), None);
        assert_eq!(parse("element a B 0 0\nconnection 0 0 0 1 1\n"), None, "there is no element 1");
        assert_eq!(parse(&"element a B 0 0\n".repeat(MOST + 1)), None);
        assert_eq!(parse(&format!("element {} B 0 0\n", "a".repeat(NAME + 1))), None);
        let named = parse("element a\u{1b}[2J B\u{202e} 0 0\n").unwrap();
        assert_eq!((&*named.elements[0].name, &*named.elements[0].class), ("a\\u{1b}[2J", "B\\u{202e}"));
        let circle =
            "element <script> B&amp 0 0\nelement b B 0 0\nconnection 0 0 0 1 1\nconnection 1 0 0 0 1\n";
        let drawn = svg("\"x\"", &parse(circle).unwrap());
        assert!(!drawn.contains("<script>") && drawn.contains("&lt;script&gt;"), "{drawn}");
    }
}
