//! JSON types of the placement API. Times are in milliseconds since 1970.

use super::body::{AtMost, OBJECTS};
use ringway_place::decide::{Choice, PlacementRequest, Trace};
use ringway_place::engine::{Changed, Decision, Explained, Migration};
use ringway_place::filters::{MANDATORY, SELECTABLE};
use ringway_place::object::{HostStatus, Vm};
use ringway_place::store::Summary;
use ringway_place::unit::{ExternalKind, ExternalUnit, Parameter, describe};
use ringway_place::{balancers, weights};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeSet;
use utoipa::ToSchema;

/// VMs to place, all or none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PlaceRequest {
    /// Names of known VMs.
    pub vms: Vec<String>,
    /// Unknown VMs: added first, or only tried.
    #[serde(deserialize_with = "new_vms")]
    pub new: Vec<Vm>,
    /// Policy to use instead of their own.
    pub policy: Option<String>,
    /// If not empty, only these hosts may be chosen.
    pub only: BTreeSet<String>,
    /// Hosts that must not be chosen.
    pub without: BTreeSet<String>,
    /// Whether the host a VM runs on may be chosen.
    pub stay: bool,
    /// Seed that breaks ties; chosen at random if unset.
    pub seed: Option<u64>,
}

fn new_vms<'de, D: Deserializer<'de>>(list: D) -> Result<Vec<Vm>, D::Error> {
    AtMost::<Vm, OBJECTS>::deserialize(list).map(|AtMost(vms)| vms)
}

impl PlaceRequest {
    /// The request, with a time.
    pub fn ask(&self, now: u64) -> PlacementRequest {
        let new = self.new.iter().map(|vm| &vm.name).filter(|name| !self.vms.contains(name));
        PlacementRequest {
            vms: self.vms.iter().chain(new).cloned().collect(),
            policy: self.policy.clone(),
            only: self.only.clone(),
            without: self.without.clone(),
            stay: self.stay,
            seed: self.seed.unwrap_or(now),
            now,
            ..PlacementRequest::default()
        }
    }
}

/// A decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DecisionView {
    /// Its number; 0 if nothing was decided.
    pub id: u64,
    /// The store's revision at the decision.
    pub revision: u64,
    /// Time of the decision.
    pub at: u64,
    /// The seed that broke ties.
    pub seed: u64,
    /// Whether every VM has a host.
    pub placed: bool,
    /// The choice for each group of VMs placed together.
    pub choices: Vec<Choice>,
}

impl From<Decision> for DecisionView {
    fn from(decision: Decision) -> DecisionView {
        DecisionView {
            id: decision.id,
            revision: decision.revision,
            at: decision.ask.now,
            seed: decision.ask.seed,
            placed: decision.placed(),
            choices: decision.choices,
        }
    }
}

/// A decision with its details.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExplainView {
    /// The decision.
    pub decision: DecisionView,
    /// Every host, for each group of VMs.
    pub traces: Vec<Trace>,
    /// Why details are missing, if they are.
    pub note: String,
}

impl From<Explained> for ExplainView {
    fn from(explained: Explained) -> ExplainView {
        ExplainView { decision: explained.decision.into(), traces: explained.traces, note: explained.note }
    }
}

/// A VM and a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WhyNotRequest {
    /// The host.
    pub host: String,
    /// The VM.
    pub request: PlaceRequest,
}

/// A round of balancing, or a preview of several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BalanceRequest {
    /// The cluster.
    pub cluster: String,
    /// Whether it is only a preview.
    pub dry_run: bool,
    /// Rounds of a preview.
    pub rounds: usize,
    /// Milliseconds between two rounds of a preview.
    pub interval: u64,
}

impl Default for BalanceRequest {
    fn default() -> BalanceRequest {
        BalanceRequest { cluster: "default".into(), dry_run: false, rounds: 1, interval: 60_000 }
    }
}

/// A fact about a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FactPush {
    /// The host.
    pub host: String,
    /// Its name: a letter, then letters, digits and `_`.
    pub name: String,
    /// The value.
    pub value: f64,
    /// Milliseconds until it expires; never if unset.
    #[serde(default)]
    pub ttl: Option<u64>,
}

/// Sources of external units: folders and addresses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PluginsView {
    /// Those of the fabric's file.
    pub file: Vec<String>,
    /// Those attached by an operator.
    pub attached: Vec<String>,
    /// Errors: files that fail to load, hosts that fail to start.
    pub problems: Vec<String>,
}

/// A VM with its reservation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VmView {
    /// The VM.
    #[serde(flatten)]
    pub vm: Vm,
    /// The host reserved for it, until it runs there or the reservation expires.
    pub reserved: Option<String>,
}

/// A host's status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StatusView {
    /// The status.
    pub status: HostStatus,
}

/// The cluster that the fabric's own host is to belong to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct JoinRequest {
    /// The cluster.
    pub cluster: String,
}

impl Default for JoinRequest {
    fn default() -> JoinRequest {
        JoinRequest { cluster: "default".into() }
    }
}

/// The fabric's own host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JoinView {
    /// Its name.
    pub host: String,
    /// Its cluster.
    pub cluster: String,
}

/// How to drain a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DrainRequest {
    /// VMs that move at a time, 1 to 100.
    pub parallel: u32,
}

impl Default for DrainRequest {
    fn default() -> DrainRequest {
        DrainRequest { parallel: 4 }
    }
}

/// A VM that can't leave a drained host now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StuckView {
    /// The VM.
    pub vm: String,
    /// Why.
    pub why: String,
    /// Whether it never moves, so that only its end empties the host.
    pub forever: bool,
}

/// A host that is drained.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DrainView {
    /// The host.
    pub host: String,
    /// Its status; `maintenance` when it is empty.
    pub status: HostStatus,
    /// Moves that began with this request.
    pub moves: Vec<Migration>,
    /// VMs that have a host reserved and are still on this one.
    pub moving: Vec<String>,
    /// Other VMs that are still on it.
    pub left: Vec<String>,
    /// Those that can't leave now.
    pub stuck: Vec<StuckView>,
    /// VMs that are not on it, but for which it is reserved.
    pub reserved: Vec<String>,
}

/// Events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EventsView {
    /// The revision for the next request.
    pub revision: u64,
    /// Changes, oldest first.
    pub events: Vec<Changed>,
}

/// The store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoreView {
    /// Path of its file; the log is in the same folder.
    pub path: String,
    /// Why it can't be written; `None` if it can.
    pub full: Option<String>,
    /// Its contents.
    pub holds: Summary,
}

/// The path of a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BackupRequest {
    /// An absolute path.
    pub path: String,
}

/// A revision of the store.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RevisionView {
    /// The revision.
    pub revision: u64,
}

/// A custom property.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PropertyView {
    /// Its name.
    pub name: String,
    /// Regular expression that the value must match.
    pub regex: String,
    /// Default value.
    pub default: String,
    /// Its description.
    pub description: String,
}

impl From<&Parameter> for PropertyView {
    fn from(parameter: &Parameter) -> PropertyView {
        PropertyView {
            name: parameter.name.into(),
            regex: parameter.regex.into(),
            default: parameter.default.into(),
            description: parameter.describes.into(),
        }
    }
}

/// A unit that policies choose from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UnitView {
    /// Its name.
    pub name: String,
    /// `mandatory` (a filter of every policy), `filter`, `weight` or `balancer`.
    pub kind: String,
    /// Its description.
    pub description: String,
    /// Properties that it reads.
    pub properties: Vec<PropertyView>,
    /// Whether it is external.
    pub external: bool,
}

/// Properties of an external unit, `key=regex;key=regex`.
fn outside_properties(text: &str) -> Vec<PropertyView> {
    let pairs = text.split(';').filter_map(|part| part.split_once('='));
    let view = |(name, regex): (&str, &str)| PropertyView {
        name: name.trim().into(),
        regex: regex.into(),
        ..PropertyView::default()
    };
    pairs.map(view).collect()
}

/// All available units.
pub fn units(external: Vec<ExternalUnit>) -> Vec<UnitView> {
    let properties =
        |names: &[&str]| names.iter().filter_map(|name| describe(name)).map(PropertyView::from).collect();
    let unit = |name: &str, kind: &str, description: &str, parameters: &[&str]| UnitView {
        name: name.into(),
        kind: kind.into(),
        description: description.into(),
        properties: properties(parameters),
        external: false,
    };
    let mandatory = MANDATORY.iter().map(|it| unit(it.name(), "mandatory", it.describes(), it.parameters()));
    let filters = SELECTABLE.iter().map(|it| unit(it.name(), "filter", it.describes(), it.parameters()));
    let weights = weights::ALL.iter().map(|it| unit(it.name(), "weight", it.describes(), it.parameters()));
    let balancers = balancers::ALL.iter().map(|it| unit(it.name, "balancer", it.describes, it.parameters));
    let outside = external.into_iter().map(|it| UnitView {
        name: it.name,
        kind: match it.kind {
            ExternalKind::Filter => "filter",
            ExternalKind::Score => "weight",
            ExternalKind::Balance => "balancer",
        }
        .into(),
        description: it.description,
        properties: outside_properties(&it.properties),
        external: true,
    });
    mandatory.chain(filters).chain(weights).chain(balancers).chain(outside).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn balancers_have_descriptions_and_properties() {
        let units = units(Vec::new());
        assert!(units.iter().all(|unit| !unit.description.is_empty()));
        let reads = |property: &str| {
            units
                .iter()
                .any(|unit| unit.kind == "balancer" && unit.properties.iter().any(|it| it.name == property))
        };
        assert!(reads("OverUtilization") && reads("HighVmCount") && !reads("HeSparesCount"));
    }
}
