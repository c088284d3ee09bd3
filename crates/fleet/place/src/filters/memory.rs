//! Free and schedulable memory.

use crate::model::Row;
use crate::object::VmStatus;
use crate::unit::{Context, Filter, Kept, unit};

unit! {
    /// Only hosts with enough free and schedulable memory
    pub struct Memory = "Memory";
}

impl Filter for Memory {
    fn may_pass_later(&self) -> bool {
        true
    }

    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        if context.vms().all(|vm| vm.status == VmStatus::Paused) {
            return;
        }
        let columns = &context.cluster.columns;
        let figures = columns.free.iter().zip(&columns.swap_free).zip(&columns.schedulable);
        // Huge pages that are not set aside must be in memory, not in swap.
        if context.vms().any(|vm| vm.huge_page_kb.is_some()) {
            return kept.reject_need(
                context,
                figures.zip(0..),
                |(((free, swap), schedulable), row), need| {
                    let dynamic = context.dynamic_on(row);
                    let free = free.saturating_sub(dynamic);
                    free < 0
                        || free.saturating_add(*swap) < need.memory
                        || schedulable.saturating_sub(dynamic) < need.committed
                },
            );
        }
        kept.reject_need(context, figures, |((free, swap), schedulable), need| {
            (*free < 0) | (free.saturating_add(*swap) < need.memory) | (*schedulable < need.committed)
        });
    }

    fn reason(&self, context: &Context<'_>, row: Row) -> String {
        let columns = &context.cluster.columns;
        let (at, need) = (row as usize, context.need_on(row));
        let dynamic = context.dynamic_on(row);
        let left = columns.free[at].saturating_sub(dynamic);
        let real = columns.free[at].max(0).saturating_add(columns.swap_free[at]);
        if left < 0 || left.saturating_add(columns.swap_free[at]) < need.memory {
            let needed = need.memory.saturating_add(dynamic);
            return format!("{real} MB of memory and swap are free, {needed} MB are needed");
        }
        let promised = columns.schedulable[at].max(0);
        let needed = need.committed.saturating_add(dynamic);
        format!("{promised} MB of memory can still be reserved, {needed} MB are needed")
    }
}
