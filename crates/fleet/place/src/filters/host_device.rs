//! Devices of the host.

use crate::model::Row;
use crate::object::Vm;
use crate::unit::{Context, Filter, unit};

unit! {
    /// Only hosts on which the devices of the VM are free
    pub struct HostDevice = "HostDevice";
}

impl Filter for HostDevice {
    fn concerns(&self, vm: &Vm) -> bool {
        !vm.devices.is_empty()
    }

    fn wrong(&self, context: &Context<'_>, row: Row) -> Option<String> {
        let host = &context.cluster.slot(row)?.host;
        let needed: Vec<&String> = context.new_on(row).flat_map(|slot| &slot.vm.devices).collect();
        if needed.is_empty() {
            return None;
        }
        if !host.passthrough {
            return Some("devices can't be passed through".into());
        }
        let mut free: Vec<&String> = host.devices.iter().map(|device| &device.name).collect();
        let taken = context.others_on(row).flat_map(|slot| &slot.vm.devices);
        for device in taken {
            if let Some(at) = free.iter().position(|name| *name == device) {
                free.swap_remove(at);
            }
        }
        for device in needed {
            match free.iter().position(|name| *name == device) {
                Some(at) => free.swap_remove(at),
                None if host.devices.iter().any(|have| have.name == *device) => {
                    return Some(format!("its device {device} is taken"));
                }
                None => return Some(format!("it has no device {device}")),
            };
        }
        None
    }
}
