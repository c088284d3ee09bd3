//! Snapshots of functions in virtual machines: kept in memory until they are forgotten, or the fabric goes down.

use crate::api::SnapshotView;
use crate::keeper::{Keeper, StoredEntry};
use ringway_host::memfd;
use ringway_spec::{Function, Isolation};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Attack: snapshots without end: each keeps memory.
const MOST: usize = 256;

/// Why an operation on a snapshot failed.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// No snapshot has this name.
    #[error("there is no snapshot \"{0}\"; `ringway snapshot list` shows those there are")]
    Unknown(String),
    /// A snapshot has this name.
    #[error("there is a snapshot {0} already; `ringway snapshot remove {0}` removes it")]
    Already(String),
    /// There are too many.
    #[error("there are {MOST} snapshots; remove one with `ringway snapshot remove NAME`")]
    Many,
    /// Only virtual machines have snapshots.
    #[error("function {0} is not in a VM; only functions with isolation \"vm\" have snapshots, and move")]
    NoVm(String),
    /// A program's machine has no part in snapshots.
    #[error("function {0} is a program; only functions with a configuration have snapshots, and move")]
    Program(String),
    /// The function's file disables snapshots.
    #[error(
        "function {0} is not to be cloned: its [function.{0}] has `snapshots = false`, without which \
         snapshots are taken"
    )]
    Unwanted(String),
    /// The snapshot can't be taken.
    #[error("the state of function {0} can't be taken, and it goes on as it was: {1}")]
    Failed(String, String),
    /// A clone needs as many ports as its original.
    #[error(
        "the snapshot is of a function with {has} ports, not {given}: name as many with --port, in its order"
    )]
    Ports {
        /// Number of the original's ports.
        has: usize,
        /// Number of the clone's ports.
        given: usize,
    },
}

/// A snapshot.
#[derive(Debug)]
pub struct Taken {
    /// The function as it was.
    pub function: Function,
    /// The function's state as its monitor described it.
    pub state: String,
    /// Its memory.
    pub memory: OwnedFd,
    /// Whether the memory is that of a moved function, which resumes from it.
    pub moved: bool,
}

/// What the keeper has of a snapshot, with the memory.
#[derive(Debug, Serialize, Deserialize)]
struct KeptTaken {
    function: Function,
    state: String,
    moved: bool,
}

/// The beginning of the keeper's names for snapshots.
const KEPT: &str = "snapshot/";

/// Lets the next `control` have a snapshot.
pub fn hold(keeper: &Keeper, name: &str, taken: &Taken) {
    let Taken { function, state, memory, moved } = taken;
    let kept = KeptTaken { function: function.clone(), state: state.clone(), moved: *moved };
    keeper.put_value(name, &kept, [memory]);
}

/// A snapshot of a former `control`.
pub fn restore(kept: StoredEntry) -> Option<Taken> {
    let memory = kept.descriptors.into_iter().next()?;
    let KeptTaken { function, state, moved } = serde_json::from_str(&kept.text).ok()?;
    Some(Taken { function, state, memory, moved })
}

/// All snapshots, by name.
#[derive(Debug)]
pub struct Snapshots(BTreeMap<String, Arc<Taken>>, Keeper);

impl Snapshots {
    /// None yet.
    pub fn new(keeper: Keeper) -> Snapshots {
        Snapshots(BTreeMap::new(), keeper)
    }

    /// Goes on with those of a former `control`.
    pub fn adopt(&mut self, found: &mut BTreeMap<String, StoredEntry>) {
        let names: Vec<String> = found.keys().filter(|name| name.starts_with(KEPT)).cloned().collect();
        for name in names {
            if let Some(taken) = found.remove(&name).and_then(restore) {
                self.0.insert(name[KEPT.len()..].into(), Arc::new(taken));
            }
        }
    }

    /// Checks that a snapshot of this function may be taken, and kept by this name. Returns the file for its memory.
    pub fn begin(
        &self,
        function: &Function,
        is_vm: bool,
        name: Option<&str>,
    ) -> Result<OwnedFd, SnapshotError> {
        if function.program.is_some() {
            return Err(SnapshotError::Program(function.name.clone()));
        }
        if function.isolation != Isolation::Vm || !is_vm {
            return Err(SnapshotError::NoVm(function.name.clone()));
        }
        if name.is_some() && !function.snapshots {
            return Err(SnapshotError::Unwanted(function.name.clone()));
        }
        if let Some(name) = name.filter(|name| self.0.contains_key(*name)) {
            return Err(SnapshotError::Already(name.into()));
        }
        if name.is_some() && self.0.len() >= MOST {
            return Err(SnapshotError::Many);
        }
        let size = usize::try_from(memory_size(function)).unwrap_or(usize::MAX);
        memfd("snapshot", size)
            .map_err(|error| SnapshotError::Failed(function.name.clone(), error.to_string()))
    }

    /// Keeps a snapshot.
    pub fn add(&mut self, name: &str, taken: Taken) {
        hold(&self.1, &format!("{KEPT}{name}"), &taken);
        self.0.insert(name.into(), Arc::new(taken));
    }

    /// The snapshot of this name.
    pub fn get(&self, name: &str) -> Result<Arc<Taken>, SnapshotError> {
        self.0.get(name).cloned().ok_or_else(|| SnapshotError::Unknown(name.into()))
    }

    /// Removes a snapshot. Clones keep what they share.
    pub fn forget(&mut self, name: &str) -> Result<(), SnapshotError> {
        self.1.remove(&format!("{KEPT}{name}"));
        self.0.remove(name).map(drop).ok_or_else(|| SnapshotError::Unknown(name.into()))
    }

    /// All, for the API.
    pub fn view(&self) -> Vec<SnapshotView> {
        let view = |(name, taken): (&String, &Arc<Taken>)| SnapshotView {
            name: name.clone(),
            function: taken.function.name.clone(),
            ports: taken.function.ports.clone(),
            // Blocks of 512 bytes (stat(2)).
            bytes: rustix::fs::fstat(&taken.memory).map_or(0, |stat| stat.st_blocks as u64 * 512),
        };
        self.0.iter().map(view).collect()
    }
}

/// Bytes of a function's memory in a snapshot: a machine has whole pages.
pub fn memory_size(function: &Function) -> u64 {
    function.memory / 4096 * 4096
}

/// A clone's function.
pub fn function_of(taken: &Taken, name: &str, ports: Vec<String>) -> Result<Function, SnapshotError> {
    let (has, given) = (taken.function.ports.len(), ports.len());
    if has != given {
        return Err(SnapshotError::Ports { has, given });
    }
    let function = taken.function.clone();
    Ok(Function {
        name: name.into(),
        ports,
        core: None,
        start: true,
        chained: false,
        instance: None,
        ..function
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{Host, read};

    #[test]
    fn a_function_that_is_not_to_be_cloned_only_moves() {
        let host = Host { cores: vec![0], ..Host::default() };
        let text = "[switch.s]\n[port.a]\nkind='ring'\nsocket='a'\nswitch='s'\n[function.f]\nclick='Idle;'\n\
                    port='a'\nisolation='vm'\nmemory='32MB'\n";
        let function = |more: &str| read("f", &format!("{text}{more}"), &host).unwrap().functions[0].clone();
        let snapshots = Snapshots::new(crate::keeper::Keeper::thread().unwrap());
        assert!(snapshots.begin(&function(""), true, Some("s")).is_ok());
        let alone = function("snapshots=false\n");
        let refused = snapshots.begin(&alone, true, Some("s")).unwrap_err();
        assert!(matches!(refused, SnapshotError::Unwanted(_)), "{refused}");
        assert!(snapshots.begin(&alone, true, None).is_ok(), "it moves");
    }
}
