//! Room for the self-hosted engine.

use crate::model::Row;
use crate::model::{GUEST_OVERHEAD, VmSlot};
use crate::unit::{Context, Filter, Kept, unit};

unit! {
    /// Keeps spare hosts for the self-hosted engine
    pub struct HostedEngineSpares = "HostedEngineSpares", reads "HeSparesCount";
}

impl Filter for HostedEngineSpares {
    fn filter(&self, context: &Context<'_>, kept: &mut Kept) {
        let spares = context.whole("HeSparesCount", 0) as usize;
        if spares == 0 {
            return;
        }
        let Some(engine) = engine(context) else { return };
        let rows: Vec<Row> = (0..kept.len() as Row).filter(|row| kept.has(*row)).collect();
        let (mut able, mut last) = (0, Vec::new());
        for row in rows {
            match room(context, engine, row) {
                Room::Both => able += 1,
                Room::One => last.push(row),
                Room::None => {}
            }
        }
        // Hosts with room for both remain spares in any case.
        if able + last.len() <= spares {
            last.into_iter().for_each(|row| kept.remove(row));
        }
    }

    fn reason(&self, _: &Context<'_>, _: Row) -> String {
        "it is needed as a spare for the self-hosted engine".into()
    }
}

/// What a host has room for.
#[derive(PartialEq)]
enum Room {
    /// The engine and the VMs.
    Both,
    /// The engine alone.
    One,
    /// Not a candidate: it can't run the engine, or already does.
    None,
}

fn engine<'m>(context: &Context<'m>) -> Option<&'m VmSlot> {
    let mut others = context.model.hosted_engines();
    others.find(|slot| {
        slot.vm.cluster == context.cluster.cluster.name && !context.vms().any(|vm| vm.hosted_engine)
    })
}

fn room(context: &Context<'_>, engine: &VmSlot, row: Row) -> Room {
    let Some(slot) = context.cluster.slot(row) else { return Room::None };
    let agent = slot
        .host
        .ha_agent
        .as_ref()
        .filter(|agent| agent.active && agent.score > 0 && !agent.local_maintenance);
    if agent.is_none() || context.is_on(engine, row) {
        return Room::None;
    }
    let left = context.cluster.columns.schedulable[row as usize];
    let engine = engine.vm.memory_mb as i32 + GUEST_OVERHEAD;
    match left > engine {
        true if left > engine + context.need_on(row).whole => Room::Both,
        true => Room::One,
        false => Room::None,
    }
}
