//! `notify = { ... }` of a port.

use ringway_spec::Notify;
use ringway_spec::file::Section;

/// Longest time that a notification may be delayed, in nanoseconds.
const LONGEST: u64 = 1_000_000_000;

/// Reads the notification settings of a port.
pub fn notify(section: &mut Section<'_>) -> Notify {
    let usual = Notify::default();
    let Some(mut table) = section.table("notify", "{ moderate = \"50us\" }") else { return usual };
    let read = Notify {
        batch: table.boolean("batch").unwrap_or(usual.batch),
        combine: table.duration("combine", 0..=LONGEST, "20us").unwrap_or(usual.combine),
        moderate: table.duration("moderate", 0..=LONGEST, "50us").unwrap_or(usual.moderate),
        suppress: table.boolean("suppress").unwrap_or(usual.suppress),
        poll: table.boolean("poll").unwrap_or(usual.poll),
    };
    table.finish(|_| None);
    read
}
