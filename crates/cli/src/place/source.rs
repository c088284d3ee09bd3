//! Where placement is: in a running fabric, or here, on an inventory file.

use super::arguments::PlaceCommand;
use crate::arguments::Target;
use crate::client::Client;
use crate::fail::Fail;
use ringway_control::place::{
    BalanceRequest, DecisionView, ExplainView, FactPush, Failed, PlaceRequest, RevisionView, Service,
    UnitView, WhyNotRequest,
};
use ringway_place::engine::{BalanceStep, HostRow, Object, WhyNot};
use ringway_place::inventory;
use ringway_place::object::Vm;
use ringway_place::policy::Policy;
use std::path::Path;

/// Where placement is.
pub enum Source {
    /// In a running fabric.
    Fabric(Client),
    /// Here.
    Here(Service),
}

/// Reads an inventory file.
pub fn read(file: &Path) -> Result<Vec<Object>, Fail> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        Fail::Failed(format!("{}: {error}; give the path of an inventory file", file.display()))
    })?;
    inventory::read(&file.display().to_string(), &text, &[])
        .map_err(|problems| Fail::Inventory(problems.to_string()))
}

fn here(failed: Failed) -> Fail {
    match failed {
        Failed::Unknown(what) => Fail::Unknown(what),
        Failed::Wrong(what) | Failed::Conflict(what) => Fail::Failed(what),
    }
}

/// Does `$here` on a service, or asks a fabric by `$method` of `$path`.
macro_rules! either {
    ($source:expr, |$service:ident| $here:expr, |$client:ident| $there:expr) => {
        match $source {
            Source::Here($service) => $here.map_err(here),
            Source::Fabric($client) => $there,
        }
    };
}

impl Source {
    /// The file's if there is one. What policies and units there are needs no fabric.
    pub fn of(target: &Target, file: Option<&Path>, command: &PlaceCommand) -> Result<Source, Fail> {
        let empty = || Service::in_memory().map_err(Fail::because);
        if let Some(file) = file {
            let service = empty()?;
            service.put(read(file)?).map_err(here)?;
            return Ok(Source::Here(service));
        }
        match Client::connect(target) {
            Ok(client) => Ok(Source::Fabric(client)),
            Err(_) if matches!(command, PlaceCommand::Policies { .. }) => Ok(Source::Here(empty()?)),
            Err(fail) => Err(fail),
        }
    }

    pub fn place(&mut self, request: PlaceRequest) -> Result<DecisionView, Fail> {
        either!(self, |service| service.place(request), |client| client.ask("/v1/place", &request))
    }

    pub fn attempt(&mut self, request: PlaceRequest) -> Result<ExplainView, Fail> {
        either!(self, |service| service.attempt(request), |client| client.ask("/v1/place/try", &request))
    }

    pub fn why_not(&mut self, request: WhyNotRequest) -> Result<WhyNot, Fail> {
        either!(self, |service| service.why_not(request), |client| client.ask("/v1/place/why-not", &request))
    }

    pub fn explain(&mut self, id: u64) -> Result<ExplainView, Fail> {
        either!(self, |service| service.explain(id), |client| client
            .get(&format!("/v1/place/decisions/{id}")))
    }

    pub fn decisions(&mut self, count: usize) -> Result<Vec<DecisionView>, Fail> {
        let path = format!("/v1/place/decisions?count={count}");
        either!(self, |service| service.decisions(count), |client| client.get(&path))
    }

    /// Confirms or releases a VM.
    pub fn vm(&mut self, vm: &str, what: &str) -> Result<(), Fail> {
        // Attack: a name that is more than a name in a path.
        if vm.is_empty() || !vm.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
            return Err(Fail::Unknown(format!("there is no VM \"{}\"", vm.escape_debug())));
        }
        let done = |service: &Service| match what {
            "confirm" => service.confirm(vm),
            _ => service.release(vm),
        };
        either!(self, |service| done(service), |client| client.post(&format!("/v1/place/vms/{vm}/{what}")))
    }

    pub fn balance(&mut self, request: BalanceRequest) -> Result<Vec<BalanceStep>, Fail> {
        either!(self, |service| service.balance(request), |client| client.ask("/v1/place/balance", &request))
    }

    pub fn hosts(&mut self) -> Result<Vec<HostRow>, Fail> {
        either!(self, |service| service.hosts(), |client| client.get("/v1/place/hosts"))
    }

    pub fn vms(&mut self) -> Result<Vec<Vm>, Fail> {
        either!(self, |service| service.vms(), |client| client.get("/v1/place/vms"))
    }

    pub fn policies(&mut self) -> Result<Vec<Policy>, Fail> {
        either!(self, |service| service.policies(), |client| client.get("/v1/place/policies"))
    }

    pub fn units(&mut self) -> Result<Vec<UnitView>, Fail> {
        match self {
            Source::Here(service) => Ok(service.units()),
            Source::Fabric(client) => client.get("/v1/place/units"),
        }
    }

    pub fn put(&mut self, objects: Vec<Object>) -> Result<RevisionView, Fail> {
        either!(self, |service| service.put(objects), |client| client.ask("/v1/place/objects", &objects))
    }

    pub fn facts(&mut self, facts: Vec<FactPush>) -> Result<RevisionView, Fail> {
        either!(self, |service| service.facts(facts), |client| client.ask("/v1/place/facts", &facts))
    }
}
