//! Bulk data through shared memory: the same answers as through the socket, and nothing of one
//! request in the place of another.

mod support;

use support::*;
use weft_base::{MILLISECOND, RequestId, Status};
use weft_rt::{Bulk, Outgoing, Runtime, join_all};
use weft_rt_real::{ClientConfig, ClientRt};
use weft_wire::{Flags, Header, Op};

/// Echoes bulk data of many sizes at once and looks at every byte; returns how many bytes crossed
/// the socket.
fn echo_all(rt: &ClientRt, lens: &[usize]) -> u64 {
    rt.block_on(async {
        ask(rt, ECHO, b"first", b"", AMPLE).await.expect("connected");
        let before = rt.stats();
        let replies = join_all(lens.iter().enumerate().map(|(i, len)| async move {
            let data: Vec<u8> = pattern(*len).iter().map(|byte| byte.wrapping_add(i as u8)).collect();
            let reply = ask(rt, ECHO, b"", &data, AMPLE).await.expect("answered");
            (data, reply.bulk.to_bytes())
        }));
        for (sent, came) in replies.await {
            assert!(sent == came, "{} bytes", sent.len());
        }
        let after = rt.stats();
        after.sent_bytes - before.sent_bytes + after.received_bytes - before.received_bytes
    })
}

#[test]
fn both_ways_give_the_same_bytes() {
    let lens = [16_384, 1, 20_000, 4096, 1 << 20, (1 << 20) + 1, 16_383, 3 << 20, 100_000];
    let bulk: usize = lens.iter().filter(|len| **len >= 16_384).sum();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let local = TestServer::start(unix(&dir), Some(KEY));
    assert!(echo_all(&local.client(), &lens) < 50_000, "only what is small crosses the socket");
    let without = ClientRt::new(ClientConfig { share_memory: false, ..config(&local.address, Some(KEY)) });
    assert!(echo_all(&without, &lens) > 2 * bulk as u64);
    let remote = TestServer::start(tcp(), Some(KEY));
    assert!(echo_all(&remote.client(), &lens) > 2 * bulk as u64);
}

#[test]
fn more_than_the_region_holds_takes_the_socket() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let server = TestServer::start(unix(&dir), Some(KEY));
    let lens = [8 << 20; 6];
    let crossed = echo_all(&server.client(), &lens);
    assert!((16 << 20..17 << 21).contains(&crossed), "two of six did not fit, both ways: {crossed}");
}

#[test]
fn a_place_that_was_given_up_is_not_used_again() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let server = TestServer::start(unix(&dir), Some(KEY));
    let rt = server.client();
    rt.block_on(async {
        // The region holds 32 of these. The server keeps the late ones beyond their deadline and
        // answers then.
        for round in 0..40u8 {
            let late = ask(&rt, LATE, b"", &vec![round; 1 << 20], 2 * MILLISECOND).await;
            assert_eq!(late.map(drop), Err(Status::TimedOut));
            let data = vec![!round; 300_000];
            let reply = ask(&rt, ECHO, b"", &data, AMPLE).await.expect("answered");
            assert!(reply.bulk.to_bytes() == data, "round {round}");
        }
        rt.sleep_until(rt.now() + 50 * MILLISECOND).await;
        let before = rt.stats().sent_bytes;
        ask(&rt, ECHO, b"", &vec![1; 1 << 20], AMPLE).await.expect("answered");
        assert!(rt.stats().sent_bytes - before > 1 << 20, "no place is left, so the data took the socket");
    });
}

#[test]
fn what_is_sent_again_carries_its_data() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let server = TestServer::start(unix(&dir), Some(KEY));
    let rt = server.client();
    rt.block_on(async {
        ask(&rt, ECHO, b"first", b"", AMPLE).await.expect("connected");
        let data = pattern(100_000);
        for flags in [Flags::RETRY, Flags::default()] {
            let request = RequestId { client: rt.client(), incarnation: rt.incarnation(), sequence: 1 << 40 };
            let header = Header { flags, ..Header::request(Op::Ping, SERVER, request, 0) };
            let outgoing = Outgoing { header, body: vec![ECHO].into(), bulk: Bulk::Slices(vec![&data]) };
            let before = rt.stats().sent_bytes;
            let reply = rt.request(SERVER, outgoing, rt.now() + AMPLE).await.expect("answered");
            assert!(reply.bulk.to_bytes() == data);
            assert_eq!(rt.stats().sent_bytes - before > 100_000, flags == Flags::RETRY);
        }
    });
}

#[test]
fn answers_outlive_their_connection() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut server = TestServer::start(unix(&dir), Some(KEY));
    let rt = server.client();
    let data = pattern(1 << 20);
    let reply = rt.block_on(ask(&rt, ECHO, b"", &data, AMPLE)).expect("answered");
    server.stop();
    assert!(rt.block_on(ask(&rt, ECHO, b"", b"", 100 * MILLISECOND)).is_err());
    drop(rt);
    assert!(reply.bulk.to_bytes() == data);
}
