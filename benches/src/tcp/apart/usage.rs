//! CPU time and context switches of processes.

use std::fs::read_to_string;
use std::ops::{Add, Sub};

/// Since the start of processes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    pub cpu: f64,
    pub switches: f64,
}

impl Add for Usage {
    type Output = Usage;

    fn add(self, other: Usage) -> Usage {
        Usage { cpu: self.cpu + other.cpu, switches: self.switches + other.switches }
    }
}

impl Sub for Usage {
    type Output = Usage;

    fn sub(self, other: Usage) -> Usage {
        Usage { cpu: self.cpu - other.cpu, switches: self.switches - other.switches }
    }
}

impl Usage {
    /// Of a process, and of those that it started if `tree`.
    pub fn of(process: u32, tree: bool) -> Usage {
        let mut usage = Usage::default();
        let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else { return usage };
        for thread in threads.flatten() {
            let read = |name: &str| read_to_string(thread.path().join(name)).unwrap_or_default();
            let first = |text: &str| text.split_whitespace().next().and_then(|word| word.parse::<f64>().ok());
            usage.cpu += first(&read("schedstat")).unwrap_or(0.0);
            let status = read("status");
            let lines = status.lines().filter_map(|line| line.split_once("voluntary_ctxt_switches:"));
            usage.switches += lines.filter_map(|(_, count)| first(count)).sum::<f64>();
            if tree {
                let children = read("children");
                let children = children.split_whitespace().filter_map(|word| word.parse().ok());
                usage = children.map(|child| Usage::of(child, true)).fold(usage, Add::add);
            }
        }
        usage
    }
}
