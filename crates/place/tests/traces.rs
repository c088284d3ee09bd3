//! Readers of traces against files of the published forms, made up here.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ringway_place::simulate::{Arrival, TraceKind, read};

fn line(arrival: &Arrival) -> String {
    let stays = arrival.lifetime.map_or(String::new(), |lifetime| format!(" for {lifetime}"));
    let vm = &arrival.vm;
    format!("{:>8} {} {} cores {} MB{stays}\n", arrival.at, vm.name, vm.cores, vm.memory_mb)
}

/// VMAgent's `docs/source/simulator/dataset.rst`: cores, GB, seconds since the beginning, 0 to create and 1 to delete.
#[test]
fn vmagents_trace_is_read_as_it_is_documented() {
    let (text, expected) = (include_str!("traces/vmagent.csv"), include_str!("traces/vmagent.expected"));
    let said = |text: &str| match read(TraceKind::Vmagent, "vmagent.csv", text) {
        Ok(arrivals) => arrivals.iter().map(line).collect::<String>(),
        Err(error) => error.to_string(),
    };
    assert_eq!(said(text), expected);
    assert_eq!(said(&format!("\u{feff}{text}")), expected);
    // Its columns are found by their names.
    let turned = "type,time,memory,cpu,vmid,more\n0,6,64,16,3,x\n";
    assert_eq!(said(turned), "    6000 vm-3 16 cores 65536 MB\n");
    // A file that was cut, wherever, is read or refused with the line.
    for end in 0..text.len() {
        let answer = said(&text[..end]);
        let is_read = answer.lines().all(|line| line.contains(" cores "));
        assert!(is_read || answer.starts_with("vmagent.csv:"), "{end}: {answer}");
    }
    let again = said(&text.replace("0,1,1,5,1\r\n", ""));
    assert_eq!(again, "vmagent.csv:8: VM `0` comes again before it goes");
    let kind = said(&text.replace("7,8,16,6,1", "7,8,16,6,2"));
    assert_eq!(kind, "vmagent.csv:6: type `2` is neither 0 (comes) nor 1 (goes)");
}
