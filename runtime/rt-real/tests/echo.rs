//! Requests and replies over real sockets when everybody behaves.

mod support;

use support::*;
use weft_base::{MILLISECOND, SECOND, ServerId, Status};
use weft_rt::{Either, Runtime, join_all, race};

fn on_both(check: impl Fn(TestServer)) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    check(TestServer::start(unix(&dir), Some(KEY)));
    check(TestServer::start(tcp(), Some(KEY)));
}

#[test]
fn one_request_costs_one_send_and_one_receive() {
    on_both(|server| {
        let rt = server.client();
        rt.block_on(async {
            ask(&rt, ECHO, b"first", b"", AMPLE).await.expect("connected");
            let before = rt.stats();
            for i in 0..100u8 {
                let reply = ask(&rt, ECHO, &[i], b"bulk", AMPLE).await.expect("answered");
                assert_eq!((&reply.body[..], &reply.bulk.to_bytes()[..]), (&[ECHO, i][..], &b"bulk"[..]));
            }
            let after = rt.stats();
            assert_eq!(after.sent_messages - before.sent_messages, 100);
            assert_eq!(after.received_messages - before.received_messages, 100);
            assert_eq!(after.send_calls - before.send_calls, 100);
            // One more where a reply took so long that the thread looked at its deadline.
            assert!((100..=110).contains(&(after.receive_calls - before.receive_calls)));
            assert_eq!(after.connects, 1);
        });
    });
}

#[test]
fn a_window_leaves_with_one_send() {
    on_both(|server| {
        let rt = server.client();
        rt.block_on(async {
            ask(&rt, ECHO, b"first", b"", AMPLE).await.expect("connected");
            let before = rt.stats();
            let rt = &rt;
            let replies = join_all((0..64u8).map(|i| async move { ask(rt, ECHO, &[i], b"", AMPLE).await })).await;
            for (i, reply) in replies.into_iter().enumerate() {
                assert_eq!(reply.expect("answered").body[..], [ECHO, i as u8]);
            }
            assert_eq!(rt.stats().send_calls - before.send_calls, 1);
        });
    });
}

#[test]
fn replies_find_their_requests_in_any_order() {
    on_both(|server| {
        let rt = server.client();
        rt.block_on(async {
            let ask_late = async { (ask(&rt, LATE, b"late", b"", AMPLE).await, rt.now()) };
            let ask_soon = async { (ask(&rt, ECHO, b"soon", b"", AMPLE).await, rt.now()) };
            let both = join_all([Box::pin(ask_late) as std::pin::Pin<Box<dyn Future<Output = _>>>, Box::pin(ask_soon)]).await;
            let [(late, late_at), (soon, soon_at)] = &both[..] else { panic!("two results") };
            assert_eq!(late.as_ref().expect("answered").body[1..], *b"late");
            assert_eq!(soon.as_ref().expect("answered").body[1..], *b"soon");
            assert!(soon_at < late_at, "a slow reply holds up no other");
        });
    });
}

#[test]
fn many_threads_share_one_connection() {
    on_both(|server| {
        let rt = server.client();
        std::thread::scope(|scope| {
            for thread in 0..12u8 {
                let rt = rt.clone();
                scope.spawn(move || {
                    for i in 0..400u16 {
                        let mut rest = i.to_le_bytes().to_vec();
                        rest.push(thread);
                        // Some are large, some late, so that leaders leave and followers take over
                        // in all orders.
                        let bulk = if i % 97 == 0 { pattern(100_000) } else { Vec::new() };
                        let command = if i % 131 == u16::from(thread) { LATE } else { ECHO };
                        let reply = rt.block_on(ask(&rt, command, &rest, &bulk, 20 * SECOND)).expect("answered");
                        assert!(reply.body[1..] == rest && reply.bulk.to_bytes() == bulk);
                    }
                });
            }
        });
        assert_eq!((rt.stats().connects, rt.stats().received_messages), (1, 12 * 400));
    });
}

#[test]
fn bulk_data_flows_both_ways_at_once() {
    on_both(|server| {
        let rt = server.client();
        let data = pattern(8 << 20);
        rt.block_on(async {
            let (rt, data) = (&rt, &data);
            // More in each direction than all buffers of the sockets hold.
            let replies = join_all((0..6).map(|_| async move { ask(rt, ECHO, b"", data, AMPLE).await })).await;
            for reply in replies {
                assert!(reply.expect("answered").bulk.to_bytes() == *data);
            }
        });
        std::thread::scope(|scope| {
            for i in 0..4u32 {
                let (rt, data) = (rt.clone(), &data);
                scope.spawn(move || {
                    let len = (3 << 20) + i;
                    let asked = rt.block_on(ask(&rt, BULK, &len.to_le_bytes(), b"", AMPLE)).expect("answered");
                    assert!(asked.bulk.to_bytes()[..] == data[..len as usize]);
                    let echoed = rt.block_on(ask(&rt, ECHO, b"", &data[i as usize..], AMPLE)).expect("answered");
                    assert!(echoed.bulk.to_bytes()[..] == data[i as usize..]);
                });
            }
        });
    });
}

#[test]
fn too_large_messages_are_refused_before_they_are_sent() {
    on_both(|server| {
        let rt = server.client();
        rt.block_on(async {
            let too_much = vec![0; (8 << 20) + 1];
            assert_eq!(ask(&rt, ECHO, b"", &too_much, AMPLE).await.map(drop), Err(Status::TooBig));
            assert_eq!(ask(&rt, ECHO, &too_much[..1 << 20], b"", AMPLE).await.map(drop), Err(Status::TooBig));
            // The server answers an error instead of a frame that would end the connection.
            let len = (8u32 << 20) + 1;
            assert_eq!(ask(&rt, BULK, &len.to_le_bytes(), b"", AMPLE).await.map(drop), Err(Status::TooBig));
            ask(&rt, ECHO, b"", b"", AMPLE).await.expect("still connected");
            assert_eq!(rt.stats().connects, 1);
        });
    });
}

#[test]
fn deadlines_and_sleeps() {
    on_both(|server| {
        let rt = server.client();
        rt.block_on(async {
            let begin = rt.now();
            assert_eq!(ask(&rt, SILENT, b"", b"", 20 * MILLISECOND).await.map(drop), Err(Status::TimedOut));
            assert!(rt.now().since(begin) >= 20 * MILLISECOND);
            rt.sleep_until(rt.now() + 5 * MILLISECOND).await;
            assert!(rt.now().since(begin) >= 25 * MILLISECOND);
            let loser = ask(&rt, SILENT, b"", b"", SECOND);
            assert_eq!(race(loser, rt.sleep_until(rt.now() + MILLISECOND)).await.map_second(), Some(()));
            ask(&rt, ECHO, b"", b"", AMPLE).await.expect("the connection goes on");
            assert_eq!(rt.stats().connects, 1);
        });
    });
}

trait MapSecond<B> {
    fn map_second(self) -> Option<B>;
}
impl<A, B> MapSecond<B> for Either<A, B> {
    fn map_second(self) -> Option<B> {
        match self {
            Either::First(_) => None,
            Either::Second(value) => Some(value),
        }
    }
}

#[test]
fn wake_ups_from_other_threads_arrive_while_we_read() {
    on_both(|server| {
        let rt = server.client();
        rt.block_on(async {
            ask(&rt, ECHO, b"", b"", AMPLE).await.expect("connected");
            let slot = std::sync::Arc::new(std::sync::Mutex::new((false, None::<std::task::Waker>)));
            let theirs = slot.clone();
            let other = std::thread::spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(10));
                let mut slot = theirs.lock().expect("not poisoned");
                slot.0 = true;
                slot.1.take().into_iter().for_each(std::task::Waker::wake);
            });
            let told = std::future::poll_fn(|context| {
                let mut slot = slot.lock().expect("not poisoned");
                slot.1 = Some(context.waker().clone());
                if slot.0 { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
            });
            let silent = ask(&rt, SILENT, b"", b"", 10 * SECOND);
            assert_eq!(race(silent, told).await.map_second(), Some(()));
            other.join().expect("it ends");
        });
    });
}

#[test]
fn a_flow_within_a_flow_steals_no_wake_up() {
    on_both(|server| {
        let rt = server.client();
        rt.block_on(async {
            let rt = &rt;
            let outer = ask(rt, ECHO, b"outer", b"", AMPLE);
            let nested = async {
                // Reads the reply of the outer request while it waits for its own.
                rt.block_on(ask(rt, LATE, b"inner", b"", AMPLE)).expect("answered")
            };
            let both = join_all([Box::pin(outer) as std::pin::Pin<Box<dyn Future<Output = _>>>, Box::pin(async { Ok(nested.await) })]);
            assert!(both.await.into_iter().all(|reply| reply.is_ok()));
        });
    });
}

#[test]
fn sessions_begin_and_end() {
    on_both(|server| {
        let rt = server.client();
        rt.block_on(ask(&rt, ECHO, b"", b"", AMPLE)).expect("answered");
        let number = rt.client().0;
        drop(rt);
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(10);
        loop {
            let events = server.events.lock().expect("not poisoned").clone();
            if events == [format!("connected {number} 1"), format!("disconnected {number} 1")] {
                break;
            }
            assert!(std::time::Instant::now() < limit, "{events:?}");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    });
}

#[test]
fn servers_ask_servers() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut second = TestServer::start_as(ServerId(1), unix(&dir), Some(KEY), Vec::new());
    let first = TestServer::start_as(SERVER, tcp(), Some(KEY), vec![(ServerId(1), second.address.clone())]);
    let rt = first.client();
    rt.block_on(async {
        let rt = &rt;
        let replies = join_all((0..50u8).map(|i| async move { ask(rt, FORWARD, &[ECHO, i], b"", AMPLE).await })).await;
        for (i, reply) in replies.into_iter().enumerate() {
            assert_eq!(reply.expect("answered").body[..], [ECHO, i as u8]);
        }
        assert_eq!(second.events.lock().expect("not poisoned").len(), 1, "one connection for all");
        assert_eq!(ask(rt, FORWARD, &[SILENT], b"", AMPLE).await.map(drop), Err(Status::TimedOut));
    });
    second.stop();
    rt.block_on(async {
        assert_eq!(ask(&rt, FORWARD, &[ECHO], b"", AMPLE).await.map(drop), Err(Status::Unreachable));
    });
    let _again = TestServer::start_as(ServerId(1), unix(&dir), Some(KEY), Vec::new());
    rt.block_on(async {
        ask(&rt, FORWARD, &[ECHO], b"", AMPLE).await.expect("connected again");
    });
}

#[test]
fn one_thread_waits_for_several_servers() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let first = TestServer::start(tcp(), Some(KEY));
    let second = TestServer::start_as(ServerId(5), unix(&dir), Some(KEY), Vec::new());
    let mut config = config(&first.address, Some(KEY));
    config.servers.push((ServerId(5), second.address.clone()));
    let rt = weft_rt_real::ClientRt::new(config);
    rt.block_on(async {
        let rt = &rt;
        for round in 0..20u8 {
            let replies = join_all((0..10u8).map(|i| async move {
                let server = if i % 2 == 0 { SERVER } else { ServerId(5) };
                let command = if i == round % 10 { LATE } else { ECHO };
                ask_at(rt, server, command, &[i], b"", AMPLE).await
            }));
            for (i, reply) in replies.await.into_iter().enumerate() {
                assert_eq!(reply.expect("answered").body[1], i as u8);
            }
        }
        assert_eq!(ask_at(rt, ServerId(9), ECHO, b"", b"", AMPLE).await.map(drop), Err(Status::WrongServer));
    });
}

#[test]
fn readers_that_give_up_leave_nobody_waiting() {
    on_both(|server| {
        let rt = server.client();
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                let rt = rt.clone();
                scope.spawn(move || {
                    for i in 0..60u64 {
                        if (i + thread) % 3 == 0 {
                            let outcome = rt.block_on(ask(&rt, SILENT, b"", b"", (1 + thread % 3) * MILLISECOND));
                            assert_eq!(outcome.map(drop), Err(Status::TimedOut));
                        } else {
                            rt.block_on(ask(&rt, if i % 5 == 0 { LATE } else { ECHO }, b"", b"", AMPLE)).expect("answered");
                        }
                    }
                });
            }
        });
        assert_eq!(rt.stats().connects, 1);
    });
}
