//! The log of a guest's console.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Attack: a guest that writes endlessly to its console would fill the disk. Largest size of its log in
/// bytes.
const LARGEST: u64 = 16 << 20;
/// Bytes at the end of a log in which its last lines are looked for.
const TAIL: u64 = 8 << 10;
/// Characters of a line that are shown.
const SHOWN: usize = 300;
/// How Linux begins the line of a panic.
const PANIC: &str = "Kernel panic - not syncing";

/// A console's log, up to its bound.
pub struct Log {
    file: File,
    left: u64,
    /// The beginning of the current line.
    line: Vec<u8>,
}

impl Log {
    pub fn new(file: File) -> Log {
        Log { file, left: LARGEST, line: Vec::new() }
    }

    /// A log to which another process has written.
    pub fn adopted(file: File) -> Log {
        let written = file.metadata().map_or(LARGEST, |seen| seen.len());
        Log { left: LARGEST.saturating_sub(written), ..Log::new(file) }
    }

    /// Appends bytes; the line of a kernel's panic, if they complete one.
    fn append(&mut self, bytes: &[u8]) -> Option<String> {
        self.write(bytes);
        let mut panic = None;
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            // Attack: a line without end.
            let room = (4 * SHOWN).saturating_sub(self.line.len());
            self.line.extend_from_slice(piece.get(..piece.len().min(room)).unwrap_or_default());
            if piece.ends_with(b"\n") {
                panic = panic.or_else(|| panic_of(&std::mem::take(&mut self.line)));
                self.line.clear();
            }
        }
        panic
    }

    fn write(&mut self, bytes: &[u8]) {
        let fits = bytes
            .get(..bytes.len().min(usize::try_from(self.left).unwrap_or(usize::MAX)))
            .unwrap_or_default();
        self.left -= fits.len() as u64;
        // A full disk must not end a guest.
        let _ = self.file.write_all(fits);
    }
}

/// Appends bytes to a log; the line of a kernel's panic, if they complete one.
pub fn append(log: &Mutex<Log>, bytes: &[u8]) -> Option<String> {
    log.lock().unwrap_or_else(PoisonError::into_inner).append(bytes)
}

/// Copies the console to its log until it is closed; calls `panicked` with the line of a kernel's panic.
pub fn record(mut from: impl Read, log: &Mutex<Log>, mut panicked: impl FnMut(String)) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        append(log, buffer.get(..length).unwrap_or_default()).map(&mut panicked);
    }
}

/// A line by which a kernel says that it panicked, without the time in front.
fn panic_of(line: &[u8]) -> Option<String> {
    let line = lines(line).pop()?;
    let said = match line.strip_prefix('[') {
        Some(timed) => timed.split_once("] ")?.1,
        None => &line,
    };
    said.starts_with(PANIC).then(|| said.to_string())
}

/// The last lines of a console's log that are not empty, at most `most`; none if it can't be read. Long ones are cut.
pub fn last_lines(log: &Path, most: usize) -> Vec<String> {
    let mut lines = tail(log).map(|bytes| lines(&bytes)).unwrap_or_default();
    lines.split_off(lines.len().saturating_sub(most))
}

/// The last line of a console's log, or that there is none.
pub fn last_line(log: &Path) -> String {
    last_lines(log, 1).pop().unwrap_or_else(|| "its console is empty".into())
}

fn tail(log: &Path) -> io::Result<Vec<u8>> {
    let (mut file, mut bytes) = (File::open(log)?, Vec::new());
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    file.take(TAIL).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn lines(bytes: &[u8]) -> Vec<String> {
    // Attack: a guest that writes escape sequences would control the terminal of whoever reads its last lines.
    let plain = |line: &str| line.chars().filter(|c| !c.is_control()).take(SHOWN).collect::<String>();
    let lines = String::from_utf8_lossy(bytes).lines().map(plain).collect::<Vec<_>>();
    lines.into_iter().map(|line| line.trim().to_string()).filter(|line| !line.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_shown_without_escape_sequences() {
        let log = std::env::temp_dir().join(format!("ringway-console-{}", std::process::id()));
        let long = "x".repeat(SHOWN + 1);
        std::fs::write(&log, format!("{}\nfirst\r\n\n\x1b]0;title\x07last\n{long}\n \n", "y".repeat(20_000)))
            .unwrap();
        assert_eq!(last_lines(&log, 3), ["first", "]0;titlelast", &long[1..]]);
        assert_eq!(last_lines(&log, 1), [last_line(&log)]);
        std::fs::write(&log, "\n").unwrap();
        assert_eq!(last_line(&log), "its console is empty");
        std::fs::remove_file(&log).unwrap();
        assert!(last_lines(&log, 3).is_empty());
    }

    #[test]
    fn the_line_of_a_panic_is_found_in_pieces_and_beyond_the_bound_and_only_at_the_beginning() {
        let path = std::env::temp_dir().join(format!("ringway-panic-{}", std::process::id()));
        let log = Mutex::new(Log { left: 5, ..Log::new(File::create(&path).unwrap()) });
        let whole = "[    0.51] Kernel panic - not syncing: System is deadlocked on memory\r\n";
        for cut in 0..whole.len() {
            let (front, back) = whole.split_at(cut);
            assert_eq!(append(&log, front.as_bytes()), None, "{front}");
            let said = append(&log, back.as_bytes());
            assert_eq!(said.as_deref(), Some("Kernel panic - not syncing: System is deadlocked on memory"));
        }
        for other in
            ["grep 'Kernel panic - not syncing'\n", "[x Kernel panic - not syncing\n", "Kernel panic"]
        {
            assert_eq!(append(&log, other.as_bytes()), None, "{other}");
        }
        append(&log, b"\n");
        let long = "x".repeat(100_000) + "\n" + &whole[11..];
        assert!(append(&log, long.as_bytes()).is_some_and(|said| said.starts_with(PANIC)));
        assert!(log.lock().unwrap().line.capacity() < 10_000);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_log_has_a_bound() {
        let path = std::env::temp_dir().join(format!("ringway-bound-{}", std::process::id()));
        let log = Mutex::new(Log { left: 5, ..Log::new(File::create(&path).unwrap()) });
        record(&b"1234567"[..], &log, |_| {});
        append(&log, b"8");
        assert_eq!(std::fs::read(&path).unwrap(), b"12345");
        std::fs::remove_file(&path).unwrap();
    }
}
