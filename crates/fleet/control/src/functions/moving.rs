//! Snapshots of functions, and functions that move to another fabric.

use super::{FunctionError, Functions, Life, PendingSnapshot, Then};
use crate::api::Departure;
use crate::engine::Answer;
use crate::file::Fabric;
use crate::snapshots::{SnapshotError, Taken, memory_size};
use ringway_host::{is_sealed, memory_of};
use ringway_spec::{Function, Isolation, printable};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;

impl Functions {
    /// Takes a snapshot of a function; the answer follows.
    pub fn snapshot(&mut self, name: &str, new: &str, answer: Answer<()>) {
        self.request_snapshot(name, Then::Keep(new.into(), answer));
    }

    /// Stops a function in a virtual machine between two instructions, so that it can go on in another fabric; the
    /// answer follows. It is suspended, and resuming it lets it go on here.
    pub fn depart(&mut self, name: &str, answer: Answer<Departure>) {
        self.request_snapshot(name, Then::Leave(answer));
    }

    fn request_snapshot(&mut self, name: &str, then: Then) {
        if let Err((error, then)) = self.begin_snapshot(name, then) {
            then.fail(error);
        }
    }

    fn begin_snapshot(&mut self, name: &str, then: Then) -> Result<(), (FunctionError, Then)> {
        let Some(record) = self.records.get_mut(name) else {
            return Err((FunctionError::Unknown(name.into()), then));
        };
        let (runner, suspended) = match &record.life {
            Life::Running { runner, up: true, suspended } => (runner, suspended),
            Life::Running { .. } => return Err((FunctionError::Starting(name.into()), then)),
            _ => return Err((FunctionError::NotRunning(name.into()), then)),
        };
        if *suspended {
            return Err((FunctionError::Suspended(name.into()), then));
        }
        let failed = |why: String| SnapshotError::Failed(name.into(), why).into();
        if record.pending_snapshot.is_some() {
            return Err((failed("another snapshot of the function is being taken".into()), then));
        }
        let kept = match &then {
            Then::Keep(new, _) => Some(&**new),
            Then::Leave(_) => None,
        };
        let memory = match self.snapshots.begin(&record.function, record.fallback.is_empty(), kept) {
            Ok(memory) => memory,
            Err(error) => return Err((error.into(), then)),
        };
        let sent = memory.try_clone().and_then(|file| runner.snapshot(file, kept.is_none()));
        if let Err(error) = sent {
            return Err((failed(error.to_string()), then));
        }
        record.pending_snapshot = Some(PendingSnapshot { memory, then });
        Ok(())
    }

    /// A snapshot was taken, or could not be.
    pub(super) fn taken(
        &mut self,
        name: &str,
        pending_snapshot: PendingSnapshot,
        result: Result<String, String>,
    ) {
        let PendingSnapshot { memory, then } = pending_snapshot;
        self.changed.insert(name.into());
        let Some(record) = self.records.get_mut(name) else { return };
        let state = match result {
            Ok(state) => state,
            Err(why) => return then.fail(SnapshotError::Failed(name.into(), why).into()),
        };
        let function = record.function.clone();
        match then {
            Then::Keep(new, answer) => {
                self.snapshots.add(&new, Taken { function, state, memory, moved: false });
                let _ = answer.send(Ok(()));
            }
            Then::Leave(answer) => {
                let Life::Running { runner, suspended, .. } = &mut record.life else { return };
                // The guest is stopped already; the monitor stops from now on, too.
                runner.suspend();
                *suspended = true;
                let departure = Departure {
                    name: name.into(),
                    function: serde_json::to_string(&function).unwrap_or_default(),
                    state,
                    process: std::process::id(),
                    descriptor: memory.as_raw_fd().unsigned_abs(),
                    inode: rustix::fs::fstat(&memory).map_or(0, |stat| stat.st_ino),
                };
                record.leaving = Some(memory);
                if answer.send(Ok(departure)).is_err() {
                    // Nobody would let it go on elsewhere.
                    let _ = self.suspend(name, false);
                }
            }
        }
    }

    /// The function that a departure describes. The caller checks it as it checks one that is created.
    pub fn described(departure: &Departure) -> Result<Function, String> {
        let function: Function = serde_json::from_str(&departure.function)
            .map_err(|error| format!("the function's description: {error}"))?;
        let [name, other] = [&departure.name, &function.name].map(|name| printable(name));
        if name != other {
            return Err(format!("the departure of \"{name}\" describes function \"{other}\""));
        }
        if function.isolation != Isolation::Vm || function.program.is_some() {
            let what = if function.program.is_some() { "is a program" } else { "is not in a VM" };
            return Err(format!("{name} {what}; only functions in a VM with a configuration move"));
        }
        Ok(Function { start: true, first_frame: false, idle: 0, chained: false, instance: None, ..function })
    }

    /// The state from which a function resumes that arrives from another fabric of this host. Its memory is not copied
    /// again.
    ///
    /// Attack: a departure whose memory is another's, or not as large as its description says.
    pub fn arriving(departure: Departure, function: &Function) -> Result<Arc<Taken>, String> {
        let Departure { state, process, descriptor, inode, .. } = departure;
        let failed = |error: &dyn std::fmt::Display| format!("the function's memory: {error}");
        let memory = memory_of(process, descriptor).map_err(|error| failed(&error))?;
        let seen = rustix::fs::fstat(&memory).map_err(|error| failed(&error))?;
        if seen.st_ino != inode || !is_sealed(&memory) {
            let what = format!("descriptor {descriptor} of process {process} is not the function's memory");
            return Err(format!("{what}: it no longer waits there to move"));
        }
        let (size, expected) = (seen.st_size.cast_unsigned(), memory_size(function));
        if size != expected {
            return Err(format!(
                "the function's memory has {size} bytes, and its description says {expected}"
            ));
        }
        Ok(Arc::new(Taken { function: function.clone(), state, memory, moved: true }))
    }

    /// Adds and starts a function that arrives as [`Functions::create`] does.
    pub fn arrive(
        &mut self,
        taken: Arc<Taken>,
        function: &Function,
        fabric: &Fabric,
        folder: &Path,
        answer: Answer<()>,
    ) -> bool {
        self.create_from(Some(taken), function, fabric, folder, answer)
    }
}
