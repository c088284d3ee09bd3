//! Nova's hint `same_host`.

use crate::model::Row;
use crate::unit::{Context, Filter, Kept};

/// Only the hosts of the VMs it names
pub struct SameHost;

impl Filter for SameHost {
    fn name(&self) -> &'static str {
        "SameHost"
    }

    fn describes(&self) -> &'static str {
        "Only the hosts of the VMs it names"
    }

    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        let rows = super::hosts_of(context, |vm| &vm.same_host);
        if !rows.is_empty() {
            kept.reject(|row| !rows.contains(&row));
        }
    }

    fn reason(&self, context: &Context<'_>, _: Row) -> String {
        let named: Vec<&str> = context.vms().flat_map(|vm| &vm.same_host).map(String::as_str).collect();
        format!("{} is not there", named.join(", "))
    }
}
