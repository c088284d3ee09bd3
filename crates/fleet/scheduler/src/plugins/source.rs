//! A source of units: a folder or a service, with its state and its next retry time.

use super::inventory_copy::InventoryCopy;
use super::link::{Link, LinkError, Request};
use super::one_line;
use super::options::{Folder, Options, Service, bounded};
use super::process::Process;
use super::python::{Identity, identity};
use super::service::Http;
use ringway_place::unit::{ExternalKind, ExternalUnit};
use ringway_spec::printable;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Delay before a failed source is retried, at first and at most.
const FIRST_REST: Duration = Duration::from_millis(200);
const LONGEST_REST: Duration = Duration::from_secs(30);
/// Time limit for calls that are not queries.
const KEEPING: Duration = Duration::from_secs(5);
/// Attack: endless units and texts. Largest number of units.
const MOST_UNITS: usize = 1024;
const LONGEST_NAME: usize = 200;
const LONGEST_TEXT: usize = 2000;

/// The other end of a source.
enum Location {
    Folder(Folder),
    Service(Service),
}

pub(super) struct Source {
    place: Location,
    link: Option<Box<dyn Link>>,
    /// Revision of its copy of the inventory.
    has: Option<u64>,
    /// Whether it gets the candidates with each call instead of an inventory.
    pub is_stateless: bool,
    pub units: Vec<ExternalUnit>,
    /// Errors of its files.
    pub problems: Vec<String>,
    failures: u32,
    rests_until: Option<Instant>,
    /// The Python its host runs with.
    python: Option<Identity>,
    /// Why it was last unreachable.
    why: String,
}

/// A reply, or the reason why a unit gave none.
#[derive(Deserialize)]
struct Answer<T> {
    ok: Option<T>,
    error: Option<UnitError>,
    output: Option<String>,
}

#[derive(Deserialize)]
struct UnitError {
    kind: String,
    text: String,
    #[serde(default, rename = "where")]
    place: String,
}

#[derive(Deserialize)]
struct Discovered {
    units: Vec<Unit>,
    #[serde(default)]
    problems: Vec<Wrong>,
    #[serde(default)]
    stateless: bool,
}

#[derive(Deserialize)]
struct Unit {
    name: String,
    kinds: BTreeSet<ExternalKind>,
    #[serde(default)]
    description: BTreeMap<ExternalKind, String>,
    #[serde(default)]
    properties: String,
}

#[derive(Deserialize)]
struct Wrong {
    file: String,
    line: u64,
    text: String,
}

impl Source {
    pub fn folder(folder: Folder) -> Source {
        Source::new(Location::Folder(folder))
    }

    pub fn service(service: Service) -> Source {
        Source::new(Location::Service(service))
    }

    fn new(place: Location) -> Source {
        Source {
            place,
            link: None,
            has: None,
            is_stateless: false,
            units: Vec::new(),
            problems: Vec::new(),
            failures: 0,
            rests_until: None,
            python: None,
            why: String::new(),
        }
    }

    /// Its folder or address.
    pub fn name(&self) -> String {
        match &self.place {
            Location::Folder(folder) => folder.path.display().to_string(),
            Location::Service(service) => service.url.clone(),
        }
    }

    /// Why it is unreachable; `None` if it is reachable.
    pub fn out(&self) -> Option<&str> {
        self.link.is_none().then_some(&self.why)
    }

    /// Time limit of its units.
    pub fn limit(&self) -> Duration {
        bounded(match &self.place {
            Location::Folder(folder) => folder.limit_ms,
            Location::Service(service) => service.limit_ms,
        })
    }

    /// Starts the source if it isn't running, unless it failed a moment ago, and discovers its units.
    pub fn refresh(&mut self, options: &Options) -> Result<(), String> {
        if self.link.as_ref().is_some_and(|link| link.ended()) {
            self.lose(&LinkError::Gone("it ended".into()));
        }
        self.follow_python(options);
        if self.link.is_none() {
            if self.rests() {
                return Err(format!("it is tried again in a moment: {}", self.why));
            }
            let started = match &self.place {
                Location::Folder(folder) => {
                    Process::start(options, folder).map(|it| Box::new(it) as Box<dyn Link>)
                }
                Location::Service(service) => Http::new(service).map(|it| Box::new(it) as Box<dyn Link>),
            };
            match started {
                Ok(link) => self.link = Some(link),
                Err(error) => return Err(self.lose(&error)),
            }
        }
        if self.link.as_mut().is_some_and(|link| link.changed()) {
            self.discover()?;
        }
        Ok(())
    }

    fn rests(&self) -> bool {
        self.rests_until.is_some_and(|until| Instant::now() < until)
    }

    /// Restarts a folder's host if its Python was replaced; if the new one fails, the host keeps running.
    fn follow_python(&mut self, options: &Options) {
        let Location::Folder(folder) = &self.place else { return };
        let python = identity(&options.python);
        if python.is_none() || python == self.python || (self.link.is_some() && self.rests()) {
            return;
        }
        if self.link.is_some() {
            let (source, program) = (self.name(), options.python.display());
            match Process::start(options, folder) {
                Ok(link) => {
                    tracing::info!(source, "{program} was replaced: plugins run with the new one");
                    self.link = Some(Box::new(link));
                    self.has = None;
                }
                Err(error) => {
                    tracing::warn!(source, "{program} was replaced, plugins stay with the old one: {error}");
                    self.rests_until = Some(Instant::now() + LONGEST_REST);
                    return;
                }
            }
        }
        self.python = python;
        self.rests_until = None;
    }

    fn discover(&mut self) -> Result<(), String> {
        let request = Request { op: "discover", body: b"{}".to_vec(), within: KEEPING };
        let found: Discovered = match self.ask(vec![request]).pop() {
            Some(Ok(found)) => found,
            Some(Err(what)) => {
                self.lose(&LinkError::Gone(what.clone()));
                return Err(what);
            }
            None => return Err("no answer".into()),
        };
        self.is_stateless = found.stateless;
        let named = |wrong: Wrong| {
            let (file, text) = (one_line(&wrong.file, LONGEST_NAME), one_line(&wrong.text, LONGEST_TEXT));
            format!("{file}:{}: {text}", wrong.line)
        };
        let problems: Vec<String> = found.problems.into_iter().take(MOST_UNITS).map(named).collect();
        if problems != self.problems {
            let source = self.name();
            problems.iter().for_each(|problem| tracing::warn!(source, "not loaded: {problem}"));
        }
        self.problems = problems;
        self.units.clear();
        for unit in found.units.into_iter().take(MOST_UNITS) {
            for kind in unit.kinds {
                let description = unit.description.get(&kind).map(String::as_str).unwrap_or_default();
                self.units.push(ExternalUnit {
                    name: one_line(&unit.name, LONGEST_NAME),
                    kind,
                    description: one_line(description, LONGEST_TEXT),
                    properties: printable(&unit.properties).chars().take(LONGEST_TEXT).collect(),
                });
            }
        }
        Ok(())
    }

    /// Updates the source's copy of the inventory.
    pub fn sync(&mut self, inventory_copy: &InventoryCopy) -> Result<(), String> {
        if self.is_stateless || self.has == Some(inventory_copy.revision) {
            return Ok(());
        }
        let part = |body| Request { op: "snapshot", body, within: KEEPING };
        let parts: Vec<Request> = inventory_copy.parts().into_iter().map(part).collect();
        let asked = parts.len();
        let answers = self.ask::<IgnoredAny>(parts);
        if let Some(Err(what)) = answers.iter().find(|answer| answer.is_err()) {
            return Err(format!("it did not take the inventory: {what}"));
        }
        if answers.len() < asked {
            return Err("it did not take the inventory".into());
        }
        self.has = Some(inventory_copy.revision);
        Ok(())
    }

    /// Sends an update from one revision to the next, if it has the former.
    pub fn send_changes(&mut self, from: u64, revision: u64, body: &[u8]) {
        if self.is_stateless || self.link.is_none() || self.has != Some(from) {
            return;
        }
        let request = Request { op: "delta", body: body.to_vec(), within: KEEPING };
        let answers = self.ask::<IgnoredAny>(vec![request]);
        // After a failed update, everything is sent before the next call.
        self.has = matches!(answers.first(), Some(Ok(_))).then_some(revision);
    }

    /// The replies to requests; fewer than requested if the source was lost.
    pub fn ask<T: DeserializeOwned>(&mut self, requests: Vec<Request>) -> Vec<Result<T, String>> {
        let Some(link) = &mut self.link else { return vec![Err(self.why.clone())] };
        let raw = link.exchange(&requests);
        let mut answers = Vec::new();
        for answer in raw {
            match answer {
                Ok(line) => answers.push(self.read(&line)),
                Err(error) => {
                    answers.push(Err(self.lose(&error)));
                    return answers;
                }
            }
        }
        self.failures = 0;
        answers
    }

    fn read<T: DeserializeOwned>(&self, line: &[u8]) -> Result<T, String> {
        let answer: Answer<T> =
            serde_json::from_slice(line).map_err(|error| format!("an answer that can't be read: {error}"))?;
        if let Some(output) = &answer.output {
            tracing::debug!(source = self.name(), "output of a unit: {}", one_line(output, LONGEST_TEXT));
        }
        match answer {
            Answer { error: Some(error), .. } => Err(error.to_string()),
            Answer { ok: Some(ok), .. } => Ok(ok),
            _ => Err("an answer with neither ok nor error".into()),
        }
    }

    /// Closes the other end; the delay until a restart grows with each consecutive failure.
    fn lose(&mut self, error: &LinkError) -> String {
        self.link = None;
        self.has = None;
        let rest = FIRST_REST.saturating_mul(1 << self.failures.min(16)).min(LONGEST_REST);
        self.failures = self.failures.saturating_add(1);
        self.rests_until = Some(Instant::now() + rest);
        self.why = error.to_string();
        tracing::warn!(source = self.name(), "plugins are out of reach: {error}");
        self.why.clone()
    }
}

impl std::fmt::Display for UnitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [kind, place] = [&self.kind, &self.place].map(|text| one_line(text, LONGEST_NAME));
        let place = if place.is_empty() { place } else { format!(" ({place})") };
        write!(f, "{kind}: {}{place}", one_line(&self.text, LONGEST_TEXT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives a fixed reply.
    struct FixedReply(&'static str);

    impl Link for FixedReply {
        fn exchange(&mut self, requests: &[Request]) -> Vec<Result<Vec<u8>, LinkError>> {
            requests.iter().map(|_| Ok(self.0.replace('@', &r"x\u001b\n".repeat(100_000)).into())).collect()
        }

        fn changed(&mut self) -> bool {
            true
        }

        fn ended(&self) -> bool {
            false
        }
    }

    fn source_answering(answer: &'static str) -> Source {
        Source { link: Some(Box::new(FixedReply(answer))), ..Source::folder(Folder::new("/plugins")) }
    }

    #[test]
    fn plugin_texts_are_truncated_to_single_lines() {
        let mut source = source_answering(
            r#"{"ok": {"units": [{"name": "@", "kinds": ["filter", "filter"], "properties": "@",
                "description": {"filter": "@"}}], "problems": [{"file": "@", "line": 1, "text": "@"}]}}"#,
        );
        source.discover().expect("units");
        let unit = &source.units[0];
        let texts = [&unit.name, &unit.description, &unit.properties, &source.problems[0]];
        assert_eq!((source.units.len(), source.problems.len()), (1, 1));
        assert!(texts.iter().all(|text| text.len() < 3000 && !text.contains(char::is_control)), "{texts:?}");
        let mut source = source_answering(r#"{"error": {"kind": "@", "text": "@", "where": "@"}}"#);
        let request = || Request { op: "filter", body: b"{}".to_vec(), within: KEEPING };
        let error = source.ask::<serde_json::Value>(vec![request()]).remove(0).expect_err("an error");
        assert!(error.len() < 3000 && !error.contains(char::is_control), "{error}");
    }

    #[test]
    fn an_invalid_reply_fails_its_unit() {
        for answer in [r#"{"id":1,"ok":"#, r#"{"id":1,"ok":[1e999]}"#, "\u{0}", r#"{"ok":{},"ok":{}}"#] {
            let mut source = source_answering(answer);
            let request = Request { op: "score", body: b"{}".to_vec(), within: KEEPING };
            let answers = source.ask::<Vec<f64>>(vec![request]);
            assert!(answers[0].as_ref().is_err_and(|error| error.len() < 200), "{answer}: {answers:?}");
            assert!(source.link.is_some(), "{answer}");
        }
    }
}
