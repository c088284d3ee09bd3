//! When an exchange of messages ends, if it has not ended before: at a time, whatever the other side sends until then.

use super::Progress;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Attack: a line or an answer without end. The most bytes of one.
pub const LARGEST: usize = 1 << 20;
/// How often it is looked whether the operator has cancelled.
const LOOK: Duration = Duration::from_millis(100);
/// Bytes that are written at a time. A pipe that is ready takes as many, and doesn't block.
const PIECE: usize = 4096;

/// The end of an exchange.
///
/// Attack: a peer that sends one byte in each time that a single read may take. The end is a point in time, for the
/// exchange as a whole.
#[derive(Clone, Copy, Debug)]
pub struct Limit<'a> {
    until: Instant,
    progress: Option<&'a Progress>,
}

impl From<Duration> for Limit<'_> {
    fn from(limit: Duration) -> Self {
        Limit { until: Instant::now() + limit, progress: None }
    }
}

impl<'a> Limit<'a> {
    /// It ends after so long, or when the operator cancels the migration.
    pub fn or_cancelled(limit: Duration, progress: &'a Progress) -> Limit<'a> {
        Limit { progress: Some(progress), ..limit.into() }
    }

    /// The same, or so long from now if that is earlier.
    pub fn at_most(self, limit: Duration) -> Limit<'a> {
        Limit { until: self.until.min(Instant::now() + limit), ..self }
    }

    /// The same, and so long more.
    pub fn and(self, more: Duration) -> Limit<'a> {
        Limit { until: self.until + more, ..self }
    }

    /// What is left of the time.
    pub fn left(self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Waits until a descriptor is ready.
    fn wait(self, descriptor: impl AsFd, flags: PollFlags) -> io::Result<()> {
        loop {
            if self.progress.is_some_and(Progress::is_cancelled) {
                return Err(io::Error::other("it was cancelled"));
            }
            let left = self.left();
            let part = if self.progress.is_some() { left.min(LOOK) } else { left };
            let part = Timespec::try_from(part).map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(&descriptor, flags)], Some(&part)) {
                Ok(0) if left.is_zero() => return Err(io::ErrorKind::TimedOut.into()),
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until there is something to read, or the end.
    ///
    /// # Errors
    /// There is nothing in time.
    pub fn readable(self, input: &BufReader<impl Read + AsFd>) -> io::Result<()> {
        if input.buffer().is_empty() { self.wait(input.get_ref(), PollFlags::IN) } else { Ok(()) }
    }

    /// Reads a line, without its end; none at the end of the input.
    ///
    /// # Errors
    /// It does not come in time, has no end, or is no UTF-8.
    pub fn read_line(self, input: &mut BufReader<impl Read + AsFd>) -> io::Result<Option<String>> {
        let mut line = Vec::new();
        loop {
            self.readable(input)?;
            let bytes = input.fill_buf()?;
            let (taken, is_whole) = match bytes.iter().position(|byte| *byte == b'\n') {
                Some(end) => (end + 1, true),
                None => (bytes.len(), false),
            };
            if taken == 0 {
                return if line.is_empty() { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
            if line.len() + taken > LARGEST {
                return Err(io::Error::other("a line is too long"));
            }
            line.extend(bytes.iter().take(taken));
            input.consume(taken);
            if is_whole {
                line.pop();
                return String::from_utf8(line).map(Some).map_err(io::Error::other);
            }
        }
    }

    /// Reads everything until the end.
    ///
    /// # Errors
    /// It does not end in time, or is too long.
    pub fn read_all(self, input: impl Read + AsFd) -> io::Result<Vec<u8>> {
        let (mut input, mut all) = (BufReader::new(input), Vec::new());
        loop {
            self.readable(&input)?;
            let bytes = input.fill_buf()?;
            if bytes.is_empty() {
                return Ok(all);
            }
            if all.len() + bytes.len() > LARGEST {
                return Err(io::Error::other("the answer is too long"));
            }
            all.extend_from_slice(bytes);
            let taken = bytes.len();
            input.consume(taken);
        }
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// The other side does not take them in time.
    pub fn write(self, output: &mut (impl Write + AsFd), bytes: &[u8]) -> io::Result<()> {
        bytes.chunks(PIECE).try_for_each(|piece| self.write_at_once(output, piece))
    }

    /// The same, for a stream that does not block.
    ///
    /// # Errors
    /// As there.
    pub fn write_at_once(self, output: &mut (impl Write + AsFd), mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.wait(&*output, PollFlags::OUT)?;
            match output.write(bytes) {
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    const SHORT: Duration = Duration::from_millis(60);

    #[test]
    fn a_line_has_a_time_whatever_comes_until_then() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut ours = BufReader::new(ours);
        theirs.write_all(b"one\ntwo").unwrap();
        let limit = || Limit::from(SHORT);
        assert_eq!(limit().read_line(&mut ours).unwrap().as_deref(), Some("one"));
        // Attack: half a line, and a byte now and then.
        let drip = std::thread::spawn(move || {
            while theirs.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        assert_eq!(limit().read_line(&mut ours).unwrap_err().kind(), io::ErrorKind::TimedOut);
        let late = limit().read_all(ours.get_ref().try_clone().unwrap()).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        drop(ours);
        drip.join().unwrap();
    }

    #[test]
    fn a_peer_that_does_not_read_and_one_that_has_gone_are_left() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let error = Limit::from(SHORT).write(&mut ours, &[0; 8 << 20]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(theirs);
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut ours = BufReader::new(ours);
        theirs.write_all(b"half").unwrap();
        drop(theirs);
        let limit = Limit::from(Duration::from_secs(30));
        assert_eq!(limit.read_line(&mut ours).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(limit.read_line(&mut ours).unwrap().is_none());
    }

    #[test]
    fn cancelling_ends_it_at_once() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let progress = Progress::new("vm", "there");
        progress.cancel();
        let limit = Limit::or_cancelled(Duration::from_secs(3600), &progress);
        let error = limit.read_line(&mut BufReader::new(ours)).unwrap_err();
        assert!(error.to_string().contains("cancelled"), "{error}");
    }
}
