//! A worker's state for what only some ports and switches have: policy, flow tables, snooping, mirrors, and answers.

use super::Source;
use super::capture;
use super::flows::{Flows, Place};
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
    pub(super) flows: Flows,
    /// Copies of frames for the ports that mirror others, and those that flows made.
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
    /// Captures and mirrors a burst that has arrived. Answers did not: nobody sent them to this port.
    #[inline]
    pub(super) fn arrived(
        &mut self,
        port: &Port,
        source: &mut Source,
        burst: &Burst<'_>,
        at: (FlowHash, u64),
    ) {
        if source.answers.is_some() {
            return;
        }
        port.captures.iter().for_each(|point| capture::arrived(point, source, burst));
        if port.mirrors.is_some() {
            self.mirrored.get_mut().arrived(port, source, burst, at);
        }
    }

    /// Looks up the frames of a burst on a switch with policy or flow tables, and who gets those that are flooded. The
    /// last frames may leave the burst, for the next one.
    #[inline]
    pub(super) fn decide<'f>(
        &'f mut self,
        (topology, switch): (&Topology, Option<&Switch>),
        (port, source): (&Port, &mut Source),
        burst: &mut Burst<'f>,
        ((hash, now), verdicts): ((FlowHash, u64), &mut Verdicts),
    ) -> Decided<'f> {
        let Features { policing, pulled, scopes, mirrored, flows, answers } = self;
        let policed = switch.filter(|switch| switch.has_policies);
        if let Some(switch) = policed
            && let Some(lookup) = switch.lookup.flows()
        {
            let place = Place { topology, switch, lookup, port, times: (hash, now) };
            match source.answers {
                // Flows decide on frames of ports.
                Some(to) => verdicts[..burst.len()].fill(to),
                None => flows.look_up(&place, source, burst, (verdicts, mirrored.get_mut())),
            }
            return Decided { policing: None, scopes: None, mirrored, answers };
        }
        let policing = policed.map(|switch| {
            policing.look_up((topology, switch), (port, source), (burst, pulled), (now, verdicts))
        });
        source.keep_to_asker(&mut verdicts[..burst.len()]);
        let scopes = scopes.of(switch, (port, source.port), (burst, policing), (now, verdicts));
        Decided { policing, scopes, mirrored, answers }
    }
}
