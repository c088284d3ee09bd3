//! Prometheus' text format, version 0.0.4.

use std::fmt::{Display, Write};

/// Type of a family of metrics.
#[derive(Clone, Copy, Debug)]
pub enum Type {
    /// Only grows; begins at zero again when what it counts begins again.
    Counter,
    /// Any value.
    Gauge,
}

/// Metrics of one fabric, whose name is a label of each.
pub struct Exposition {
    text: String,
    /// The label `fabric`.
    fabric: String,
}

impl Exposition {
    /// No metrics yet.
    pub fn of(fabric: &str) -> Exposition {
        let mut label = String::new();
        write_label(&mut label, "fabric", fabric);
        Exposition { text: String::new(), fabric: label }
    }

    /// A family, whose samples are written before those of the next one.
    pub fn family<'e>(
        &'e mut self,
        of: Type,
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
    ) -> Family<'e> {
        Family { of, name, help, labels, is_new: true, exposition: self }
    }

    /// The metrics as text.
    pub fn into_text(self) -> String {
        self.text
    }
}

/// A family of metrics.
pub struct Family<'e> {
    of: Type,
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    is_new: bool,
    exposition: &'e mut Exposition,
}

impl Family<'_> {
    /// Adds a sample, with the values of the family's labels.
    pub fn sample(&mut self, values: &[&str], value: impl Display) {
        debug_assert_eq!(self.labels.len(), values.len(), "{}", self.name);
        let Exposition { text, fabric } = &mut *self.exposition;
        if std::mem::take(&mut self.is_new) {
            let of = match self.of {
                Type::Counter => "counter",
                Type::Gauge => "gauge",
            };
            // Writing to a string can't fail.
            let _ = writeln!(text, "# HELP {} {}\n# TYPE {} {of}", self.name, self.help, self.name);
        }
        text.push_str(self.name);
        text.push('{');
        text.push_str(fabric);
        for (name, value) in self.labels.iter().zip(values) {
            text.push(',');
            write_label(text, name, value);
        }
        let _ = writeln!(text, "}} {value}");
    }

    /// Adds a sample that is 1 or 0.
    pub fn flag(&mut self, values: &[&str], value: bool) {
        self.sample(values, u8::from(value));
    }

    /// Adds a sample in seconds.
    pub fn seconds(&mut self, values: &[&str], nanoseconds: u64) {
        self.sample(values, nanoseconds as f64 / 1e9);
    }
}

fn write_label(text: &mut String, name: &str, value: &str) {
    text.push_str(name);
    text.push_str("=\"");
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            c => text.push(c),
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_family_has_a_head_and_a_line_for_each_sample() {
        let mut all = Exposition::of("lab");
        let _ = all.family(Type::Gauge, "ringway_none", "Has no sample.", &[]);
        let mut family = all.family(Type::Counter, "ringway_a_total", "What a is.", &["port", "queue"]);
        family.sample(&["left", "0"], 7);
        family.seconds(&["right", "1"], 1_500_000_000);
        all.family(Type::Gauge, "ringway_b", "What b is.", &[]).flag(&[], true);
        assert_eq!(
            all.into_text(),
            "# HELP ringway_a_total What a is.\n# TYPE ringway_a_total counter\n\
             ringway_a_total{fabric=\"lab\",port=\"left\",queue=\"0\"} 7\n\
             ringway_a_total{fabric=\"lab\",port=\"right\",queue=\"1\"} 1.5\n\
             # HELP ringway_b What b is.\n# TYPE ringway_b gauge\nringway_b{fabric=\"lab\"} 1\n"
        );
    }

    proptest! {
        /// Attack: a name that closes its label and adds samples of others.
        #[test]
        fn any_value_stays_within_its_label(value in any::<String>()) {
            let mut all = Exposition::of("f");
            all.family(Type::Gauge, "ringway_x", "X.", &["v"]).sample(&[&value], 1);
            let text = all.into_text();
            // Lines end at line feeds only.
            let line = text.split('\n').nth(2).unwrap();
            let quoted = line.strip_prefix("ringway_x{fabric=\"f\",v=\"").unwrap();
            let quoted = quoted.strip_suffix("\"} 1").unwrap();
            let (mut read, mut rest) = (String::new(), quoted.chars());
            while let Some(c) = rest.next() {
                prop_assert_ne!(c, '"');
                let c = if c == '\\' { rest.next().unwrap() } else { read.push(c); continue };
                read.push(if c == 'n' { '\n' } else { c });
            }
            prop_assert_eq!(read, value);
        }
    }
}
