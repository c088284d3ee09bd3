//! Decisions with a full trace about VMs described by the caller, without a reservation.

use super::history::bounded;
use super::{ATTEMPTS, Decision, Engine, EngineError, Inner, external, put, size};
use crate::decide::{Answers, Choice, DecideError, PlacementRequest, Trace, explain};
use crate::model::Change;
use crate::object::Vm;
use crate::store::{Compare, Store, StoreError};

impl Engine {
    /// Decides about `vms`, which need not exist, for an external scheduler that makes the final choice:
    /// nothing is reserved. The decision is stored if `is_kept` returns true, and becomes durable soon after.
    pub fn advise(
        &self,
        ask: &PlacementRequest,
        vms: Vec<Vm>,
        is_kept: impl Fn(&[Choice]) -> bool,
    ) -> Result<(Decision, Vec<Trace>), EngineError> {
        vms.iter().try_for_each(Vm::check)?;
        let mut inner = self.current()?;
        for _ in 0..ATTEMPTS {
            let (choices, traces, answers) = inner.attempt(ask, vms.clone())?;
            let mut decision = Decision::new(inner.next, inner.seen, ask.clone(), choices, answers);
            decision.advised.clone_from(&vms);
            if !is_kept(&decision.choices) {
                return Ok((decision, traces));
            }
            match inner.record(&*self.store, &decision, &traces) {
                Ok(()) => return Ok((decision, traces)),
                Err(StoreError::Conflict(_)) => inner.sync(&*self.store)?,
                Err(error) => return Err(error.into()),
            }
        }
        Err(StoreError::Conflict("the cluster".into()).into())
    }
}

impl Inner {
    /// The outcome of a decision with a full trace and the answers of external units. `extra` are VMs that
    /// need not exist.
    pub(super) fn attempt(
        &mut self,
        ask: &PlacementRequest,
        extra: Vec<Vm>,
    ) -> Result<(Vec<Choice>, Vec<Trace>, Answers), DecideError> {
        let before = |vm: &Vm| match self.model.vm(&vm.name) {
            Some(slot) => Change::Vm((*slot.vm).clone()),
            None => Change::NoVm(vm.name.clone()),
        };
        let before: Vec<Change> = extra.iter().map(before).collect();
        extra.into_iter().for_each(|vm| self.model.apply(Change::Vm(vm)));
        self.follow(ask.now);
        let mut answers = Answers::default();
        let result = {
            let Inner { model, scratch, external, .. } = self;
            explain(model, ask, &mut external::external_answers(external, &mut answers), scratch)
        };
        before.into_iter().for_each(|change| self.model.apply(change));
        let (choices, traces) = result?;
        Ok((choices, traces, answers))
    }

    /// Writes a decision that reserves nothing.
    fn record(&mut self, store: &dyn Store, decision: &Decision, traces: &[Trace]) -> Result<(), StoreError> {
        let id = decision.id;
        let unused = [Compare { key: format!("decision/{id:020}"), modified: 0 }];
        let (mut ops, mut details) = (Vec::new(), 0);
        if !decision.placed() {
            let op = put(&format!("detail/{id:020}"), &bounded(traces.to_vec()), None);
            details = size(&op);
            ops.push(op);
        }
        self.write(store, decision, &unused, ops, details)?;
        if let Some(before) = self.recent.compact() {
            store.compact(before)?;
        }
        Ok(())
    }
}
