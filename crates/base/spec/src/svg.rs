//! Images as SVG: all text is escaped here, and numbers have one decimal at most.

use crate::printable_xml;
use std::fmt::{Arguments, Write};

/// Attributes of text that ends at its point, and of text around it.
pub const END: &str = "text-anchor=\"end\"";
/// See [`END`].
pub const MIDDLE: &str = "text-anchor=\"middle\"";

/// An image that is being made. Attributes are written as they are: they must not come from others.
#[derive(Debug)]
pub struct Svg(String);

/// A coordinate.
fn short(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

// Writing to a string does not fail.
impl Svg {
    /// A white image of this width and height.
    pub fn new(width: f64, height: f64, attributes: &str) -> Svg {
        Svg(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" \
             {attributes}>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
            short(width),
            short(height)
        ))
    }

    /// Adds text with its baseline at a point.
    pub fn text(&mut self, x: f64, y: f64, attributes: &str, text: &str) {
        let (x, y, text) = (short(x), short(y), printable_xml(text));
        let _ = writeln!(self.0, "<text x=\"{x}\" y=\"{y}\" {attributes}>{text}</text>");
    }

    /// Adds a rectangle: left, top, width, height. A browser shows the title, if there is one, below the pointer.
    pub fn rect(&mut self, place: [f64; 4], attributes: &str, title: &str) {
        let [x, y, width, height] = place.map(short);
        let _ =
            write!(self.0, "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" {attributes}");
        let _ = match title {
            "" => writeln!(self.0, "/>"),
            title => writeln!(self.0, "><title>{}</title></rect>", printable_xml(title)),
        };
    }

    /// Adds a path (SVG 1.1, 8.3).
    pub fn path(&mut self, data: Arguments<'_>, attributes: &str) {
        let _ = writeln!(self.0, "<path d=\"{data}\" fill=\"none\" {attributes}/>");
    }

    /// Adds lines from point to point.
    pub fn line(&mut self, points: impl IntoIterator<Item = (f64, f64)>, attributes: &str) {
        let mut data = String::new();
        for (x, y) in points {
            let command = if data.is_empty() { 'M' } else { 'L' };
            let _ = write!(data, "{command}{} {}", short(x), short(y));
        }
        self.path(format_args!("{data}"), attributes);
    }

    /// Adds what has no function here.
    pub fn element(&mut self, element: Arguments<'_>) {
        let _ = writeln!(self.0, "{element}");
    }

    /// The image's text.
    pub fn end(self) -> String {
        self.0 + "</svg>\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_numbers_are_short() {
        let mut svg = Svg::new(10.0, 2.04, "font-size=\"9\"");
        svg.text(1.26, 2.0, END, "</text>");
        svg.rect([0.0, 1.0, 2.0, 3.0], "fill=\"#fff\"", "\"a\"");
        svg.line([(0.04, 1.0), (2.25, 3.0)], "stroke=\"#999\"");
        assert_eq!(
            svg.end(),
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 10 2\" font-family=\"sans-serif\" \
             font-size=\"9\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"1.3\" y=\"2\" text-anchor=\"end\">&lt;/text&gt;</text>\n\
             <rect x=\"0\" y=\"1\" width=\"2\" height=\"3\" fill=\"#fff\">\
             <title>&quot;a&quot;</title></rect>\n\
             <path d=\"M0 1L2.3 3\" fill=\"none\" stroke=\"#999\"/>\n</svg>\n"
        );
    }
}
