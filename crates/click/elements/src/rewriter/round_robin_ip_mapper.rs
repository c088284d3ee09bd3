//! `RoundRobinIPMapper(PATTERN1, PATTERN2, ...)`: assigns rewriters' new flows to patterns in turn.
//!
//! Ports: none.
//!
//! Arguments: patterns with two outputs each, `SADDR SPORT DADDR DPORT FOUTPUT ROUTPUT`, as for rewriters.
//!
//! No handlers.
use super::base::Used;
use super::key::FlowKey;
use super::mapper::parse_patterns;
use super::pattern::Pattern;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("RoundRobinIPMapper", || Box::<RoundRobinIpMapper>::default());

#[derive(Debug, Default)]
pub struct RoundRobinIpMapper {
    patterns: Vec<(Pattern, [u16; 2])>,
    next: usize,
}

impl RoundRobinIpMapper {
    /// The output pairs that this mapper may return.
    pub(super) fn outputs(&self) -> Vec<[u16; 2]> {
        self.patterns.iter().map(|(_, outputs)| *outputs).collect()
    }

    /// The rewritten key of a flow, and its outputs.
    pub(super) fn rewrite(
        &mut self,
        key: FlowKey,
        ping: bool,
        used: Used<'_>,
        cx: &mut Context<'_>,
    ) -> Option<(FlowKey, [u16; 2])> {
        for _ in 0..self.patterns.len() {
            let at = self.next % self.patterns.len();
            self.next = at + 1;
            let (pattern, outputs) = self.patterns.get_mut(at)?;
            if let Some(rewritten) = pattern.rewrite(key, ping, used, cx) {
                return Some((rewritten, *outputs));
            }
        }
        None
    }
}

impl Element for RoundRobinIpMapper {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let texts = args.take_rest();
        match texts.len() {
            0 => return Err(cx.error("no patterns given")),
            1 => cx.warning("only one pattern given"),
            _ => {}
        }
        self.patterns = parse_patterns(&texts, &cx.scope()).map_err(|error| cx.error(error))?;
        args.complete()
    }

    fn cast(&self, kind: &str) -> bool {
        kind == "IPMapper"
    }
}
