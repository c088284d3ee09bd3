//! Rates of the kinds of ports, and of functions, by the size of frames.

use super::{ring, vhost};
use crate::Failure;
use crate::click::frames::Length;
use crate::entry::{Better, Entry, Slices, median};
use crate::functions::chain;
use crate::plan::Plan;
use crate::report::Report;
use crate::svg::{Line, panels};

const SIZES: [usize; 6] = [64, 128, 256, 512, 1024, 1500];

/// Millions of frames a second of this size.
type Measure = fn(&Plan, usize) -> Result<Slices, Failure>;

const WAYS: [(&str, Measure); 4] = [
    ("rings", ring::alone),
    ("vhost-user", vhost::alone),
    ("cards", crate::nic::cards),
    ("function", |plan, size| chain::wire(plan, Length::Fixed(size))),
];

/// Each way at each size; the figure is that of rings at the smallest.
pub fn measure(plan: &Plan) -> Result<Entry, Failure> {
    let plan = plan.part(1.0 / (WAYS.len() * SIZES.len()) as f64);
    let mut missing: Vec<String> = Vec::new();
    let (mut first, mut steps) = (None, Entry::default());
    for size in SIZES {
        let mut figures = Vec::new();
        for (name, way) in WAYS {
            match way(&plan, size) {
                Ok(slices) => {
                    figures.extend(median(&slices.ours).map(|rate| (name, rate)));
                    if name == WAYS[0].0 {
                        first.get_or_insert(slices);
                    }
                }
                Err(error) if size == SIZES[0] => missing.push(format!("without {name}: {error}")),
                // It is a lack of the smallest size too, or one of this size alone, which the table shows.
                Err(_) => {}
            }
        }
        steps = steps.step(format!("{size} B"), &figures);
    }
    let entry = first.ok_or("rings could not be measured")?.entry("Mpps", Better::More);
    let note = "Mpps; programs on rings and minimal guests on vhost-user ports, through the switch; tiny \
                guests on e1000 cards; a function on the worker between two patched rings";
    let entry = Entry { steps: steps.steps, ..entry }.note(note);
    Ok(missing.into_iter().fold(entry, Entry::note))
}

/// The plot of [`measure`].
pub fn plot(report: &Report) -> Option<String> {
    let entry = report.get("sizes").filter(|entry| !entry.steps.is_empty())?;
    let line = |name: &str, scale: fn(f64) -> f64| {
        let point = |step: &crate::entry::Step| {
            let size: f64 = step.name.strip_suffix(" B")?.parse().ok()?;
            Some((size, step.figures.get(name)? * scale(size)))
        };
        Line { name: name.into(), points: entry.steps.iter().filter_map(point).collect() }
    };
    let lines = |scale: fn(f64) -> f64| {
        let lines = WAYS.map(|(name, _)| line(name, scale)).into_iter();
        lines.filter(|line| !line.points.is_empty()).collect()
    };
    let parts = [("Mpps".to_string(), lines(|_| 1.0)), ("Gb/s".to_string(), lines(|size| size * 8e-3))];
    Some(panels("Rate by the size of frames", "bytes of a frame", &parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plot_has_a_line_for_each_way_that_was_measured() {
        let step = |entry: Entry, size| entry.step(format!("{size} B"), &[("rings", 20.0), ("cards", 2.0)]);
        let entry = SIZES.into_iter().fold(Entry::default(), step);
        let image = plot(&Report::from([("sizes".into(), entry)])).unwrap();
        assert_eq!(image.matches("stroke-width=\"1.8\"").count(), 2 * 2, "{image}");
        assert_eq!(plot(&Report::new()), None);
    }
}
