//! Logs of what programs of the fabric write: bounded in bytes and in rate.

use ringway_host::{OwnFile, open_own, wait_readable};
use rustix::io::Errno;
use rustix::pipe::{SpliceFlags, splice};
use std::fs::File;
use std::io::{self, ErrorKind, PipeReader, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of a log; then the one before it is replaced by it. Attack: a program that writes without an end.
const LOG: u64 = 4 << 20;
/// Bytes that a log takes in a period. What is more waits in the pipe, and the program that writes it. Attack: the same
/// program, which would keep a processor and the disk busy.
const RATE: u64 = 8 << 20;
const PERIOD: Duration = Duration::from_secs(1);
/// Bytes that are copied to a log at once.
const PIECE: usize = 64 << 10;

/// Where the log goes that has become too long.
pub fn before(log: &Path) -> PathBuf {
    log.with_extension("log.1")
}

/// Opens a log, which is made if it is not there. No link is followed.
pub fn open(log: &Path) -> io::Result<File> {
    open_own(log, OwnFile::Keep, 0o644)
}

/// Copies output to a log until its writers have ended. A log that is full is kept beside it, and begins anew: who
/// follows it reads on. What is not in the log yet stays in the pipe, for the next `control`. `writes` is held while
/// something is written: what is left of a program may write beside its successor.
pub fn copy(output: &PipeReader, path: &Path, writes: &Mutex<()>) -> io::Result<()> {
    copy_within(output, path, LOG, writes)
}

fn copy_within(output: &PipeReader, path: &Path, most: u64, writes: &Mutex<()>) -> io::Result<()> {
    let mut log = open(path)?;
    let (mut since, mut copied) = (Instant::now(), 0);
    loop {
        wait_readable(&[output.as_fd()], None).map_err(io::Error::other)?;
        if since.elapsed() >= PERIOD {
            (since, copied) = (Instant::now(), 0);
        } else if copied >= RATE {
            std::thread::sleep(PERIOD.saturating_sub(since.elapsed()));
            continue;
        }
        let _writes = writes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut seen = log.metadata()?;
        if seen.nlink() == 0 {
            // Somebody removed it; its folder goes with what writes to it.
            log = match open(path) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                opened => opened?,
            };
            seen = log.metadata()?;
        }
        let mut len = seen.len();
        if len >= most {
            log.seek(SeekFrom::Start(0))?;
            io::copy(&mut log, &mut open_own(&before(path), OwnFile::Rewrite, 0o644)?)?;
            log.set_len(0)?;
            len = 0;
        }
        let room = usize::try_from(most - len).unwrap_or(usize::MAX).min(PIECE);
        match splice(output, None, &log, Some(&mut len), room, SpliceFlags::NONBLOCK) {
            Err(Errno::INTR | Errno::AGAIN) => {}
            Ok(0) => return Ok(()),
            count => copied += count? as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_log_is_bounded_and_the_part_before_is_kept() {
        let folder = std::env::temp_dir().join(format!("ringway-program-log-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("web.log");
        let write = |text: &[u8]| {
            let (output, mut input) = io::pipe().unwrap();
            input.write_all(text).unwrap();
            drop(input);
            copy_within(&output, &path, 10, &Mutex::new(()))
        };
        write(b"first\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"first\n");
        // Another `control` goes on.
        write(b"second\n").unwrap();
        assert_eq!(std::fs::read(before(&path)).unwrap(), b"first\nseco");
        assert_eq!(std::fs::read(&path).unwrap(), b"nd\n");
        // Attack: links to files that root must not write.
        let precious = folder.join("precious");
        std::fs::write(&precious, "precious").unwrap();
        for name in [before(&path), path.clone()] {
            std::fs::remove_file(&name).unwrap();
            std::os::unix::fs::symlink(&precious, &name).unwrap();
            let why = write(b"more than is room for\n").unwrap_err().to_string();
            assert!(why.contains("symbolic link"), "{why}");
        }
        assert_eq!(std::fs::read(&precious).unwrap(), b"precious");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_log_that_was_removed_is_made_again_and_takes_no_more_than_its_rate() {
        let folder = std::env::temp_dir().join(format!("ringway-log-rate-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("yes.log");
        let (output, mut input) = io::pipe().unwrap();
        let log = path.clone();
        let copying = std::thread::spawn(move || copy(&output, &log, &Mutex::new(())));
        let begun = Instant::now();
        let piece = vec![b'y'; PIECE];
        for _ in 0..2 * RATE / PIECE as u64 + 2 {
            input.write_all(&piece).unwrap();
        }
        // The first period's bytes, one more period, and what is in the pipe.
        assert!(begun.elapsed() >= PERIOD, "{:?}", begun.elapsed());
        let bytes = |path: &Path| std::fs::metadata(path).map_or(0, |seen| seen.len());
        assert!(bytes(&path) <= LOG && bytes(&before(&path)) == LOG);
        std::fs::remove_file(&path).unwrap();
        input.write_all(b"again\n").unwrap();
        drop(input);
        copying.join().unwrap().unwrap();
        assert!(std::fs::read(&path).unwrap().ends_with(b"again\n"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
