//! What a switch has learned is known to the next `data` process from its first frame on.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::lab::frames::{LONG, next, program, receive, send_to_all, switched};
use crate::lab::{Lab, until};
use ringway_ring_client::Ring;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::time::Duration;

/// The addresses of a switch, with their ports.
fn table(lab: &Lab) -> Vec<(String, String)> {
    let table = lab.json(&["switch", "table", "main"]);
    let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_string();
    let mut rows: Vec<_> = table["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (text(row, "mac"), text(row, "port")))
        .collect();
    rows.sort();
    rows
}

/// Sends a frame from one station to another.
fn send_to(ring: &mut Ring, [from, to]: [u8; 2], number: u32) {
    let mut frame = [0; 60];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 0x88, 0xb5]);
    frame[14..18].copy_from_slice(&number.to_be_bytes());
    assert!(ring.tx.push(&frame).unwrap());
    ring.sync().unwrap();
}

fn learned() -> Vec<(String, String)> {
    [1, 2].map(|last| (format!("02:00:00:00:00:0{last}"), ["a", "b"][last - 1].to_string())).to_vec()
}

/// Kills these processes until the next one knows the addresses: what was learned within the last half second, it does
/// not.
fn kill_until_kept(lab: &Lab, programs: &mut [Ring; 3], names: &[&str]) {
    for _ in 0..10 {
        for (from, program) in (1..).zip(programs.iter_mut().take(2)) {
            send_to_all(program, from, 0);
        }
        until("both are learned", || table(lab) == learned());
        // Also so that it is replaced at once.
        std::thread::sleep(Duration::from_millis(1500));
        let before = lab.json(&["ps"])["fabric"].clone();
        for name in names {
            let process = Pid::from_raw(before[*name].as_i64().unwrap() as i32).unwrap();
            kill_process(process, Signal::KILL).unwrap();
        }
        until("another one is there", || {
            let now = lab.json(&["ps"])["fabric"].clone();
            names.iter().all(|name| now[*name] != before[*name] && now[*name] != 0)
                && ["a", "b", "c"].iter().all(|port| lab.state(port) == "up")
        });
        if table(lab) == learned() {
            return;
        }
    }
    panic!("{:?}\n{}", table(lab), lab.log());
}

/// A frame from `a` to `b` reaches no other.
fn is_not_flooded(programs: &mut [Ring; 3], number: u32) {
    let [a, b, c] = programs;
    while receive(c, Duration::from_millis(50)).is_some() {}
    send_to(a, [1, 2], number);
    while next(b, LONG).unwrap() != number {}
    assert_eq!(next(c, Duration::from_millis(100)), None);
}

#[test]
fn addresses_of_a_switch_outlive_the_data_process_and_an_upgrade() {
    let lab = Lab::new("kept-tables", &switched(&["a", "b", "c"]));
    lab.ok(&["up", "lab.toml", "--detach"]);
    let mut programs = ["a", "b", "c"].map(|port| program(&lab, port));
    kill_until_kept(&lab, &mut programs, &["data_pid"]);
    is_not_flooded(&mut programs, 1);
    kill_until_kept(&lab, &mut programs, &["data_pid", "pid"]);
    is_not_flooded(&mut programs, 2);
    // An upgrade takes also what was learned just now.
    send_to_all(&mut programs[2], 3, 3);
    let all = [learned(), vec![("02:00:00:00:00:03".into(), "c".into())]].concat();
    until("it is learned", || table(&lab) == all);
    lab.ok(&["upgrade"]);
    assert_eq!(table(&lab), all);
    is_not_flooded(&mut programs, 4);
    // A station whose port has lost its program is forgotten, and not known again by the next process.
    let [a, b, c] = programs;
    drop(c);
    until("it is forgotten", || table(&lab) == learned());
    lab.ok(&["upgrade"]);
    assert_eq!(table(&lab), learned());
    drop((a, b));
}
