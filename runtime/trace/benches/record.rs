//! What recording costs: `cargo bench -p weft-trace`, alone on the machine or under `chrt -f 10`.
//!
//! Each row is the smallest of several rounds of a tight loop, in nanoseconds a call and as a ratio
//! to the same loop with a call of an empty function. Smallest, because everything that disturbs
//! only adds.

#![allow(clippy::disallowed_methods)] // a benchmark measures real time

use std::hint::black_box;
use std::time::Instant;

use weft_trace::event::{self, served};
use weft_trace::latency::Latency;
use weft_trace::{Clock, Mask, Mode, Tracer, TracerConfig, operation, set_process_tracer, span, staged_span};

const CALLS: u32 = 1_000_000;
const ROUNDS: u32 = 15;

fn main() {
    let tracer = Tracer::new(TracerConfig::new(Mode::Flight, Clock::Tsc));
    set_process_tracer(Some(&tracer));
    let empty = measure(empty_call);
    println!("{:<44} {:>8} {:>8}", "", "ns", "ratio");
    let row = |name: &str, ns: f64| println!("{name:<44} {ns:>8.2} {:>8.2}", ns / empty);
    row("empty call", empty);
    row("time stamp counter", measure(|_| weft_trace::tsc::ticks()));
    row("system clock", measure(|_| Instant::now().elapsed().as_nanos() as u64) / 2.0);
    row("span, off", measure(|i| u64::from(one_span(i))));
    row("staged_span, off", measure(|i| u64::from(one_staged_span(i))));
    tracer.set_mask(Mask::ALL);
    let before = tracer.stats().written;
    let on = measure(|i| u64::from(one_span(i)));
    assert_eq!(tracer.stats().written - before, u64::from(CALLS) * u64::from(ROUNDS), "every span was written");
    row("span, on", on);
    row("operation, on", measure(|i| u64::from(one_operation(i))));
    row("staged_span of five phases, on", measure(|i| u64::from(one_staged_span(i))));
    let shared = measure(|i| u64::from(one_staged_span_with_shared_times(i)));
    row("staged_span of five phases, times shared, on", shared);
    row("staged_span that leaves with its reply, on", measure(|i| u64::from(one_staged_span_that_leaves(i))));
    row("call that knows when it was sent, on", measure(|i| u64::from(one_call(i))));
    let mut latency = Latency::default();
    row("latency entry, one bin", measure(|_| latency.record(black_box(37_000))));
    row("latency entry, changing bins", measure(|i| latency.record(black_box(u64::from(i) << (i & 15)))));
    black_box(latency.count());
}

#[inline(never)]
fn empty_call(i: u32) -> u64 {
    black_box(u64::from(i))
}

#[inline(never)]
fn one_span(i: u32) -> bool {
    let mut span = span(event::NET_CALL);
    span.request(u64::from(i)).peer(3);
    span.is_on()
}

#[inline(never)]
fn one_operation(i: u32) -> bool {
    let mut span = operation(event::CLIENT_CREATE);
    span.object(u64::from(i));
    span.is_on()
}

const PHASES: [usize; 5] = [served::QUEUE, served::LOCK, served::CPU, served::JOURNAL, served::SEND];

#[inline(never)]
fn one_staged_span(i: u32) -> bool {
    let mut request = staged_span(event::META_CREATE);
    request.request(u64::from(i), 17, 0);
    if request.is_on() {
        PHASES.into_iter().for_each(|phase| request.phase(phase, weft_trace::now()));
    }
    request.is_on()
}

/// As in a server's turn, where all requests share the times of the commit and of the sending.
#[inline(never)]
fn one_staged_span_with_shared_times(i: u32) -> bool {
    let mut request = staged_span(event::META_CREATE);
    request.request(u64::from(i), 17, 0);
    let now = weft_trace::now();
    PHASES.into_iter().for_each(|phase| request.phase(phase, black_box(now)));
    request.is_on()
}

/// The same, and the reply takes the staged span along.
#[inline(never)]
fn one_staged_span_that_leaves(i: u32) -> bool {
    let mut request = staged_span(event::META_CREATE);
    request.request(u64::from(i), 17, 0);
    let now = weft_trace::now();
    [served::QUEUE, served::CPU, served::JOURNAL].into_iter().for_each(|phase| request.phase(phase, black_box(now)));
    request.leave();
    let Some(leaving) = weft_trace::take_leaving() else { return false };
    leaving.end_with(served::SEND, black_box(now));
    true
}

#[inline(never)]
fn one_call(i: u32) -> bool {
    let mut call = span(event::NET_CALL);
    call.request(u64::from(i)).peer(3);
    weft_trace::note_way(black_box(u64::from(i) + 1), 0);
    call.answered();
    call.is_on()
}

fn measure<T>(mut call: impl FnMut(u32) -> T) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        for i in 0..CALLS {
            black_box(call(black_box(i)));
        }
        best = best.min(begin.elapsed().as_nanos() as f64 / f64::from(CALLS));
    }
    best
}
