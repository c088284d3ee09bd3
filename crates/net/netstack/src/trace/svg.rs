//! A trace as an SVG image: one panel above the other, with the time as their common axis.

use super::{Trace, TracePoint};
use alloc::format;
use alloc::string::String;
use core::fmt::Write;

const WIDTH: f64 = 900.0;
const LEFT: f64 = 70.0;
/// The right end of the plots; legends are beyond it, beside the data.
const RIGHT: f64 = 770.0;
const TOP: f64 = 40.0;
/// Height of a panel, and of its plot.
const PANEL: f64 = 150.0;
const PLOT: f64 = 120.0;

/// A line of a panel; `None` where there is no value.
struct Line {
    name: &'static str,
    colour: &'static str,
    value: fn(&TracePoint) -> Option<f64>,
}

struct Panel {
    title: &'static str,
    lines: &'static [Line],
}

const PANELS: [Panel; 4] = [
    Panel {
        title: "KB",
        lines: &[
            Line { name: "cwnd", colour: "#1b6ca8", value: |point| Some(point.cwnd as f64 / 1e3) },
            Line { name: "in flight", colour: "#d1495b", value: |point| Some(point.in_flight as f64 / 1e3) },
        ],
    },
    Panel {
        title: "Mb/s",
        lines: &[
            Line {
                name: "pacing rate",
                colour: "#1b6ca8",
                value: |point| point.pacing_rate.map(|rate| rate as f64 * 8e-6),
            },
            Line {
                name: "delivery rate",
                colour: "#d1495b",
                value: |point| Some(point.delivery_rate as f64 * 8e-6),
            },
        ],
    },
    Panel {
        title: "ms",
        lines: &[
            Line { name: "rtt", colour: "#9aa5b1", value: |point| Some(point.rtt as f64 / 1e6) },
            Line { name: "srtt", colour: "#1b6ca8", value: |point| Some(point.srtt as f64 / 1e6) },
            Line { name: "min rtt", colour: "#3a7d44", value: |point| Some(point.min_rtt as f64 / 1e6) },
        ],
    },
    Panel {
        title: "in total",
        lines: &[
            Line {
                name: "retransmissions",
                colour: "#d1495b",
                value: |point| Some(point.retransmissions as f64),
            },
            Line { name: "timeouts", colour: "#1b6ca8", value: |point| Some(point.timeouts as f64) },
        ],
    },
];

/// Backgrounds of the controller's states, in the order in which they appear.
const MODES: [&str; 8] =
    ["#fdf3d8", "#fbe0e0", "#e3f0e3", "#e0ebf7", "#efe6f5", "#e0f3f3", "#f3e8df", "#eeeeee"];

pub(super) fn svg(trace: &Trace) -> String {
    let points = trace.points();
    let begin = points.first().map_or(0, |first| first.time);
    let span = points.last().map_or(0, |last| last.time - begin).max(1) as f64;
    let x = |time: u64| LEFT + (RIGHT - LEFT) * (time - begin) as f64 / span;
    let height = TOP + PANEL * PANELS.len() as f64 + 50.0;
    let (local, remote) = trace.addresses();
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"14\">{local} to {remote}, {}, {:.3} s</text>\n",
        trace.congestion_control(),
        span / 1e9,
    );
    modes(&mut out, points, &x);
    axis(&mut out, span, TOP + PANEL * PANELS.len() as f64);
    for (number, panel) in PANELS.iter().enumerate() {
        draw(&mut out, TOP + PANEL * number as f64 + PLOT + 20.0, panel, points, &x);
    }
    out.push_str("</svg>\n");
    out
}

/// The controller's states: a background, and a legend.
fn modes(out: &mut String, points: &[TracePoint], x: &dyn Fn(u64) -> f64) {
    let mut names = arrayvec::ArrayVec::<&str, { MODES.len() }>::new();
    let (height, mut next) = (PANEL * PANELS.len() as f64, 0);
    for run in points.chunk_by(|one, two| one.mode == two.mode) {
        let (mode, from) = (run[0].mode, run[0].time);
        next += run.len();
        let to = points.get(next).unwrap_or(&run[run.len() - 1]).time;
        let known = names.iter().position(|name| *name == mode);
        if known.is_none() {
            // Further ones share the last colour.
            let _ = names.try_push(mode);
        }
        let colour = MODES[known.unwrap_or(names.len() - 1)];
        let _ = writeln!(
            out,
            "<rect x=\"{:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{height}\" fill=\"{colour}\"/>",
            x(from),
            x(to) - x(from),
        );
    }
    for (number, name) in names.iter().enumerate() {
        let at = LEFT + 110.0 * number as f64;
        let _ = writeln!(
            out,
            "<rect x=\"{at:.1}\" y=\"22\" width=\"10\" height=\"10\" fill=\"{}\" stroke=\"#999\"/>\
             <text x=\"{:.1}\" y=\"31\">{name}</text>",
            MODES[number],
            at + 14.0,
        );
    }
}

/// The time axis below the panels, with lines through them. Its marks are 1, 2 or 5 times a power of ten apart.
fn axis(out: &mut String, span: f64, bottom: f64) {
    let (unit, scale) = if span >= 1e9 { ("s", 1e9) } else { ("ms", 1e6) };
    let length = span / scale;
    let mut step = 1e-6;
    // At most ten marks; the factors lead from 1 to 2, 5 and 10.
    for factor in [2.0, 2.5, 2.0].into_iter().cycle() {
        if length / step <= 10.0 {
            break;
        }
        step *= factor;
    }
    let digits = [1.0, 0.1, 0.01, 0.001].iter().position(|least| step >= least * 0.999).unwrap_or(4);
    let _ = writeln!(out, "<path d=\"M{LEFT} {bottom:.1}H{RIGHT}\" fill=\"none\" stroke=\"#999\"/>");
    let mut number = 0_u32;
    while f64::from(number) * step <= length * 1.000_001 {
        let time = f64::from(number) * step;
        let at = LEFT + (RIGHT - LEFT) * time / length;
        let _ = writeln!(
            out,
            "<path d=\"M{at:.1} {TOP}V{:.1}\" fill=\"none\" stroke=\"#ddd\" stroke-width=\"0.5\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{time:.digits$}</text>",
            bottom + 5.0,
            bottom + 18.0,
        );
        number += 1;
    }
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">time since the first point ({unit})</text>",
        (LEFT + RIGHT) / 2.0,
        bottom + 36.0,
    );
}

fn draw(out: &mut String, bottom: f64, panel: &Panel, points: &[TracePoint], x: &dyn Fn(u64) -> f64) {
    let values = panel.lines.iter().flat_map(|line| points.iter().filter_map(line.value));
    let most = values.fold(0.0, f64::max);
    let most = if most > 0.0 { most } else { 1.0 };
    let top = bottom - PLOT;
    let _ = writeln!(
        out,
        "<text x=\"{0:.1}\" y=\"{1:.1}\" text-anchor=\"end\">{most:.1}</text>\n\
         <text x=\"{0:.1}\" y=\"{2:.1}\" text-anchor=\"end\">{3}</text>\n\
         <text x=\"{0:.1}\" y=\"{bottom:.1}\" text-anchor=\"end\">0</text>\n\
         <path d=\"M{LEFT} {top:.1}V{bottom:.1}H{RIGHT}\" fill=\"none\" stroke=\"#999\"/>",
        LEFT - 4.0,
        top + 8.0,
        top + 24.0,
        panel.title,
    );
    for (number, line) in panel.lines.iter().enumerate() {
        let mut path = String::new();
        for point in points {
            if let Some(value) = (line.value)(point) {
                let command = if path.is_empty() { 'M' } else { 'L' };
                let _ = write!(path, "{command}{:.1} {:.1}", x(point.time), bottom - PLOT * value / most);
            }
        }
        let _ = writeln!(
            out,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{0}\"/>\
             <path d=\"M{1:.1} {2:.1}h16\" stroke=\"{0}\" stroke-width=\"2\"/>\
             <text x=\"{3:.1}\" y=\"{4:.1}\" fill=\"{0}\">{5}</text>",
            line.colour,
            RIGHT + 8.0,
            top + 4.0 + 16.0 * number as f64,
            RIGHT + 28.0,
            top + 8.0 + 16.0 * number as f64,
            line.name,
        );
    }
}
