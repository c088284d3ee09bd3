//! The notification policy.
//!
//! Each device has its own ring layout; this module decides when to notify. [`Policy`] has five parts, each
//! of which can be disabled: one notification per burst (*batch*); none while the other side is about to
//! check the ring anyway (*combine*); at most one per time window (*moderate*); none while the other side's
//! flag disables them (*suppress*); and enabling the other side's notifications only before sleeping
//! (*poll*).

use ringway_mem::sync::{Ordering, fence};

/// One side of a ring, for notifications.
pub trait View {
    /// Whether the other side made something available that was not taken yet.
    fn pending(&mut self) -> bool;

    /// Stores the flag that enables or disables the other side's notifications.
    fn set_flag(&mut self, wanted: bool);

    /// Notifies the other side of everything published so far; if `check_flag`, only if its flag enables
    /// notifications. Returns whether it was notified. The caller has published and then executed a full
    /// barrier.
    fn notify(&mut self, check_flag: bool) -> bool;
}

/// The enabled policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Publish and notify once per burst, not once per frame.
    pub batch: bool,
    /// How long a notification waits for a reply that replaces it, in nanoseconds at most; 0 disables this.
    pub combine: u64,
    /// The window with at most one notification, in nanoseconds; 0 disables this.
    pub moderate: u64,
    /// Don't notify while the other side's flag disables it.
    pub suppress: bool,
    /// Disable the other side's notifications while polling.
    pub poll: bool,
}

impl Default for Policy {
    /// The policies that add no latency.
    fn default() -> Policy {
        Policy { batch: true, combine: 0, moderate: 0, suppress: true, poll: true }
    }
}

impl Policy {
    /// A notification for each frame, in both directions.
    pub const NONE: Policy = Policy { batch: false, combine: 0, moderate: 0, suppress: false, poll: false };
}

/// The state of the policy for one side of one ring. Times are nanoseconds of the turn's clock.
#[derive(Clone, Copy, Debug)]
pub struct Notifier {
    policy: Policy,
    /// Whether something was published without a notification.
    held: bool,
    /// No notification is sent before this time.
    quiet_until: u64,
    /// Time until which notifications wait for a reply.
    reply_until: u64,
    /// The last value of the flag that enables the other side's notifications; `None` if unknown.
    flag: Option<bool>,
}

impl Notifier {
    /// A notifier without pending notifications.
    pub fn new(policy: Policy) -> Notifier {
        Notifier { policy, held: false, quiet_until: 0, reply_until: 0, flag: None }
    }

    /// The policy.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Whether to publish once per burst.
    #[inline]
    pub fn batches(&self) -> bool {
        self.policy.batch
    }

    /// Call after publishing. Returns whether the other side was notified.
    #[inline]
    pub fn published(&mut self, now: u64, view: &mut impl View) -> bool {
        self.held = true;
        self.due(now, view)
    }

    /// Sends a held notification that is due. Returns whether the other side was notified.
    #[inline]
    pub fn due(&mut self, now: u64, view: &mut impl View) -> bool {
        if !self.held || now < self.quiet_until || now < self.reply_until {
            return false;
        }
        self.held = false;
        // The published entries must be visible before the flag is read: the other side stores its flag, then
        // checks the ring.
        fence(Ordering::SeqCst);
        let sent = view.notify(self.policy.suppress);
        if sent {
            self.quiet_until = now.saturating_add(self.policy.moderate);
        }
        sent
    }

    /// Call when a reply to the other side is due, after which it checks the ring. Notifications are held
    /// until [`Notifier::answered`], at most for the policy's limit.
    #[inline]
    pub fn expect_answer(&mut self, now: u64) {
        if self.policy.combine > 0 && self.reply_until <= now {
            self.reply_until = now.saturating_add(self.policy.combine);
        }
    }

    /// Call when the reply was sent. Sends a held notification; returns whether the other side was notified.
    #[inline]
    pub fn answered(&mut self, now: u64, view: &mut impl View) -> bool {
        self.reply_until = 0;
        self.due(now, view)
    }

    /// Whether a notification is held until a reply is sent.
    #[inline]
    pub fn waits_for_answer(&self) -> bool {
        self.held && self.reply_until > 0
    }

    /// When to call [`Notifier::due`] for a held notification.
    #[inline]
    pub fn next_due(&self) -> Option<u64> {
        self.held.then(|| self.quiet_until.max(self.reply_until))
    }

    /// Call before sleeping: enables the other side's notifications. Returns `false`, with notifications
    /// disabled again, if something is already available.
    pub fn arm(&mut self, view: &mut impl View) -> bool {
        // Set even if already set: with event indices, the flag is the newest index.
        view.set_flag(true);
        self.flag = Some(true);
        // The other side publishes, then reads the flag; we set the flag, then check the ring. At least one
        // side sees the other's store.
        fence(Ordering::SeqCst);
        if !view.pending() {
            return true;
        }
        self.disarm(view);
        false
    }

    /// Call after sleeping: disables the other side's notifications.
    #[inline]
    pub fn disarm(&mut self, view: &mut impl View) {
        let enabled = !self.policy.poll;
        if self.flag != Some(enabled) {
            view.set_flag(enabled);
            self.flag = Some(enabled);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Peer {
        pending: bool,
        comes_while_arming: bool,
        flag: Option<bool>,
        declines: bool,
        notified: usize,
    }

    impl View for Peer {
        fn pending(&mut self) -> bool {
            self.pending |= core::mem::take(&mut self.comes_while_arming);
            self.pending
        }

        fn set_flag(&mut self, wanted: bool) {
            self.flag = Some(wanted);
        }

        fn notify(&mut self, check_flag: bool) -> bool {
            let sent = !(check_flag && self.declines);
            self.notified += usize::from(sent);
            sent
        }
    }

    #[test]
    fn by_default_publishing_notifies_at_once_unless_declined() {
        let (mut notifier, mut peer) = (Notifier::new(Policy::default()), Peer::default());
        assert!(notifier.published(0, &mut peer));
        peer.declines = true;
        assert!(!notifier.published(0, &mut peer));
        assert_eq!((peer.notified, notifier.next_due()), (1, None));
        let mut blunt = Notifier::new(Policy { suppress: false, ..Policy::default() });
        assert!(blunt.published(0, &mut peer));
    }

    #[test]
    fn moderation_sends_one_notification_per_window_and_loses_none() {
        let policy = Policy { moderate: 100, ..Policy::default() };
        let (mut notifier, mut peer) = (Notifier::new(policy), Peer::default());
        assert!(notifier.published(1000, &mut peer));
        assert!(!notifier.published(1010, &mut peer));
        assert!(!notifier.published(1099, &mut peer));
        assert_eq!(notifier.next_due(), Some(1100));
        assert!(!notifier.due(1099, &mut peer));
        assert!(notifier.due(1100, &mut peer));
        assert_eq!(notifier.next_due(), None);
        assert!(!notifier.due(1300, &mut peer), "nothing is held");
    }

    #[test]
    fn a_declined_notification_opens_no_window() {
        let policy = Policy { moderate: 100, ..Policy::default() };
        let (mut notifier, mut peer) = (Notifier::new(policy), Peer { declines: true, ..Peer::default() });
        assert!(!notifier.published(1000, &mut peer));
        peer.declines = false;
        assert!(notifier.published(1001, &mut peer));
    }

    #[test]
    fn combining_holds_a_notification_until_the_reply_or_the_limit() {
        let policy = Policy { combine: 50, ..Policy::default() };
        let (mut notifier, mut peer) = (Notifier::new(policy), Peer::default());
        notifier.expect_answer(10);
        assert!(!notifier.published(20, &mut peer));
        notifier.expect_answer(40);
        assert_eq!(notifier.next_due(), Some(60), "a further reply doesn't extend the limit");
        assert!(notifier.answered(45, &mut peer));
        notifier.expect_answer(100);
        assert!(!notifier.published(101, &mut peer));
        assert!(notifier.due(150, &mut peer));
        let mut eager = Notifier::new(Policy::default());
        eager.expect_answer(10);
        assert!(eager.published(11, &mut peer));
    }

    #[test]
    fn work_that_arrives_while_arming_is_seen() {
        let (mut notifier, mut peer) = (Notifier::new(Policy::default()), Peer::default());
        assert!(notifier.arm(&mut peer));
        assert_eq!(peer.flag, Some(true));
        notifier.disarm(&mut peer);
        assert_eq!(peer.flag, Some(false));
        peer.comes_while_arming = true;
        assert!(!notifier.arm(&mut peer));
        assert_eq!(peer.flag, Some(false), "disabled again");
    }

    #[test]
    fn the_flag_is_stored_only_when_it_changes() {
        let (mut notifier, mut peer) = (Notifier::new(Policy::default()), Peer::default());
        notifier.disarm(&mut peer);
        assert_eq!(peer.flag.take(), Some(false));
        notifier.disarm(&mut peer);
        assert_eq!(peer.flag, None);
        assert!(Notifier::new(Policy::NONE).arm(&mut peer));
        let mut never_polls = Notifier::new(Policy::NONE);
        never_polls.disarm(&mut peer);
        assert_eq!(peer.flag, Some(true));
    }
}
