//! What a data server tells dashboards is what was done.

mod common;

use common::{Cluster, Peer, config};
use weft_base::{Handle, MILLISECOND};
use weft_rt::{Either, Runtime, race};
use weft_rt_sim::Profile;
use weft_wire::Op;
use weft_wire::ops::*;

fn counts(reply: &LiveReply, op: Op) -> (u64, u64) {
    reply.operations.iter().find(|row| row.op == op.code()).map_or((0, 0), |row| (row.count, row.failed))
}

#[test]
fn counters_are_the_work_that_was_done() {
    Cluster::new(1, Profile::instant(), config()).run(async |peer: Peer| {
        for number in 0..10 {
            peer.write(1, number * 5000, &[1; 5000]).await.unwrap();
        }
        peer.write(2, 0, &[2; 300]).await.unwrap();
        assert_eq!(peer.read(1, 40_000, 20_000).await.unwrap().len(), 10_000, "the file ends there");
        peer.call(&peer.write_request(1, &[(0, 7)], false), b"short").await.unwrap_err();
        let reply = peer.call(&LiveRequest {}, &[]).await.unwrap().0;
        assert_eq!((reply.written_bytes, reply.read_bytes), (50_300, 10_000), "a refused write has written nothing");
        assert_eq!((counts(&reply, Op::Write), counts(&reply, Op::Read)), ((12, 1), (1, 0)));
        let top = |rows: &[TopRow]| rows.iter().map(|row| (row.key, row.count, row.error)).collect::<Vec<_>>();
        assert_eq!(top(&reply.objects_by_bytes), [(1, 60_000, 0), (2, 300, 0)]);
        assert_eq!(top(&reply.objects_by_requests), [(1, 12, 0), (2, 1, 0)]);
        assert_eq!(reply.clients_by_bytes.iter().map(|row| row.count).collect::<Vec<_>>(), [60_300]);
        assert_eq!((reply.clients, reply.queued, reply.cache_bytes, reply.oldest.len()), (1, 0, 0, 0));
        assert_eq!(reply.info.objects, 2);
    });
}

#[test]
fn a_write_that_waits_for_the_disk_is_named_with_its_age() {
    let mut profile = Profile::instant();
    profile.disk.sync_ns = 40 * MILLISECOND;
    Cluster::new(1, profile, config()).run(async |peer: Peer| {
        peer.write(1, 0, b"first").await.unwrap();
        let (rt, request) = (peer.rt.clone(), peer.write_request(5, &[(0, 4)], true));
        let write = peer.call(&request, b"sync");
        let look = async {
            rt.sleep_until(rt.now() + 20 * MILLISECOND).await;
            peer.call(&LiveRequest {}, &[]).await.unwrap().0
        };
        let Either::Second(reply) = race(write, look).await else { panic!("a sync takes longer") };
        let [waiting] = &reply.oldest[..] else { panic!("{:?}", reply.oldest) };
        assert_eq!((waiting.op, waiting.object), (Op::Write.code(), Handle(5)));
        assert!((15 * MILLISECOND..25 * MILLISECOND).contains(&waiting.age_ns), "{}", waiting.age_ns);
        assert_eq!((reply.queued, counts(&reply, Op::Write)), (1, (1, 0)), "it is not answered, so it is not counted");
    });
}
