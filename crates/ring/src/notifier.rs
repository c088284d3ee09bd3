//! When not to notify.
//!
//! Every device keeps its own ring; what it does about notifications is decided here. Five habits, each of which can
//! be left out by itself ([`Policy`]): one notification a burst (*batch*), none while the other side is about to look
//! anyway (*combine*), not more than one in a window (*moderate*), none that the other side's flag declines
//! (*suppress*), and asking for the other side's only when going to sleep (*poll*).

use core::sync::atomic::{Ordering, fence};

/// One side of a ring, as far as notifications go.
pub trait View {
    /// Whether the other side has made something available that we have not taken yet.
    fn pending(&mut self) -> bool;

    /// Stores the flag by which the other side knows whether to notify us.
    fn set_flag(&mut self, wanted: bool);

    /// Notifies the other side of everything published so far; if `ask`, only when its flag says so. Returns whether
    /// it was notified. What was published and a full barrier come before.
    fn notify(&mut self, ask: bool) -> bool;
}

/// Which habits are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Publish and notify once a burst, not once a frame.
    pub batch: bool,
    /// The longest that a notification is held back because an answer is due, in nanoseconds; 0: never. The bound
    /// matters where the answer never comes.
    pub combine: u64,
    /// The window that has one notification at most, in nanoseconds; 0: none.
    pub moderate: u64,
    /// Heed the other side's flag.
    pub suppress: bool,
    /// Turn the other side's notifications off while awake.
    pub poll: bool,
}

impl Default for Policy {
    /// What costs nobody any latency.
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
    /// Something is published that the other side was not told of.
    held: bool,
    /// Before this time nothing is sent.
    quiet_until: u64,
    /// Until when an answer is due that tells the other side without a notification.
    answer_until: u64,
    /// Whether the other side was last told to notify us.
    asked: Option<bool>,
}

impl Notifier {
    /// Nothing held, nothing sent; what the other side's flag says is unknown.
    pub fn new(policy: Policy) -> Notifier {
        Notifier { policy, held: false, quiet_until: 0, answer_until: 0, asked: None }
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

    /// Something was published. Returns whether the other side was notified.
    #[inline]
    pub fn published(&mut self, now: u64, view: &mut impl View) -> bool {
        self.held = true;
        self.due(now, view)
    }

    /// Sends what is held back, if its time has come. Returns whether the other side was notified.
    #[inline]
    pub fn due(&mut self, now: u64, view: &mut impl View) -> bool {
        if !self.held || now < self.quiet_until || now < self.answer_until {
            return false;
        }
        self.held = false;
        // What was published must be seen before the flag is read: the other side stores its flag, then looks again.
        fence(Ordering::SeqCst);
        let sent = view.notify(self.policy.suppress);
        if sent {
            self.quiet_until = now.saturating_add(self.policy.moderate);
        }
        sent
    }

    /// The other side will look at the ring soon, since an answer to it is due; until that came
    /// ([`Notifier::answered`]) notifications wait, though not longer than the policy's bound.
    #[inline]
    pub fn expect_answer(&mut self, now: u64) {
        if self.policy.combine > 0 && self.answer_until <= now {
            self.answer_until = now.saturating_add(self.policy.combine);
        }
    }

    /// The answer came. Returns whether the other side was notified of what was held meanwhile.
    #[inline]
    pub fn answered(&mut self, now: u64, view: &mut impl View) -> bool {
        self.answer_until = 0;
        self.due(now, view)
    }

    /// Whether something is held back until an answer comes.
    #[inline]
    pub fn waits_for_answer(&self) -> bool {
        self.held && self.answer_until > 0
    }

    /// When [`Notifier::due`] is to be called for what is held back.
    #[inline]
    pub fn next_due(&self) -> Option<u64> {
        self.held.then(|| self.quiet_until.max(self.answer_until))
    }

    /// Before sleep: asks for notifications. `false`: there is something to do already, and they are off again.
    pub fn arm(&mut self, view: &mut impl View) -> bool {
        // Set even if it was set before: a ring that asks by index wants the newest.
        view.set_flag(true);
        self.asked = Some(true);
        // The other side publishes, then reads the flag; we set the flag, then look: one of us sees the other.
        fence(Ordering::SeqCst);
        if !view.pending() {
            return true;
        }
        self.disarm(view);
        false
    }

    /// After sleep: notifications are not needed.
    #[inline]
    pub fn disarm(&mut self, view: &mut impl View) {
        let wanted = !self.policy.poll;
        if self.asked != Some(wanted) {
            view.set_flag(wanted);
            self.asked = Some(wanted);
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
    fn by_default_what_is_published_is_told_at_once_to_whom_it_may_concern() {
        let (mut notifier, mut peer) = (Notifier::new(Policy::default()), Peer::default());
        assert!(notifier.published(0, &mut peer));
        peer.declines = true;
        assert!(!notifier.published(0, &mut peer));
        assert_eq!((peer.notified, notifier.next_due()), (1, None));
        let mut blunt = Notifier::new(Policy { suppress: false, ..Policy::default() });
        assert!(blunt.published(0, &mut peer));
    }

    #[test]
    fn a_window_has_one_notification_and_none_is_lost() {
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
    fn a_doorbell_waits_for_an_answer_but_not_for_ever() {
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
    fn what_comes_while_the_flag_is_set_is_seen() {
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
    fn a_flag_is_stored_when_it_changes() {
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
