//! Another program on trial: the `control` process that it starts must serve the fabric within a time, or the fabric
//! goes back to the program that the keeper runs.

use super::store::Store;
use super::{NEW, TRIAL};
use crate::upgrade::UpgradeAnswer;
use ringway_fabric::MessageStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long it may take until a `control` process of another program serves the fabric.
const LIMIT: Duration = Duration::from_secs(20);

/// A program on trial.
pub struct Trial {
    /// The program.
    pub binary: OwnedFd,
    /// Who is told how it went.
    client: OwnedFd,
    until: Instant,
    /// Why it failed, if the keeper noticed.
    failed: Option<String>,
}

impl Trial {
    /// Begins the trial that the last `control` process asked for, if it did.
    pub fn begin(store: &mut Store) -> Option<Trial> {
        let [binary, client] = store.upgrade.take()?;
        store.remember();
        store.set(TRIAL.into(), Some((NEW.into(), Vec::new())));
        Some(Trial { binary, client, until: Instant::now() + LIMIT, failed: None })
    }

    /// Time until the trial has failed; zero from then on.
    pub fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Notes that its time is over.
    pub fn expire(&mut self) {
        self.fail(format!("it did not serve the fabric within {} s", LIMIT.as_secs()));
    }

    /// Notes why it has failed. The first reason counts.
    pub fn fail(&mut self, why: String) {
        self.failed.get_or_insert(why);
    }

    /// Whether it has failed already.
    pub fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Who is told how it went.
    pub fn client(&self) -> &OwnedFd {
        &self.client
    }

    /// Goes back to the program that the keeper runs; `why` is the reason if the keeper noted none.
    pub fn go_back(self, store: &mut Store, why: String) {
        let why = self.failed.unwrap_or(why);
        tracing::error!(why, "the new program failed; going back to the former one");
        store.undo();
        store.set(TRIAL.into(), Some((why.clone(), Vec::new())));
        tell(self.client, &UpgradeAnswer::Failed(why));
    }
}

/// Tells a client, which may be gone.
pub fn tell(client: OwnedFd, answer: &UpgradeAnswer) {
    let _ = MessageStream::new(client).send(answer, &[]);
}
