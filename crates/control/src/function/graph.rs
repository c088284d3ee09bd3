//! The graph of a running function: its handler's text, and a drawing of it.

use super::handlers::{self, HandlerError};
use crate::api::{GraphConnection, GraphElement, GraphView};
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

/// Attack: a function that claims a graph of millions of elements. Largest numbers of elements and connections.
const MOST: usize = 1024;
/// Size of an element's box, and the distances between boxes.
const BOX: (usize, usize) = (190, 56);
const GAP: (usize, usize) = (40, 64);
/// Characters of a name that fit into a box.
const LETTERS: usize = 26;
/// Distance of lines from the drawing's border.
const MARGIN: usize = 24;

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

/// Parses the value of the handler `graph`. The function is not trusted.
fn parse(text: &str) -> Option<GraphView> {
    let mut graph = GraphView::default();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match *words.as_slice() {
            ["profile", nanoseconds] => graph.nanoseconds = nanoseconds.parse().ok()?,
            ["element", name, class, packets, ticks] => graph.elements.push(GraphElement {
                name: name.into(),
                class: class.into(),
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

/// A text without the characters that have a meaning in XML.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        match letter {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            letter if letter.is_control() => out.push(' '),
            letter => out.push(letter),
        }
    }
    out
}

/// The end of a name that is too long for a box.
fn short(name: &str) -> String {
    match name.char_indices().rev().nth(LETTERS - 1) {
        Some((at, _)) if at > 0 => format!("…{}", &name[at..]),
        _ => name.into(),
    }
}

/// A number with three digits and a unit.
fn compact(number: f64) -> String {
    let units = ["", " k", " M", " G", " T"];
    let (mut number, mut unit) = (number, 0);
    while number >= 1000.0 && unit + 1 < units.len() {
        (number, unit) = (number / 1000.0, unit + 1);
    }
    let digits = if unit == 0 || number >= 100.0 { 0 } else { 1 };
    format!("{number:.digits$}{}", units[unit])
}

/// The graph as SVG: an element is a box with its share of the time, a connection a line with packets and rate.
pub fn svg(name: &str, graph: &GraphView) -> String {
    let places = places(graph);
    let at = |(row, column): (usize, usize)| {
        (MARGIN + column * (BOX.0 + GAP.0), MARGIN + 24 + row * (BOX.1 + GAP.1))
    };
    let right = places.iter().map(|place| at(*place).0).max().unwrap_or(0) + BOX.0 + MARGIN;
    let bottom = places.iter().map(|place| at(*place).1).max().unwrap_or(0) + BOX.1 + MARGIN;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{right}\" height=\"{bottom}\" \
         viewBox=\"0 0 {right} {bottom}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <defs><marker id=\"end\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" \
         markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#555\"/></marker></defs>\n"
    );
    let seconds = graph.nanoseconds as f64 / 1e9;
    let _ = writeln!(
        out,
        "<text x=\"{MARGIN}\" y=\"20\" font-weight=\"bold\">{}, {seconds:.1} s</text>",
        escaped(name)
    );
    for connection in &graph.connections {
        let (from, to) = (at(places[connection.from]), at(places[connection.to]));
        draw_connection(&mut out, connection, from, to, seconds);
    }
    let total = graph.elements.iter().map(|element| element.ticks).sum::<u64>().max(1);
    for (element, place) in graph.elements.iter().zip(&places) {
        draw_element(&mut out, element, at(*place), total);
    }
    out.push_str("</svg>\n");
    out
}

fn draw_connection(
    out: &mut String,
    connection: &GraphConnection,
    from: (usize, usize),
    to: (usize, usize),
    seconds: f64,
) {
    // Outputs and inputs are spread over the middle of a box.
    let spread = |port: usize| BOX.0 / 2 + (port * 24).min(BOX.0 / 2 - 12);
    let (x1, y1) = (from.0 + spread(connection.output), from.1 + BOX.1);
    let (x2, y2) = (to.0 + spread(connection.input), to.1);
    let (bend1, bend2) = (y1 + GAP.1 / 2, y2.saturating_sub(GAP.1 / 2));
    let (colour, width) = if connection.packets > 0 { ("#2563eb", 2) } else { ("#999", 1) };
    let _ = writeln!(
        out,
        "<path d=\"M{x1} {y1}C{x1} {bend1} {x2} {bend2} {x2} {y2}\" fill=\"none\" stroke=\"{colour}\" \
         stroke-width=\"{width}\" marker-end=\"url(#end)\"/>"
    );
    let mut label = match connection.output {
        0 => String::new(),
        output => format!("[{output}] "),
    };
    if connection.packets > 0 {
        let rate = if seconds > 0.0 { connection.packets as f64 / seconds } else { 0.0 };
        let _ = write!(label, "{} · {}/s", connection.packets, compact(rate));
    }
    if !label.is_empty() {
        let (x, y) = ((x1 + x2) / 2 + 5, (y1 + y2) / 2 + 4);
        let _ = writeln!(
            out,
            "<text x=\"{x}\" y=\"{y}\" font-size=\"11\" fill=\"#333\">{}</text>",
            label.trim_end()
        );
    }
}

fn draw_element(out: &mut String, element: &GraphElement, (x, y): (usize, usize), total: u64) {
    let GraphElement { name, class, packets, ticks } = element;
    let share = *ticks as f64 / total as f64;
    let (width, height) = BOX;
    // The box is redder, the more of the time the element takes.
    let pale = 245 - (share * 120.0) as u8;
    let _ = writeln!(
        out,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"5\" \
         fill=\"rgb(250,{pale},{pale})\" stroke=\"#555\"><title>{} :: {}</title></rect>",
        escaped(name),
        escaped(class)
    );
    let each =
        if *packets > 0 { format!("{:.0} ticks", *ticks as f64 / *packets as f64) } else { String::new() };
    let counts = if *ticks > 0 { format!("{packets}  {each}  {:.0}%", share * 100.0) } else { String::new() };
    let middle = x + width / 2;
    for (down, weight, text) in
        [(17, "bold", short(name)), (33, "normal", short(class)), (49, "normal", counts)]
    {
        let (y, text) = (y + down, escaped(&text));
        let _ = writeln!(
            out,
            "<text x=\"{middle}\" y=\"{y}\" text-anchor=\"middle\" font-weight=\"{weight}\">{text}</text>"
        );
    }
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
        for part in ["wall, 2.0 s", ">3000 · 1.5 k/s<", ">[1] 1000 · 500/s<", ">3000  200 ticks  60%<"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        assert_eq!(svg.matches("<rect x=").count(), 4);
    }

    #[test]
    fn a_hostile_graph_is_refused_or_harmless() {
        assert_eq!(parse("element a b\n"), None);
        assert_eq!(parse("element a B 0 0\nconnection 0 0 0 1 1\n"), None, "there is no element 1");
        assert_eq!(parse(&"element a B 0 0\n".repeat(MOST + 1)), None);
        let circle =
            "element <script> B&amp 0 0\nelement b B 0 0\nconnection 0 0 0 1 1\nconnection 1 0 0 0 1\n";
        let drawn = svg("\"x\"", &parse(circle).unwrap());
        assert!(!drawn.contains("<script>") && drawn.contains("&lt;script&gt;"), "{drawn}");
        let long = "x".repeat(200);
        assert_eq!(short(&long).chars().count(), LETTERS + 1);
    }
}
