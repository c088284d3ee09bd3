//! What a session does to a guest's memory and rings.

use super::rx::VringRx;
use super::tx::VringTx;
use super::vring::{Vring, VringState};
use super::{Config, config_space};
use crate::{Doorbell, Queue};
use ringway_frame::CountersRef;
use ringway_mem::{Memory, Published, Region};
use ringway_vhost_user::feature::virtio;
use ringway_vhost_user::{Device, Kick, MemoryRegion, Offer, Packet, Refused, Ring, SharedRegion};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::sync::Arc;

/// A packed ring's descriptor flag (virtio 1.3, 2.8.1).
const DESC_F_USED: u16 = 1 << 15;

/// One ring: what workers see of it, and what the front-end said.
struct Slot {
    published: Arc<Published<Option<Vring>>>,
    state: Arc<VringState>,
    /// While it runs.
    ring: Option<Ring>,
}

/// A region and what is mapped for it.
struct Mapped {
    said: MemoryRegion,
    region: Region,
}

/// A guest, as far as its front-end has described it.
pub(super) struct Guest {
    config: Config,
    doorbells: Vec<Arc<dyn Doorbell>>,
    features: u64,
    table: Vec<Mapped>,
    memory: Arc<Memory>,
    slots: Vec<Slot>,
    channel: Option<OwnedFd>,
}

impl Guest {
    pub(super) fn new(
        config: Config,
        offer: &Offer,
        doorbells: Vec<Arc<dyn Doorbell>>,
        counters: Vec<CountersRef>,
    ) -> (Guest, Vec<Queue>) {
        let slot = |_| Slot {
            published: Arc::new(Published::new(Arc::new(None))),
            state: Arc::new(VringState::default()),
            ring: None,
        };
        let slots: Vec<Slot> = (0..offer.rings).map(slot).collect();
        let pairs = slots.chunks_exact(2).zip(counters).map(|(pair, counters)| Queue {
            rx: Box::new(VringRx::new(pair[0].published.clone(), counters.clone())),
            tx: Box::new(VringTx::new(pair[1].published.clone(), counters)),
        });
        let queues = pairs.collect();
        let memory = Arc::new(Memory::default());
        let guest = Guest { config, doorbells, features: 0, table: Vec::new(), memory, slots, channel: None };
        (guest, queues)
    }

    /// Forgets everything about the front-end. Its rings are stopped already.
    pub(super) fn clear(&mut self) {
        self.features = 0;
        self.table.clear();
        self.memory = Arc::new(Memory::default());
        self.channel = None;
    }

    /// Whether a queue pair runs.
    pub(super) fn is_up(&self) -> bool {
        let runs = |slot: &Slot| slot.ring.as_ref().is_some_and(|ring| ring.enabled);
        self.slots.chunks_exact(2).any(|pair| pair.iter().all(runs))
    }

    /// A ring that its driver broke, and how.
    pub(super) fn broken(&self) -> Option<(usize, String)> {
        let faults = self.slots.iter().enumerate();
        faults
            .filter(|(_, slot)| slot.ring.is_some())
            .find_map(|(index, slot)| Some((index, slot.state.fault()?.to_string())))
    }

    /// Whether a file behind the guest's memory shrank.
    pub(super) fn is_lost(&self) -> bool {
        self.memory.regions().iter().any(ringway_host::is_lost)
    }

    /// Sends a request of ours, which may be lost: the front-end's channel may be full.
    pub(super) fn tell(&self, packet: &Packet) {
        if let Some(channel) = &self.channel {
            ringway_host::try_write(channel.as_fd(), &packet.bytes);
        }
    }

    /// Publishes a ring as it is now known; when this returns no worker uses it as it was before.
    fn publish(&mut self, index: usize) -> Result<(), Refused> {
        let slot = &mut self.slots[index];
        let vring = match &slot.ring {
            None => None,
            Some(ring) => {
                let vring = Vring::new(&self.memory, self.features, ring, &slot.state);
                Some(vring.map_err(|error| Refused(format!("ring {index}: {error}")))?)
            }
        };
        drop(ringway_host::reclaim(slot.published.replace(Arc::new(vring))));
        Ok(())
    }

    /// Takes the ring from the workers, but remembers what was said about it.
    fn park(&mut self, index: usize) {
        drop(ringway_host::reclaim(self.slots[index].published.replace(Arc::new(None))));
    }

    /// Has the worker of a TX ring hear the driver's kicks, and look at once, since one may have come before.
    fn listen(&self, index: usize, ring: &Ring) {
        let Some(doorbell) = self.doorbell(index) else { return };
        match &ring.kick {
            Kick::Fd(kick) => doorbell.watch(kick.clone()),
            Kick::Poll | Kick::Unset => doorbell.unwatch(),
        }
        doorbell.wake();
    }

    /// The doorbell of a TX ring. Nobody waits for the kicks of an RX ring: who has frames for it looks at it.
    fn doorbell(&self, index: usize) -> Option<&Arc<dyn Doorbell>> {
        if index % 2 == 1 { self.doorbells.get(index / 2) } else { None }
    }

    fn set_table(&mut self, table: Vec<Mapped>) -> Result<(), Refused> {
        let regions = table.iter().map(|mapped| mapped.region.clone()).collect();
        let memory = Memory::new(regions).map_err(|error| Refused(error.to_string()))?;
        self.memory = Arc::new(memory);
        // The former memory goes when the last ring that was published with it is reclaimed.
        let former = std::mem::replace(&mut self.table, table);
        for index in 0..self.slots.len() {
            // A ring outside the new memory rests until it is told to lie elsewhere.
            if self.slots[index].ring.is_some() && self.publish(index).is_err() {
                self.park(index);
            }
        }
        drop(former);
        Ok(())
    }

    /// Where a ring starts.
    fn position(&self, ring: &Ring) -> u16 {
        let Some(addresses) = ring.addresses else { return 0 };
        if self.features & virtio::RING_PACKED == 0 {
            // The used index stands behind two bytes of flags (virtio 1.3, 2.7.8).
            return ring.base.or_else(|| self.word(addresses.used.checked_add(2)?)).unwrap_or_default();
        }
        let first = Ring::first(self.features);
        let base = ring.base.unwrap_or(first);
        if base != 0 {
            return base;
        }
        // User-Mode Linux says 0, which forgets the wrap counter, where a new ring begins. The two are told apart by
        // the first descriptor's flags: it was used once before the counter can be 0 there.
        let flags = addresses.descriptors.checked_add(14).and_then(|flags| self.word(flags));
        if flags.unwrap_or_default() & DESC_F_USED == 0 { first } else { base }
    }

    fn word(&self, user: u64) -> Option<u16> {
        let mut bytes = [0; 2];
        let read = self.memory.user_span(user, 2)?.as_span().read(&mut bytes);
        (read == 2).then_some(u16::from_le_bytes(bytes))
    }
}

/// Refuses a descriptor that we write to when the driver is to be interrupted, unless it is an eventfd or a pipe.
/// Attack: a write to a file on a file system of the peer's own lasts as long as the peer likes.
fn check_call(ring: &Ring) -> Result<(), Refused> {
    let Some(call) = &ring.call else { return Ok(()) };
    let check = || {
        let seen = std::fs::File::from(call.try_clone().ok()?).metadata().ok()?.file_type();
        let other = seen.is_file() || seen.is_dir() || seen.is_char_device() || seen.is_block_device();
        if other { None } else { ringway_host::set_nonblocking(call.as_fd()).ok() }
    };
    check().ok_or_else(|| Refused("the descriptor for interrupts is neither an eventfd nor a pipe".into()))
}

/// Maps a region; nothing of it is used if the file isn't what it should be.
fn map(SharedRegion { region: said, fd }: SharedRegion) -> Result<Mapped, Refused> {
    let region = ringway_host::map_region(&fd, said.offset, said.size, said.guest, said.user);
    let region = region.map_err(|error| Refused(format!("region at {:#x}: {error}", said.guest)))?;
    Ok(Mapped { said, region })
}

impl Device for Guest {
    fn set_features(&mut self, features: u64) -> Result<(), Refused> {
        self.features = features;
        Ok(())
    }

    fn set_memory(&mut self, table: Vec<SharedRegion>) -> Result<(), Refused> {
        let table = table.into_iter().map(map).collect::<Result<_, _>>()?;
        self.set_table(table)
    }

    fn add_region(&mut self, region: SharedRegion) -> Result<(), Refused> {
        let new = map(region)?;
        let present =
            self.table.iter().map(|mapped| Mapped { said: mapped.said, region: mapped.region.clone() });
        self.set_table(present.chain([new]).collect())
    }

    fn remove_region(&mut self, region: MemoryRegion) -> Result<(), Refused> {
        let is_it = |mapped: &Mapped| {
            let said = mapped.said;
            (said.guest, said.user, said.size) == (region.guest, region.user, region.size)
        };
        let at = self.table.iter().position(is_it);
        let at = at.ok_or_else(|| Refused(format!("there is no region at {:#x}", region.guest)))?;
        let rest = self.table.iter().enumerate().filter(|(index, _)| *index != at);
        let rest = rest.map(|(_, mapped)| Mapped { said: mapped.said, region: mapped.region.clone() });
        self.set_table(rest.collect())
    }

    fn start(&mut self, index: usize, ring: &Ring) -> Result<(), Refused> {
        check_call(ring)?;
        let position = self.position(ring);
        // No worker sees the ring while it is stopped, so nobody else uses its state now.
        self.slots[index].state.restart(position, self.features);
        self.slots[index].ring = Some(ring.clone());
        if let Err(refused) = self.publish(index) {
            self.slots[index].ring = None;
            return Err(refused);
        }
        self.listen(index, ring);
        Ok(())
    }

    fn update(&mut self, index: usize, ring: &Ring) -> Result<(), Refused> {
        check_call(ring)?;
        self.slots[index].ring = Some(ring.clone());
        self.publish(index)?;
        self.listen(index, ring);
        Ok(())
    }

    fn stop(&mut self, index: usize) -> u16 {
        if let Some(doorbell) = self.doorbell(index) {
            doorbell.unwatch();
        }
        self.slots[index].ring = None;
        self.park(index);
        self.slots[index].state.position()
    }

    fn read_config(&self, offset: u32, bytes: &mut [u8]) {
        config_space::read(&self.config, offset, bytes);
    }

    fn set_mtu(&mut self, mtu: u16) -> Result<(), Refused> {
        match self.config.mtu {
            Some(most) if mtu > most => {
                Err(Refused(format!("an MTU of {mtu} is more than the port's {most}")))
            }
            _ => Ok(()),
        }
    }

    fn set_channel(&mut self, channel: OwnedFd) {
        self.channel = Some(channel);
    }

    fn announce(&mut self, _address: [u8; 6]) {}

    fn needs_reset(&self) -> bool {
        self.broken().is_some()
    }
}
