//! Drains: hosts that are emptied with several moves at a time.

use super::periodic::carry_out;
use super::view::{DrainView, StuckView};
use super::{Failed, Service};
use ringway_place::object::HostStatus;
use std::collections::BTreeMap;
use std::sync::PoisonError;

/// Attack: a drain that moves a million VMs at once. Largest number of moves at a time.
pub const MOST_AT_ONCE: u32 = 100;
/// Milliseconds after which a drain that can move nothing is tried again.
const AGAIN: u64 = 10_000;

/// Drains in progress, by host.
#[derive(Default)]
pub struct Drains(BTreeMap<String, Drain>);

struct Drain {
    /// Moves at a time.
    parallel: u32,
    /// When the next step is due.
    next: u64,
}

impl Service {
    /// Puts a host into maintenance and moves its VMs away, `parallel` at a time. The first moves begin at once, the
    /// others with the periodic work, or with the next call.
    pub fn drain(&self, host: &str, parallel: u32) -> Result<DrainView, Failed> {
        if !(1..=MOST_AT_ONCE).contains(&parallel) {
            return Err(Failed::Wrong(format!("`parallel` is {parallel}; permitted: 1 to {MOST_AT_ONCE}")));
        }
        let now = self.clock.now();
        let step = self.engine.drain(host, now, parallel as usize)?;
        let mut moves = step.moves;
        carry_out(&self.engine, &step.cluster, &mut moves, now)?;
        for it in &moves {
            tracing::info!(vm = it.vm, from = it.from, to = it.to, state = ?it.state, "drain");
        }
        self.end_emptying()?;
        let (status, on, reserved) = self.engine.view(|model| {
            let slot = model.host(host).and_then(|id| model.slot(id));
            let on = slot.map_or(Vec::new(), |slot| slot.running.clone());
            let names = on.iter().filter_map(|id| Some(model.vm_by(*id)?.vm.name.clone()));
            let reserved = model.pendings().values().filter(|pending| pending.host == host);
            let reserved: Vec<String> = reserved.map(|pending| pending.vm.clone()).collect();
            (slot.map_or(HostStatus::Down, |slot| slot.host.status), names.collect::<Vec<String>>(), reserved)
        })?;
        let is_there = |vm: &String| on.contains(vm);
        let left: Vec<String> = step.left.into_iter().filter(is_there).collect();
        let stuck = step.stuck.into_iter().filter(|it| is_there(&it.vm));
        let stuck: Vec<StuckView> =
            stuck.map(|it| StuckView { vm: it.vm, why: it.why, forever: it.forever }).collect();
        let moving: Vec<String> = step.moving.into_iter().filter(is_there).collect();
        self.remember(host, parallel, status, now, !moves.is_empty() || !moving.is_empty());
        Ok(DrainView { host: host.into(), status, moves, moving, left, stuck, reserved })
    }

    fn remember(&self, host: &str, parallel: u32, status: HostStatus, now: u64, is_moving: bool) {
        let mut drains = self.drains.lock().unwrap_or_else(PoisonError::into_inner);
        if status == HostStatus::PreparingForMaintenance {
            let next = if is_moving { now } else { now.saturating_add(AGAIN) };
            drains.0.insert(host.into(), Drain { parallel, next });
        } else {
            drains.0.remove(host);
        }
    }

    /// Takes the next step of each drain that is due. Hosts that were activated or removed meanwhile are no longer
    /// drained.
    pub(crate) fn advance_drains(&self) -> Result<(), Failed> {
        let now = self.clock.now();
        let due: Vec<(String, u32)> = {
            let drains = self.drains.lock().unwrap_or_else(PoisonError::into_inner);
            let due = drains.0.iter().filter(|(_, drain)| drain.next <= now);
            due.map(|(host, drain)| (host.clone(), drain.parallel)).collect()
        };
        for (host, parallel) in due {
            let status = self.engine.view(|model| model.slot(model.host(&host)?).map(|it| it.host.status))?;
            if status == Some(HostStatus::PreparingForMaintenance) {
                self.drain(&host, parallel)?;
            } else {
                self.drains.lock().unwrap_or_else(PoisonError::into_inner).0.remove(&host);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_place::engine::Object;
    use ringway_place::object::{AffinityGroup, Cluster, Executor, Host, Migration, Rule, Vm, VmStatus};

    /// Host `a` with VMs `v0` to `v4`, of which `v4` is pinned, and host `b`.
    fn service(executor: Executor) -> Service {
        let service = Service::in_memory().unwrap();
        let host = |name: &str| {
            let host = Host { name: name.into(), cores: 8, threads: 8, memory_mb: 16_384, ..Host::default() };
            Object::Host(Box::new(host))
        };
        let vm = |n: u32| {
            let migration = if n == 4 { Migration::PinnedToHost } else { Migration::Migratable };
            let vm = Vm { name: format!("v{n}"), host: Some("a".into()), migration, ..Vm::default() };
            Object::Vm(Box::new(Vm { status: VmStatus::Up, ..vm }))
        };
        let cluster = Object::Cluster(Cluster { executor, interval: 0, ..Cluster::default() });
        service.put([cluster, host("a"), host("b")].into_iter().chain((0..5).map(vm)).collect()).unwrap();
        service
    }

    #[test]
    fn a_drain_moves_several_vms_at_a_time_and_tells_which_stay() {
        let service = service(Executor::Inventory);
        let first = service.drain("a", 2).unwrap();
        assert_eq!(
            (first.moves.len(), first.left.len(), first.status),
            (2, 3, HostStatus::PreparingForMaintenance)
        );
        // The periodic work goes on, with as many at a time.
        service.advance_drains().unwrap();
        let last = service.drain("a", 2).unwrap();
        assert_eq!((last.moves.len(), last.left.as_slice()), (0, ["v4".to_string()].as_slice()));
        assert!(last.stuck[0].forever && last.stuck[0].why.contains("pinned"), "{last:?}");
        service.remove("vm", "v4").unwrap();
        assert_eq!(service.drain("a", 2).unwrap().status, HostStatus::Maintenance);
        assert!(matches!(service.drain("c", 2), Err(Failed::Unknown(_))));
        assert!(matches!(service.drain("b", 0), Err(Failed::Wrong(_))));
    }

    #[test]
    fn a_drain_tells_for_which_vms_the_host_is_reserved() {
        let service = service(Executor::Outside);
        let new = vec![Vm { name: "new".into(), ..Vm::default() }];
        let request = crate::PlaceRequest { new, only: ["b".into()].into(), ..Default::default() };
        service.place(request).unwrap();
        let view = service.drain("b", 2).unwrap();
        assert_eq!(view.reserved, ["new"]);
        assert_eq!((view.left.len(), view.status), (0, HostStatus::PreparingForMaintenance));
        service.release("new").unwrap();
        let view = service.drain("b", 2).unwrap();
        assert_eq!((view.reserved.len(), view.status), (0, HostStatus::Maintenance));
    }

    /// Every reservation: VM, host, and the decision that made it.
    fn reservations(service: &Service) -> Vec<(String, String, u64)> {
        let all = service.engine.view(|model| {
            let one = |it: &ringway_place::object::Pending| (it.vm.clone(), it.host.clone(), it.decision);
            model.pendings().values().map(one).collect()
        });
        all.unwrap()
    }

    /// Host `a` with two VMs, and host `b`, which has room for one of them; they move by another program.
    fn narrow() -> Service {
        let service = Service::in_memory().unwrap();
        let host = |name: &str, memory_mb| {
            let host = Host { name: name.into(), cores: 8, threads: 8, memory_mb, ..Host::default() };
            Object::Host(Box::new(host))
        };
        let vm = |name: &str| {
            let vm = Vm { name: name.into(), host: Some("a".into()), memory_mb: 8192, ..Vm::default() };
            Object::Vm(Box::new(Vm { status: VmStatus::Up, ..vm }))
        };
        let cluster =
            Object::Cluster(Cluster { executor: Executor::Outside, interval: 0, ..Cluster::default() });
        service.put(vec![cluster, host("a", 32_768), host("b", 12_288), vm("v0"), vm("v1")]).unwrap();
        service
    }

    #[test]
    fn a_drain_keeps_the_reservations_of_vms_that_move() {
        let service = narrow();
        let first = service.drain("a", 4).unwrap();
        let (moving, stuck) = (first.moving[0].clone(), first.stuck[0].vm.clone());
        assert_eq!((first.moves.len(), first.moving.len(), first.stuck.len()), (1, 1, 1), "{first:?}");
        let kept = [(moving.clone(), "b".to_string(), first.moves[0].decision)];
        assert_eq!(reservations(&service), kept);
        // Further steps look for a host for the other VM, and neither move the first one again nor take its room.
        for _ in 0..3 {
            service.advance_drains().unwrap();
            let view = service.drain("a", 4).unwrap();
            let still = [std::slice::from_ref(&moving), std::slice::from_ref(&stuck)];
            assert_eq!([&view.moving[..], &view.left[..]], still, "{view:?}");
            assert!(view.moves.is_empty() && !view.stuck[0].forever, "{view:?}");
            assert_eq!(reservations(&service), kept);
        }
        // The drain of the target leaves alone what moves there.
        assert_eq!(service.drain("b", 4).unwrap().reserved, kept.each_ref().map(|(vm, ..)| vm.clone()));
        assert_eq!(reservations(&service), kept);
        service.activate("b").unwrap();
        service.confirm(&moving).unwrap();
        assert_eq!(reservations(&service), []);
        let view = service.drain("a", 4).unwrap();
        assert_eq!((view.moving.len(), view.left.as_slice()), (0, [stuck].as_slice()));
    }

    #[test]
    fn a_drain_that_finds_no_host_for_a_whole_group_reserves_nothing() {
        let service = narrow();
        let group = AffinityGroup {
            name: "g".into(),
            cluster: Cluster::default().name,
            vms: vec!["v0".into(), "v1".into()],
            vm_rule: Rule::Positive,
            vm_enforcing: true,
            ..AffinityGroup::default()
        };
        service.put(vec![Object::Group(group)]).unwrap();
        let view = service.drain("a", 4).unwrap();
        assert_eq!((view.moves.len(), view.moving.len(), view.stuck.len()), (0, 0, 2), "{view:?}");
        assert_eq!(reservations(&service), [], "not for the one that would fit");
        let new = vec![Vm { name: "new".into(), memory_mb: 8192, ..Vm::default() }];
        service.place(crate::PlaceRequest { new, ..Default::default() }).unwrap();
        let of_new =
            |all: Vec<(String, String, u64)>| all.into_iter().map(|(vm, host, _)| (vm, host)).collect();
        let reserved: Vec<(String, String)> = of_new(reservations(&service));
        assert_eq!(reserved, [("new".to_string(), "b".to_string())]);
        // Reservations of others outlast the drain, too.
        service.drain("a", 4).unwrap();
        assert_eq!(of_new(reservations(&service)), reserved);
    }

    #[test]
    fn moves_of_another_program_are_bounded_too() {
        let service = service(Executor::Outside);
        let first = service.drain("a", 3).unwrap();
        assert_eq!((first.moves.len(), first.moving.len(), first.left.len()), (3, 3, 2));
        let again = service.drain("a", 3).unwrap();
        assert_eq!((again.moves.len(), again.moving.len()), (0, 3), "three move already");
        service.confirm(&first.moving[0]).unwrap();
        service.advance_drains().unwrap();
        let later = service.drain("a", 3).unwrap();
        assert_eq!((later.moving.len(), later.left.as_slice()), (3, ["v4".to_string()].as_slice()));
        service.activate("a").unwrap();
        service.advance_drains().unwrap();
        assert_eq!(service.hosts().unwrap()[0].status, HostStatus::Up, "it is drained no longer");
    }
}
