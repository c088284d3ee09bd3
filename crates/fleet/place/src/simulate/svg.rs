//! Runs as an SVG image: one panel per figure, one line per policy.

use super::report::{Report, Sample};
use ringway_spec::svg::{END, MIDDLE, Svg};

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
    let height = PANEL * FIGURES.len() as f64 + 70.0;
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
    axis(&mut svg, end - begin, 40.0 + PANEL * FIGURES.len() as f64 - 20.0);
    svg.end()
}

/// The time axis below the panels: a span in milliseconds, in a unit of which there are some. Its marks are 1, 2 or 5
/// times a power of ten apart.
fn axis(svg: &mut Svg, span: u64, bottom: f64) {
    let units = [("days", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)];
    let (unit, scale) = units.into_iter().find(|(_, scale)| span >= 2 * scale).unwrap_or(("ms", 1));
    let length = span as f64 / scale as f64;
    let mut step = 0.1;
    // At most ten marks; the factors lead from 1 to 2, 5 and 10.
    for factor in [2.0, 2.5, 2.0].into_iter().cycle() {
        if length / step <= 10.0 {
            break;
        }
        step *= factor;
    }
    let digits = usize::from(step < 0.999);
    let right = WIDTH - 10.0;
    for number in 0..=(length / step * 1.000_001) as u32 {
        let time = f64::from(number) * step;
        let x = LEFT + (right - LEFT) * time / length;
        svg.line([(x, bottom), (x, bottom + 4.0)], "stroke=\"#999\"");
        svg.text(x, bottom + 16.0, MIDDLE, &format!("{time:.digits$}"));
    }
    svg.text((LEFT + right) / 2.0, bottom + 32.0, MIDDLE, &format!("time since the first sample ({unit})"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_axis_has_a_unit() {
        for (span, unit, last) in
            [(90 * 60_000, "min", "90"), (30 * 3_600_000, "h", "30"), (700, "ms", "700"), (12_000, "s", "12")]
        {
            let samples =
                vec![Sample { at: 5, ..Sample::default() }, Sample { at: 5 + span, ..Sample::default() }];
            let drawn = svg(&[Report { samples, ..Report::default() }]);
            assert!(drawn.contains(&format!(">time since the first sample ({unit})</text>")), "{drawn}");
            let marks: Vec<&str> =
                drawn.split("</text>").filter_map(|text| text.rsplit('>').next()).collect();
            assert!(marks.contains(&"0") && marks.contains(&last), "{span}: {marks:?}");
            assert!(marks.iter().filter(|mark| mark.parse::<u64>().is_ok()).count() > 3, "{marks:?}");
        }
    }

    #[test]
    fn names_of_policies_are_escaped() {
        let report = Report { policy: "</text><script>&\u{7}".into(), ..Report::default() };
        let drawn = svg(&[report]);
        assert!(drawn.contains(">&lt;/text&gt;&lt;script&gt;&amp;\\u{7}</text>"), "{drawn}");
        assert!(!drawn.contains("<script>"));
    }
}
