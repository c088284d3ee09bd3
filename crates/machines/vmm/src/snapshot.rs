//! Snapshots of machines: the CPU's state, and the memory in a file.
//!
//! The guest takes part: it ends what it does, and writes to an I/O port. In a clone, words of its memory then tell it
//! that it is one.

use crate::vm::VmError;
use ringway_host::kvm::CpuState;
use ringway_host::{EventFd, HostError, Mapping, extents, random, since_1970};
use ringway_mem::{Memory, MemoryError, Region, copy};
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Bytes that tell a machine that it resumes from a snapshot.
const WORDS: u64 = 24;
/// Bytes copied at once.
const PIECE: u64 = 1 << 20;

/// A machine between two instructions. Its memory is in a file of `size` bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    pub(crate) cpu: CpuState,
    /// Bytes of memory.
    pub size: usize,
    /// Address of the words that tell a clone that it is one.
    pub(crate) word: u64,
    /// Ticks of the clock in a second, and the time since 1970 when it was taken.
    pub(crate) hz: u64,
    pub(crate) wall: Duration,
    /// Bytes of memory that are in the file.
    pub bytes: u64,
    /// Number of the function's ports.
    pub(crate) ports: usize,
    /// Identifies the image: a snapshot fits to the program that took it.
    pub(crate) image: u64,
}

/// A region whose addresses are offsets.
fn whole(region: &Region) -> Result<Memory, MemoryError> {
    let mut region = region.clone();
    (region.guest, region.user) = (0, 0);
    Memory::new(vec![region])
}

impl Snapshot {
    /// Copies memory to `file`, which is as large.
    pub(crate) fn of(
        cpu: CpuState,
        word: u64,
        hz: u64,
        region: &Region,
        memory: &OwnedFd,
        file: OwnedFd,
    ) -> Result<Snapshot, String> {
        // Attack: a guest that names an address outside its memory.
        if word.checked_add(WORDS).is_none_or(|end| end > region.len) || !word.is_multiple_of(8) {
            return Err("the guest names an address outside its memory".into());
        }
        let system = |error: HostError| error.to_string();
        let size = region.len as usize;
        let to = Arc::new(Mapping::shared(&file, 0, size).map_err(system)?).region();
        let whole = |region: &Region| whole(region).map_err(|error| error.to_string());
        let (from, to) = (whole(region)?, whole(&to)?);
        let mut bytes = 0;
        for (begin, len) in extents(memory).map_err(system)? {
            let end = begin.saturating_add(len).min(region.len);
            let mut at = begin;
            while at < end {
                let len = PIECE.min(end - at) as u32;
                let spans = from.user_span(at, len).zip(to.user_span(at, len));
                let (source, target) = spans.ok_or("a part of the memory is not mapped")?;
                copy(source.as_span(), target);
                at += u64::from(len);
                bytes += u64::from(len);
            }
        }
        Ok(Snapshot {
            cpu,
            size,
            word,
            hz,
            wall: Duration::from_nanos(since_1970()),
            bytes,
            ports: 0,
            image: 0,
        })
    }

    /// Tells a machine in its memory that it resumes from this snapshot, and how long ago it was taken. A clone gets a
    /// number of its own, by which it chooses other random numbers than all others of this snapshot.
    pub(crate) fn announce(&self, region: &Region, hz: u64, is_clone: bool) -> Result<(), VmError> {
        // Its clock counts the ticks of the machine that was taken.
        if hz != self.hz {
            return Err(VmError::Clock(self.hz, hz));
        }
        let passed = Duration::from_nanos(since_1970()).saturating_sub(self.wall);
        let ticks = passed.as_nanos() * u128::from(hz) / 1_000_000_000;
        let memory = whole(region).map_err(|_| VmError::Memory(self.size))?;
        let words = memory.user_span(self.word, WORDS as u32).ok_or(VmError::Memory(self.size))?;
        let mut bytes = [0; WORDS as usize];
        bytes[..8].copy_from_slice(&1_u64.to_le_bytes());
        bytes[8..16].copy_from_slice(&u64::try_from(ticks).unwrap_or(u64::MAX).to_le_bytes());
        // 0 says that it is no clone.
        let generation = if is_clone { random()?.max(1) } else { 0 };
        bytes[16..].copy_from_slice(&generation.to_le_bytes());
        words.write(&bytes);
        Ok(())
    }
}

/// By which the monitor's thread asks the guest's for a snapshot.
#[derive(Debug, Default)]
pub(crate) struct SnapshotRequest(Mutex<State>, Condvar);

#[derive(Debug, Default)]
struct State {
    /// Where the memory goes; none unless one was asked for.
    file: Option<OwnedFd>,
    /// The guest does not go on behind it before it is told to.
    freeze: bool,
    result: Option<Result<Snapshot, String>>,
    signal: Option<Arc<EventFd>>,
}

impl SnapshotRequest {
    fn with<R>(&self, use_it: impl FnOnce(&mut State) -> R) -> R {
        use_it(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Asks for a snapshot; `signal` is signalled when it was taken. With `freeze` the guest is then stopped.
    pub fn request(&self, file: OwnedFd, freeze: bool, signal: Arc<EventFd>) {
        self.with(|state| *state = State { file: Some(file), freeze, result: None, signal: Some(signal) });
    }

    /// Lets a stopped guest resume.
    pub fn thaw(&self) {
        self.with(|state| state.freeze = false);
        self.1.notify_all();
    }

    /// The file, once, if a snapshot was asked for.
    pub fn take(&self) -> Option<OwnedFd> {
        self.with(|state| state.file.take())
    }

    /// The snapshot was taken, or could not be. Returns when the guest may go on.
    pub fn taken(&self, result: Result<Snapshot, String>) {
        self.with(|state| {
            state.freeze &= result.is_ok();
            state.result = Some(result);
            if let Some(signal) = state.signal.take() {
                signal.signal();
            }
        });
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.1.wait_while(state, |state| state.freeze));
    }

    /// The result, once.
    pub fn result(&self) -> Option<Result<Snapshot, String>> {
        self.with(|state| state.result.take())
    }
}
