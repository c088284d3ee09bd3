//! Access to placement: in a running fabric, or in this process, on an inventory file.

use super::arguments::{PlaceCommand, Removable};
use crate::arguments::Target;
use crate::client::Client;
use crate::command_error::CommandError;
use crate::input;
use crate::text;
use ringway_place::engine::{BalanceStep, HostRow, Object, WhyNot};
use ringway_place::inventory::{self, KnownObjects};
use ringway_place::policy::Policy;
use ringway_place::unit::{ExternalKind, ExternalUnit};
use ringway_scheduler::plugins::{Folder, Options};
use ringway_scheduler::{
    BalanceRequest, Clock, DecisionView, DrainRequest, DrainView, EventsView, ExplainView, FactPush, Failed,
    JoinRequest, JoinView, PlaceRequest, PluginsView, RevisionView, Service, StatusView, UnitView, VmView,
    WhyNotRequest,
};
use std::path::{Path, PathBuf};

/// The placement service that a command uses.
pub enum Source {
    /// The service of a running fabric.
    Fabric(Client),
    /// A service in this process.
    Here(Service),
}

/// Reads an inventory file.
pub fn read(file: &Path, beside: &KnownObjects) -> Result<Vec<Object>, CommandError> {
    let text = input::text(file, inventory::LARGEST, "an inventory file")?;
    inventory::read(&file.display().to_string(), &text, beside)
        .map_err(|problems| CommandError::Inventory(problems.to_string()))
}

/// The plugins of these folders, with default limits.
pub fn options(folders: &[PathBuf], unconfined: bool) -> Options {
    let folder = |folder: &PathBuf| {
        let path = std::path::absolute(folder).unwrap_or_else(|_| folder.clone());
        Folder { unconfined, ..Folder::new(path) }
    };
    Options { folders: folders.iter().map(folder).collect(), ..Options::default() }
}

/// Attack: a name with characters that change the meaning of a URL path.
fn named(kind: &str, name: &str) -> Result<(), CommandError> {
    match !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
        true => Ok(()),
        false => Err(CommandError::Unknown(format!("there is no {kind} \"{}\"", name.escape_debug()))),
    }
}

fn here(failed: Failed) -> CommandError {
    match failed {
        Failed::Unknown(what) => CommandError::Unknown(what),
        Failed::Wrong(what) | Failed::Conflict(what) | Failed::Full(what) => CommandError::Failed(what),
    }
}

/// Evaluates `$here` with the service of this process, or `$there` with the client of a fabric.
macro_rules! either {
    ($source:expr, |$service:ident| $here:expr, |$client:ident| $there:expr) => {
        match $source {
            Source::Here($service) => $here.map_err(here),
            Source::Fabric($client) => $there,
        }
    };
}

impl Source {
    /// Placement on the file if one is given, else in a fabric. Commands that only show policies work without a fabric.
    pub fn of(
        target: &Target,
        file: Option<&Path>,
        plugins: Options,
        command: &PlaceCommand,
    ) -> Result<Source, CommandError> {
        if let Some(file) = file {
            return Source::of_file(file, plugins).map(Source::Here);
        }
        if !plugins.is_empty() {
            let how =
                "add --inventory FILE, or attach them to the running fabric: `ringway place plugins DIR`";
            return Err(CommandError::Failed(format!("--plugins has no inventory to work on; {how}")));
        }
        match (Client::connect(target), super::kubernetes::found(target)) {
            (Err(CommandError::NotUp(none)), Some(socket)) => {
                let connected = Client::to(socket).map_err(|fail| match fail {
                    // A killed process leaves its socket.
                    CommandError::NotUp(_) => {
                        CommandError::NotUp(format!("{none}; nor does `ringway place kubernetes` run"))
                    }
                    other => other,
                });
                Source::connected(connected, command)
            }
            (connected, _) => Source::connected(connected, command),
        }
    }

    fn connected(
        client: Result<Client, CommandError>,
        command: &PlaceCommand,
    ) -> Result<Source, CommandError> {
        match client {
            Ok(client) => Ok(Source::Fabric(client)),
            Err(_) if matches!(command, PlaceCommand::Policies { .. } | PlaceCommand::Policy { .. }) => {
                Service::in_memory().map(Source::Here).map_err(CommandError::because)
            }
            Err(fail) => Err(fail),
        }
    }

    /// Whether it is placement on a file.
    pub fn is_file(&self) -> bool {
        matches!(self, Source::Here(_))
    }

    /// The objects of a kind, by name.
    pub fn objects(&mut self, kind: Removable) -> Result<Vec<Object>, CommandError> {
        let path = format!("/v1/place/objects?kind={}", kind.name());
        either!(self, |service| service.objects(Some(kind.name())), |client| client.get(&path))
    }

    /// All objects of a file, as they are now.
    pub fn all_objects(&self) -> Result<Vec<Object>, CommandError> {
        match self {
            Source::Here(service) => service.objects(None).map_err(here),
            Source::Fabric(_) => Ok(Vec::new()),
        }
    }

    /// Placement on a file, in memory.
    pub fn of_file(file: &Path, plugins: Options) -> Result<Service, CommandError> {
        let service = Service::in_memory().map_err(CommandError::because)?;
        if !plugins.is_empty() {
            service.attach(plugins).map_err(here)?;
        }
        let mut source = Source::Here(service.clone());
        source.warn()?;
        let objects = read(file, &source.beside()?)?;
        source.put(objects)?;
        Ok(service)
    }

    pub fn place(&mut self, request: PlaceRequest) -> Result<DecisionView, CommandError> {
        either!(self, |service| service.place(request), |client| client.ask("/v1/place", &request))
    }

    pub fn attempt(&mut self, request: PlaceRequest) -> Result<ExplainView, CommandError> {
        either!(self, |service| service.attempt(request), |client| client.ask("/v1/place/try", &request))
    }

    pub fn why_not(&mut self, request: WhyNotRequest) -> Result<WhyNot, CommandError> {
        either!(self, |service| service.why_not(request), |client| client.ask("/v1/place/why-not", &request))
    }

    pub fn explain(&mut self, id: u64) -> Result<ExplainView, CommandError> {
        either!(self, |service| service.explain(id), |client| client
            .get(&format!("/v1/place/decisions/{id}")))
    }

    pub fn decisions(&mut self, count: usize) -> Result<Vec<DecisionView>, CommandError> {
        let path = format!("/v1/place/decisions?count={count}");
        either!(self, |service| service.decisions(count), |client| client.get(&path))
    }

    /// Confirms or releases a VM.
    pub fn vm(&mut self, vm: &str, what: &str) -> Result<(), CommandError> {
        named("VM", vm)?;
        let done = |service: &Service| match what {
            "confirm" => service.confirm(vm),
            _ => service.release(vm),
        };
        either!(self, |service| done(service), |client| client.post(&format!("/v1/place/vms/{vm}/{what}")))
    }

    /// Places and starts a guest.
    pub fn start(&mut self, guest: &str) -> Result<DecisionView, CommandError> {
        named("VM", guest)?;
        match self {
            Source::Here(_) => {
                Err(CommandError::Failed("an inventory has no guests; leave --inventory out".into()))
            }
            Source::Fabric(client) => client.ask(&format!("/v1/place/guests/{guest}/start"), &()),
        }
    }

    pub fn balance(&mut self, request: BalanceRequest) -> Result<Vec<BalanceStep>, CommandError> {
        either!(self, |service| service.balance(request), |client| client.ask("/v1/place/balance", &request))
    }

    /// The last rounds of balancing in which something happened.
    pub fn last_rounds(&mut self) -> Result<Vec<BalanceStep>, CommandError> {
        match self {
            Source::Here(service) => Ok(service.last_rounds()),
            Source::Fabric(client) => client.get("/v1/place/balance"),
        }
    }

    pub fn hosts(&mut self) -> Result<Vec<HostRow>, CommandError> {
        either!(self, |service| service.hosts(), |client| client.get("/v1/place/hosts"))
    }

    pub fn vms(&mut self) -> Result<Vec<VmView>, CommandError> {
        either!(self, |service| service.vm_views(), |client| client.get("/v1/place/vms"))
    }

    /// Removes an object; the name of a fact includes its host's.
    pub fn remove(&mut self, kind: Removable, name: &str) -> Result<(), CommandError> {
        if kind == Removable::Fact {
            let what = || CommandError::Failed(format!("{}: a fact is named HOST/NAME", name.escape_debug()));
            let (host, fact) = name.split_once('/').ok_or_else(what)?;
            named("host", host).and_then(|()| named("fact", fact))?;
            let path = format!("/v1/place/facts/{host}/{fact}");
            return either!(self, |service| service.remove_fact(host, fact), |client| client.delete(&path));
        }
        let kind = kind.name();
        named(kind, name)?;
        let path = format!("/v1/place/objects/{kind}/{name}");
        either!(self, |service| service.remove(kind, name), |client| client.delete(&path))
    }

    /// Puts a host into maintenance.
    pub fn maintain(&mut self, host: &str) -> Result<StatusView, CommandError> {
        named("host", host)?;
        let path = format!("/v1/place/hosts/{host}/maintenance");
        either!(self, |service| service.maintain(host), |client| client.ask(&path, &()))
    }

    /// Takes the next steps of draining a host.
    pub fn drain(&mut self, host: &str, request: DrainRequest) -> Result<DrainView, CommandError> {
        named("host", host)?;
        let path = format!("/v1/place/hosts/{host}/drain");
        either!(self, |service| service.drain(host, request.parallel), |client| client.ask(&path, &request))
    }

    /// Adds the fabric's own host to a cluster.
    pub fn join(&mut self, cluster: &str) -> Result<JoinView, CommandError> {
        match self {
            Source::Here(_) => Err(CommandError::Failed("an inventory has no host of its own".into())),
            Source::Fabric(client) => {
                client.ask("/v1/place/this-host", &JoinRequest { cluster: cluster.into() })
            }
        }
    }

    /// Activates a host.
    pub fn activate(&mut self, host: &str) -> Result<StatusView, CommandError> {
        named("host", host)?;
        let path = format!("/v1/place/hosts/{host}/activate");
        either!(self, |service| service.activate(host), |client| client.ask(&path, &()))
    }

    pub fn policy(&mut self, name: &str) -> Result<Policy, CommandError> {
        named("policy", name)?;
        let path = format!("/v1/place/policies/{name}");
        either!(self, |service| service.policy(name), |client| client.get(&path))
    }

    /// The events after a revision, or the latest ones.
    pub fn events(
        &mut self,
        after: Option<u64>,
        count: usize,
        all: bool,
    ) -> Result<EventsView, CommandError> {
        let after_it = after.map_or(String::new(), |after| format!("&after={after}"));
        let path = format!("/v1/place/events?count={count}&measurements={all}{after_it}");
        either!(self, |service| service.events(after, count, all), |client| client.get(&path))
    }

    pub fn policies(&mut self) -> Result<Vec<Policy>, CommandError> {
        either!(self, |service| service.policies(), |client| client.get("/v1/place/policies"))
    }

    pub fn units(&mut self) -> Result<Vec<UnitView>, CommandError> {
        match self {
            Source::Here(service) => Ok(service.units()),
            Source::Fabric(client) => client.get("/v1/place/units"),
        }
    }

    /// Prints the problems of plugin units as warnings.
    pub fn warn(&mut self) -> Result<(), CommandError> {
        self.attached()?.problems.iter().for_each(|problem| text::warn(problem));
        Ok(())
    }

    /// The attached sources of plugin units, and their problems.
    pub fn attached(&mut self) -> Result<PluginsView, CommandError> {
        match self {
            Source::Here(service) => Ok(service.plugins()),
            Source::Fabric(client) => client.get("/v1/place/plugins"),
        }
    }

    /// The existing objects that a file may refer to.
    pub fn beside(&mut self) -> Result<KnownObjects, CommandError> {
        Ok(KnownObjects {
            units: self.external()?,
            hosts: self.hosts()?.into_iter().map(|host| host.name).collect(),
            policies: self.policies()?.into_iter().map(|policy| policy.name).collect(),
            now: Some(Clock::default().now()),
        })
    }

    /// The plugin units, in the form that the check of policies needs.
    fn external(&mut self) -> Result<Vec<ExternalUnit>, CommandError> {
        let outside = self.units()?.into_iter().filter(|unit| unit.external);
        let unit = |unit: UnitView| ExternalUnit {
            kind: match unit.kind.as_str() {
                "filter" => ExternalKind::Filter,
                "weight" => ExternalKind::Score,
                _ => ExternalKind::Balance,
            },
            properties: unit
                .properties
                .iter()
                .map(|it| format!("{}={}", it.name, it.regex))
                .collect::<Vec<_>>()
                .join(";"),
            name: unit.name,
            description: unit.description,
        };
        Ok(outside.map(unit).collect())
    }

    pub fn plugins(&mut self, options: Options) -> Result<Vec<UnitView>, CommandError> {
        match self {
            Source::Here(service) => {
                service.attach(options).map_err(here)?;
                Ok(service.units())
            }
            Source::Fabric(client) => client.put("/v1/place/plugins", &options),
        }
    }

    pub fn put(&mut self, objects: Vec<Object>) -> Result<RevisionView, CommandError> {
        either!(self, |service| service.put(objects), |client| client.ask("/v1/place/objects", &objects))
    }

    pub fn facts(&mut self, facts: Vec<FactPush>) -> Result<RevisionView, CommandError> {
        either!(self, |service| service.facts(facts), |client| client.ask("/v1/place/facts", &facts))
    }
}
