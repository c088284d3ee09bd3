//! `ringway profile NAME`: where the time of a guest goes.

use crate::arguments::Target;
use crate::client::Client;
use crate::command_error::CommandError;
use crate::object_kind::GUEST;
use crate::text::{self, Table, cell, short};
use ringway_control::api::{Exec, ExecView, ExitsView, GuestView};
use serde::Serialize;
use std::time::{Duration, Instant};

/// Time of the guest's processors by what they did, as its kernel counts it, in percent of all.
#[derive(Debug, Default, PartialEq, Serialize)]
struct GuestTimes {
    user: f64,
    system: f64,
    interrupts: f64,
    soft_interrupts: f64,
    idle: f64,
    /// Taken by the host.
    stolen: f64,
}

/// Time of the guest's process on the host, in percent of one processor.
#[derive(Debug, Default, PartialEq, Serialize)]
struct ProcessTimes {
    user: f64,
    system: f64,
    /// Time in which guest code ran natively, a part of `user`; KVM's hypervisors tell it.
    guest: f64,
}

/// Accesses to a card and its interrupts, a second.
#[derive(Debug, Default, PartialEq, Serialize)]
struct CardRates {
    port: String,
    frames: f64,
    exits: f64,
    interrupts: f64,
}

#[derive(Serialize)]
struct Profile {
    guest: String,
    runner: String,
    seconds: f64,
    inside: GuestTimes,
    outside: ProcessTimes,
    cards: Vec<CardRates>,
}

/// Observes a guest for some seconds.
pub fn profile(target: &Target, json: bool, name: &str, seconds: u64) -> Result<(), CommandError> {
    let mut client = Client::connect(target)?;
    let guests: Vec<GuestView> = client.get("/v1/guests")?;
    let guest = guests.into_iter().find(|guest| guest.name == name).ok_or_else(|| GUEST.unknown(name))?;
    let command = format!("head -n 1 /proc/stat; sleep {seconds}; head -n 1 /proc/stat");
    let exec = Exec { command, timeout: seconds.saturating_add(10) };
    let cards = |client: &mut Client| -> Vec<ExitsView> {
        // Ports of other kinds have no registers.
        guest.ports.iter().filter_map(|port| client.get(&format!("/v1/ports/{port}/exits")).ok()).collect()
    };
    let (before, process, began) = (cards(&mut client), times(guest.pid)?, Instant::now());
    let view: ExecView = client.ask(&GUEST.path(name, "exec")?, &exec)?;
    let (elapsed, end, after) = (began.elapsed(), times(guest.pid)?, cards(&mut client));
    let inside = inside(&view.text).ok_or_else(|| {
        CommandError::Failed(format!("the guest's kernel does not tell its times: {}", view.text.trim()))
    })?;
    let profile = Profile {
        guest: guest.name,
        runner: guest.note,
        seconds: elapsed.as_secs_f64(),
        inside,
        outside: outside_time(process, end, elapsed),
        cards: before.iter().zip(&after).map(|(from, to)| card(from, to, elapsed)).collect(),
    };
    if json {
        text::json(&profile);
    } else {
        show(&profile);
    }
    Ok(())
}

/// The difference of two lines `cpu` of /proc/stat (proc_stat(5)).
fn inside(text: &str) -> Option<GuestTimes> {
    let numbers = |line: &str| -> Option<Vec<f64>> {
        line.strip_prefix("cpu ")?.split_whitespace().map(|word| word.parse().ok()).collect()
    };
    let mut lines = text.lines().filter_map(numbers);
    let (before, after) = (lines.next()?, lines.next()?);
    let times: Vec<f64> = before.iter().zip(&after).map(|(before, after)| after - before).collect();
    let &[user, nice, system, idle, waiting, interrupts, soft_interrupts, stolen, ..] = times.as_slice()
    else {
        return None;
    };
    let all = user + nice + system + idle + waiting + interrupts + soft_interrupts + stolen;
    let part = |time: f64| if all > 0.0 { 100.0 * time / all } else { 0.0 };
    Some(GuestTimes {
        user: part(user + nice),
        system: part(system),
        interrupts: part(interrupts),
        soft_interrupts: part(soft_interrupts),
        idle: part(idle + waiting),
        stolen: part(stolen),
    })
}

/// A process's times in user mode, in the kernel, and in a guest, in clock ticks (proc_pid_stat(5)).
fn times(process: u32) -> Result<[f64; 3], CommandError> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat"))
        .map_err(|error| CommandError::Failed(format!("the guest's process can't be observed: {error}")))?;
    ticks(&text).ok_or_else(|| CommandError::Failed("the guest's process does not run".into()))
}

fn ticks(text: &str) -> Option<[f64; 3]> {
    // The name before may contain anything.
    let words: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let [user, system, guest] = [14, 15, 43].map(|field| words.get(field - 3)?.parse().ok());
    Some([user?, system?, guest?])
}

fn outside_time(before: [f64; 3], after: [f64; 3], elapsed: Duration) -> ProcessTimes {
    let second = rustix::param::clock_ticks_per_second() as f64;
    let part = |which: usize| 100.0 * (after[which] - before[which]) / second / elapsed.as_secs_f64();
    ProcessTimes { user: part(0), system: part(1), guest: part(2) }
}

fn card(from: &ExitsView, to: &ExitsView, elapsed: Duration) -> CardRates {
    let rate = |of: fn(&ExitsView) -> u64| of(to).saturating_sub(of(from)) as f64 / elapsed.as_secs_f64();
    CardRates {
        port: to.port.clone(),
        frames: rate(|view| view.tx_frames + view.rx_frames),
        exits: rate(|view| view.registers.iter().map(|register| register.reads + register.writes).sum()),
        interrupts: rate(|view| view.raised),
    }
}

fn show(profile: &Profile) {
    let Profile { guest, runner, seconds, inside, outside, cards } = profile;
    println!("{guest}, {runner}, for {seconds:.1} s\n");
    let mut table = Table::new(&["TIME", ">PERCENT", "OF"]);
    let own = "the guest's processors, as its kernel counts";
    let host = "a processor of this host";
    for (name, percent, of) in [
        ("programs", inside.user, own),
        ("kernel", inside.system, own),
        ("interrupts", inside.interrupts, own),
        ("soft interrupts", inside.soft_interrupts, own),
        ("idle", inside.idle, own),
        ("taken by the host", inside.stolen, own),
        ("its process", outside.user + outside.system, host),
        ("in the host's kernel", outside.system, host),
        ("guest code, by KVM", outside.guest, host),
    ] {
        table.row(vec![cell(name), cell(format!("{percent:.1}")), cell(of)]);
    }
    table.print();
    for CardRates { port, frames, exits, interrupts } in cards {
        let [frames, exits, interrupts] = [frames, exits, interrupts].map(|rate| short(*rate));
        println!("\n{port}: {frames} frames/s, {exits} exits/s, {interrupts} interrupts/s");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_parts_of_what_passed_between_two_readings() {
        let text = "cpu  10 0 20 100 0 5 5 0 0 0\ncpu  20 10 30 140 0 10 25 5 0 0\n";
        let (user, system, interrupts) = (20.0, 10.0, 5.0);
        let (soft_interrupts, idle, stolen) = (20.0, 40.0, 5.0);
        assert_eq!(
            inside(text),
            Some(GuestTimes { user, system, interrupts, soft_interrupts, idle, stolen })
        );
        assert_eq!(inside("cpu  1 2 3\n"), None);
        assert_eq!(inside("sh: no head"), None);
    }

    #[test]
    fn a_processs_times_follow_its_name() {
        let fields: Vec<String> = (3..=52).map(|field| field.to_string()).collect();
        assert_eq!(ticks(&format!("7 (a (b) c) {}", fields.join(" "))), Some([14.0, 15.0, 43.0]));
        assert_eq!(ticks("7 (a"), None);
        assert!(times(std::process::id()).is_ok());
        let half = outside_time([0.0; 3], [50.0, 0.0, 25.0], Duration::from_secs(1));
        let second = rustix::param::clock_ticks_per_second() as f64;
        assert_eq!((half.user, half.guest), (5000.0 / second, 2500.0 / second));
    }
}
