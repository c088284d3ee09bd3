//! What a link would do with a frame.

use super::settings::{Settings, Wrong};
use super::stored::Stored;
use ringway_frame::Offload;
use ringway_link::{Delay, Frame};

/// What one direction of a link would do with a frame, as far as its settings say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Preview {
    /// Whether the frame is longer than the MTU, and so dropped.
    pub is_long: bool,
    /// Nanoseconds that it takes to send it at the link's rate.
    pub sending: u64,
    /// Nanoseconds that it takes to send what waits before it.
    pub queueing: u64,
    /// Mean delay in nanoseconds.
    pub delay: u64,
    /// The deviation from it, as the settings have it.
    pub jitter: u64,
    /// Share of frames that are lost.
    pub loss: f64,
    /// Share that is marked Congestion Experienced, if the transport is capable of it.
    pub mark: f64,
    /// Share that arrives with an inverted bit.
    pub corrupt: f64,
    /// Share that arrives twice.
    pub duplicate: f64,
}

impl Settings {
    /// What the link would do with a frame now that `queued` bytes wait before it.
    ///
    /// # Errors
    /// A wrong value.
    pub fn preview(&self, frame: &[u8], queued: u64) -> Result<Preview, Wrong> {
        let (profile, _) = self.profile()?;
        let stored = Stored { bytes: frame.to_vec(), offload: Offload::default(), arrived: 0 };
        let size = stored.len().saturating_sub(stored.link_header());
        let jitter = match &profile.delay {
            Delay::Constant(_) | Delay::Trace(_) => 0,
            Delay::Uniform { jitter, .. } | Delay::Normal { jitter, .. } | Delay::Pareto { jitter, .. } => {
                *jitter
            }
        };
        Ok(Preview {
            is_long: profile.mtu.is_some_and(|mtu| size > mtu as usize),
            sending: profile.serialization_time(stored.len()),
            queueing: match queued {
                0 => 0,
                bytes => profile.serialization_time(usize::try_from(bytes).unwrap_or(usize::MAX)),
            },
            delay: profile.delay.mean(),
            jitter,
            loss: profile.loss.mean(),
            mark: profile.mark,
            corrupt: profile.corrupt,
            duplicate: profile.duplicate,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preview(values: &[(&str, &str)], bytes: usize, queued: u64) -> Preview {
        let text = |(key, value): &(&str, &str)| (key.to_string(), value.to_string());
        let settings = Settings(values.iter().map(text).collect());
        settings.preview(&vec![0; bytes], queued).unwrap()
    }

    #[test]
    fn a_preview_has_what_the_settings_say() {
        assert_eq!(preview(&[], 1500, 9), Preview::default());
        let slow =
            [("rate", "12mbit"), ("delay", "20ms"), ("jitter", "2ms"), ("loss", "1%"), ("mtu", "1486")];
        let seen = preview(&slow, 1500, 3000);
        assert_eq!(
            (seen.sending, seen.queueing, seen.delay, seen.jitter),
            (1_000_000, 2_000_000, 20_000_000, 2_000_000)
        );
        assert_eq!((seen.loss, seen.is_long), (0.01, false));
        assert!(preview(&slow, 1501, 0).is_long);
    }
}
