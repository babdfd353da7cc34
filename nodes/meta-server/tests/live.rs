//! What a metadata server tells dashboards is what was done.

mod common;

use common::*;
use weft_base::{MILLISECOND, ROOT_HANDLE, SECOND, ServerId};
use weft_rt::{Runtime, race};
use weft_wire::ops::*;
use weft_wire::{Op, Rights};

fn row(reply: &LiveReply, op: Op) -> (u64, u64) {
    reply.operations.iter().find(|row| row.op == op.code()).map_or((0, 0), |row| (row.count, row.failed))
}

#[test]
fn counters_are_the_work_that_was_done() {
    let cluster = Cluster::new(5, 1, |_| {});
    let (a, b) = (cluster.caller(1), cluster.caller(2));
    cluster.block_on(|| async move {
        let dir = a.mkdir(ROOT_HANDLE, "d").await.unwrap();
        for number in 0..50 {
            a.create(dir, &format!("f{number}"), Rights::default()).await.unwrap();
        }
        for number in 0..20 {
            b.lookup(dir, &format!("f{number}")).await.unwrap();
        }
        b.lookup(dir, "missing").await.unwrap_err();
        let reply = a.call(ServerId(0), &LiveRequest {}).await.unwrap();
        assert_eq!(row(&reply, Op::Create), (50, 0));
        assert_eq!(row(&reply, Op::Mkdir), (1, 0));
        assert_eq!(row(&reply, Op::Lookup), (21, 1));
        assert_eq!(row(&reply, Op::Live), (0, 0), "the question is not answered yet");
        assert!(reply.operations.iter().all(|row| row.slots.iter().map(|slot| slot.count).sum::<u64>() == row.count));
        let top = |rows: &[TopRow]| rows.iter().map(|row| (row.key, row.count, row.error)).collect::<Vec<_>>();
        assert_eq!(top(&reply.clients_by_requests), [(1, 51, 0), (2, 21, 0)]);
        assert_eq!(top(&reply.objects_by_requests), [(dir.0, 71, 0), (ROOT_HANDLE.0, 1, 0)]);
        assert_eq!((reply.clients, reply.queued, reply.read_bytes, reply.written_bytes), (2, 0, 0, 0));
        assert_eq!(reply.oldest, []);
        assert_eq!(reply.info.requests, 73, "51 by one client, 21 by the other, and this question");
    });
}

#[test]
fn a_request_that_waits_for_a_dead_server_is_named_with_its_age() {
    let cluster = Cluster::new(6, 2, |_| {});
    let client = cluster.caller(1);
    let dir = cluster.block_on({
        let client = client.clone();
        // Directories are spread over the servers: one of the first is on the second.
        || async move {
            for number in 0.. {
                let dir = client.mkdir(ROOT_HANDLE, &format!("d{number}")).await.unwrap();
                if dir.0 >> 48 == 1 {
                    return number;
                }
            }
            unreachable!("some directory is on the second server")
        }
    });
    cluster.sim.crash(cluster.meta[1]);
    let rt = cluster.sim.rt(cluster.client);
    cluster.block_on(|| async move {
        let (stuck, asked) = (client.clone(), rt.now());
        let name = format!("d{dir}");
        let removal = stuck.rmdir(ROOT_HANDLE, &name);
        let look = async {
            rt.sleep_until(rt.now() + SECOND).await;
            client.call(ServerId(0), &LiveRequest {}).await.unwrap()
        };
        let weft_rt::Either::Second(reply) = race(removal, look).await else { panic!("nobody can remove it now") };
        let [waiting] = &reply.oldest[..] else { panic!("{:?}", reply.oldest) };
        assert_eq!((waiting.op, waiting.client.0, waiting.object), (Op::Rmdir.code(), 1, ROOT_HANDLE));
        assert!(waiting.age_ns > 900 * MILLISECOND && waiting.age_ns <= rt.now().since(asked), "{}", waiting.age_ns);
        assert_eq!(reply.queued, 1);
    });
}
