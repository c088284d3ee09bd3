//! Nova's hint `different_host`.

use crate::model::Row;
use crate::unit::{Context, Filter, Kept, unit};

unit! {
    /// Excludes the hosts of the VMs that the hint names
    pub struct DifferentHost = "DifferentHost";
}

impl Filter for DifferentHost {
    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        let named = context.vms().flat_map(|vm| &vm.different_host);
        let places = named.filter_map(|name| context.model.vm(name)?.place());
        for place in places.filter(|place| place.cluster == context.cluster_id) {
            kept.remove(place.row);
        }
    }

    fn reason(&self, context: &Context<'_>, row: Row) -> String {
        let here = context.others_on(row).map(|slot| &slot.vm.name);
        let named: Vec<&str> = here
            .filter(|name| context.vms().any(|vm| vm.different_host.contains(name)))
            .map(String::as_str)
            .collect();
        format!("{} is there", named.join(", "))
    }
}
