//! The ports of a function, and which of its elements use them.
use super::devices;
use alloc::collections::BTreeSet;
use ringway_click::prelude::*;
use ringway_click_lang::{Diagnostics, Graph, Landmark};

/// The ports of a function, and the devices that stand for them.
#[derive(Clone, Debug, Default)]
pub struct Uses {
    /// Names of the ports.
    pub ports: Vec<String>,
    /// Devices that the configuration names, and the port of each.
    pub devices: Vec<(String, String)>,
}

impl Uses {
    /// Checks that each port of the function is used, and at most once per direction.
    pub fn check(&self, graph: &Graph, file: &str, diagnostics: &mut Diagnostics) {
        let Uses { ports, devices } = self;
        let mut used = BTreeSet::new();
        for element in &graph.elements {
            let Some(used_port) = devices::use_of(&element.class, &element.configuration, devices) else {
                continue;
            };
            let (receives, port) = used_port.clone();
            if !used.insert(used_port) {
                let class = if receives { "FromPort" } else { "ToPort" };
                let what = format!("port '{port}' has another {class} already");
                diagnostics.error(element.landmark.clone(), what);
            }
        }
        for port in ports.iter().filter(|port| !used.iter().any(|(_, own)| own == *port)) {
            let what = format!("no FromPort or ToPort of port '{port}'");
            diagnostics.error(Landmark { column: 1, ..Landmark::new(file, 1) }, what);
        }
    }

    /// The port that a device stands for.
    ///
    /// # Errors
    /// No port does.
    pub fn port_of_device(&self, device: &str) -> Result<String, String> {
        let found = self.devices.iter().find(|(own, _)| own == device);
        found.map(|(_, port)| port.clone()).ok_or_else(|| match &*self.devices {
            [] => format!("no port stands for device '{device}'; map it with devices"),
            devices => {
                let list: Vec<&str> = devices.iter().map(|(own, _)| &**own).collect();
                format!("no port stands for device '{device}'; {} are mapped", list.join(", "))
            }
        })
    }

    /// Checks that the function has a port of this name.
    ///
    /// # Errors
    /// The element has none.
    pub fn check_port(&self, port: &str) -> Result<(), String> {
        if self.ports.iter().any(|own| own == port) {
            return Ok(());
        }
        let list = self.ports.join(", ");
        Err(format!("PORT: this function has no port '{port}'; it has {list}"))
    }
}
