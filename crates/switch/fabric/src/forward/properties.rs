//! Properties of a burst, determined before it is delivered.

use super::ETHERNET;
use ringway_frame::{Burst, Caps, Needs};
use ringway_switch::{NOWHERE, Verdicts};

/// Properties of all frames of a burst.
#[derive(Clone, Copy)]
pub(super) struct Properties {
    needs: Needs,
    longest: u32,
}

impl Properties {
    pub(super) fn of(burst: &Burst<'_>, verdicts: &mut Verdicts) -> (Properties, u64) {
        let bounds = burst.bounds();
        if !bounds.has_offload && bounds.shortest >= ETHERNET {
            return (Properties { needs: Needs::NONE, longest: bounds.longest }, burst.bytes() as u64);
        }
        let mut properties = Properties { needs: Needs::NONE, longest: 0 };
        let mut bytes = 0;
        for (index, verdict) in verdicts.iter_mut().enumerate().take(burst.len()) {
            let meta = burst.meta(index);
            properties.needs = properties.needs.with(meta.offload.needs());
            properties.longest = properties.longest.max(meta.len);
            bytes += u64::from(meta.len);
            if meta.len < ETHERNET {
                *verdict = NOWHERE;
            }
        }
        (properties, bytes)
    }

    /// The properties of frames none of which is short.
    pub(super) fn of_all(burst: &Burst<'_>) -> Properties {
        let bounds = burst.bounds();
        let mut needs = Needs::NONE;
        if bounds.has_offload {
            needs = (0..burst.len()).fold(needs, |all, frame| all.with(burst.meta(frame).offload.needs()));
        }
        Properties { needs, longest: bounds.longest }
    }

    #[inline]
    pub(super) fn suits(&self, caps: &Caps) -> bool {
        caps.offloads.covers(self.needs) && self.longest <= caps.largest
    }
}
