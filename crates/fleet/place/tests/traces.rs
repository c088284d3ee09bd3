//! Readers of traces, on generated files in the published formats.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ringway_place::simulate::{Arrival, TraceKind, read, read_nodes};

fn line(arrival: &Arrival) -> String {
    let stays = arrival.lifetime.map_or(String::new(), |lifetime| format!(" for {lifetime}"));
    let vm = &arrival.vm;
    format!("{:>8} {} {} cores {} MB{stays}\n", arrival.at, vm.name, vm.cores, vm.memory_mb)
}

/// VMAgent's `docs/source/simulator/dataset.rst`: cores, GB, seconds since the beginning, 0 to create and 1 to delete.
#[test]
fn the_vmagent_trace_is_parsed_as_documented() {
    let (text, expected) = (include_str!("traces/vmagent.csv"), include_str!("traces/vmagent.expected"));
    let result = |text: &str| match read(TraceKind::Vmagent, "vmagent.csv", text) {
        Ok(arrivals) => arrivals.iter().map(line).collect::<String>(),
        Err(error) => error.to_string(),
    };
    assert_eq!(result(text), expected);
    assert_eq!(result(&format!("\u{feff}{text}")), expected);
    // Columns are found by name.
    let turned = "type,time,memory,cpu,vmid,more\n0,6,64,16,3,x\n";
    assert_eq!(result(turned), "    6000 vm-3 16 cores 65536 MB\n");
    // A file truncated anywhere is read, or refused with the line.
    for end in 0..text.len() {
        let answer = result(&text[..end]);
        let is_read = answer.lines().all(|line| line.contains(" cores "));
        assert!(is_read || answer.starts_with("vmagent.csv:"), "{end}: {answer}");
    }
    let again = result(&text.replace("0,1,1,5,1\r\n", ""));
    assert_eq!(again, "vmagent.csv:8: VM `0` arrives again before it leaves");
    let kind = result(&text.replace("7,8,16,6,1", "7,8,16,6,2"));
    assert_eq!(kind, "vmagent.csv:6: type `2` is neither 0 (arrives) nor 1 (leaves)");
}

/// In each format, invalid figures are reported with their line; no trace makes a simulation endless.
#[test]
fn absurd_figures_are_reported_with_their_line() {
    let forms: [(TraceKind, &str, &[&str]); 3] = [
        (TraceKind::Vmagent, "vmid,cpu,memory,time,type", &["1", "2", "4", "60", "0"]),
        (
            TraceKind::Openb,
            "name,cpu_milli,memory_mib,creation_time,deletion_time",
            &["a", "2000", "4096", "0", "9"],
        ),
        (TraceKind::Azure, "vmId,core,memory,starttime,endtime", &["1", "0.5", "0.25", "0.5", "1.5"]),
    ];
    for (kind, head, good) in forms {
        let text = |cells: &[&str]| format!("{head}\n{}\n{}\n", good.join(","), cells.join(","));
        let mut other = good.to_vec();
        other[0] = "77";
        assert_eq!(read(kind, "t.csv", &text(&other)).unwrap().len(), 2);
        for column in 1..5 {
            for absurd in [
                "1000000000000000000",
                "-1000000000000000000",
                "1e300",
                "-1e300",
                "inf",
                "x",
                "--",
                "0x9",
                "\u{0}",
            ] {
                let mut cells = other.clone();
                cells[column] = absurd;
                let error = read(kind, "t.csv", &text(&cells)).unwrap_err().to_string();
                assert!(error.starts_with("t.csv:3: "), "{kind:?} {column} {absurd}: {error}");
            }
            let error = read(kind, "t.csv", &text(&other[..column])).unwrap_err().to_string();
            assert!(error.starts_with("t.csv:3: there is no cell"), "{kind:?} {column}: {error}");
            let without =
                head.split(',').enumerate().filter(|(place, _)| *place != column).map(|(_, name)| name);
            let without = without.collect::<Vec<_>>().join(",");
            let error = read(kind, "t.csv", &format!("{without}\n1,1,1,1\n")).unwrap_err().to_string();
            assert!(error.starts_with("t.csv:1: there is no column"), "{kind:?} {column}: {error}");
        }
        for column in 1..3 {
            for absurd in ["NaN", "-1", ""] {
                let mut cells = other.clone();
                cells[column] = absurd;
                let error = read(kind, "t.csv", &text(&cells)).unwrap_err().to_string();
                assert!(error.starts_with("t.csv:3: "), "{kind:?} {column} {absurd}: {error}");
            }
        }
    }
    // Each time is valid, but the whole span is too long.
    let long = "vmid,cpu,memory,time,type\n1,1,1,0,0\n2,1,1,3000000000,0\n";
    let error = read(TraceKind::Vmagent, "t.csv", long).unwrap_err().to_string();
    assert_eq!(error, "t.csv:1: it spans 94 years, up to vm-2; the limit is ten");
    for (nodes, message) in [
        ("a,1000,512\na,1000,512", "n.csv:3: host a is defined twice"),
        ("a,0,512", "n.csv:2: 0 CPUs can't be"),
        ("a,1e30,512", "n.csv:2: "),
        ("a,1000,-5", "n.csv:2: -5 MB can't be"),
        ("a b,1000,512", "n.csv:2: host a b: `name` can't be a name"),
    ] {
        let error =
            read_nodes("n.csv", &format!("sn,cpu_milli,memory_mib\n{nodes}\n")).unwrap_err().to_string();
        assert!(error.starts_with(message), "{error}");
    }
}
