//! A profile as a flame graph: a bar a worker; above it what it did; above that stages, functions and their elements.

use ringway_control::api::{ProfileView, WorkerProfileView};
use ringway_spec::svg::Svg;

const WIDTH: f64 = 1200.0;
const MARGIN: f64 = 10.0;
const ROW: f64 = 22.0;
const LEVELS: f64 = 4.0;
/// Width of a character, about.
const CHAR_WIDTH: f64 = 6.6;

/// A part of a level, with what is above it.
struct Part {
    name: String,
    /// Nanoseconds.
    time: u64,
    fill: &'static str,
    above: Vec<Part>,
}

/// The time of a worker by what it did.
fn parts(view: &ProfileView, worker: &WorkerProfileView) -> Vec<Part> {
    let part = |name: &str, time, fill, above| Part { name: name.into(), time, fill, above };
    let stages: Vec<Part> = worker
        .stages
        .iter()
        .map(|stage| {
            part(
                &stage.name,
                stage.time,
                if stage.name == "copy" { "#edae49" } else { "#f2c879" },
                Vec::new(),
            )
        })
        .collect();
    let functions: Vec<Part> = view
        .functions
        .iter()
        .filter(|function| function.worker == worker.name)
        .map(|function| {
            let all = function.elements.iter().map(|element| element.ticks).sum::<u64>().max(1);
            let share = |ticks: u64| (u128::from(function.time) * u128::from(ticks) / u128::from(all)) as u64;
            let elements = function.elements.iter().map(|element| {
                let name = format!("{} :: {}", element.name, element.class);
                part(&name, share(element.ticks), "#e8a0a8", Vec::new())
            });
            part(&function.name, function.time, "#d1495b", elements.collect())
        })
        .collect();
    let forwarding = stages.iter().map(|stage| stage.time).sum();
    vec![
        part("sleep", worker.slept, "#dddddd", Vec::new()),
        part("idle", worker.idle, "#bbcbd6", Vec::new()),
        part("frames", forwarding, "#e69f3c", stages),
        part("functions", worker.functions, "#b23a48", functions),
    ]
}

/// Draws a profile.
pub fn svg(view: &ProfileView) -> String {
    let height = ROW + view.workers.len() as f64 * (LEVELS * ROW + MARGIN) + MARGIN;
    let mut svg = Svg::new(WIDTH + 2.0 * MARGIN, height, "font-size=\"11\"");
    let title = format!("Time of workers, {:.1} s", view.nanoseconds as f64 / 1e9);
    svg.text(MARGIN, ROW - 6.0, "font-weight=\"bold\"", &title);
    let scale = WIDTH / view.nanoseconds.max(1) as f64;
    for (number, worker) in view.workers.iter().enumerate() {
        let bottom = ROW + (number + 1) as f64 * (LEVELS * ROW + MARGIN) - ROW;
        let whole = Part {
            name: worker.name.clone(),
            time: view.nanoseconds,
            fill: "#8aa1b1",
            above: parts(view, worker),
        };
        draw(&mut svg, &whole, (MARGIN, bottom), (scale, view.nanoseconds));
    }
    svg.end()
}

fn draw(svg: &mut Svg, part: &Part, (left, top): (f64, f64), (scale, whole): (f64, u64)) {
    let width = part.time as f64 * scale;
    if width < 0.5 {
        return;
    }
    let percent = 100.0 * part.time as f64 / whole.max(1) as f64;
    let title = format!("{}: {percent:.2}%, {:.2} ms", part.name, part.time as f64 / 1e6);
    svg.rect([left, top, width, ROW - 1.0], &format!("fill=\"{}\" stroke=\"white\"", part.fill), &title);
    let letters = (width / CHAR_WIDTH) as usize;
    if letters > 2 {
        let name: String = format!("{} {percent:.0}%", part.name).chars().take(letters).collect();
        svg.text(left + 3.0, top + 15.0, "", &name);
    }
    let mut x = left;
    for above in &part.above {
        draw(svg, above, (x, top - ROW), (scale, whole));
        x += above.time as f64 * scale;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::data_path::tests::view;

    #[test]
    fn every_level_is_drawn_and_names_are_escaped() {
        let text = svg(&view());
        for name in ["w0: 100.00%", "sleep: 50.00%", "frames: 20.00%", "take: 10.00%", "wall: 20.00%"] {
            assert!(text.contains(name), "{name}: {text}");
        }
        assert!(text.contains("&lt;q&gt; :: Queue: 14.00%"), "{text}");
        assert!(!text.contains("complete"), "nothing is drawn of what took no time");
    }
}
