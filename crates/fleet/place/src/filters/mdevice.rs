//! Mediated devices.

use crate::model::Row;
use crate::object::Vm;
use crate::unit::{Context, Filter, unit};
use std::collections::BTreeMap;

unit! {
    /// Only hosts with enough free mediated devices
    pub struct MDevice = "MDevice";
}

impl Filter for MDevice {
    fn concerns(&self, vm: &Vm) -> bool {
        !vm.mdevs.is_empty()
    }

    fn wrong(&self, context: &Context<'_>, row: Row) -> Option<String> {
        let host = &context.cluster.slot(row)?.host;
        let mut free: BTreeMap<&str, i64> =
            host.mdevs.iter().map(|(kind, count)| (kind.as_str(), i64::from(*count))).collect();
        for kind in context.others_on(row).flat_map(|slot| &slot.vm.mdevs) {
            if let Some(count) = free.get_mut(kind.as_str()) {
                *count -= 1;
            }
        }
        for kind in context.new_on(row).flat_map(|slot| &slot.vm.mdevs) {
            match free.get_mut(kind.as_str()) {
                Some(1..) => *free.entry(kind).or_default() -= 1,
                Some(_) => return Some(format!("no {kind} is free")),
                None => return Some(format!("it has no {kind}")),
            }
        }
        None
    }
}
