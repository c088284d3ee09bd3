//! A picture of a measurement: throughput by size, latency by load, and each trial.

use crate::rfc2544::{Report, SizeReport, Verdict};
use ringway_spec::svg::{END, MIDDLE, Svg};

const WIDTH: f64 = 760.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const PANEL: f64 = 200.0;
const GAP: f64 = 66.0;
const TOP: f64 = 56.0;
const COLOURS: [&str; 6] = ["#1b6ca8", "#d1495b", "#3a7d44", "#edae49", "#6a4c93", "#555555"];
const GRID: &str = "stroke=\"#ddd\"";
const GREY: &str = "fill=\"#555\"";

/// Draws a report.
pub fn svg(report: &Report) -> String {
    let mut svg = Svg::new(WIDTH, TOP + 3.0 * (PANEL + GAP), "font-size=\"12\"");
    let title = format!("RFC 2544, trials of {} s", report.trial_seconds);
    svg.text(LEFT, 20.0, "font-weight=\"bold\"", &title);
    throughput(&mut svg, report, TOP);
    latency(&mut svg, report, TOP + PANEL + GAP);
    trials(&mut svg, report, TOP + 2.0 * (PANEL + GAP));
    svg.end()
}

fn fill(number: usize) -> String {
    format!("fill=\"{}\"", COLOURS[number % COLOURS.len()])
}

/// A panel's frame: its title and the names of its colours above, five lines with figures up to `most`.
fn panel(svg: &mut Svg, top: f64, title: &str, names: &[String], most: f64) {
    svg.text(LEFT, top - 14.0, "font-weight=\"bold\"", title);
    let mut x = LEFT + 330.0;
    for (number, name) in names.iter().enumerate() {
        svg.rect([x, top - 23.0, 10.0, 10.0], &fill(number), "");
        svg.text(x + 14.0, top - 14.0, GREY, name);
        x += 30.0 + 7.0 * name.len() as f64;
    }
    for step in 0..=4 {
        let (share, y) = (f64::from(step) / 4.0, top + PANEL * (1.0 - f64::from(step) / 4.0));
        svg.line([(LEFT, y), (WIDTH - RIGHT, y)], GRID);
        svg.text(LEFT - 6.0, y + 4.0, &format!("{END} {GREY}"), &figure(share * most));
    }
}

/// A figure with three digits at most.
fn figure(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// The place of a size among all, and its width.
fn column(report: &Report, number: usize) -> (f64, f64) {
    let width = (WIDTH - LEFT - RIGHT) / report.sizes.len().max(1) as f64;
    (LEFT + width * number as f64, width)
}

fn heading(svg: &mut Svg, report: &Report, top: f64) {
    for (number, size) in report.sizes.iter().enumerate() {
        let (x, width) = column(report, number);
        svg.text(x + width / 2.0, top + PANEL + 16.0, MIDDLE, &format!("{} B", size.frame));
    }
}

/// Bars of a size, one for each figure; `None`: there is none.
fn bars(svg: &mut Svg, (x, width): (f64, f64), top: f64, most: f64, figures: &[(Option<f64>, String)]) {
    let bar = (width * 0.8 / figures.len().max(1) as f64).min(40.0);
    let first = x + (width - bar * figures.len() as f64) / 2.0;
    for (number, (value, title)) in figures.iter().enumerate() {
        let left = first + bar * number as f64;
        match value {
            Some(value) => {
                let height = if most > 0.0 { PANEL * value / most } else { 0.0 };
                svg.rect([left, top + PANEL - height, bar * 0.9, height], &fill(number), title);
            }
            None => svg.text(left + bar / 2.0, top + PANEL - 4.0, &format!("{MIDDLE} {GREY}"), "-"),
        }
    }
}

fn throughput(svg: &mut Svg, report: &Report, top: f64) {
    let rates = |size: &SizeReport| {
        [("NDR", &size.ndr), ("PDR", &size.pdr)].map(|(name, found)| {
            let rate = found.rate.map(|rate| rate / 1e6);
            (rate, format!("{name}, {} B: {} Mpps; {}", size.frame, figure(found.at_least / 1e6), found.why))
        })
    };
    let all = report.sizes.iter().flat_map(rates).filter_map(|(rate, _)| rate);
    let most = all.fold(0.0, f64::max);
    let names = ["NDR".to_string(), format!("PDR {}%", 100.0 * report.partial)];
    panel(svg, top, "Throughput, Mpps", &names, most);
    for (number, size) in report.sizes.iter().enumerate() {
        bars(svg, column(report, number), top, most, &rates(size));
    }
    heading(svg, report, top);
}

fn latency(svg: &mut Svg, report: &Report, top: f64) {
    let micros = |nanoseconds: u64| nanoseconds as f64 / 1000.0;
    let loads: Vec<f64> =
        report.sizes.first().map(|size| size.latency.iter().map(|at| at.load).collect()).unwrap_or_default();
    let all = report.sizes.iter().flat_map(|size| &size.latency).map(|at| micros(at.latency.p99));
    let most = all.fold(0.0, f64::max);
    let names: Vec<String> = loads.iter().map(|load| format!("{:.0}% of NDR", 100.0 * load)).collect();
    panel(svg, top, "Latency, 99th percentile, us", &names, most);
    for (number, size) in report.sizes.iter().enumerate() {
        let figures: Vec<(Option<f64>, String)> = size
            .latency
            .iter()
            .map(|at| {
                let [p50, p99] = [at.latency.p50, at.latency.p99].map(|time| figure(micros(time)));
                let title =
                    format!("{} B at {:.0} frames/s: p50 {p50} us, p99 {p99} us", size.frame, at.rate);
                (at.is_clean.then_some(micros(at.latency.p99)), title)
            })
            .collect();
        bars(svg, column(report, number), top, most, &figures);
    }
    heading(svg, report, top);
}

/// Each trial at a rate: its rate, as a share of the highest of its size, from left to right, and the loss upwards.
fn trials(svg: &mut Svg, report: &Report, top: f64) {
    let paced = |size: &SizeReport| -> Vec<_> {
        size.trials.iter().filter(|trial| trial.rate > 0.0).cloned().collect()
    };
    let losses = report.sizes.iter().flat_map(|size| &size.trials).map(|trial| 100.0 * trial.loss);
    let most = losses.fold(1.0, f64::max);
    let names = ["passed or lost".to_string(), "refused".to_string(), "missed".to_string()];
    panel(svg, top, "Trials: loss, %, by rate within a size", &names, most);
    for (number, size) in report.sizes.iter().enumerate() {
        let (x, width) = column(report, number);
        let trials = paced(size);
        let highest = trials.iter().map(|trial| trial.rate).fold(1.0, f64::max);
        for trial in trials {
            let colour = match trial.verdict {
                Verdict::Clean | Verdict::Loss => 0,
                Verdict::Refused => 1,
                Verdict::Missed => 2,
            };
            let (left, height) = (x + width * 0.9 * trial.rate / highest, PANEL * 100.0 * trial.loss / most);
            let title =
                format!("{:.0} frames/s: {:?}, loss {:.4}%", trial.rate, trial.verdict, 100.0 * trial.loss);
            svg.rect([left, top + PANEL - height - 3.0, 5.0, 5.0], &fill(colour), &title);
        }
    }
    heading(svg, report, top);
}
