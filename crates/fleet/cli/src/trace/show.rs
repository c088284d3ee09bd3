//! A trace as text: each hop with its stages, then how it ends.

use ringway_control::api::{
    DestinationView, ElementPassView, ElementTraceView, FunctionTraceView, HopView, LinkTraceView,
    MirroredView, MulticastView, TraceView,
};
use ringway_spec::printable;
use std::fmt::Write;

/// Width of the names of stages.
const STAGE: usize = 12;

/// The whole trace.
pub fn text(view: &TraceView) -> String {
    let mut out = String::new();
    view.hops.iter().for_each(|hop| add_hop(&mut out, hop));
    if view.omitted > 0 {
        let _ = writeln!(out, "\n{} more frames were not followed", view.omitted);
    }
    out.push('\n');
    for end in ends(view) {
        let _ = writeln!(out, "{end}");
    }
    match view.sent {
        Some(true) if view.changed => {
            out.push_str("sent; the fabric changed meanwhile, so that it may go elsewhere\n")
        }
        Some(true) => out.push_str("sent\n"),
        Some(false) => out.push_str("not sent: there was no room for it\n"),
        None => {}
    }
    out
}

fn stage(out: &mut String, name: &str, what: &str) {
    // Names and reasons come from files and functions.
    let _ = writeln!(out, "  {name:STAGE$} {}", printable(what));
}

fn add_hop(out: &mut String, hop: &HopView) {
    let HopView { number, after, through, port, length, summary, worker, .. } = hop;
    if *number > 1 {
        out.push('\n');
    }
    let from = after.map_or_else(String::new, |after| format!(", from {after} by {through}"));
    let _ = writeln!(out, "{number}  port {port}{from}");
    stage(out, "parser", &format!("{length} bytes, {}{summary}", addresses(&hop.frame)));
    if !hop.note.is_empty() {
        stage(out, "unknown", &hop.note);
        return;
    }
    if let Some(vlan) = hop.vlan.filter(|vlan| *vlan != 0) {
        stage(out, "vlan", &vlan.to_string());
    }
    if let Some(sender) = &hop.sender {
        stage(out, "sender", sender);
    }
    stage(out, "table", &table(hop));
    hop.flows.iter().for_each(|row| stage(out, "flow", row));
    if let Some(multicast) = &hop.multicast {
        stage(out, "multicast", &members(multicast));
    }
    if hop.held {
        stage(out, "waits", "until the function runs that the frame is for");
    }
    if let Some(reason) = &hop.dropped {
        stage(out, "drop", &format!("at port {port}: {reason}"));
    }
    hop.destinations.iter().for_each(|to| add_destination(out, to));
    for MirroredView { port, of, leaves } in &hop.mirrored {
        let way = if *leaves { "goes to" } else { "comes from" };
        stage(out, "mirror", &format!("{port} gets a copy, as the frame {way} {of}"));
    }
    if hop.omitted > 0 {
        stage(out, "destination", &format!("{} more ports, not looked at", hop.omitted));
    }
    if !worker.is_empty() && *number == 1 {
        stage(out, "worker", worker);
    }
}

/// Who gets a packet to a group.
fn members(MulticastView { group, ports }: &MulticastView) -> String {
    let what = group.as_ref().map_or("a message about groups".into(), |group| format!("group {group}"));
    match ports {
        None => format!("{what}: every port"),
        Some(ports) if ports.is_empty() => format!("{what}: no port has members or a router"),
        Some(ports) => format!("{what}: ports with members and routers, {}", ports.join(", ")),
    }
}

/// The MAC addresses of a frame in hexadecimal.
fn addresses(frame: &str) -> String {
    let mac = |from: usize| {
        let digits = frame.get(from..from + 12)?;
        let pairs: Vec<&str> = (0..6).filter_map(|pair| digits.get(2 * pair..2 * pair + 2)).collect();
        Some(pairs.join(":"))
    };
    match (mac(12), mac(0)) {
        (Some(source), Some(destination)) => format!("{source} > {destination}, "),
        _ => String::new(),
    }
}

fn table(hop: &HopView) -> String {
    let to = match (&*hop.to, &*hop.table) {
        ("", _) => String::new(),
        (to, "") => format!("{to}: "),
        (to, table) => format!("{to} ({table}): "),
    };
    let first = hop.destinations.first().map(|to| &*to.port).unwrap_or_default();
    let found = match &*hop.lookup {
        "flow" => "flow tables decide".into(),
        "known" if hop.dropped.as_deref() == Some("hairpin") => {
            "the destination is at the frame's own port".into()
        }
        "known" => format!("the destination is at {first}"),
        "flooded" => "the destination is a group, or unknown: to every other port".into(),
        "unknown" => "the destination is unknown".into(),
        "reserved" => "the destination is reserved for protocols between neighbours".into(),
        "foreign" => "the source is known at another port, and the switch refuses moves".into(),
        "limited" => "a limit on a port is reached".into(),
        "refused" => "the policy on a port refuses it".into(),
        "invalid" => "the source is a group address".into(),
        "patch" => format!("to {first}"),
        "instance" => format!("the flow is that of {first}"),
        "nowhere" => "the port is connected to nothing".into(),
        other => other.to_string(),
    };
    let learned = match hop.learned.as_deref() {
        Some("new") => format!("; the source is new, and is learned at {}", hop.port),
        Some("moved") => format!("; the source moves to {}", hop.port),
        Some("refused") => "; the source is not learned, since the table is full".into(),
        Some("limited") => "; the source is not learned, since too many are now".into(),
        Some("known") => "; the source is known".into(),
        _ => String::new(),
    };
    format!("{to}{found}{learned}")
}

fn add_destination(out: &mut String, to: &DestinationView) {
    let DestinationView { port, kind, queue, verdict, reason, hold, .. } = to;
    if let Some(completion) = &to.completion {
        let what = match completion.frames {
            1 => format!("for {port}: one frame of {} bytes, with its checksums", completion.length),
            count => format!("for {port}: {count} frames, the first of {} bytes", completion.length),
        };
        stage(out, "offload", &what);
    }
    if to.joins {
        let what = format!("for {port}: with segments of its flow that are taken at the same time");
        stage(out, "reassembly", &what);
    }
    if let Some(retag) = &to.retag {
        let what = match retag.split_once(' ') {
            Some(("inserted", vlan)) => format!("for {port}: with a tag of VLAN {vlan}"),
            Some((_, vlan)) => format!("for {port}: with VLAN {vlan} in its tag"),
            None => format!("for {port}: without its tag"),
        };
        stage(out, "tag", &what);
    }
    let place = format!("{port} ({kind}), queue {queue}");
    let reason = reason.as_deref().unwrap_or_default();
    match &**verdict {
        "dropped" => stage(out, "drop", &format!("at {place}: {reason}")),
        "waits" => {
            let hold = time(*hold);
            stage(
                out,
                "destination",
                &format!("{place}: full; the frame waits for up to {hold}, then it is dropped"),
            );
        }
        "busy" => stage(out, "destination", &format!("{place}: another worker had it locked")),
        verdict => stage(out, "destination", &format!("{place}: {verdict}")),
    }
    if let Some(function) = &to.function {
        add_function(out, function, &to.next);
    }
    if let Some(link) = &to.link {
        add_link(out, link, &to.next);
    }
}

fn add_function(out: &mut String, function: &FunctionTraceView, next: &[usize]) {
    let FunctionTraceView { name, state, input, unknown, elements, connections, sent, .. } = function;
    stage(out, "function", &format!("{name} ({state}), input {input}"));
    if !unknown.is_empty() {
        return stage(out, "", &format!("what it does is not known: {unknown}"));
    }
    for path in paths(elements, connections) {
        stage(out, "", &path);
    }
    for element in elements.iter().filter(|element| element.kept > 0) {
        let what = match &*element.class {
            "Discard" => "dropped by",
            _ => "dropped or kept by",
        };
        stage(out, "", &format!("{what} {}", element_name(element)));
    }
    for (index, frame) in sent.iter().enumerate() {
        let hop = next.get(index).map_or_else(String::new, |hop| format!(", continued in {hop}"));
        let after = time(frame.after);
        stage(
            out,
            "",
            &format!("sends {} bytes to {} after {after}{hop}", frame.frame.len() / 2, frame.port),
        );
    }
    if function.omitted > 0 {
        stage(out, "", &format!("sends {} more frames", function.omitted));
    }
    for line in &function.printed {
        stage(out, "", &format!("prints {line}"));
    }
    let states: Vec<String> = elements.iter().filter(|one| one.has_state).map(element_name).collect();
    if !states.is_empty() {
        let what = format!("as if no packet came before; {} may do something else now", states.join(", "));
        stage(out, "", &what);
    }
}

/// The name of an element, with its class unless the name begins with it.
fn element_name(element: &ElementTraceView) -> String {
    let ElementTraceView { name, class, .. } = element;
    match name.strip_prefix(&**class).is_some_and(|rest| rest.starts_with('@')) {
        true => name.clone(),
        false => format!("{name} :: {class}"),
    }
}

/// The ways of packets through the elements, a line each.
fn paths(elements: &[ElementTraceView], connections: &[ElementPassView]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut seen = vec![false; elements.len()];
    let mut starts: Vec<(usize, Option<&ElementPassView>)> =
        (!elements.is_empty()).then_some((0, None)).into_iter().collect();
    while let Some((from, first)) = starts.pop() {
        let Some(element) = elements.get(from) else { continue };
        let mut line = element_name(element);
        let (mut at, mut onward) = (from, first);
        loop {
            if let Some(place) = seen.get_mut(at) {
                *place = true;
            }
            let mut leaving = connections.iter().filter(|one| one.from == at);
            let Some(pass) = onward.take().or_else(|| {
                let next = leaving.next();
                starts.extend(leaving.map(|other| (at, Some(other))));
                next
            }) else {
                break;
            };
            let port = |number: usize| if number == 0 { String::new() } else { format!("[{number}]") };
            let Some(to) = elements.get(pass.to) else { break };
            let _ = write!(line, "{} -> {}{}", port(pass.output), port(pass.input), element_name(to));
            if seen.get(pass.to).copied().unwrap_or(true) {
                break;
            }
            at = pass.to;
        }
        lines.push(line);
    }
    lines
}

fn add_link(out: &mut String, link: &LinkTraceView, next: &[usize]) {
    let LinkTraceView { name, from, dropped, queueing, sending, delay, jitter, loss, .. } = link;
    if let Some(reason) = dropped {
        return stage(out, "link", &format!("{name}, from {from}: dropped, {reason}"));
    }
    let mut parts = Vec::new();
    if *queueing > 0 {
        parts.push(format!("{} in its queue", time(*queueing)));
    }
    if *sending > 0 {
        parts.push(format!("{} to send", time(*sending)));
    }
    match jitter {
        0 => parts.push(format!("{} delay", time(*delay))),
        _ => parts.push(format!("{} delay with {} jitter", time(*delay), time(*jitter))),
    }
    for (share, what) in
        [(*loss, "lost"), (link.corrupt, "corrupted"), (link.duplicate, "duplicated"), (link.mark, "marked")]
    {
        if share > 0.0 {
            parts.push(format!("{} % {what}", number(share * 100.0)));
        }
    }
    let hop = next.first().map_or_else(String::new, |hop| format!("; continued in {hop}"));
    stage(out, "link", &format!("{name}, from {from}: {}{hop}", parts.join(", ")));
}

/// Nanoseconds in a unit that people read.
pub fn time(nanoseconds: u64) -> String {
    let value = nanoseconds as f64;
    match nanoseconds {
        0..1_000 => format!("{nanoseconds} ns"),
        1_000..1_000_000 => format!("{} us", number(value / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", number(value / 1e6)),
        _ => format!("{} s", number(value / 1e9)),
    }
}

/// A number with at most three decimals.
fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// How the frame ends: where it is delivered, and where it is dropped and why.
fn ends(view: &TraceView) -> Vec<String> {
    let mut ends = Vec::new();
    for hop in &view.hops {
        if let Some(reason) = &hop.dropped {
            ends.push(format!("dropped at {}: {reason}", hop.port));
        }
        for to in &hop.destinations {
            let reason = to.reason.as_deref().unwrap_or_default();
            match (&*to.verdict, &to.function, &to.link) {
                ("dropped", ..) => ends.push(format!("dropped at {}: {reason}", to.port)),
                ("delivered" | "waits", Some(function), _) if to.next.is_empty() => {
                    let how = if function.unknown.is_empty() { "ends in" } else { "passed to" };
                    ends.push(format!("{how} function {}", function.name));
                }
                ("delivered" | "waits", _, Some(link)) if to.next.is_empty() => {
                    let reason = link.dropped.as_deref().unwrap_or("not followed");
                    ends.push(format!("dropped by link {}: {reason}", link.name));
                }
                ("delivered", None, None) => ends.push(format!("delivered to {}", to.port)),
                ("waits", None, None) => ends.push(format!("waits for room at {}", to.port)),
                _ => {}
            }
        }
    }
    ends.iter().map(|end| printable(end).into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPECTED: &str = "\
1  port a
  parser       14 bytes, 02:00:00:00:00:01 > 02:00:00:00:00:02, ethertype 0x88cc
  table        switch lan (learning): the destination is a group, or unknown: to every other port; \
               the source is new, and is learned at a
  destination  in (ring), queue 0: delivered
  function     wall (running), input in
               rules :: IPFilter
               dropped or kept by rules :: IPFilter
               as if no packet came before; q :: Queue may do something else now
  destination  wan/b (ring), queue 0: delivered
  link         wan, from b: 20 ms delay with 1.5 ms jitter, 1 % lost; continued in 2
  drop         at c (ring), queue 0: down

2  port wan/b, from 1 by link wan
  parser       0 bytes, 
  table        to d
  destination  d (ring), queue 0: delivered

ends in function wall
dropped at c: down
delivered to d
sent
";

    fn element(name: &str, class: &str, kept: u64, has_state: bool) -> ElementTraceView {
        ElementTraceView { name: name.into(), class: class.into(), kept, has_state }
    }

    fn pass(from: usize, output: usize, to: usize) -> ElementPassView {
        ElementPassView { from, output, to, input: 0, packets: 1 }
    }

    #[test]
    fn every_way_through_a_function_is_a_line() {
        let elements = [
            element("FromPort@1", "FromPort", 0, false),
            element("t", "Tee", 0, false),
            element("ToPort@3", "ToPort", 0, false),
            element("q", "Queue", 1, true),
        ];
        let connections = [pass(0, 0, 1), pass(1, 0, 2), pass(1, 1, 3), pass(3, 0, 1)];
        let lines = paths(&elements, &connections);
        assert_eq!(lines, ["FromPort@1 -> t :: Tee -> ToPort@3", "t :: Tee[1] -> q :: Queue -> t :: Tee"]);
        assert!(paths(&[], &connections).is_empty());
    }

    #[test]
    fn a_trace_has_its_stages_and_its_ends() {
        let function = FunctionTraceView {
            name: "wall".into(),
            state: "running".into(),
            input: "in".into(),
            elements: vec![element("rules", "IPFilter", 1, false), element("q", "Queue", 0, true)],
            ..FunctionTraceView::default()
        };
        let link = LinkTraceView {
            name: "wan".into(),
            from: "b".into(),
            delay: 20_000_000,
            jitter: 1_500_000,
            loss: 0.01,
            ..LinkTraceView::default()
        };
        let to = |port: &str, verdict: &str| DestinationView {
            port: port.into(),
            kind: "ring".into(),
            verdict: verdict.into(),
            ..DestinationView::default()
        };
        let destinations = vec![
            DestinationView { function: Some(function), ..to("in", "delivered") },
            DestinationView { link: Some(link), next: vec![2], ..to("wan/b", "delivered") },
            DestinationView { reason: Some("down".into()), ..to("c", "dropped") },
        ];
        let hop = HopView {
            number: 1,
            port: "a".into(),
            to: "switch lan".into(),
            table: "learning".into(),
            lookup: "flooded".into(),
            learned: Some("new".into()),
            frame: "02000000000202000000000188cc".into(),
            length: 14,
            summary: "ethertype 0x88cc".into(),
            destinations,
            ..HopView::default()
        };
        let last = HopView {
            number: 2,
            after: Some(1),
            through: "link wan".into(),
            port: "wan/b".into(),
            lookup: "patch".into(),
            destinations: vec![to("d", "delivered")],
            ..HopView::default()
        };
        let view =
            TraceView { port: "a".into(), hops: vec![hop, last], sent: Some(true), ..TraceView::default() };
        assert_eq!(text(&view), EXPECTED);
    }
}
