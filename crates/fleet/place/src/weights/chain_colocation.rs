//! Functions of a chain together.

use crate::filters::chain_mates;
use crate::model::Row;
use crate::unit::{Context, MAX_WEIGHT, Weight, unit};

unit! {
    /// Prefers hosts of the chain's functions, adjacent ones most
    pub struct ChainColocation = "ChainColocation";
}

impl Weight for ChainColocation {
    fn weigh(&self, context: &Context<'_>, rows: &[Row], raw: &mut [i32]) {
        let mates = chain_mates(context);
        if mates.is_empty() {
            return;
        }
        raw.fill(MAX_WEIGHT);
        for (_, mate) in mates {
            let Some(place) = mate.place().filter(|place| place.cluster == context.cluster_id) else {
                continue;
            };
            let ours = context.vms().filter(|vm| vm.chain == mate.vm.chain).map(|vm| vm.chain_index);
            let hops = ours.map(|index| index.abs_diff(mate.vm.chain_index)).min().unwrap_or(1);
            if let Ok(at) = rows.binary_search(&place.row) {
                raw[at] -= MAX_WEIGHT / 2 / hops.clamp(1, 100) as i32;
            }
        }
    }
}
