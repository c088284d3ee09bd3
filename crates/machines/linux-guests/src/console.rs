//! The log of a guest's console.

use super::rate_limit::RateLimited;
use rustix::pipe::{SpliceFlags, pipe, splice, tee};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
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
        self.look_at(bytes)
    }

    /// Moves bytes to the log that were looked at in a pipe. They are in the one or in the other at any instant:
    /// nothing is lost if this process is killed.
    fn take(&mut self, from: &mut File, bytes: &mut [u8]) -> Option<String> {
        let mut moved = 0;
        while moved < bytes.len() && self.left > 0 {
            let most =
                bytes.len().saturating_sub(moved).min(usize::try_from(self.left).unwrap_or(usize::MAX));
            match splice(&mut *from, None, &self.file, None, most, SpliceFlags::NONBLOCK) {
                Ok(length @ 1..) => (moved, self.left) = (moved + length, self.left - length as u64),
                // A full disk must not end a guest.
                _ => break,
            }
        }
        let rest = bytes.get_mut(moved..).unwrap_or_default();
        if !rest.is_empty() && from.read_exact(rest).is_ok() {
            self.write(rest);
        }
        self.look_at(bytes)
    }

    fn look_at(&mut self, bytes: &[u8]) -> Option<String> {
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
pub fn record(mut from: RateLimited<File>, log: &Mutex<Log>, mut panicked: impl FnMut(String)) {
    let (mut buffer, mut copies) = ([0; 4096], pipe().ok().map(|(from, to)| (File::from(from), to)));
    loop {
        let part = from.part(&mut buffer);
        let peeked = copies.as_mut().and_then(|copies| peek(from.source(), copies, part));
        let (length, said) = match peeked {
            Some(length) => {
                let bytes = part.get_mut(..length).unwrap_or_default();
                let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
                (length, log.take(from.source(), bytes))
            }
            // It is no pipe.
            None => match from.source().read(part) {
                Ok(length) => (length, append(log, part.get(..length).unwrap_or_default())),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return,
            },
        };
        if length == 0 {
            return;
        }
        from.count(length);
        said.map(&mut panicked);
    }
}

/// Waits until a pipe has bytes, and reads them by the pipe `copies`: they stay in the pipe. Returns their number.
fn peek(from: &File, (copied, to): &mut (File, OwnedFd), bytes: &mut [u8]) -> Option<usize> {
    let length = tee(from, to, bytes.len(), SpliceFlags::empty()).ok()?;
    copied.read_exact(bytes.get_mut(..length)?).ok()?;
    Some(length)
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
        record(of(b"1234567"), &log, |_| {});
        append(&log, b"8");
        assert_eq!(std::fs::read(&path).unwrap(), b"12345");
        std::fs::remove_file(&path).unwrap();
    }

    /// A pipe with these bytes, which is closed.
    fn of(bytes: &[u8]) -> RateLimited<File> {
        let (from, to) = pipe().unwrap();
        File::from(to).write_all(bytes).unwrap();
        RateLimited::new(File::from(from))
    }

    #[test]
    fn bytes_stay_in_the_pipe_until_they_are_in_the_log() {
        let path = std::env::temp_dir().join(format!("ringway-moved-{}", std::process::id()));
        let mut log = Log::new(File::create(&path).unwrap());
        let (mut from, mut bytes) = (of(b"one\ntwo\n"), [0; 6]);
        let mut copies = pipe().map(|(from, to)| (File::from(from), to)).unwrap();
        // As a process that is killed before it has moved them.
        assert_eq!(peek(from.source(), &mut copies, &mut bytes), Some(6));
        assert_eq!(peek(from.source(), &mut copies, &mut bytes), Some(6));
        assert_eq!(&bytes, b"one\ntw");
        assert_eq!(log.take(from.source(), &mut bytes), None);
        assert_eq!(std::fs::read(&path).unwrap(), b"one\ntw");
        let (log, mut said) = (Mutex::new(log), Vec::new());
        record(from, &log, |panic| said.push(panic));
        record(of(b"Kernel panic - not syncing: a\n"), &log, |panic| said.push(panic));
        assert_eq!(said, ["Kernel panic - not syncing: a"]);
        let all = std::fs::read_to_string(&path).unwrap();
        assert_eq!(all, "one\ntwo\nKernel panic - not syncing: a\n");
        // A file, and a log that can't be written to.
        std::fs::write(&path, "x\nKernel panic - not syncing: b\n").unwrap();
        let log = Mutex::new(Log::new(File::open("/dev/null").unwrap()));
        record(RateLimited::new(File::open(&path).unwrap()), &log, |panic| said.push(panic));
        record(of(b"Kernel panic - not syncing: c\n"), &log, |panic| said.push(panic));
        assert_eq!(said[1..], ["Kernel panic - not syncing: b", "Kernel panic - not syncing: c"]);
        std::fs::remove_file(&path).unwrap();
    }
}
