//! Memory, real and promised.

use crate::model::Row;
use crate::object::VmStatus;
use crate::unit::{Context, Filter, Kept};

/// Only hosts with enough free memory, real and promised
pub struct Memory;

impl Filter for Memory {
    fn name(&self) -> &'static str {
        "Memory"
    }

    fn describes(&self) -> &'static str {
        "Only hosts with enough free memory, real and promised"
    }

    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        if context.vms().all(|vm| vm.status == VmStatus::Paused) {
            return;
        }
        let columns = &context.cluster.columns;
        let rows = kept.len();
        let (free, swap) = (&columns.free[..rows], &columns.swap_free[..rows]);
        let schedulable = &columns.schedulable[..rows];
        kept.reject_need(context, |row, need| {
            free[row] < 0
                || free[row].saturating_add(swap[row]) < need.memory
                || schedulable[row] < need.committed
        });
    }

    fn reason(&self, context: &Context<'_>, row: Row) -> String {
        let columns = &context.cluster.columns;
        let (at, need) = (row as usize, context.need_on(row));
        let real = columns.free[at].max(0).saturating_add(columns.swap_free[at]);
        if real < need.memory || columns.free[at] < 0 {
            return format!("{real} MB of memory and swap are free, {} MB are needed", need.memory);
        }
        let promised = columns.schedulable[at].max(0);
        format!("{promised} MB of memory may still be promised, {} MB are needed", need.committed)
    }
}
