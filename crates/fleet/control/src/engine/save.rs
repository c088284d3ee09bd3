//! The file that describes what runs, and the differences between a file and what runs.

use super::{Engine, Failure, opened};
use crate::api::{ErrorBody, ProblemView, SavedFabric};
use crate::change;
use crate::control::Program;
use crate::file::{self, Added, Fabric, Host, Outside};
use std::path::{Path, PathBuf};

/// What a file is compared with.
struct Present {
    fabric: Fabric,
    file: String,
    text: String,
    added: Added,
    host: Host,
    run: PathBuf,
    program: Program,
}

impl Engine {
    fn present(&self) -> Present {
        Present {
            fabric: self.fabric.clone(),
            file: self.file.clone(),
            text: self.text.clone(),
            added: self.added.clone(),
            host: Host { run: Some(self.run.path().into()), ..self.host.clone() },
            run: self.run.path().into(),
            program: self.program.clone(),
        }
    }

    /// The file that describes what runs.
    pub(super) async fn saved(&mut self) -> Result<SavedFabric, Failure> {
        self.describe_flows();
        let present = self.present();
        // Reading files takes a moment.
        let saved = tokio::task::spawn_blocking(move || present.saved());
        let saved = self.await_with_queries(saved).await.map_err(Failure::conflict)?;
        saved.map_err(Failure::Conflict)
    }
}

impl Present {
    /// The fabric that a text describes, as it would be after it was applied.
    fn read(&self, text: &str) -> Result<Fabric, ErrorBody> {
        let folder = Path::new(&self.file).parent().unwrap_or(Path::new("/"));
        let outside = Outside::of_this_host(folder, &self.program.check);
        let read = file::read_with(&self.file, text, &self.host, Some(&outside));
        let read = read.map_err(|problems| ErrorBody {
            error: problems.to_string(),
            problems: ProblemView::list(&problems),
        })?;
        let mut target = read.resolve(&self.run, folder);
        target.name.clone_from(&self.fabric.name);
        target.run.clone_from(&self.fabric.run);
        target.metrics = self.fabric.metrics;
        target.api.clone_from(&self.fabric.api);
        opened::keep_opened(&self.fabric, &mut target);
        Ok(target)
    }

    fn saved(self) -> Result<SavedFabric, ErrorBody> {
        let kinds = self.host.kinds;
        let described = self.read(&self.text)?;
        let text = file::edited(&self.text, (&described, &self.fabric), &self.added, kinds);
        let text = text.map_err(ErrorBody::new)?;
        let target = self.read(&text)?;
        let differences = change::between(&target, &self.fabric, kinds);
        let differences = differences.iter().map(ToString::to_string).collect();
        Ok(SavedFabric { file: self.file, text, differences })
    }
}
