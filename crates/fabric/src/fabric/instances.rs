//! Functions that multiply: their instances' ports, and which of the instances get flows.

use super::{Fabric, FabricError};
use crate::instances::{Ends, Instances, Place};
use crate::proto::{Event, InstanceLoad};
use crate::world::Target;
use ringway_spec::InstanceEnd;
use ringway_switch::PortId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Ports by function and end, each with its instance and its worker.
pub(super) type InstancePorts = BTreeMap<(String, u16), Vec<(u16, PortId, Option<usize>)>>;

impl Fabric {
    /// The place of an end's port; the first one of a function begins its flow table.
    pub(super) fn place_of(&mut self, end: &InstanceEnd) -> Place {
        let (alarm, now) = (self.bell.clone(), self.clock.now());
        let begin = || Instances::new(end, alarm, now);
        let instances = self.instances.entry(end.of.clone()).or_insert_with(begin).clone();
        Place { instances, number: end.number.into(), side: end.side.into() }
    }

    /// Forgets the functions of which no port is left.
    pub(super) fn forget_instances(&mut self) {
        let ports = &self.ports;
        self.instances.retain(|function, _| {
            ports.values().any(|record| record.spec.instance.as_ref().is_some_and(|end| end.of == *function))
        });
    }

    pub(super) fn instance_ports(&self) -> InstancePorts {
        let mut all = InstancePorts::new();
        for record in self.ports.values().filter(|record| !record.leaving) {
            if let Some(end) = &record.spec.instance {
                let ports = all.entry((end.of.clone(), end.side)).or_default();
                ports.push((end.number, record.id, record.worker()));
            }
        }
        all
    }

    /// The target of frames for an end of a function, which `worker` takes where they come from.
    pub(super) fn ends(&self, end: &InstanceEnd, all: &InstancePorts, worker: Option<usize>) -> Target {
        let ports = all.get(&(end.of.clone(), end.side));
        match (self.instances.get(&end.of), ports) {
            (Some(instances), Some(ports)) => {
                let ports = ports.iter().map(|(number, port, own)| (*number, *port, *own == worker));
                Ends::target(instances.clone(), ports)
            }
            _ => Target::Nowhere,
        }
    }

    fn instances_of(&self, function: &str) -> Result<&Arc<Instances>, FabricError> {
        self.instances.get(function).ok_or_else(|| FabricError::Unknown("function", function.into()))
    }

    /// Changes the instances of a function, as masks: those of `open` get new flows, those of `there` keep the flows
    /// that they have.
    ///
    /// # Errors
    /// No port is an end of the function.
    pub fn assign_instances(&self, function: &str, open: u32, there: u32) -> Result<(), FabricError> {
        self.instances_of(function)?.assign(open, there, self.clock.now());
        Ok(())
    }

    /// The load of a function's instances. To count flows, the whole table is read.
    ///
    /// # Errors
    /// As for [`Fabric::assign_instances`].
    pub fn instance_load(&self, function: &str, counts: bool) -> Result<InstanceLoad, FabricError> {
        let (instances, now) = (self.instances_of(function)?, self.clock.now());
        let flows = if counts { instances.flows(now).to_vec() } else { Vec::new() };
        Ok(InstanceLoad { flows, calm: instances.calm(now) })
    }

    /// Functions that need another instance.
    pub(super) fn pressed(&self) -> impl Iterator<Item = Event> {
        let pressed = self.instances.values().filter(|instances| instances.take_news());
        pressed.map(|instances| Event::Pressed { function: instances.function.clone() })
    }
}
