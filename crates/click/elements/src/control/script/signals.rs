//! Signals by name, with Linux's numbers.
use ringway_click_lang::config;

const NAMES: &[(&str, i32)] = &[
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("CHLD", 17),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("TTIN", 21),
    ("TTOU", 22),
    ("URG", 23),
    ("XCPU", 24),
    ("XFSZ", 25),
    ("VTALRM", 26),
    ("PROF", 27),
    ("WINCH", 28),
    ("IO", 29),
    ("PWR", 30),
    ("SYS", 31),
];

/// The number of a signal given by name (with or without `SIG`) or by number.
pub(super) fn signal(word: &str) -> Option<i32> {
    let name = word.strip_prefix("SIG").unwrap_or(word);
    let named = NAMES.iter().find(|(own, _)| *own == name).map(|(_, number)| *number);
    let number = || config::integer(word).and_then(|number| i32::try_from(number).ok());
    named.or_else(number).filter(|number| (0..=64).contains(number))
}

/// Whether a process may handle the signal; others are uncatchable, or report faults of the process itself.
pub(super) fn catchable(signal: i32) -> bool {
    (1..=64).contains(&signal) && !matches!(signal, 4 | 8 | 9 | 11 | 19)
}
