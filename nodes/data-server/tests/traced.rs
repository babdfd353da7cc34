//! What trace records say of the disk of a data server: how far it had to seek, how long the cache
//! layer let a request wait, how much there is to do.

mod common;

use common::{Cluster, Peer, config};
use weft_base::MILLISECOND;
use weft_data_server::{CacheConfig, DataServerConfig};
use weft_rt::join_all;
use weft_rt_sim::Profile;
use weft_sched::LayerKind;
use weft_sched::improved::DiskCost;
use weft_trace::file::TraceFile;
use weft_trace::record::{Body, Span, TraceRecord, class};
use weft_trace::{EventId, Mask, event};

const MIB: u64 = 1 << 20;

/// The records of the server's node while `work` ran after `before`.
fn traced<F: Future<Output = ()> + 'static, G: Future<Output = ()> + 'static>(
    cache: CacheConfig,
    before: impl FnOnce(Peer) -> F,
    work: impl FnOnce(Peer) -> G,
) -> Vec<TraceRecord> {
    let mut profile = Profile::default();
    (profile.disk.reads_cached, profile.disk.read_ns, profile.disk.call_ns) = (false, 2 * MILLISECOND, 2 * MILLISECOND);
    let cluster = Cluster::new(5, profile, DataServerConfig { cache, ..config() });
    cluster.run(before);
    cluster.sim.start_tracing(Mask::ALL, 1 << 12);
    cluster.run(work);
    let files: Vec<_> = cluster.sim.take_trace_files().iter().map(|(_, bytes)| TraceFile::read(bytes).expect("just written")).collect();
    let server = files.into_iter().find(|file| file.header.server.is_some()).expect("the server ran");
    server.records.iter().map(|recorded| recorded.record).collect()
}

fn spans(records: &[TraceRecord], event: EventId) -> Vec<(TraceRecord, Span)> {
    let span = |record: &TraceRecord| match &record.body {
        Body::Span(span) if record.event == event => Some((record.clone(), *span)),
        _ => None,
    };
    records.iter().filter_map(span).collect()
}

#[test]
fn a_read_says_how_far_the_disk_had_to_seek() {
    let records = traced(
        CacheConfig::default(),
        async |peer: Peer| {
            peer.write(1, 0, &vec![1; (8 * MIB) as usize]).await.expect("there is room");
        },
        async |peer: Peer| {
            // What was last is the write, which ended at 8 MiB.
            for offset in [0, 4096, 3 * MIB, 7 * MIB + 4096, 4096] {
                peer.read(1, offset, 4096).await.expect("it was written");
            }
        },
    );
    let reads = spans(&records, event::DISK_READ);
    let classes: Vec<u8> = reads.iter().map(|(record, _)| record.class).collect();
    assert_eq!(classes, [class::FAR_SEEK, class::NO_SEEK, class::NEAR_SEEK, class::NEAR_SEEK, class::FAR_SEEK]);
    assert!(reads.iter().all(|(record, span)| record.req != 0 && span.obj == 1 && span.wait == 0), "{reads:?}");
}

#[test]
fn a_request_in_the_cache_layer_says_how_long_it_waited_and_every_operation_has_a_record() {
    let layer = CacheConfig { layer: LayerKind::ServerDirected, disk: DiskCost::SSD, takes_all: true, depth: 1, ..CacheConfig::default() };
    let records = traced(
        layer,
        async |_| {},
        async |peer: Peer| {
            // Too far from one another to become one operation.
            join_all((0..3).map(|number| {
                let peer = peer.clone();
                async move { peer.write(number + 1, 0, &[1; 5000]).await.expect("there is room") }
            }))
            .await;
        },
    );
    let jobs = spans(&records, event::DISK_JOB);
    let writes = spans(&records, event::DISK_WRITE).into_iter().filter(|(record, _)| record.req != 0).collect::<Vec<_>>();
    assert_eq!(writes.len(), 3);
    assert!(!jobs.is_empty() && jobs.iter().all(|(record, span)| record.req == 0 && record.class != 0 && span.len >= 5000), "{jobs:?}");
    assert!(writes.iter().all(|(record, span)| record.class != 0 && span.dur >= 2 * MILLISECOND), "{writes:?}");
    if jobs.len() > 1 {
        assert!(writes.iter().any(|(_, span)| u64::from(span.wait) * 16 >= MILLISECOND), "one disk, one after another: {writes:?}");
    }
}

#[test]
fn the_load_is_sampled_now_and_then() {
    let records = traced(
        CacheConfig::default(),
        async |_| {},
        async |peer: Peer| {
            for number in 0..60 {
                peer.write(1, number * 4096, &[1; 4096]).await.expect("there is room");
            }
        },
    );
    let gauges = |event: EventId| -> Vec<(u64, [u64; 5])> {
        let gauges = |record: &TraceRecord| match record.body {
            Body::Counter(gauges) if record.event == event => Some((record.t0, gauges)),
            _ => None,
        };
        records.iter().filter_map(gauges).collect()
    };
    for event in [event::LOAD, event::LOAD_DISK] {
        let samples = gauges(event);
        assert!(samples.len() > 3, "{samples:?}");
        assert!(samples.is_sorted_by(|a, b| a.0 + 10 * MILLISECOND <= b.0), "{samples:?}");
        // Bytes in and operations of the disk only grow.
        assert!(samples.is_sorted_by(|a, b| a.1[3] <= b.1[3]) && samples.last().is_some_and(|last| last.1[3] > 0), "{samples:?}");
    }
}
