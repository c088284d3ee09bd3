//! Draining: moving the VMs of a host away, several at a time.

use super::external;
use super::{Engine, EngineError, Inner, Migration, MigrationState};
use crate::decide::{Answers, Choice, PlacementRequest, decide, reserved, restore};
use crate::model::{HostId, VmSlot};
use crate::object::{HostStatus, Migration as Movable, Rule, VmStatus};
use crate::store::Store;
use std::collections::BTreeSet;

/// A VM that stays on the host, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stuck {
    /// The VM.
    pub vm: String,
    /// Why it can't move now.
    pub why: String,
    /// Whether it never moves: only its end empties the host.
    pub forever: bool,
}

/// The state of a drained host after one step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DrainStep {
    /// The host's cluster.
    pub cluster: String,
    /// The host's status.
    pub status: HostStatus,
    /// Moves that this step began.
    pub moves: Vec<Migration>,
    /// VMs that move, including those of earlier steps.
    pub moving: Vec<String>,
    /// Other VMs that are still on the host.
    pub left: Vec<String>,
    /// The remaining VMs that can't move now.
    pub stuck: Vec<Stuck>,
}

/// Moves that began, with the store's revision, or why they can't.
type Begun = Result<(Vec<Migration>, u64), String>;

/// The reason of moves off a drained host.
const REASON: &str = "drain";

impl Engine {
    /// Puts a host into maintenance and begins moves of its VMs, so that `parallel` move at a time. Highly available
    /// VMs are first, then the largest. Cool-down times do not hold them back.
    pub fn drain(&self, host: &str, now: u64, parallel: usize) -> Result<DrainStep, EngineError> {
        self.maintain(host)?;
        let mut inner = self.current()?;
        inner.follow(now);
        let (mut moves, mut stuck, mut tried) = (Vec::new(), Vec::new(), BTreeSet::new());
        let mut revision = inner.seen;
        loop {
            let (moving, waiting) = inner.on(host)?;
            let Some(next) = waiting.iter().find(|vm| !tried.contains(*vm)).cloned() else { break };
            let forever = inner.never_moves(&next);
            if forever.is_none() && moving.len() >= parallel.max(1) {
                break;
            }
            tried.insert(next.clone());
            if let Some(why) = forever {
                stuck.push(Stuck { vm: next, why, forever: true });
                continue;
            }
            let together = inner.bound(&next, host);
            tried.extend(together.iter().cloned());
            match inner.leave(&*self.store, host, &together, now)? {
                Ok((mut begun, at)) => {
                    revision = at;
                    moves.append(&mut begun);
                }
                Err(why) => {
                    let stay = |vm: String| Stuck { vm, why: why.clone(), forever: false };
                    stuck.extend(together.into_iter().map(stay));
                }
            }
        }
        let (moving, left) = inner.on(host)?;
        let (cluster, status) = {
            let slot = inner.host(host)?.1;
            (slot.host.cluster.clone(), slot.host.status)
        };
        drop(inner);
        self.store.durable(revision)?;
        Ok(DrainStep { cluster, status, moves, moving, left, stuck })
    }
}

impl Inner {
    fn host(&self, host: &str) -> Result<(HostId, &crate::model::HostSlot), EngineError> {
        let found = self.model.host(host).and_then(|id| Some((id, self.model.slot(id)?)));
        found.ok_or_else(|| self.model.no_host(host).into())
    }

    /// VMs of a host that are moving away, and the others in the order in which they leave.
    fn on(&self, host: &str) -> Result<(Vec<String>, Vec<String>), EngineError> {
        let (id, slot) = self.host(host)?;
        let mut vms: Vec<&VmSlot> = slot.running.iter().filter_map(|vm| self.model.vm_by(*vm)).collect();
        vms.sort_by_key(|slot| (!slot.vm.ha, -slot.need.committed, slot.vm.name.clone()));
        let leaves = |slot: &&VmSlot| slot.pending.is_some_and(|to| to != id);
        let (moving, left): (Vec<&VmSlot>, Vec<&VmSlot>) = vms.into_iter().partition(leaves);
        let names = |vms: Vec<&VmSlot>| vms.into_iter().map(|slot| slot.vm.name.clone()).collect();
        Ok((names(moving), names(left)))
    }

    /// Why a VM can't be moved at all, if so.
    fn never_moves(&self, vm: &str) -> Option<String> {
        let vm = &self.model.vm(vm)?.vm;
        match (vm.migration, vm.status) {
            (Movable::PinnedToHost, _) => Some("it is pinned to the host".into()),
            (_, VmStatus::Up | VmStatus::Migrating) => None,
            (_, status) => Some(format!("its status is {status:?}; only a VM that is up moves")),
        }
    }

    /// A VM, and those on its host to which an enforced positive group binds it, unless they move away already.
    fn bound(&self, vm: &str, host: &str) -> Vec<String> {
        let mut together = vec![vm.to_string()];
        let (Some(slot), at) = (self.model.vm(vm), self.model.host(host)) else { return together };
        let groups = self.model.groups_of(&slot.vm);
        for group in groups.into_iter().filter(|group| group.vm_enforcing && group.vm_rule == Rule::Positive)
        {
            let members = self.model.members(group).into_iter().filter_map(|id| self.model.vm_by(id));
            let here = |slot: &&VmSlot| {
                let leaves = slot.pending.is_some() && slot.pending != at;
                slot.vm.runs() && slot.vm.host.as_deref() == Some(host) && !leaves
            };
            for member in members.filter(here).map(|slot| &slot.vm.name) {
                if !together.contains(member) {
                    together.push(member.clone());
                }
            }
        }
        together
    }

    /// Begins the moves of VMs that leave together, or returns why they can't leave.
    fn leave(
        &mut self,
        store: &dyn Store,
        host: &str,
        vms: &[String],
        now: u64,
    ) -> Result<Begun, EngineError> {
        let ask = PlacementRequest { vms: vms.to_vec(), seed: self.next, now, ..PlacementRequest::default() };
        let Inner { model, scratch, external, .. } = &mut *self;
        if let Some(attached) = external {
            attached.follow(model, now);
        }
        let mut answers = Answers::default();
        let before = reserved(model, vms);
        let choices = decide(model, &ask, &mut external::external_answers(external, &mut answers), scratch);
        // Only a look: nothing is reserved before it is known that all find a host, and what is reserved stays.
        restore(model, vms, before);
        let choices = choices?;
        if let Some(refused) = choices.iter().find(|choice| choice.host.is_none()) {
            return Ok(Err(refused.why()));
        }
        let only = choices.iter().filter_map(|choice| choice.host.clone()).collect();
        let (decision, revision) = self.place(store, PlacementRequest { only, ..ask })?;
        if let Some(refused) = decision.choices.iter().find(|choice| choice.host.is_none()) {
            return Ok(Err(refused.why()));
        }
        let one = |vm: &String, choice: &Choice| Migration {
            vm: vm.clone(),
            from: host.into(),
            to: choice.host.clone().unwrap_or_default(),
            reason: REASON.into(),
            decision: decision.id,
            state: MigrationState::Reserved,
            refused: String::new(),
        };
        let moves = decision.choices.iter().flat_map(|choice| choice.vms.iter().map(|vm| one(vm, choice)));
        Ok(Ok((moves.collect(), revision)))
    }
}
