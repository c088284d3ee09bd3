//! Charts as SVG images, without scripts or fonts of their own: lines over a linear or logarithmic axis, and bars.

use ringway_spec::svg::{END, MIDDLE, Svg};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 380.0;
/// Edges of the plot.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 745.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 290.0;
/// Baselines of the axis's label and of the legend's first row, and height of a row.
const LABEL: f64 = 324.0;
const LEGEND: f64 = 346.0;
const ROW: f64 = 18.0;
/// Width of a legend's entry.
const ENTRY: f64 = 168.0;

/// Colours of series, told apart also by readers who confuse red and green (Okabe and Ito's).
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555"];

/// An axis.
#[derive(Clone, Copy, Debug, Default)]
pub struct Axis<'a> {
    /// Its label, with the unit.
    pub label: &'a str,
    /// Whether it is logarithmic; values of 0 and less are left out.
    pub log: bool,
    /// Bounds; those of the values if none. A linear axis of y begins at 0 in that case.
    pub bounds: Option<[f64; 2]>,
}

/// A line.
#[derive(Clone, Debug)]
pub struct Series<'a> {
    pub name: &'a str,
    /// Number of its colour; equal numbers belong together.
    pub colour: usize,
    pub dashed: bool,
    /// Whether each point has a dot.
    pub dots: bool,
    pub points: Vec<[f64; 2]>,
}

/// Lines over a common axis.
#[derive(Clone, Debug)]
pub struct Lines<'a> {
    pub title: &'a str,
    pub x: Axis<'a>,
    pub y: Axis<'a>,
    pub series: Vec<Series<'a>>,
}

/// Groups of bars: for each group its name and a value for each series, if it has one.
#[derive(Clone, Debug)]
pub struct Bars<'a> {
    pub title: &'a str,
    pub y: Axis<'a>,
    pub series: Vec<&'a str>,
    pub groups: Vec<(String, Vec<Option<f64>>)>,
}

/// An axis with its place in the image.
struct Scale {
    log: bool,
    bounds: [f64; 2],
    place: [f64; 2],
}

impl Scale {
    fn new(axis: Axis<'_>, values: impl Iterator<Item = f64>, zero: bool, place: [f64; 2]) -> Scale {
        let values = values.filter(|value| value.is_finite() && (!axis.log || *value > 0.0));
        let bounds = axis.bounds.unwrap_or_else(|| {
            let [low, high] = values.fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], value| {
                [low.min(value), high.max(value)]
            });
            let low = if zero && !axis.log { low.min(0.0) } else { low };
            if low.is_finite() && high.is_finite() { [low, high] } else { [1.0, 2.0] }
        });
        let [low, high] = bounds;
        let high = match high > low {
            true => high,
            false if axis.log => 10.0 * low,
            false => low + 1.0,
        };
        Scale { log: axis.log, bounds: [low, high], place }
    }

    fn at(&self, value: f64) -> Option<f64> {
        if !value.is_finite() || self.log && value <= 0.0 {
            return None;
        }
        let of = |value: f64| if self.log { value.log10() } else { value };
        let [low, high] = self.bounds.map(of);
        let part = ((of(value) - low) / (high - low)).clamp(0.0, 1.0);
        Some(self.place[0] + part * (self.place[1] - self.place[0]))
    }

    /// Values with a grid line: powers of ten, or about five round ones.
    fn ticks(&self) -> Vec<f64> {
        let [low, high] = self.bounds;
        if self.log {
            let decades = low.log10().ceil() as i32..=high.log10().floor() as i32;
            let ticks: Vec<f64> = decades.map(|decade| 10f64.powi(decade)).collect();
            return if ticks.is_empty() { vec![low, high] } else { ticks };
        }
        let raw = (high - low) / 5.0;
        let unit = 10f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|part| part * unit).find(|step| *step >= raw);
        let step = step.unwrap_or(raw);
        let (first, last) = ((low / step).ceil() as i64, (high / step + 1e-9).floor() as i64);
        (first..=last).map(|number| number as f64 * step).collect()
    }
}

/// A value with at most four digits.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size => (2 - size.log10().floor() as i32).clamp(0, 6) as usize,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

/// The image's begin, with title and the axis of y.
fn begin(title: &str, label: &str, y: &Scale, entries: usize) -> Svg {
    let rows = entries.div_ceil(((RIGHT - LEFT) / ENTRY) as usize).max(1);
    let mut svg = Svg::new(WIDTH, HEIGHT + (rows - 1) as f64 * ROW, "font-size=\"12\"");
    svg.text(LEFT, 18.0, "font-size=\"14\"", title);
    svg.text(LEFT, 34.0, "fill=\"#555\"", label);
    for tick in y.ticks() {
        let Some(at) = y.at(tick) else { continue };
        svg.line([(LEFT, at), (RIGHT, at)], "stroke=\"#ddd\"");
        svg.text(LEFT - 6.0, at + 4.0, END, &number(tick));
    }
    svg
}

/// The names of series below the plot.
fn legend<'a>(svg: &mut Svg, entries: impl Iterator<Item = (&'a str, usize, bool)>) {
    let columns = ((RIGHT - LEFT) / ENTRY) as usize;
    for (place, (name, colour, dashed)) in entries.enumerate() {
        let x = LEFT + (place % columns) as f64 * ENTRY;
        let y = LEGEND + (place / columns) as f64 * ROW;
        svg.line([(x, y - 4.0), (x + 22.0, y - 4.0)], &stroke(colour, 3.0, dashed));
        svg.text(x + 28.0, y, "", name);
    }
}

fn stroke(colour: usize, width: f64, dashed: bool) -> String {
    let dash = if dashed { " stroke-dasharray=\"6 4\"" } else { "" };
    format!("stroke=\"{}\" stroke-width=\"{width}\"{dash}", COLOURS[colour % COLOURS.len()])
}

impl Lines<'_> {
    /// The image.
    pub fn svg(&self) -> String {
        let all = || self.series.iter().flat_map(|series| series.points.iter().copied());
        let x = Scale::new(self.x, all().map(|[x, _]| x), false, [LEFT, RIGHT]);
        let y = Scale::new(self.y, all().map(|[_, y]| y), true, [BOTTOM, TOP]);
        let mut svg = begin(self.title, self.y.label, &y, self.series.len());
        for tick in x.ticks() {
            let Some(at) = x.at(tick) else { continue };
            svg.line([(at, TOP), (at, BOTTOM)], "stroke=\"#eee\"");
            svg.text(at, BOTTOM + 16.0, MIDDLE, &number(tick));
        }
        svg.text((LEFT + RIGHT) / 2.0, LABEL, MIDDLE, self.x.label);
        for series in &self.series {
            let placed = series.points.iter().filter_map(|[a, b]| Some((x.at(*a)?, y.at(*b)?)));
            let placed: Vec<(f64, f64)> = placed.collect();
            svg.line(placed.iter().copied(), &stroke(series.colour, 1.6, series.dashed));
            for (x, y) in placed.iter().filter(|_| series.dots) {
                let colour = COLOURS[series.colour % COLOURS.len()];
                svg.element(format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"));
            }
        }
        legend(&mut svg, self.series.iter().map(|series| (series.name, series.colour, series.dashed)));
        svg.end()
    }
}

impl Bars<'_> {
    /// The image.
    pub fn svg(&self) -> String {
        let all = self.groups.iter().flat_map(|(_, values)| values.iter().flatten().copied());
        let y = Scale::new(self.y, all, true, [BOTTOM, TOP]);
        let mut svg = begin(self.title, self.y.label, &y, self.series.len());
        let group = (RIGHT - LEFT) / self.groups.len().max(1) as f64;
        let bar = group * 0.8 / self.series.len().max(1) as f64;
        for (place, (name, values)) in self.groups.iter().enumerate() {
            let left = LEFT + place as f64 * group;
            // Long names of adjacent groups must not overlap.
            let below = if place % 2 == 0 { 16.0 } else { 31.0 };
            svg.text(left + group / 2.0, BOTTOM + below, MIDDLE, name);
            for (series, value) in values.iter().enumerate() {
                let Some((value, top)) = value.and_then(|value| Some((value, y.at(value)?))) else {
                    continue;
                };
                let x = left + group * 0.1 + series as f64 * bar;
                let fill = format!("fill=\"{}\"", COLOURS[series % COLOURS.len()]);
                svg.rect([x, top, bar * 0.94, BOTTOM - top], &fill, &number(value));
            }
        }
        legend(&mut svg, self.series.iter().enumerate().map(|(colour, name)| (*name, colour, false)));
        svg.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_placed_by_a_logarithmic_axis() {
        let lines = Lines {
            title: "a < b",
            x: Axis { label: "loss, %", log: true, bounds: None },
            y: Axis { label: "Mb/s", log: false, bounds: Some([0.0, 100.0]) },
            series: vec![Series {
                name: "bbr",
                colour: 0,
                dashed: true,
                dots: true,
                points: vec![[0.01, 100.0], [0.0, 70.0], [0.1, 50.0], [1.0, 0.0]],
            }],
        };
        let svg = lines.svg();
        // The value of 0 has no place on this axis.
        assert!(svg.contains("d=\"M70 40L407.5 165L745 290\""), "{svg}");
        assert!(svg.contains("a &lt; b") && svg.contains(">0.01</text>"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 3);
    }

    #[test]
    fn bars_have_the_height_of_their_values() {
        let bars = Bars {
            title: "rates",
            y: Axis { label: "Gb/s", log: false, bounds: Some([0.0, 10.0]) },
            series: vec!["ours", "kernel"],
            groups: vec![
                ("ns".into(), vec![Some(10.0), Some(5.0)]),
                ("100 Hz".into(), vec![Some(1.0), None]),
            ],
        };
        let svg = bars.svg();
        assert_eq!(svg.matches("<title>").count(), 3);
        assert!(svg.contains("height=\"250\"") && svg.contains("height=\"125\""), "{svg}");
    }

    #[test]
    fn ticks_are_round() {
        let scale = |log, bounds| Scale { log, bounds, place: [0.0, 1.0] };
        assert_eq!(scale(false, [0.0, 97.0]).ticks(), [0.0, 20.0, 40.0, 60.0, 80.0]);
        assert_eq!(scale(true, [0.002, 20.0]).ticks(), [0.01, 0.1, 1.0, 10.0]);
        assert_eq!([0.01, 20.0, 1234.0, 0.0].map(number), ["0.01", "20", "1234", "0"]);
    }
}
