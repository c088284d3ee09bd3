//! When a revoking message is acknowledged, nothing revoked is accessed any more, even if a worker was using it.

use super::guest::{
    BOTH, CHANNEL, GuestConfig, Monitor, PART, READ, RINGS, RINGS_IOVA, USER, WRITE, add, framed,
};
use super::rig::{Rig, StopOnDrop, pass, reflect, reflect_until, sent_during_turn, with};
use ringway_vhost_user::feature::{protocol, virtio};
use ringway_vhost_user::{Iotlb, Request};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const DATA: u64 = 0x20_0000;
const FROM: u64 = 0x4000_0000;
const LEN: usize = 1512;

/// Messages after which nothing that was granted before may be accessed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    TakenBack,
    AllTakenBack,
    Elsewhere,
    Stopped,
    Reset,
    OtherMemory,
    MemoryRemoved,
    NoIommu,
}

impl Way {
    const ALL: [Way; 8] = [
        Way::TakenBack,
        Way::AllTakenBack,
        Way::Elsewhere,
        Way::Stopped,
        Way::Reset,
        Way::OtherMemory,
        Way::MemoryRemoved,
        Way::NoIommu,
    ];

    fn say(self, monitor: &mut Monitor<'_>, rig: &Shared<'_>, iova: u64) {
        let all = monitor.front.features();
        match self {
            Way::TakenBack => monitor.send_iotlb(Iotlb::INVALIDATE, iova, 0x1000, 0, 0).unwrap(),
            Way::AllTakenBack => monitor.send_iotlb(Iotlb::INVALIDATE, 0, 0, 0, 0).unwrap(),
            Way::Elsewhere => {
                monitor.send_iotlb(Iotlb::UPDATE, iova, 0x1000, USER + DATA + 0x30_0000, WRITE).unwrap();
            }
            Way::Stopped => drop([0, 1].map(|index| monitor.front.stop(index).unwrap())),
            Way::Reset => monitor.front.set(Request::ResetDevice).unwrap(),
            Way::OtherMemory => monitor.front.set_memory(vec![rig.space.share()]).unwrap(),
            Way::MemoryRemoved => {
                monitor.front.set(Request::RemMemReg(rig.space.share().region)).unwrap();
            }
            Way::NoIommu => {
                monitor.front.set(Request::SetFeatures(all & !virtio::ACCESS_PLATFORM)).unwrap();
            }
        }
    }

    /// Restores the guest's access.
    fn undo(self, monitor: &mut Monitor<'_>, rig: &Shared<'_>) {
        match self {
            Way::TakenBack | Way::AllTakenBack | Way::Elsewhere => {}
            Way::Stopped | Way::Reset => rig.start(monitor),
            Way::OtherMemory | Way::MemoryRemoved => {
                monitor.front.set_memory(vec![rig.space.share()]).unwrap();
            }
            Way::NoIommu => {
                let all = monitor.front.features();
                monitor.front.set(Request::SetFeatures(all)).unwrap();
                rig.start(monitor);
            }
        }
    }
}

struct Shared<'a> {
    space: &'a super::guest::Space,
}

impl Shared<'_> {
    /// Each ring resumes at its index; a split ring that was reset resumes at its used index.
    fn start(&self, monitor: &mut Monitor<'_>) {
        for index in [0, 1] {
            let base = monitor.front.stop(index).unwrap();
            let vring = monitor.vring(index, base);
            monitor.front.start(vring).unwrap();
        }
    }
}

#[test]
fn revocations_hold_once_acknowledged_while_a_worker_runs() {
    [GuestConfig::ALL[0], GuestConfig::ALL[1]].into_iter().for_each(ends_under_a_worker);
}

fn ends_under_a_worker(kind: GuestConfig) {
    // A packed ring that was reset starts from index 0, and its driver would have to do the same.
    let ways = Way::ALL.into_iter().filter(|way| !(kind.packed && *way == Way::Reset));
    let ways: Vec<Way> = ways.collect();
    with(kind, |rig| {
        let Rig { space, rx, tx, monitor, queue, .. } = rig;
        let (stop, shared) = (AtomicBool::new(false), Shared { space });
        space.span(DATA, LEN as u32).write(&framed(3, LEN - 12));
        monitor.map(FROM, DATA, 0x1000, READ);
        std::thread::scope(|scope| {
            scope.spawn(|| reflect_until(&stop, queue));
            let (_stop, mut landed) = (StopOnDrop(&stop), 0);
            for (round, way) in (0..160u64).zip(ways.into_iter().cycle()) {
                let (iova, at) = (0x5000_0000 + round * 0x1000, DATA + 0x10_0000 + (round % 16) * 0x1000);
                monitor.map(iova, at, 0x1000, WRITE);
                monitor.send_iotlb(Iotlb::UPDATE, iova, 0x1000, USER + at, WRITE).unwrap();
                add(rx, iova, 2048, true);
                add(tx, FROM, LEN, false);
                (0..round / 8 % 7).for_each(|_| std::thread::yield_now());
                way.say(monitor, &shared, iova);
                space.span(at, 4096).write(&[0x55; 4096]);
                (0..200).for_each(|_| std::hint::spin_loop());
                std::thread::yield_now();
                assert!(space.bytes(at, 4096) == [0x55; 4096], "{kind:?} round {round}: {way:?}");
                way.undo(monitor, &shared);
                monitor.send_iotlb(Iotlb::UPDATE, iova, 0x1000, USER + at, WRITE).unwrap();
                let mut gone = 0;
                let done = (0..100_000).any(|_| {
                    std::thread::yield_now();
                    monitor.answer();
                    let used = std::iter::from_fn(|| rx.take_used().unwrap()).count();
                    landed += used;
                    // A frame that was in flight when its ring was stopped is lost; it is sent again.
                    gone += usize::from(gone > 0 || tx.take_used().unwrap().is_some());
                    if used == 0 && gone > 1000 {
                        add(tx, FROM, LEN, false);
                        gone = 0;
                    }
                    used > 0
                });
                while tx.take_used().unwrap().is_some() {}
                assert!(done, "{kind:?} round {round}: {way:?}");
                monitor.unmap(iova, 0x1000);
            }
            assert_eq!(landed, 160, "each buffer once");
        });
    });
}

#[test]
fn revocations_are_acknowledged_after_the_current_turn() {
    for (kind, way) in [GuestConfig::ALL[0], GuestConfig::ALL[1]]
        .into_iter()
        .flat_map(|kind| Way::ALL.map(|way| (kind, way)))
    {
        with(kind, |rig| {
            let (to, at) = (FROM + 0x1000, DATA + 0x1000);
            rig.monitor.map(FROM, DATA, 0x1000, READ);
            rig.monitor.map(to, at, 0x1000, WRITE);
            rig.space.span(DATA, LEN as u32).write(&framed(3, LEN - 12));
            add(&mut rig.rx, to, 2048, true);
            add(&mut rig.tx, FROM, LEN, false);
            pass(&mut rig.reader, rig.queue, &mut rig.monitor, 1);
            add(&mut rig.rx, to, 2048, true);
            add(&mut rig.tx, FROM, LEN, false);
            let space = rig.space;
            let early = sent_during_turn(rig, |monitor| {
                way.say(monitor, &Shared { space }, to);
                space.span(at, 4096).write(&[0x55; 4096]);
            });
            assert!(!early, "{kind:?}: {way:?} was answered in the midst of a turn");
            assert!(space.bytes(at, 4096) == [0x55; 4096], "{kind:?}: {way:?}");
        });
    }
}

#[test]
fn rings_stop_when_the_iommu_feature_changes() {
    for kind in [GuestConfig::ALL[0], GuestConfig::ALL[1]] {
        with(kind, |rig| {
            let Rig { space, rx, tx, monitor, queue, reader, counters } = rig;
            let to = FROM + 0x1000;
            monitor.map(FROM, DATA, 0x2000, BOTH);
            space.span(DATA, 112).write(&framed(5, 100));
            add(rx, to, 2048, true);
            add(tx, FROM, 112, false);
            pass(reader, queue, monitor, 1);
            let all = monitor.front.features();
            assert_ne!(all & virtio::ACCESS_PLATFORM, 0);
            space.span(DATA + 0x1000, 4096).write(&[0x55; 4096]);
            add(rx, to, 2048, true);
            add(tx, FROM, 112, false);
            monitor.front.set(Request::SetFeatures(all & !virtio::ACCESS_PLATFORM)).unwrap();
            // Without the feature an invalidation is refused.
            let gone = Iotlb { iova: to, size: 0x1000, user: 0, permissions: 0, kind: Iotlb::INVALIDATE };
            assert!(monitor.front.set(Request::IotlbMsg(gone)).is_err());
            (0..10).for_each(|_| assert_eq!(reflect(reader, queue), 0, "{kind:?}"));
            // The ring doesn't start either: its addresses now have another meaning.
            let base = monitor.front.stop(0).unwrap();
            let vring = monitor.vring(0, base);
            assert!(monitor.front.start(vring).is_err(), "{kind:?}");
            (0..10).for_each(|_| assert_eq!(reflect(reader, queue), 0, "{kind:?}"));
            assert_eq!(space.bytes(DATA + 0x1000, 4096), [0x55; 4096], "{kind:?}");
            // After the feature is negotiated again nothing is granted; each ring resumes at its index.
            monitor.front.set(Request::SetFeatures(all)).unwrap();
            monitor.asked.clear();
            for index in [0, 1] {
                let base = monitor.front.stop(index).unwrap();
                let vring = monitor.vring(index, base);
                monitor.front.start(vring).unwrap();
            }
            pass(reader, queue, monitor, 1);
            assert!(monitor.asked.iter().any(|asked| asked.iova >> 12 == to >> 12), "{kind:?}");
            assert_eq!(space.bytes(DATA + 0x1000, 112)[12..], framed(5, 100)[12..]);
            assert_eq!(counters.faults.load(Relaxed), 0);
        });
    }
}

#[test]
fn protocol_features_can_be_dropped_while_an_iommu_is_in_use() {
    // REPLY_ACK and the channel are dropped while rings run. Grants remain, and can still be revoked.
    with(GuestConfig::ALL[0], |rig| {
        let Rig { space, rx, tx, monitor, queue, reader, .. } = rig;
        monitor.map(FROM, DATA, 0x2000, BOTH);
        space.span(DATA, 112).write(&framed(5, 100));
        add(rx, FROM + 0x1000, 2048, true);
        add(tx, FROM, 112, false);
        pass(reader, queue, monitor, 1);
        let less = CHANNEL & !protocol::BACKEND_REQ;
        monitor.front.set(Request::SetProtocolFeatures(less)).unwrap();
        monitor.send_iotlb(Iotlb::INVALIDATE, FROM, 0x2000, 0, 0).unwrap();
        space.span(DATA + 0x1000, 4096).write(&[0x55; 4096]);
        add(rx, FROM + 0x1000, 2048, true);
        add(tx, FROM, 112, false);
        monitor.answers = false;
        for _ in 0..10 {
            assert_eq!(reflect(reader, queue), 0);
            monitor.answer();
        }
        assert_eq!(space.bytes(DATA + 0x1000, 4096), [0x55; 4096]);
        // Features that need the dropped protocol features can't be negotiated any more.
        let all = monitor.front.features();
        assert!(monitor.front.set(Request::SetFeatures(all)).is_err());
    });
}

#[test]
fn a_ring_with_invalid_new_addresses_stops_when_its_old_ones_are_unmapped() {
    for kind in [false, true].map(|packed| GuestConfig { packed, iommu: true, page: 4096, ring: 256 }) {
        with(kind, |rig| {
            let Rig { space, rx, tx, monitor, queue, reader, .. } = rig;
            let to = FROM + 0x1_0000;
            space.span(DATA, LEN as u32).write(&framed(3, LEN - 12));
            monitor.map(FROM, DATA, 0x1000, READ);
            monitor.map(to, DATA + 0x10_0000, 0x1000, WRITE);
            add(rx, to, 2048, true);
            add(tx, FROM, LEN, false);
            pass(reader, queue, monitor, 1);
            // All of the range is granted, but the addresses are unaligned.
            let elsewhere = 0x6000_0000;
            monitor.send_iotlb(Iotlb::UPDATE, elsewhere, 3 * PART, USER + 0x60_0000, BOTH).unwrap();
            let mut addresses = monitor.vring(0, 0).addresses;
            addresses.descriptors = elsewhere + 1;
            addresses.available = elsewhere + PART / 2 + 1;
            addresses.used = elsewhere + PART + 1;
            monitor.front.set(Request::SetVringAddr(addresses)).unwrap_err();
            let before = space.bytes(RINGS, 3 * PART as usize);
            add(rx, to, 2048, true);
            add(tx, FROM, LEN, false);
            let offered = space.bytes(RINGS, 3 * PART as usize);
            assert!(before != offered);
            monitor.unmap(RINGS_IOVA, 3 * PART);
            for _ in 0..10 {
                assert_eq!(reflect(reader, queue), 0, "{kind:?}");
                monitor.answer();
            }
            assert!(space.bytes(RINGS, 3 * PART as usize) == offered, "{kind:?}");
        });
    }
}
