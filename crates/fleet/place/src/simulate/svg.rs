//! Runs as an SVG image: one panel per figure, one line per policy.

use super::report::{Report, Sample};
use ringway_spec::printable_xml;
use std::fmt::Write;

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
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (index, report) in reports.iter().enumerate() {
        let (x, colour) = (LEFT + 150.0 * (index % 4) as f64, COLOURS[index % COLOURS.len()]);
        let y = 14.0 + 14.0 * (index / 4) as f64;
        let name = printable_xml(&report.policy);
        let _ = writeln!(out, "<text x=\"{x}\" y=\"{y}\" fill=\"{colour}\">{name}</text>");
    }
    let samples = || reports.iter().flat_map(|report| &report.samples);
    let begin = samples().map(|sample| sample.at).min().unwrap_or(0);
    let end = samples().map(|sample| sample.at).max().unwrap_or(1).max(begin + 1);
    for (panel, (name, figure)) in FIGURES.iter().enumerate() {
        let bottom = 40.0 + PANEL * (panel + 1) as f64 - 20.0;
        let most = samples().map(figure).fold(1.0, f64::max);
        let right = WIDTH - 10.0;
        let _ = writeln!(
            out,
            "<text x=\"{LEFT}\" y=\"{:.1}\">{name}</text>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{most:.0}</text>\n\
             <text x=\"{:.1}\" y=\"{bottom:.1}\" text-anchor=\"end\">0</text>\n\
             <path d=\"M{LEFT} {:.1}V{bottom:.1}H{right}\" fill=\"none\" stroke=\"#999\"/>",
            bottom - PANEL + 32.0,
            LEFT - 4.0,
            bottom - PANEL + 46.0,
            LEFT - 4.0,
            bottom - PANEL + 38.0,
        );
        for (index, report) in reports.iter().enumerate() {
            let mut path = String::new();
            for sample in &report.samples {
                let x = LEFT + (right - LEFT) * (sample.at - begin) as f64 / (end - begin) as f64;
                let y = bottom - (PANEL - 40.0) * figure(sample) / most;
                let _ = write!(path, "{}{x:.1} {y:.1}", if path.is_empty() { "M" } else { "L" });
            }
            let colour = COLOURS[index % COLOURS.len()];
            let _ =
                writeln!(out, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>");
        }
    }
    out.push_str("</svg>\n");
    out
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
