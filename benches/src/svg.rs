//! Plots as SVG images: bars, and lines over a logarithmic axis; bars beside a line on a linear one.

use ringway_spec::svg::{END, Svg};

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

/// Attributes of grid lines, and of what is written at them.
const GRID: &str = "stroke=\"#ddd\"";
const GREY: &str = "text-anchor=\"middle\" fill=\"#555\"";

fn begin(height: f64, title: &str) -> Svg {
    let mut svg = Svg::new(WIDTH, height, "font-size=\"12\"");
    svg.text(10.0, 18.0, "font-weight=\"bold\"", title);
    svg
}

fn fill(number: usize) -> String {
    format!("fill=\"{}\"", COLOURS[number % COLOURS.len()])
}

/// A line across a figure of the x axis, which is written below it.
fn mark(svg: &mut Svg, x: f64, [top, bottom]: [f64; 2], below: f64, figure: f64) {
    svg.line([(x, top), (x, bottom)], GRID);
    svg.text(x, bottom + below, GREY, &figure.to_string());
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
    let mut svg = begin(height, title);
    let scale = decades(rows.iter().map(|(_, figure)| *figure));
    let (width, bottom) = (WIDTH - LEFT - RIGHT, height - 22.0);
    for tick in ticks(scale) {
        mark(&mut svg, LEFT + width * place(tick, scale), [TOP, bottom], 15.0, tick);
    }
    for (index, (name, figure)) in rows.iter().enumerate() {
        let (y, length) = (TOP + BAR * index as f64, width * place(*figure, scale));
        svg.text(LEFT - 6.0, y + 16.0, END, name);
        svg.rect([LEFT, y + 3.0, length, BAR - 6.0], &fill(0), "");
        svg.text(LEFT + length + 5.0, y + 16.0, "", &short(*figure));
    }
    svg.end()
}

/// A horizontal bar for each row, of the shares of `kinds` in percent.
pub fn stacked(title: &str, kinds: &[&str], rows: &[(String, Vec<f64>)]) -> String {
    let legend = 16.0 * kinds.len().div_ceil(3) as f64;
    let height = TOP + legend + BAR * rows.len() as f64 + 24.0;
    let mut svg = begin(height, title);
    for (number, kind) in kinds.iter().enumerate() {
        let (x, y) = (LEFT + 190.0 * (number % 3) as f64, TOP + 16.0 * (number / 3) as f64);
        svg.rect([x, y, 10.0, 10.0], &fill(number), "");
        svg.text(x + 15.0, y + 9.0, "", kind);
    }
    let (top, scale) = (TOP + legend + 6.0, (WIDTH - LEFT - RIGHT) / 100.0);
    let bottom = top + BAR * rows.len() as f64;
    for (at, (name, shares)) in rows.iter().enumerate() {
        let (y, mut x) = (top + BAR * at as f64, LEFT);
        svg.text(LEFT - 6.0, y + 15.0, END, name);
        for (kind, share) in shares.iter().enumerate() {
            svg.rect([x, y + 3.0, scale * share, BAR - 6.0], &fill(kind), "");
            x += scale * share;
        }
    }
    for figure in [0.0, 25.0, 50.0, 75.0, 100.0] {
        mark(&mut svg, LEFT + scale * figure, [top, bottom], 15.0, figure);
    }
    svg.end()
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
    let mut svg = begin(height, title);
    let figures =
        || panels.iter().flat_map(|panel| &panel.rows).flat_map(|(_, figures)| figures.iter().flatten());
    let lines = panels.iter().map(|panel| panel.line.0);
    let most = figures().copied().chain(lines).fold(STEP, f64::max);
    let scale = (WIDTH - LEFT - RIGHT) / ((most / STEP).ceil() * STEP);
    for (number, kind) in kinds.iter().enumerate() {
        let x = LEFT + 190.0 * number as f64;
        svg.rect([x, TOP, 10.0, 10.0], &fill(number), "");
        svg.text(x + 15.0, TOP + 9.0, "", kind);
    }
    let mut top = TOP + 24.0;
    for panel in panels {
        let bottom = top + tall(panel) - 24.0;
        let first = bottom - row * panel.rows.len() as f64;
        svg.text(10.0, top + 14.0, "font-weight=\"bold\"", &panel.name);
        for tick in 0..=(most / STEP).ceil() as usize {
            let figure = tick as f64 * STEP;
            mark(&mut svg, LEFT + scale * figure, [first, bottom], 15.0, figure);
        }
        for (at, (name, figures)) in panel.rows.iter().enumerate() {
            let y = first + row * at as f64 + 3.0;
            group(&mut svg, (y, scale), name, figures);
        }
        let (figure, name) = &panel.line;
        let x = LEFT + scale * figure;
        let dashed = "stroke=\"#222\" stroke-width=\"1.5\" stroke-dasharray=\"5 3\"";
        svg.line([(x, first - 10.0), (x, bottom)], dashed);
        svg.text(x + 4.0, first - 2.0, "", &format!("{name}, {}", short(*figure)));
        top = bottom + 24.0;
    }
    svg.end()
}

/// The bars of one name, thin and without a gap.
fn group(svg: &mut Svg, (y, scale): (f64, f64), name: &str, figures: &[Option<f64>]) {
    svg.text(LEFT - 6.0, y + THIN * figures.len() as f64 / 2.0 + 4.0, END, name);
    for (kind, figure) in figures.iter().enumerate() {
        let Some(figure) = figure else { continue };
        let (y, length) = (y + THIN * kind as f64, scale * figure);
        svg.rect([LEFT, y, length, THIN - 1.0], &fill(kind), "");
        svg.text(LEFT + length + 4.0, y + THIN - 2.0, "font-size=\"9\"", &short(*figure));
    }
}

/// Panels below each other, each with its name, its lines, and a logarithmic axis of its own; the x axis is common.
pub fn panels(title: &str, x_name: &str, panels: &[(String, Vec<Line>)]) -> String {
    let height = TOP + PANEL * panels.len() as f64 + 10.0;
    let mut svg = begin(height, title);
    let points = || panels.iter().flat_map(|(_, lines)| lines).flat_map(|line| &line.points);
    let across = decades(points().map(|(x, _)| *x));
    let (left, right) = (70.0, WIDTH - 130.0);
    for (number, (name, lines)) in panels.iter().enumerate() {
        let (top, bottom) = (TOP + PANEL * number as f64 + 20.0, TOP + PANEL * (number + 1) as f64 - 30.0);
        let scale = decades(lines.iter().flat_map(|line| &line.points).map(|(_, y)| *y));
        let at = |(x, y): (f64, f64)| {
            (left + (right - left) * place(x, across), bottom - (bottom - top) * place(y, scale))
        };
        svg.text(left, top - 8.0, "", name);
        svg.text(right, bottom + 26.0, "text-anchor=\"end\" fill=\"#555\"", x_name);
        for tick in ticks(scale) {
            let (_, y) = at((across[0], tick));
            svg.line([(left, y), (right, y)], GRID);
            svg.text(left - 5.0, y + 4.0, "text-anchor=\"end\" fill=\"#555\"", &tick.to_string());
        }
        for tick in ticks(across) {
            mark(&mut svg, at((tick, scale[0])).0, [top, bottom], 13.0, tick);
        }
        for (index, line) in lines.iter().enumerate() {
            let points = line.points.iter().filter(|(x, y)| *x > 0.0 && *y > 0.0);
            let stroke = format!("stroke=\"{}\" stroke-width=\"1.8\"", COLOURS[index % COLOURS.len()]);
            svg.line(points.map(|point| at(*point)), &stroke);
            svg.text(right + 8.0, top + 14.0 * (index + 1) as f64, &fill(index), &line.name);
        }
    }
    svg.end()
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
