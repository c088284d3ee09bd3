//! Mapper elements, which rewriters ask how to rewrite new flows.
use super::base::Used;
use super::key::FlowKey;
use super::pattern::{Pattern, parse_pattern};
use super::port_block_mapper::PortBlockMapper;
use super::round_robin_ip_mapper::RoundRobinIpMapper;
use super::source_ip_hash_mapper::SourceIpHashMapper;
use ringway_click::arg::Scope;
use ringway_click::prelude::*;
use ringway_wire::Protocol;

/// Tells a mapper which rewriter asks it.
pub(super) fn announce(mapper: ElementId, cx: &mut Context<'_>) {
    let own = cx.id();
    cx.with(mapper, |mapper: &mut PortBlockMapper, _| mapper.serve(own));
}

/// Asks a mapper how to rewrite a flow.
pub(super) fn ask(
    mapper: ElementId,
    (protocol, key): (Protocol, FlowKey),
    ping: bool,
    used: Used<'_>,
    cx: &mut Context<'_>,
) -> Option<(FlowKey, [u16; 2])> {
    if cx.element::<RoundRobinIpMapper>(mapper).is_some() {
        return cx.with(mapper, |mapper: &mut RoundRobinIpMapper, cx| mapper.rewrite(key, ping, used, cx))?;
    }
    if cx.element::<PortBlockMapper>(mapper).is_some() {
        return cx
            .with(mapper, |mapper: &mut PortBlockMapper, cx| mapper.rewrite(protocol, key, used, cx))?;
    }
    cx.with(mapper, |mapper: &mut SourceIpHashMapper, cx| mapper.rewrite(key, ping, used, cx))?
}

/// The output pairs that a mapper may return; `None` if the element is not a mapper.
pub(super) fn mapped_outputs(mapper: ElementId, cx: &Context<'_>) -> Option<Vec<[u16; 2]>> {
    let robin = cx.element::<RoundRobinIpMapper>(mapper).map(|mapper| mapper.outputs());
    let blocks = cx.element::<PortBlockMapper>(mapper).map(|mapper| mapper.outputs());
    robin.or(blocks).or_else(|| cx.element::<SourceIpHashMapper>(mapper).map(|mapper| mapper.outputs()))
}

/// Reads patterns with outputs, for mappers.
///
/// # Errors
/// The error in words.
pub(super) fn parse_patterns(texts: &[String], scope: &Scope) -> Result<Vec<(Pattern, [u16; 2])>, String> {
    texts.iter().map(|text| parse_pattern(text, scope, usize::MAX)).collect()
}
