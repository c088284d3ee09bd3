//! The notification policy.
//!
//! Every device has its own ring layout; this module decides about notifications. It has five policies, each
//! of which can be disabled ([`Policy`]): one notification per burst (*batch*); none while the other side is
//! about to check the ring anyway (*combine*); at most one per window (*moderate*); none that the other
//! side's flag declines (*suppress*); and enabling the other side's notifications only before going to sleep
//! (*poll*).

use core::sync::atomic::{Ordering, fence};

/// One side of a ring, for notifications.
pub trait View {
    /// Whether the other side has made something available that was not taken yet.
    fn pending(&mut self) -> bool;

    /// Stores the flag that tells the other side whether to notify us.
    fn set_flag(&mut self, wanted: bool);

    /// Notifies the other side of everything published so far; if `ask`, only if its flag asks for it.
    /// Returns whether it was notified. The caller has published and executed a full barrier before.
    fn notify(&mut self, ask: bool) -> bool;
}

/// The enabled policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Publish and notify once a burst, not once a frame.
    pub batch: bool,
    /// The longest delay of a notification because a reply is due, in nanoseconds; 0: none. The limit matters
    /// if the reply never comes.
    pub combine: u64,
    /// The window with at most one notification, in nanoseconds; 0: none.
    pub moderate: u64,
    /// Obey the other side's flag.
    pub suppress: bool,
    /// Disable the other side's notifications while awake.
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
    /// Something was published without notifying the other side.
    held: bool,
    /// No notification is sent before this time.
    quiet_until: u64,
    /// Time until which a reply is due, which notifies the other side implicitly.
    answer_until: u64,
    /// The last value of the flag that tells the other side whether to notify us.
    requested: Option<bool>,
}

impl Notifier {
    /// Nothing held back, nothing sent; the state of the flag is unknown.
    pub fn new(policy: Policy) -> Notifier {
        Notifier { policy, held: false, quiet_until: 0, answer_until: 0, requested: None }
    }

    /// The policy.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Whether to publish once a burst.
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
        if !self.held || now < self.quiet_until || now < self.answer_until {
            return false;
        }
        self.held = false;
        // Publishing must be visible before the flag is read: the other side stores its flag, then checks the
        // ring again.
        fence(Ordering::SeqCst);
        let sent = view.notify(self.policy.suppress);
        if sent {
            self.quiet_until = now.saturating_add(self.policy.moderate);
        }
        sent
    }

    /// A reply to the other side is due, after which it will check the ring. Until [`Notifier::answered`],
    /// notifications are held back, up to the policy's limit.
    #[inline]
    pub fn expect_answer(&mut self, now: u64) {
        if self.policy.combine > 0 && self.answer_until <= now {
            self.answer_until = now.saturating_add(self.policy.combine);
        }
    }

    /// The reply was sent. Returns whether the other side was notified of held publications.
    #[inline]
    pub fn answered(&mut self, now: u64, view: &mut impl View) -> bool {
        self.answer_until = 0;
        self.due(now, view)
    }

    /// Whether a notification is held back until a reply is sent.
    #[inline]
    pub fn waits_for_answer(&self) -> bool {
        self.held && self.answer_until > 0
    }

    /// When to call [`Notifier::due`] for a held notification.
    #[inline]
    pub fn next_due(&self) -> Option<u64> {
        self.held.then(|| self.quiet_until.max(self.answer_until))
    }

    /// Before sleep: enables notifications. `false`: something is already available, and they are disabled
    /// again.
    pub fn arm(&mut self, view: &mut impl View) -> bool {
        // Set even if already set: with event indices the newest index is needed.
        view.set_flag(true);
        self.requested = Some(true);
        // The other side publishes, then reads the flag; we set the flag, then check the ring: at least one
        // side sees the other's store.
        fence(Ordering::SeqCst);
        if !view.pending() {
            return true;
        }
        self.disarm(view);
        false
    }

    /// After sleep: disables notifications.
    #[inline]
    pub fn disarm(&mut self, view: &mut impl View) {
        let wanted = !self.policy.poll;
        if self.requested != Some(wanted) {
            view.set_flag(wanted);
            self.requested = Some(wanted);
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

        fn notify(&mut self, ask: bool) -> bool {
            let sent = !(ask && self.declines);
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
        assert_eq!(notifier.next_due(), Some(60), "a further answer doesn't move the bound");
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
        assert_eq!(peer.flag, Some(false), "off again, since somebody is awake");
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
