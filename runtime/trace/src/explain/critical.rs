//! The critical path: backwards from the end of a span, always to the child that ended last before.

use super::Segment;
use super::index::{Index, is_call, wait_ns};
use crate::Stage;
use crate::event::PHASES_MAX;
use crate::events::Event;
use crate::record::{Body, Span, flags};

/// Appends the pieces of [from, to) of a span, whose parts add up to `to - from`.
pub(super) fn path(index: &Index<'_>, position: u32, window: (i64, i64), out: &mut Vec<Segment>) {
    let event = index.event(position);
    if is_call(&event)
        && let Body::Span(span) = &event.record.body
    {
        return call(index, &event, span, window, out);
    }
    let (from, to) = window;
    let own = |start: i64, end: i64| piece(index.stage(&event), &event, (start, end));
    let mut at = to;
    // By end, so the last one is the candidate; a child that reaches beyond `at` ran beside one
    // that has been taken.
    let mut rest: &[u32] = index.children(position);
    while let Some((child, before)) = rest.split_last() {
        rest = before;
        let (start, end) = (index.start_ns(*child).max(from), index.end_ns(*child).min(at));
        if start >= end {
            continue;
        }
        out.push(own(end, at));
        path(index, *child, (start, end), out);
        at = start;
        // Of those that reach beyond `at` the order by end says nothing any more: the one that
        // began first covers the others.
        let beyond = rest.partition_point(|child| index.end_ns(*child) < at);
        if let Some(longest) = rest[beyond..].iter().copied().min_by_key(|child| index.start_ns(*child)) {
            let start = index.start_ns(longest).max(from);
            if start < at {
                path(index, longest, (start, at), out);
                at = start;
            }
        }
        rest = &rest[..beyond];
    }
    out.push(own(from, at));
}

fn piece(stage: Stage, event: &Event, (start, end): (i64, i64)) -> Segment {
    Segment {
        stage,
        node: event.node,
        peer: None,
        event: event.record.event,
        phase: None,
        start_ns: start,
        dur_ns: (end - start).max(0) as u64,
        storage_ns: Default::default(),
    }
}

/// One attempt of a request: send queue, way there, the server's phases, way back. The time on the
/// way is what neither side explains, so it needs no common clock; only how it is divided into
/// there and back does.
fn call(index: &Index<'_>, event: &Event, span: &Span, window: (i64, i64), out: &mut Vec<Segment>) {
    let message = |stage, start: i64, dur_ns: u64| {
        let segment = piece(stage, event, (start, start.saturating_add_unsigned(dur_ns)));
        Segment { peer: Some(span.peer), ..segment }
    };
    let mut whole = Vec::new();
    let wait_ns = wait_ns(event, span);
    whole.push(message(Stage::SendQueue, event.start_ns, wait_ns));
    let sent = event.start_ns.saturating_add_unsigned(wait_ns);
    let left = event.dur_ns - wait_ns;
    match index.staged_span(event) {
        // Given up, and its server has no record of it: it was not answered, whoever recorded.
        None if event.record.flags & flags::OPEN != 0 => whole.push(message(Stage::NoAnswer, sent, left)),
        None => {
            index.note_unseen(span);
            whole.push(message(Stage::Unseen, sent, left));
        }
        Some(position) => {
            let staged_span = index.event(position);
            let served = staged_span.dur_ns.min(left);
            let way = left - served;
            let there = (staged_span.start_ns - sent).clamp(0, way as i64) as u64;
            let begin = sent.saturating_add_unsigned(there);
            let queued = index.queued_ns(event, span.peer, &staged_span, sent, begin).min(there);
            let arrived = sent.saturating_add_unsigned(there - queued);
            whole.push(message(Stage::Network, sent, there - queued));
            whole.push(piece(Stage::ServerQueue, &staged_span, (arrived, begin)));
            let before = whole.len();
            phases(index, position, span.peer, begin, served, &mut whole);
            // What comes and goes for the request while it is at the server is on the way between
            // the two as well.
            for segment in &mut whole[before..] {
                if segment.stage == Stage::Network && segment.peer.is_none() && segment.node == staged_span.node {
                    (segment.node, segment.peer) = (event.node, Some(span.peer));
                }
            }
            whole.push(message(Stage::Network, begin.saturating_add_unsigned(served), way - there));
        }
    }
    out.extend(whole.into_iter().filter_map(|segment| clip(segment, window)));
}

/// The part of a segment that lies in a window.
fn clip(segment: Segment, (from, to): (i64, i64)) -> Option<Segment> {
    let start = segment.start_ns.max(from);
    let end = segment.start_ns.saturating_add_unsigned(segment.dur_ns).min(to);
    (start < end).then(|| {
        let dur_ns = (end - start) as u64;
        Segment { start_ns: start, dur_ns, storage_ns: segment.storage_ns.map(|ns| ns.min(dur_ns)), ..segment }
    })
}

/// The phases of a server's record from `begin` on, together `served` nanoseconds. What the server
/// recorded inside it (requests to other servers, waits) is taken out of them, and disk accesses of
/// this request out of the phase in which the processor would otherwise be said to work, or the
/// request to wait.
fn phases(index: &Index<'_>, position: u32, server: u16, begin: i64, served: u64, out: &mut Vec<Segment>) {
    let staged_span = index.event(position);
    let Body::StagedSpan(body) = &staged_span.record.body else { return };
    let total: u64 = body.phases.iter().map(|phase| u64::from(*phase)).sum();
    let info = index.info(staged_span.node, staged_span.record.event);
    // Distances to the record's own beginning survive a wrong clock offset.
    let shift = begin - staged_span.start_ns;
    let (mut at, mut units) = (begin, 0u64);
    for (phase, length) in body.phases.iter().enumerate().take(PHASES_MAX) {
        units += u64::from(*length);
        // From the sum, so that rounding does not add up.
        let end = begin.saturating_add_unsigned((u128::from(served) * u128::from(units) / u128::from(total.max(1))) as u64);
        let stage = info.and_then(|info| info.parts.get(phase)).map_or(Stage::Unseen, |part| part.stage);
        let mut segment = piece(stage, &staged_span, (at, end));
        (segment.peer, segment.phase) = (Some(server), Some(phase as u8));
        if stage == Stage::Journal {
            segment.storage_ns = index.storage_ns(staged_span.node, at - shift, end - shift);
            out.push(segment);
        } else {
            with_inner(index, position, segment, shift, out);
        }
        at = end;
    }
}

/// A phase with what happened inside it taken out: of things at the same time the one that ends
/// last counts. `shift` leads from the times of the server's record to those of the phase.
fn with_inner(index: &Index<'_>, staged_span: u32, phase: Segment, shift: i64, out: &mut Vec<Segment>) {
    let (node, request) = (phase.node, index.event(staged_span).record.req);
    let disks = index.disks(node, request);
    let disks = disks.filter(|_| request != 0 && matches!(phase.stage, Stage::Cpu | Stage::ServerQueue));
    let mut inner: Vec<u32> = disks.chain(index.children(staged_span).iter().copied()).collect();
    inner.sort_by_key(|position| index.end_ns(*position));
    let from = phase.start_ns;
    let mut at = from.saturating_add_unsigned(phase.dur_ns);
    for position in inner.into_iter().rev() {
        let event = index.event(position);
        let (start, end) = ((event.start_ns + shift).max(from), (event.end_ns() + shift).min(at));
        if start < end {
            out.push(Segment { start_ns: end, dur_ns: (at - end) as u64, ..phase });
            if super::of_node::is_disk(event.record.event) {
                // Its first part it may have spent in the cache layer, behind others.
                let begun = match &event.record.body {
                    Body::Span(span) => (event.start_ns + shift).saturating_add_unsigned(wait_ns(&event, span)).clamp(start, end),
                    _ => start,
                };
                out.push(Segment { peer: phase.peer, ..piece(index.stage(&event), &event, (begun, end)) });
                out.push(Segment { peer: phase.peer, ..piece(Stage::ServerQueue, &event, (start, begun)) });
            } else {
                let before = out.len();
                path(index, position, (start - shift, end - shift), out);
                out[before..].iter_mut().for_each(|segment| segment.start_ns += shift);
            }
            at = start;
        }
    }
    out.push(Segment { start_ns: from, dur_ns: (at - from) as u64, ..phase });
}
