//! How a function's process ended, in words.

use rustix::process::Signal;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// Processes that the kernel has ended on this host for lack of memory (`oom_kill` of proc_vmstat(5)); 0 if it does not
/// tell.
pub fn killed_for_memory() -> u64 {
    count(&std::fs::read_to_string("/proc/vmstat").unwrap_or_default())
}

fn count(vmstat: &str) -> u64 {
    let count = vmstat.lines().find_map(|line| line.strip_prefix("oom_kill "));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// The status in words; the kernel has ended `more` processes of the host for lack of memory while it ran, of which it
/// may be one unless it is `ours`: killed by this process.
pub fn in_words(status: ExitStatus, more: u64, ours: bool) -> String {
    match status.signal() {
        Some(signal) if signal == Signal::KILL.as_raw() && more > 0 && !ours => {
            let processes = if more == 1 { "process" } else { "processes" };
            format!(
                "{status}: perhaps for lack of memory: the kernel has ended {more} {processes} of this host \
                 for that since it started"
            )
        }
        // SIGBUS: a page of a file's memory could not be allocated.
        Some(signal) if signal == Signal::BUS.as_raw() => {
            format!("{status}: there was no page for its shared memory, as when the host has none left")
        }
        _ => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_memory_is_told_from_other_ends() {
        assert_eq!(count("nr_free_pages 7\noom_kill 12\nnuma_hit 3\n"), 12);
        assert_eq!(count("oom_kill_something 12\n"), 0);
        let words = |raw, more| in_words(ExitStatus::from_raw(raw), more, false);
        assert_eq!(words(9, 0), "signal: 9 (SIGKILL)");
        assert!(words(9, 1).starts_with("signal: 9 (SIGKILL): perhaps for lack of memory"));
        assert!(words(9, 1).contains("1 process of") && words(9, 2).contains("2 processes of"));
        assert_eq!(
            in_words(ExitStatus::from_raw(9), 1, true),
            "signal: 9 (SIGKILL)",
            "killed by this process"
        );
        assert!(words(7, 0).starts_with("signal: 7 (SIGBUS)") && words(7, 0).contains("no page"));
        assert_eq!(words(0x100, 5), "exit status: 1");
    }
}
