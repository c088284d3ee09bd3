//! `ringway profile` without a name: where the time of workers and functions goes.

use super::flame;
use crate::arguments::{ProfileArguments, Target};
use crate::client::Client;
use crate::command_error::CommandError;
use crate::text::{self, Table, cell, short};
use ringway_control::api::{FunctionProfileView, ProfileView, StageView, WorkerProfileView};

/// Longest sample in seconds.
const MAX_SECONDS: u64 = 60;

/// Measures for some seconds.
pub fn profile(target: &Target, json: bool, arguments: &ProfileArguments) -> Result<(), CommandError> {
    if arguments.seconds > MAX_SECONDS {
        return Err(CommandError::Failed(format!(
            "--seconds: a sample of the data path takes at most {MAX_SECONDS} s"
        )));
    }
    // Found before the sample.
    let failed = |error: std::io::Error| {
        let path = arguments.svg.as_deref().unwrap_or("".as_ref());
        CommandError::Failed(format!("{}: {error}", path.display()))
    };
    arguments.svg.iter().try_for_each(|path| std::fs::write(path, "")).map_err(failed)?;
    let mut client = Client::connect(target)?;
    client.expect(arguments.seconds as f64);
    let ProfileArguments { seconds, elements, .. } = arguments;
    let view: ProfileView = client.get(&format!("/v1/profile?seconds={seconds}&elements={elements}"))?;
    if json {
        text::json(&view);
    } else {
        print!("{}", shown(&view));
    }
    arguments.svg.iter().try_for_each(|path| std::fs::write(path, flame::svg(&view))).map_err(failed)
}

/// Columns of each table.
const COLUMNS: [&str; 6] = ["WHERE", ">TIME %", ">MS", ">TICKS/FRAME", ">FRAMES/BURST", ">BURSTS"];

/// A row: its name, its time in nanoseconds, its ticks, bursts and frames if it has some.
fn row(table: &mut Table, whole: u64, name: &str, time: u64, stage: Option<&StageView>) {
    let ratio = |over: u64, under: u64| match under {
        0 => "-".into(),
        under => format!("{:.1}", over as f64 / under as f64),
    };
    let percent = if whole == 0 { 0.0 } else { 100.0 * time as f64 / whole as f64 };
    let mut cells =
        vec![cell(name), cell(format!("{percent:.1}")), cell(format!("{:.1}", time as f64 / 1e6))];
    cells.extend(match stage {
        Some(stage) => [
            cell(ratio(stage.ticks, stage.frames)),
            cell(if stage.frames == 0 { "-".into() } else { ratio(stage.frames, stage.bursts) }),
            cell(if stage.bursts == 0 { "-".into() } else { short(stage.bursts as f64) }),
        ],
        None => ["-", "-", "-"].map(cell),
    });
    table.row(cells);
}

/// The rows of a worker, of which all but the first add up to the first.
fn worker(table: &mut Table, whole: u64, worker: &WorkerProfileView) {
    row(table, whole, &worker.name, whole, None);
    row(table, whole, "  sleep", worker.slept, None);
    row(table, whole, "  idle", worker.idle, None);
    for stage in worker.stages.iter().filter(|stage| stage.time > 0 || stage.bursts > 0) {
        row(table, whole, &format!("  {}", stage.name), stage.time, Some(stage));
    }
    if worker.functions > 0 {
        row(table, whole, "  functions", worker.functions, None);
    }
}

/// The rows of a function: its elements share its time.
fn function(table: &mut Table, whole: u64, function: &FunctionProfileView) {
    let on = if function.worker.is_empty() { "its own".into() } else { format!("on {}", function.worker) };
    row(table, whole, &format!("{} ({on})", function.name), function.time, None);
    let all = function.elements.iter().map(|element| element.ticks).sum::<u64>().max(1);
    let mut elements: Vec<_> = function.elements.iter().filter(|element| element.ticks > 0).collect();
    elements.sort_by_key(|element| std::cmp::Reverse(element.ticks));
    for element in elements {
        let stage = StageView { ticks: element.ticks, frames: element.packets, ..StageView::default() };
        let time = (u128::from(function.time) * u128::from(element.ticks) / u128::from(all)) as u64;
        let name = format!("  {} :: {}", element.name, element.class);
        row(table, whole, &name, time, Some(&stage));
    }
}

fn shown(view: &ProfileView) -> String {
    let mut table = Table::new(&COLUMNS);
    view.workers.iter().for_each(|view_of| worker(&mut table, view.nanoseconds, view_of));
    view.functions.iter().for_each(|view_of| function(&mut table, view.nanoseconds, view_of));
    table.render(None)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use ringway_control::api::GraphElement;

    /// A worker with a function that has two elements.
    pub fn view() -> ProfileView {
        let stage = |name: &str, time, ticks, bursts, frames| StageView {
            name: name.into(),
            time,
            ticks,
            bursts,
            frames,
        };
        let element = |name: &str, class: &str, ticks| GraphElement {
            name: name.into(),
            class: class.into(),
            packets: 100,
            ticks,
        };
        let stages = vec![
            stage("take", 100_000_000, 1000, 10, 500),
            stage("complete", 0, 0, 0, 0),
            stage("rest", 100_000_000, 1000, 0, 0),
        ];
        let worker = WorkerProfileView {
            name: "w0".into(),
            slept: 500_000_000,
            idle: 100_000_000,
            functions: 200_000_000,
            stages,
        };
        let elements = vec![element("c", "Counter", 300), element("<q>", "Queue", 700)];
        let function = FunctionProfileView {
            name: "wall".into(),
            worker: "w0".into(),
            time: 200_000_000,
            turns: 9,
            elements,
        };
        ProfileView { nanoseconds: 1_000_000_000, workers: vec![worker], functions: vec![function] }
    }

    #[test]
    fn each_stage_and_element_has_its_time_and_ticks() {
        let text = anstream::adapter::strip_str(&shown(&view())).to_string();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["w0", "100.0", "1000.0", "-", "-", "-"]);
        assert_eq!(lines[2], ["sleep", "50.0", "500.0", "-", "-", "-"]);
        assert_eq!(lines[4], ["take", "10.0", "100.0", "2.0", "50.0", "10"]);
        assert_eq!(lines[5], ["rest", "10.0", "100.0", "-", "-", "-"], "none for a stage that was not used");
        assert_eq!(lines[8], ["<q>", "::", "Queue", "14.0", "140.0", "7.0", "-", "-"]);
        assert_eq!(lines.len(), 10);
    }
}
