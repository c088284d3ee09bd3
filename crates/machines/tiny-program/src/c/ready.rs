//! Calls that wait for several files: `poll` and `select`.

use super::abi::{Errno, event, number};
use super::files::{FILES, File};
use super::{Calls, Reply, Stop};
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use ringway_tiny::Machine;

/// Bytes of a `struct pollfd`.
const ENTRY: usize = 8;
/// What `select` calls readable, writable and exceptional, each with the events of which one suffices.
const SETS: [(u16, u16); 3] =
    [(event::IN, event::IN | event::HUP | event::ERR), (event::OUT, event::OUT | event::ERR), (0, 0)];

impl<M: Machine> Calls<M> {
    pub(super) fn ready(&mut self, number: u64, [a, b, c, d, e, _]: [u64; 6]) -> Reply {
        let most = |calls: &Self, at: u64| if at == 0 { Ok(None) } else { calls.timespec(at).map(Some) };
        match number {
            number::POLL => {
                // A negative number of milliseconds: for ever.
                let most = u64::try_from(c as i32).ok().map(Duration::from_millis);
                self.poll(a, b, most)
            }
            number::PPOLL => {
                let most = most(self, c)?;
                self.poll(a, b, most)
            }
            _ => {
                let most = most(self, e)?;
                self.select(a, [b, c, d], most)
            }
        }
    }

    /// Waits, in steps, until `look` finds something or the time has expired.
    fn look(
        &mut self,
        most: Option<Duration>,
        mut look: impl FnMut(&mut Self, &mut Vec<(Rc<File>, u16)>) -> Result<u64, Errno>,
    ) -> Result<u64, Stop> {
        let end = most.map(|most| self.program.now().saturating_add(most));
        let mut waited = true;
        loop {
            let mut files = Vec::new();
            let found = look(self, &mut files)?;
            if found > 0 || !waited || most == Some(Duration::ZERO) {
                return Ok(found);
            }
            let rest = end.map(|end| end.saturating_sub(self.program.now()));
            waited = self.wait(&files, rest)?;
        }
    }

    fn poll(&mut self, at: u64, count: u64, most: Option<Duration>) -> Reply {
        let count = usize::try_from(count).ok().filter(|count| *count <= FILES).ok_or(Errno::Invalid)?;
        let mut entries = vec![0; count * ENTRY];
        if count > 0 {
            self.ram.read(at, &mut entries)?;
        }
        let found = self.look(most, |calls, files| {
            let mut found = 0;
            for entry in entries.as_chunks_mut::<ENTRY>().0 {
                let [a, b, c, d, low, high, ..] = *entry;
                let (descriptor, wanted) =
                    (i32::from_le_bytes([a, b, c, d]), u16::from_le_bytes([low, high]));
                let come = match calls.files.get(descriptor as u64) {
                    _ if descriptor < 0 => 0,
                    Ok(file) => {
                        let come = file.events(wanted);
                        files.push((file, wanted));
                        come
                    }
                    Err(_) => event::NVAL,
                };
                entry[6..].copy_from_slice(&come.to_le_bytes());
                found += u64::from(come != 0);
            }
            Ok(found)
        })?;
        if count > 0 {
            self.ram.write(at, &entries)?;
        }
        Ok(found)
    }

    fn select(&mut self, count: u64, sets: [u64; 3], most: Option<Duration>) -> Reply {
        // An `int`.
        let count = usize::try_from(count as i32).map_err(|_| Errno::Invalid)?.min(FILES);
        // The library's sets are of words.
        let bytes = count.div_ceil(64) * 8;
        let mut wanted = [const { [0_u8; FILES / 8] }; 3];
        for (set, at) in wanted.iter_mut().zip(sets).filter(|(_, at)| *at != 0) {
            self.ram.read(at, &mut set[..bytes])?;
        }
        let mut come = wanted;
        let found = self.look(most, |calls, files| {
            come = [const { [0; FILES / 8] }; 3];
            let mut found = 0;
            for descriptor in 0..count {
                let (byte, bit) = (descriptor / 8, 1 << (descriptor % 8));
                for (number, (asked, events)) in SETS.into_iter().enumerate() {
                    if wanted[number][byte] & bit == 0 {
                        continue;
                    }
                    let file = calls.files.get(descriptor as u64)?;
                    if file.events(asked) & events != 0 {
                        come[number][byte] |= bit;
                        found += 1;
                    }
                    files.push((file, asked));
                }
            }
            Ok(found)
        })?;
        for (set, at) in come.iter().zip(sets).filter(|(_, at)| *at != 0) {
            self.ram.write(at, &set[..bytes])?;
        }
        Ok(found)
    }
}
