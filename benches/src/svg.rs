//! Plots as SVG images: bars, and lines over a logarithmic axis; bars beside a line on a linear one.

use ringway_spec::printable_xml;
use std::fmt::Write;

const WIDTH: f64 = 720.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 70.0;
const BAR: f64 = 24.0;
const PANEL: f64 = 220.0;
const TOP: f64 = 34.0;
/// A bar of several for one name, and the distance of a linear axis's ticks.
const THIN: f64 = 10.0;
const STEP: f64 = 5.0;
const COLOURS: [&str; 6] = ["#1b6ca8", "#d1495b", "#3a7d44", "#edae49", "#6a4c93", "#555555"];

/// A named line: points of x and y, both above zero.
pub struct Line {
    /// Its name.
    pub name: String,
    /// Its points, in order of x.
    pub points: Vec<(f64, f64)>,
}

fn begin(height: f64, title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"10\" y=\"18\" font-weight=\"bold\">{}</text>\n",
        printable_xml(title)
    )
}

/// The place of a figure on a logarithmic axis, from 0 to 1.
fn place(figure: f64, [low, high]: [f64; 2]) -> f64 {
    (figure.max(low) / low).ln() / (high / low).ln()
}

/// Whole powers of ten around all figures above zero.
fn decades(figures: impl Iterator<Item = f64>) -> [f64; 2] {
    let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
    for figure in figures.filter(|figure| *figure > 0.0 && figure.is_finite()) {
        (low, high) = (low.min(figure), high.max(figure));
    }
    if high == 0.0 {
        return [1.0, 10.0];
    }
    let low = 10_f64.powf(low.log10().floor());
    [low, 10_f64.powf(high.log10().ceil()).max(10.0 * low)]
}

/// The powers of ten from `low` to `high`.
fn ticks([low, high]: [f64; 2]) -> Vec<f64> {
    let count = (high / low).log10().round() as i32;
    (0..=count).map(|power| low * 10_f64.powi(power)).collect()
}

/// A figure with three digits at most.
fn short(figure: f64) -> String {
    match figure {
        1000.0.. => format!("{figure:.0}"),
        10.0.. => format!("{figure:.1}"),
        1.0.. => format!("{figure:.2}"),
        _ => format!("{figure:.4}"),
    }
}

/// A horizontal bar for each figure, on a logarithmic axis.
pub fn bars(title: &str, rows: &[(String, f64)]) -> String {
    let height = TOP + BAR * rows.len() as f64 + 24.0;
    let mut out = begin(height, title);
    let scale = decades(rows.iter().map(|(_, figure)| *figure));
    let (width, bottom) = (WIDTH - LEFT - RIGHT, height - 22.0);
    for tick in ticks(scale) {
        let x = LEFT + width * place(tick, scale);
        let _ = writeln!(
            out,
            "<path d=\"M{x:.1} {TOP}V{bottom}\" stroke=\"#ddd\"/>\n\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#555\">{tick}</text>",
            bottom + 15.0
        );
    }
    for (index, (name, figure)) in rows.iter().enumerate() {
        let (y, length) = (TOP + BAR * index as f64, width * place(*figure, scale));
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n\
             <rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{length:.1}\" height=\"{:.1}\" fill=\"{}\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            LEFT - 6.0,
            y + 16.0,
            printable_xml(name),
            y + 3.0,
            BAR - 6.0,
            COLOURS[0],
            LEFT + length + 5.0,
            y + 16.0,
            short(*figure)
        );
    }
    out.push_str("</svg>\n");
    out
}

/// A panel of [`rows`].
pub struct Panel {
    /// Its name.
    pub name: String,
    /// Names, and a figure of each kind, if there is one.
    pub rows: Vec<(String, Vec<Option<f64>>)>,
    /// A line at a figure, and its name.
    pub line: (f64, String),
}

/// Panels of rows with a bar for each of `kinds`, on a common linear axis, and a dashed line across the rows.
pub fn rows(title: &str, kinds: &[&str], panels: &[Panel]) -> String {
    let row = THIN * kinds.len() as f64 + 6.0;
    let tall = |panel: &Panel| row * panel.rows.len() as f64 + 46.0;
    let height = TOP + panels.iter().map(tall).sum::<f64>() + 24.0;
    let mut out = begin(height, title);
    let figures =
        || panels.iter().flat_map(|panel| &panel.rows).flat_map(|(_, figures)| figures.iter().flatten());
    let lines = panels.iter().map(|panel| panel.line.0);
    let most = figures().copied().chain(lines).fold(STEP, f64::max);
    let scale = (WIDTH - LEFT - RIGHT) / ((most / STEP).ceil() * STEP);
    for (number, kind) in kinds.iter().enumerate() {
        let (x, colour) = (LEFT + 190.0 * number as f64, COLOURS[number % COLOURS.len()]);
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{TOP}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            x + 15.0,
            TOP + 9.0,
            printable_xml(kind)
        );
    }
    let mut top = TOP + 24.0;
    for panel in panels {
        let bottom = top + tall(panel) - 24.0;
        let first = bottom - row * panel.rows.len() as f64;
        let _ = writeln!(
            out,
            "<text x=\"10\" y=\"{:.1}\" font-weight=\"bold\">{}</text>",
            top + 14.0,
            printable_xml(&panel.name)
        );
        for tick in 0..=(most / STEP).ceil() as usize {
            let figure = tick as f64 * STEP;
            let x = LEFT + scale * figure;
            let _ = writeln!(
                out,
                "<path d=\"M{x:.1} {first:.1}V{bottom:.1}\" stroke=\"#ddd\"/>\n\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#555\">{figure}</text>",
                bottom + 15.0
            );
        }
        for (at, (name, figures)) in panel.rows.iter().enumerate() {
            let y = first + row * at as f64 + 3.0;
            group(&mut out, (y, scale), name, figures);
        }
        let (figure, name) = &panel.line;
        let x = LEFT + scale * figure;
        let _ = writeln!(
            out,
            "<path d=\"M{x:.1} {:.1}V{bottom:.1}\" stroke=\"#222\" stroke-width=\"1.5\" \
             stroke-dasharray=\"5 3\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\">{}, {}</text>",
            first - 10.0,
            x + 4.0,
            first - 2.0,
            printable_xml(name),
            short(*figure)
        );
        top = bottom + 24.0;
    }
    out.push_str("</svg>\n");
    out
}

/// The bars of one name, thin and without a gap.
fn group(out: &mut String, (y, scale): (f64, f64), name: &str, figures: &[Option<f64>]) {
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
        LEFT - 6.0,
        y + THIN * figures.len() as f64 / 2.0 + 4.0,
        printable_xml(name)
    );
    for (kind, figure) in figures.iter().enumerate() {
        let Some(figure) = figure else { continue };
        let (y, length) = (y + THIN * kind as f64, scale * figure);
        let _ = writeln!(
            out,
            "<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{length:.1}\" height=\"{:.1}\" fill=\"{}\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" font-size=\"9\">{}</text>",
            THIN - 1.0,
            COLOURS[kind % COLOURS.len()],
            LEFT + length + 4.0,
            y + THIN - 2.0,
            short(*figure)
        );
    }
}

/// Panels below each other, each with its name, its lines, and a logarithmic axis of its own; the x axis is common.
pub fn panels(title: &str, x_name: &str, panels: &[(String, Vec<Line>)]) -> String {
    let height = TOP + PANEL * panels.len() as f64 + 10.0;
    let mut out = begin(height, title);
    let points = || panels.iter().flat_map(|(_, lines)| lines).flat_map(|line| &line.points);
    let across = decades(points().map(|(x, _)| *x));
    let (left, right) = (70.0, WIDTH - 130.0);
    for (number, (name, lines)) in panels.iter().enumerate() {
        let (top, bottom) = (TOP + PANEL * number as f64 + 20.0, TOP + PANEL * (number + 1) as f64 - 30.0);
        let scale = decades(lines.iter().flat_map(|line| &line.points).map(|(_, y)| *y));
        let at = |(x, y): (f64, f64)| {
            (left + (right - left) * place(x, across), bottom - (bottom - top) * place(y, scale))
        };
        let _ = writeln!(
            out,
            "<text x=\"{left}\" y=\"{:.1}\">{}</text>\n\
             <text x=\"{right}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\">{}</text>",
            top - 8.0,
            printable_xml(name),
            bottom + 26.0,
            printable_xml(x_name)
        );
        for tick in ticks(scale) {
            let (_, y) = at((across[0], tick));
            let _ = writeln!(
                out,
                "<path d=\"M{left} {y:.1}H{right}\" stroke=\"#ddd\"/>\n\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\">{tick}</text>",
                left - 5.0,
                y + 4.0
            );
        }
        for tick in ticks(across) {
            let (x, _) = at((tick, scale[0]));
            let _ = writeln!(
                out,
                "<path d=\"M{x:.1} {top:.1}V{bottom:.1}\" stroke=\"#ddd\"/>\n\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#555\">{tick}</text>",
                bottom + 13.0
            );
        }
        for (index, line) in lines.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            let mut path = String::new();
            for point in line.points.iter().filter(|(x, y)| *x > 0.0 && *y > 0.0) {
                let (x, y) = at(*point);
                let _ = write!(path, "{}{x:.1} {y:.1}", if path.is_empty() { "M" } else { "L" });
            }
            let _ = writeln!(
                out,
                "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\"/>\n\
                 <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{}</text>",
                right + 8.0,
                top + 14.0 * (index + 1) as f64,
                printable_xml(&line.name)
            );
        }
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_lie_within_their_decades() {
        assert_eq!(decades([0.03, 7.0, 0.0].into_iter()), [0.01, 10.0]);
        assert_eq!(decades([].into_iter()), [1.0, 10.0]);
        let [low, high] = decades([5.0].into_iter());
        assert_eq!((low, high, ticks([low, high]).len()), (1.0, 10.0, 2));
        assert_eq!((place(1.0, [1.0, 100.0]), place(0.0, [1.0, 100.0])), (0.0, 0.0));
        assert!((place(10.0, [1.0, 100.0]) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn images_have_a_bar_or_a_line_for_each_row() {
        let image = bars("rates < all", &[("plain".into(), 0.01), ("+ rings".into(), 9.0)]);
        assert_eq!((image.matches("<rect x").count(), image.contains("rates &lt; all")), (2, true));
        let line =
            |name: &str| Line { name: name.into(), points: vec![(64.0, 0.1), (1500.0, 9.0), (1.0, 0.0)] };
        let image = panels("size", "bytes", &[("Gb/s".into(), vec![line("all"), line("plain")])]);
        assert_eq!(image.matches("stroke-width=\"1.8\"").count(), 2);
        assert!(!image.contains("NaN") && !image.contains("inf"), "{image}");
    }
    #[test]
    fn each_figure_has_a_bar_and_each_panel_its_line() {
        let panel = |name: &str, line: f64| Panel {
            name: name.into(),
            rows: vec![
                ("wire".into(), vec![Some(22.5), Some(21.0)]),
                ("cgnat".into(), vec![None, Some(6.0)]),
            ],
            line: (line, "10 Gb/s".into()),
        };
        let image = rows("rates", &["one", "other"], &[panel("64 B", 14.88), panel("1500 B", 0.82)]);
        // Two kinds in the legend, three figures in each panel.
        assert_eq!(image.matches("<rect x").count(), 2 + 2 * 3, "{image}");
        assert_eq!(
            (image.matches("dasharray").count(), image.contains("10 Gb/s, 14.9")),
            (2, true),
            "{image}"
        );
        assert!(!image.contains("NaN") && !image.contains("inf"), "{image}");
    }
}
