//! Drawings as SVG: boxes with up to three lines of text, and lines between them.

use ringway_spec::printable_xml;
use std::fmt::Write;

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
pub struct Drawing(String);

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
        Drawing(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <defs><marker id=\"end\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" \
             markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#555\"/></marker></defs>\n\
             <text x=\"{MARGIN}\" y=\"20\" font-weight=\"bold\">{}</text>\n",
            printable_xml(title)
        ))
    }

    /// Adds a curve that leaves and arrives vertically, `bend` from its ends; blue if anything `moved` on it, with an
    /// arrow at its end if it is `directed`.
    pub fn curve(&mut self, (x1, y1): Point, (x2, y2): Point, bend: usize, moved: bool, directed: bool) {
        let (bend1, bend2) = if y2 >= y1 { (y1 + bend, y2.saturating_sub(bend)) } else { (y1 + bend, y2) };
        let (colour, width) = if moved { ("#2563eb", 2) } else { ("#999", 1) };
        let end = if directed { " marker-end=\"url(#end)\"" } else { "" };
        let _ = writeln!(
            self.0,
            "<path d=\"M{x1} {y1}C{x1} {bend1} {x2} {bend2} {x2} {y2}\" fill=\"none\" stroke=\"{colour}\" \
             stroke-width=\"{width}\"{end}/>"
        );
    }

    /// Adds a small text.
    pub fn text(&mut self, (x, y): Point, text: &str) {
        let text = printable_xml(text);
        let _ = writeln!(self.0, "<text x=\"{x}\" y=\"{y}\" font-size=\"11\" fill=\"#333\">{text}</text>");
    }

    /// Adds a box.
    pub fn node(&mut self, node: &Node<'_>) {
        let (Node { at: (x, y), fill, title, lines }, (width, height)) = (node, BOX);
        let _ = writeln!(
            self.0,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"5\" \
             fill=\"{fill}\" stroke=\"#555\"><title>{}</title></rect>",
            printable_xml(title)
        );
        let middle = x + width / 2;
        for ((down, weight), text) in LINES.iter().zip(lines) {
            let (y, text) = (y + down, printable_xml(&short(text)));
            let _ = writeln!(
                self.0,
                "<text x=\"{middle}\" y=\"{y}\" text-anchor=\"middle\" font-weight=\"{weight}\">{text}</text>"
            );
        }
    }

    /// The drawing's text.
    pub fn end(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
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
