//! Errors of system calls.

use rustix::io::Errno;
use std::io::ErrorKind;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A system call failed.
    #[error("{call}: {error}")]
    Call {
        /// The attempted operation, for people.
        call: &'static str,
        /// The system's answer.
        #[source]
        error: Errno,
    },
    /// Memory that the peer could remove while it is mapped, or that blocks.
    #[error("shared memory must be a memfd or a file on tmpfs or hugetlbfs")]
    NotMemory,
    /// The file is too short.
    #[error("the file has {size} bytes, but {needed} must be mapped")]
    TooShort {
        /// Its size in bytes.
        size: u64,
        /// The required size in bytes.
        needed: u64,
    },
    /// Sizes that no mapping can have.
    #[error("a mapping of {len} bytes at offset {offset} is impossible")]
    Impossible {
        /// The offset in the file.
        offset: u64,
        /// Its length.
        len: u64,
    },
    /// Parts of memory that can't be mapped contiguously.
    #[error("its parts are scattered in the guest's memory and are not whole pages")]
    Scattered,
    /// No huge pages are free.
    #[error(
        "no pages of {page} MB are free for {size} bytes; `ringway doctor` says how to get more, and \
         huge-pages = \"auto\" does without"
    )]
    NoPages {
        /// Size of a page in MB.
        page: u64,
        /// Requested size in bytes.
        size: usize,
    },
    /// The memfd may still change its size.
    #[error("the shared memory isn't sealed against shrinking and growing")]
    NotSealed,
    /// A core that this process may not use.
    #[error("core {core} does not exist or is not allowed; allowed are {allowed:?}")]
    NoCore {
        /// The requested core.
        core: usize,
        /// The allowed cores.
        allowed: Vec<usize>,
    },
    /// All slots for threads with turns are taken.
    #[error("a process has 64 workers at most")]
    TooManyReaders,
    /// More mappings than the fault handler can track.
    #[error("all memory regions beyond the 8 guaranteed to each port are in use; detach some guests")]
    TooManyMappings,
    /// So much shared memory that no addresses would be left for our own.
    #[error(
        "{len} bytes more of shared memory would pass what a port is sure of (8 GB) and what all may share \
         (48 TB, one port 16 TB of them); detach some guests"
    )]
    TooMuchMapped {
        /// Requested size in bytes.
        len: u64,
    },
    /// An interface that can't be created as requested.
    #[error("interface {name}: {what}: {error}{}", advice(*error))]
    Tap {
        /// Its name.
        name: String,
        /// The attempted operation.
        what: String,
        /// The system's answer.
        error: Errno,
    },
    /// A part of the sandbox is unavailable.
    #[error("the process can't be confined: {0}")]
    Sandbox(String),
}

impl HostError {
    /// The kind of a system call's error; [`ErrorKind::Other`] for other errors.
    pub fn kind(&self) -> ErrorKind {
        match self {
            HostError::Call { error, .. } | HostError::Tap { error, .. } => error.kind(),
            _ => ErrorKind::Other,
        }
    }
}

/// Advice for an interface that the system refuses.
fn advice(error: Errno) -> &'static str {
    match error {
        Errno::PERM | Errno::ACCESS => "; run as root or give the program CAP_NET_ADMIN",
        Errno::BUSY => "; another program has it: stop that, or use another name",
        Errno::INVAL => {
            "; an interface of that name may exist that is no TAP or has other queues: use another name"
        }
        Errno::NOENT | Errno::NODEV => "; load the module tun, or create the namespace with `ip netns add`",
        _ => "",
    }
}

/// Names the call in the error of its result.
pub(crate) trait Named<T> {
    /// Adds the name of the attempted operation to an error.
    fn named(self, call: &'static str) -> Result<T, HostError>;
}

impl<T> Named<T> for Result<T, Errno> {
    fn named(self, call: &'static str) -> Result<T, HostError> {
        self.map_err(|error| HostError::Call { call, error })
    }
}

impl<T> Named<T> for std::io::Result<T> {
    fn named(self, call: &'static str) -> Result<T, HostError> {
        self.map_err(|error| {
            let error = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            HostError::Call { call, error }
        })
    }
}
