//! Guests that outlive the process that started them: a [`Holder`] has what another process needs to go on with them.

use super::{Guest, Known, Shared, Spec, confine};
use crate::supervise::{Process, Supervised};
use ringway_host::jail::{ControlGroup, Jailed, Pipes};
use rustix::io::Errno;
use rustix::process::{Pid, getpid};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex};

/// What another process needs to go on with a guest, besides descriptors.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HeldGuest {
    /// Number of its process, which leads a process group.
    pub process: i32,
    note: String,
    /// A folder to remove after its end.
    scratch: Option<PathBuf>,
    /// Folders of its control group.
    groups: Vec<PathBuf>,
    /// Names of sockets on which it listens, and where they lead.
    names: Vec<(PathBuf, PathBuf)>,
}

/// Holds guests outside this process.
pub trait Holder: Send + Sync {
    /// Holds a guest that was just started, with copies of these descriptors.
    fn hold(&self, guest: &HeldGuest, descriptors: &[BorrowedFd<'_>]);

    /// Takes the exit status of a held process that has ended, whoever is its parent.
    fn status(&self, process: Pid) -> ExitStatus;

    /// A guest ended, for this reason, and is not to be held any more.
    fn ended(&self, reason: &str);
}

/// Number of descriptors of a held guest: its process, its input and outputs, the log of its console.
const DESCRIPTORS: usize = 5;

impl HeldGuest {
    pub(crate) fn new(
        child: &Jailed,
        note: &str,
        group: Option<&ControlGroup>,
        names: &[confine::Named],
    ) -> HeldGuest {
        HeldGuest {
            process: child.process().as_raw_nonzero().get(),
            note: note.into(),
            scratch: child.scratch().map(Path::to_path_buf),
            groups: group.map(ControlGroup::folders).unwrap_or_default(),
            names: names.iter().map(confine::Named::paths).collect(),
        }
    }

    /// The descriptors, in the order in which [`Guest::adopt`] takes them.
    pub(crate) fn descriptors<'d>(
        process: &'d OwnedFd,
        pipes: &'d Pipes,
        log: &'d File,
    ) -> [BorrowedFd<'d>; DESCRIPTORS] {
        [process.as_fd(), pipes.input.as_fd(), pipes.output.as_fd(), pipes.errors.as_fd(), log.as_fd()]
    }
}

impl Guest {
    /// Goes on with a guest that another process had started with files in `folder`. Whether it has booted is not known
    /// until [`Guest::probe`] is answered.
    ///
    /// # Errors
    /// A descriptor is missing.
    pub fn adopt(
        mut spec: Spec,
        folder: &Path,
        held: HeldGuest,
        descriptors: Vec<OwnedFd>,
        holder: Arc<dyn Holder>,
    ) -> io::Result<Guest> {
        confine::resolve(&mut spec);
        let pid = Pid::from_raw(held.process).ok_or(Errno::SRCH)?;
        let descriptors: Result<[OwnedFd; DESCRIPTORS], _> = descriptors.try_into();
        let missing = |_| io::Error::other("the keeper has not all of its descriptors");
        let [descriptor, input, output, errors, log] = descriptors.map_err(missing)?;
        let command = input.try_clone()?;
        let pipes = Pipes {
            input: PipeWriter::from(input),
            output: PipeReader::from(output),
            errors: PipeReader::from(errors),
        };
        // Answers to the former process have numbers below.
        let requests = u64::from(getpid().as_raw_nonzero().get().unsigned_abs()) << 24;
        let shared = Arc::new(Shared {
            known: Mutex::new(Known { requests, ..Known::default() }),
            ..Shared::default()
        });
        let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf());
        let (console, user) = (folder.join("console.log"), spec.user.clone());
        let supervised = Supervised {
            spec: spec.clone(),
            shared: Arc::clone(&shared),
            holder: Some(holder),
            console: console.clone(),
        };
        let HeldGuest { note, scratch, groups, names, .. } = held;
        std::thread::Builder::new().name("guest".into()).spawn(move || {
            let group = ControlGroup::adopted(&groups);
            let names: Vec<_> =
                names.into_iter().map(|(path, to)| confine::Named::adopted(path, to)).collect();
            let process = Process::adopted(Jailed::adopted(pid, scratch), descriptor);
            supervised.attend(process, pipes, super::console::Log::adopted(log.into()));
            drop((group, names, user));
        })?;
        let input = Mutex::new(PipeWriter::from(command));
        Ok(Guest { spec, note, console, process: pid, input, shared })
    }
}
