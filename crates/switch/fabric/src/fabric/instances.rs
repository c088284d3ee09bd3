//! Functions that multiply: their instances' ports, and which of the instances get flows.

use super::{Fabric, FabricError};
use crate::instances::{Ends, Instances, Place};
use crate::proto::{Event, InstanceLoad};
use crate::topology::Target;
use ringway_spec::InstanceEnd;
use ringway_switch::PortId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Ports by function and end, each with its instance and that one's worker.
pub(super) type InstancePorts = BTreeMap<(String, u16), Vec<(u16, PortId, Option<usize>)>>;

impl Fabric {
    /// The place of an end's port; the first one of a function begins its flow table.
    pub(super) fn place_of(&mut self, end: &InstanceEnd) -> Place {
        let (alarm, now) = (self.wakeup.clone(), self.clock.now());
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
        let hosts: BTreeMap<&str, usize> = self.hosts().collect();
        let mut all = InstancePorts::new();
        for (name, record) in self.ports.iter().filter(|(_, record)| !record.leaving) {
            if let Some(end) = &record.spec.instance {
                let ports = all.entry((end.of.clone(), end.side)).or_default();
                // An instance that does not run will be where its ports are.
                let own = hosts.get(name.as_str()).copied().or_else(|| record.worker());
                ports.push((end.number, record.id, own));
            }
        }
        all
    }

    /// The ports of instances that run on workers, each with the instance's worker. A port may have been moved to
    /// another one.
    fn hosts(&self) -> impl Iterator<Item = (&str, usize)> {
        let multiply = self.functions.values().filter(|record| record.multiplies);
        multiply.flat_map(|record| record.ports.iter().map(|(port, _)| (port.as_str(), record.worker)))
    }

    /// Functions whose instances run on workers need no more of them than there are workers.
    pub(super) fn limit_instances(&self) {
        let of = |(port, _)| Some(self.ports.get(port)?.spec.instance.as_ref()?.of.as_str());
        let hosted: BTreeSet<&str> = self.hosts().filter_map(of).collect();
        for (function, instances) in &self.instances {
            let is_hosted = hosted.contains(function.as_str());
            instances.limit(if is_hosted { self.workers.len() as u32 } else { u32::MAX });
        }
    }

    /// The target of frames for an end of a function.
    pub(super) fn ends(&self, end: &InstanceEnd, all: &InstancePorts) -> Target {
        let ports = all.get(&(end.of.clone(), end.side));
        match (self.instances.get(&end.of), ports) {
            (Some(instances), Some(ports)) => {
                Ends::target(instances.clone(), ports.iter().copied(), self.workers.len())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::tests::{page, started};
    use crate::function::tests::function;
    use ringway_spec::{Function, Instance, Instances, Kind, Port};
    use std::os::unix::net::UnixStream;

    #[test]
    fn an_instance_stays_on_its_worker_when_its_port_moves() {
        let mut fabric = started(&["w0", "w1"], page());
        let end = InstanceEnd { of: "f".into(), number: 0, side: 0, flows: 64, idle: 1, drain: 1 };
        let port = Port::new("a", Kind::new("null", &()), None);
        let port = Port { worker: Some("w1".into()), instance: Some(end), ..port };
        fabric.add_port(port, 0).unwrap();
        let place = |fabric: &Fabric| fabric.instance_ports()[&("f".to_string(), 0)][0].2;
        assert_eq!(place(&fabric), Some(1));
        let instances = Instances { min: 1, max: 2, flows: 64, idle: 1, shrink: 1, drain: 1 };
        let instance = Some(Instance { of: "f".into(), number: 1, instances });
        let function = Function { instance, ..function("Idle -> Discard;") };
        let (_ours, theirs) = UnixStream::pair().unwrap();
        fabric.start_function(1, function, ("handlers".into(), theirs.into())).unwrap();
        fabric.move_port("a", Some("w0")).unwrap();
        assert_eq!(place(&fabric), Some(1), "the function did not move");
        fabric.stop_function(1);
        assert_eq!(place(&fabric), Some(0));
    }
}
