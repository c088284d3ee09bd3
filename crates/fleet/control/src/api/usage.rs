//! What the processes of a fabric use, as the kernel counts it.

use super::{FabricView, FunctionView, GuestView, ProcessView, UsageView};
use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// Looks at every process once. A process that has just ended uses nothing.
pub fn usage(fabric: &FabricView, guests: Vec<GuestView>, functions: Vec<FunctionView>) -> UsageView {
    let now = clock_gettime(ClockId::Monotonic);
    let own = [("control", fabric.pid), ("data", fabric.data_pid)];
    let own = own.map(|(name, pid)| (name.to_string(), name.to_string(), pid, Vec::new()));
    let guests = guests.into_iter().map(|guest| (guest.name, guest.kind, guest.pid, guest.ports));
    let functions = functions.into_iter().map(|own| (own.name, own.isolation, own.pid, own.ports));
    let all = own.into_iter().chain(guests).chain(functions);
    UsageView {
        at: (now.tv_sec as u64).saturating_mul(SECOND).saturating_add(now.tv_nsec as u64),
        processes: all.map(|(name, kind, pid, ports)| look(name, kind, pid, ports)).collect(),
    }
}

fn look(name: String, kind: String, pid: u32, ports: Vec<String>) -> ProcessView {
    let read = |file: &str| match pid {
        0 => String::new(),
        _ => std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default(),
    };
    let cpu = ticks(&read("stat")).unwrap_or(0);
    let second = rustix::param::clock_ticks_per_second().max(1);
    let memory = proportional(&read("smaps_rollup")).or_else(|| resident(&read("statm"))).unwrap_or(0);
    let cpu = u128::from(cpu) * u128::from(SECOND) / u128::from(second);
    ProcessView { name, kind, pid, cpu: u64::try_from(cpu).unwrap_or(u64::MAX), memory, ports }
}

/// Clock ticks in user mode and in the kernel, of all threads (proc_pid_stat(5)); a guest's code is in them.
fn ticks(stat: &str) -> Option<u64> {
    // The name before may contain anything.
    let mut words = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut next = || words.next()?.parse::<u64>().ok();
    next()?.checked_add(next()?)
}

/// Bytes, each shared page divided by the number of its users (proc_pid_smaps(5)).
fn proportional(rollup: &str) -> Option<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Bytes of resident pages, for a process of another user.
fn resident(statm: &str) -> Option<u64> {
    let pages = statm.split_whitespace().nth(1)?.parse::<u64>().ok()?;
    pages.checked_mul(rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_kernel_are_read() {
        let stat = "12 (a) b) S 1 2 3 4 5 6 7 8 9 10 300 21 1 1 20 0";
        assert_eq!(ticks(stat), Some(321));
        assert_eq!(ticks("12 (a"), None);
        assert_eq!(proportional("5000-6000 rollup\nRss: 9 kB\nPss:      7 kB\n"), Some(7 << 10));
        assert_eq!(proportional(""), None);
        assert_eq!(resident("90 2 1"), Some(2 * rustix::param::page_size() as u64));
    }

    #[test]
    fn a_process_that_runs_uses_memory_and_one_that_does_not_nothing() {
        let this = look("this".into(), "data".into(), std::process::id(), Vec::new());
        assert!(this.memory > 4096, "{this:?}");
        let none = look("none".into(), "worker".into(), 0, vec!["a".into()]);
        assert_eq!((none.cpu, none.memory, none.ports.len()), (0, 0, 1));
    }
}
