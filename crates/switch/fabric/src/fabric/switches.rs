//! Switches that come and go.

use super::addresses::KeptTable;
use super::{Fabric, FabricError, SwitchRecord};
use ringway_spec::{self as spec, To};
use ringway_switch::snooping::Snooping;
use std::sync::Arc;

impl Fabric {
    /// Adds a switch without ports.
    pub fn add_switch(&mut self, switch: spec::Switch) -> Result<(), FabricError> {
        let spec::Switch { name, lookup, forward_reserved, snooping } = switch;
        if self.switches.contains_key(&name) {
            return Err(FabricError::Exists("switch", name));
        }
        let kind = ringway_switch::lookup(lookup.name());
        let kind = kind.ok_or_else(|| FabricError::Unknown("lookup", lookup.name().into()))?;
        let mut lookup =
            (kind.open)(&lookup).map_err(|error| FabricError::Switch(name.clone(), error.to_string()))?;
        if let Some(flows) = lookup.flows() {
            flows.begin(self.clock.now()).map_err(|wrong| FabricError::Switch(name.clone(), wrong))?;
        }
        let snooping = snooping.map(|snooping| Arc::new(Snooping::new(snooping.fast_leave)));
        let kept = KeptTable::default();
        let record =
            SwitchRecord { lookup, forward_reserved, snooping, made: None, kept, expired: self.clock.now() };
        self.switches.insert(name, record);
        Ok(())
    }

    /// Removes a switch that has no ports.
    pub fn remove_switch(&mut self, name: &str) -> Result<(), FabricError> {
        if self.ports.values().any(|port| port.spec.to == Some(To::Switch(name.into()))) {
            return Err(FabricError::InUse(name.into()));
        }
        match self.switches.remove(name) {
            Some(_) => Ok(()),
            None => Err(FabricError::Unknown("switch", name.into())),
        }
    }
}
