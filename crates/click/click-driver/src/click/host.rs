//! The driver's use of the operating system: time, libraries, waiting.
use super::clickpath;
use crate::file::{CONFIGURATION, NO_FILES, reason};
use ringway_click::{Registry, Router, RunTime, Time};
use ringway_click_lang::Environment;
use ringway_host::{PollFd, poll, read_file};
use std::path::Path;
use std::time::{Duration, Instant};

/// The machine's clocks; the steady one stands still with the program.
#[derive(Clone, Debug)]
pub struct Machine {
    start: Instant,
    run: RunTime,
}

impl Default for Machine {
    fn default() -> Self {
        Self { start: Instant::now(), run: RunTime::default() }
    }
}

impl Time for Machine {
    fn wall(&mut self) -> u64 {
        ringway_host::since_1970()
    }

    fn steady(&mut self) -> u64 {
        self.run.at(self.start.elapsed().as_nanos() as u64)
    }

    fn fork(&self) -> Box<dyn Time> {
        Box::new(self.clone())
    }
}

/// Features that are always available to `require`: this kind of driver, wide integers, element groups (FastClick's
/// `flow`, `nonatomicfp`, `research` and `tunnel` too).
pub const PROVIDED: &[&str] = &[
    "userlevel",
    "click",
    "int64",
    "pcap",
    "analysis",
    "umultithread",
    "multithread",
    "linux",
    "ip6",
    "flow",
    "gtp",
    "nonatomicfp",
    "research",
    "tunnel",
    std::env::consts::ARCH,
];

/// Where the files of `require(library NAME)` are.
#[derive(Clone, Debug)]
pub(super) enum Libraries {
    /// On this path, or on `CLICKPATH` of the environment.
    Along(Option<String>),
    /// A function has none.
    None,
}

/// Element classes, packages, and libraries on Click's path.
pub struct Host<'a> {
    registry: &'a Registry,
    libraries: Libraries,
}

impl<'a> Host<'a> {
    /// An environment with these classes.
    pub fn new(registry: &'a Registry) -> Self {
        Self { registry, libraries: Libraries::Along(None) }
    }

    /// An environment as a function has it, without libraries.
    pub(crate) fn of_function(registry: &'a Registry) -> Self {
        Self { registry, libraries: Libraries::None }
    }

    /// With other libraries.
    pub(super) fn with(self, libraries: Libraries) -> Self {
        Self { libraries, ..self }
    }
}

impl Environment for Host<'_> {
    fn has_class(&self, name: &str) -> bool {
        self.registry.find(name).is_some()
    }

    fn classes(&self) -> Vec<&str> {
        self.registry.iter().map(|class| class.name).collect()
    }

    fn has_package(&mut self, name: &str) -> bool {
        PROVIDED.contains(&name) || self.registry.find(name).is_some()
    }

    fn library(&mut self, name: &str, directory: &str) -> Option<(String, Result<String, String>)> {
        // A function that runs could not read it either.
        let Libraries::Along(path) = &self.libraries else {
            return Some((name.into(), Err(NO_FILES.into())));
        };
        let path = clickpath::find(path.as_deref(), name, "conf", directory)?;
        let text = read_file(Path::new(&path), CONFIGURATION).map_err(|error| reason(&error));
        Some((path, text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())))
    }
}

/// Waits for descriptors that elements selected, at most for `most`, and reports them.
pub(super) fn wait(router: &mut Router, most: Option<Duration>) {
    wait_also(router, most, None);
}

/// Waits for descriptors that elements selected or for `also` to become readable, at most for `most`; reports those of
/// elements.
pub(super) fn wait_also(router: &mut Router, most: Option<Duration>, also: Option<i32>) {
    let also = also.map(|descriptor| PollFd { descriptor, readable: true, writable: false });
    let mut poll_fds: Vec<PollFd> = also.into_iter().collect();
    for interest in router.interests() {
        poll_fds.push(PollFd {
            descriptor: interest.descriptor,
            readable: interest.readable,
            writable: interest.writable,
        });
    }
    // A signal may have arrived just before, so wake up periodically.
    let most = most.unwrap_or(Duration::MAX).min(Duration::from_millis(100));
    poll(&mut poll_fds, most);
    for poll_fd in poll_fds.into_iter().filter(|poll_fd| poll_fd.readable || poll_fd.writable) {
        router.selected(poll_fd.descriptor, poll_fd.readable, poll_fd.writable);
    }
}
