//! Runs as an SVG image: one panel per figure, one line per policy.

use super::report::{Report, Sample};
use ringway_spec::svg::{END, Svg};

const WIDTH: f64 = 720.0;
const PANEL: f64 = 130.0;
const LEFT: f64 = 60.0;
const COLOURS: [&str; 8] =
    ["#1b6ca8", "#d1495b", "#3a7d44", "#edae49", "#6a4c93", "#00798c", "#8d6a9f", "#555555"];

type Figure = (&'static str, fn(&Sample) -> f64);

const FIGURES: [Figure; 5] = [
    ("CPU promised, %", |sample| sample.cpu * 100.0),
    ("memory promised, %", |sample| sample.memory * 100.0),
    ("fragmentation, %", |sample| sample.fragmentation * 100.0),
    ("VMs rejected", |sample| sample.rejected as f64),
    ("migrations", |sample| sample.migrations as f64),
];

/// Renders reports as SVG.
pub fn svg(reports: &[Report]) -> String {
    let height = PANEL * FIGURES.len() as f64 + 40.0;
    let mut svg = Svg::new(WIDTH, height, "font-size=\"11\"");
    for (index, report) in reports.iter().enumerate() {
        let (x, colour) = (LEFT + 150.0 * (index % 4) as f64, COLOURS[index % COLOURS.len()]);
        let y = 14.0 + 14.0 * (index / 4) as f64;
        svg.text(x, y, &format!("fill=\"{colour}\""), &report.policy);
    }
    let samples = || reports.iter().flat_map(|report| &report.samples);
    let begin = samples().map(|sample| sample.at).min().unwrap_or(0);
    let end = samples().map(|sample| sample.at).max().unwrap_or(1).max(begin + 1);
    for (panel, (name, figure)) in FIGURES.iter().enumerate() {
        let bottom = 40.0 + PANEL * (panel + 1) as f64 - 20.0;
        let most = samples().map(figure).fold(1.0, f64::max);
        let right = WIDTH - 10.0;
        svg.text(LEFT, bottom - PANEL + 32.0, "", name);
        svg.text(LEFT - 4.0, bottom - PANEL + 46.0, END, &format!("{most:.0}"));
        svg.text(LEFT - 4.0, bottom, END, "0");
        let corners = [(LEFT, bottom - PANEL + 38.0), (LEFT, bottom), (right, bottom)];
        svg.line(corners, "stroke=\"#999\"");
        for (index, report) in reports.iter().enumerate() {
            let point = |sample: &Sample| {
                let x = LEFT + (right - LEFT) * (sample.at - begin) as f64 / (end - begin) as f64;
                (x, bottom - (PANEL - 40.0) * figure(sample) / most)
            };
            let colour = COLOURS[index % COLOURS.len()];
            svg.line(report.samples.iter().map(point), &format!("stroke=\"{colour}\" stroke-width=\"1.5\""));
        }
    }
    svg.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_policies_are_escaped() {
        let report = Report { policy: "</text><script>&\u{7}".into(), ..Report::default() };
        let drawn = svg(&[report]);
        assert!(drawn.contains(">&lt;/text&gt;&lt;script&gt;&amp;\\u{7}</text>"), "{drawn}");
        assert!(!drawn.contains("<script>"));
    }
}
