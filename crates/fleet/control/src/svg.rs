//! Drawings as SVG: boxes with up to three lines of text, and lines between them.

use ringway_spec::svg::{MIDDLE, Svg};

/// Width and height of a box.
pub const BOX: (usize, usize) = (210, 56);
/// Distance of boxes from the drawing's border.
pub const MARGIN: usize = 24;
/// Characters of a name that fit into a box.
const LETTERS: usize = 32;
/// Baselines and weights of the lines in a box.
const LINES: [(usize, &str); 3] = [(17, "bold"), (33, "normal"), (49, "normal")];

/// A point: distances from the left and from the top.
pub type Point = (usize, usize);

/// A drawing that is being made.
pub struct Drawing(Svg);

/// A box.
pub struct Node<'a> {
    /// Its upper left corner.
    pub at: Point,
    /// The colour inside, as in CSS.
    pub fill: &'a str,
    /// What a browser shows when the pointer is on it.
    pub title: &'a str,
    /// Lines of text; the end of a longer one is shown.
    pub lines: [&'a str; 3],
}

impl Drawing {
    /// A drawing of this width and height. Its title is at the top, above the boxes' margin.
    pub fn new((width, height): (usize, usize), title: &str) -> Drawing {
        let size = format!("width=\"{width}\" height=\"{height}\" font-size=\"12\"");
        let mut svg = Svg::new(width as f64, height as f64, &size);
        svg.element(format_args!(
            "<defs><marker id=\"end\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" \
             markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#555\"/></marker></defs>"
        ));
        svg.text(MARGIN as f64, 20.0, "font-weight=\"bold\"", title);
        Drawing(svg)
    }

    /// Adds a curve that leaves and arrives vertically, `bend` from its ends; blue if anything `moved` on it, with an
    /// arrow at its end if it is `directed`.
    pub fn curve(&mut self, (x1, y1): Point, (x2, y2): Point, bend: usize, moved: bool, directed: bool) {
        let (bend1, bend2) = if y2 >= y1 { (y1 + bend, y2.saturating_sub(bend)) } else { (y1 + bend, y2) };
        let (colour, width) = if moved { ("#2563eb", 2) } else { ("#999", 1) };
        let end = if directed { " marker-end=\"url(#end)\"" } else { "" };
        self.0.path(
            format_args!("M{x1} {y1}C{x1} {bend1} {x2} {bend2} {x2} {y2}"),
            &format!("stroke=\"{colour}\" stroke-width=\"{width}\"{end}"),
        );
    }

    /// Adds a small text.
    pub fn text(&mut self, (x, y): Point, text: &str) {
        self.0.text(x as f64, y as f64, "font-size=\"11\" fill=\"#333\"", text);
    }

    /// Adds a box.
    pub fn node(&mut self, node: &Node<'_>) {
        let Node { at: (x, y), fill, title, lines } = node;
        let place = [*x, *y, BOX.0, BOX.1].map(|length| length as f64);
        self.0.rect(place, &format!("rx=\"5\" fill=\"{fill}\" stroke=\"#555\""), title);
        let middle = (x + BOX.0 / 2) as f64;
        for ((down, weight), text) in LINES.iter().zip(lines) {
            let attributes = format!("{MIDDLE} font-weight=\"{weight}\"");
            self.0.text(middle, (y + down) as f64, &attributes, &short(text));
        }
    }

    /// The drawing's text.
    pub fn end(self) -> String {
        self.0.end()
    }
}

/// The end of a name that is too long for a box.
fn short(name: &str) -> String {
    match name.char_indices().rev().nth(LETTERS - 1) {
        Some((at, _)) if at > 0 => format!("…{}", &name[at..]),
        _ => name.into(),
    }
}

/// A number with three digits and a unit.
pub fn compact(number: f64) -> String {
    let units = ["", " k", " M", " G", " T"];
    let (mut number, mut unit) = (number, 0);
    while number >= 1000.0 && unit + 1 < units.len() {
        (number, unit) = (number / 1000.0, unit + 1);
    }
    let digits = if unit == 0 || number >= 100.0 { 0 } else { 1 };
    format!("{number:.digits$}{}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shortened() {
        assert_eq!(short(&"x".repeat(200)).chars().count(), LETTERS + 1);
        assert_eq!(short("wall"), "wall");
    }

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        assert_eq!([0.0, 12.0, 1500.0, 2_345_678.0].map(compact), ["0", "12", "1.5 k", "2.3 M"]);
    }
}
