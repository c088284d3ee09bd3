//! A worker's state for what only some ports and switches have: policy, snooping and mirrors, and for answers.

use super::Source;
use super::mirror::MirrorCopies;
use super::multicast::Scopes;
use super::path_mtu::Answers;
use super::policing::{Policing, Pulled};
use crate::topology::{Port, Switch, Topology};
use ringway_frame::Burst;
use ringway_switch::{FlowHash, Verdicts};
use std::cell::RefCell;

/// That state.
#[derive(Default)]
pub(super) struct Features {
    pub(super) policing: Policing,
    pub(super) pulled: Pulled,
    pub(super) scopes: Scopes,
    /// Copies for the ports that mirror others.
    pub(super) mirrored: RefCell<MirrorCopies>,
    /// Answers to frames that were too long.
    pub(super) answers: RefCell<Answers>,
}

/// What they decided on a burst.
#[derive(Clone, Copy)]
pub(super) struct Decided<'f> {
    /// What the switch lets its ports send and receive, if not everything.
    pub(super) policing: Option<&'f Policing>,
    /// The ports that get flooded frames, if not all do.
    pub(super) scopes: Option<&'f Scopes>,
    pub(super) mirrored: &'f RefCell<MirrorCopies>,
    pub(super) answers: &'f RefCell<Answers>,
}

impl Features {
    /// Mirrors a burst that has arrived.
    #[inline]
    pub(super) fn arrived(
        &mut self,
        port: &Port,
        source: &mut Source,
        burst: &Burst<'_>,
        at: (FlowHash, u64),
    ) {
        if port.mirrors.is_some() {
            self.mirrored.get_mut().arrived(port, source, burst, at);
        }
    }

    /// Looks up the frames of a burst on a switch with policy, and who gets those that are flooded.
    #[inline]
    pub(super) fn decide<'f>(
        &'f mut self,
        (topology, switch): (&Topology, Option<&Switch>),
        (port, source): (&Port, &Source),
        burst: &mut Burst<'f>,
        (now, verdicts): (u64, &mut Verdicts),
    ) -> Decided<'f> {
        let Features { policing, pulled, scopes, mirrored, answers } = self;
        let policed = switch.filter(|switch| switch.has_policies);
        let policing = policed.map(|switch| {
            policing.look_up((topology, switch), (port, source), (burst, pulled), (now, verdicts))
        });
        source.keep_to_asker(&mut verdicts[..burst.len()]);
        let scopes = scopes.of(switch, (port, source.port), (burst, policing), (now, verdicts));
        Decided { policing, scopes, mirrored, answers }
    }
}
