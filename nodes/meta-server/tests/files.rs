//! Files as the metadata server sees them: who has them open, how large they are, how they are cut
//! and how they end.

mod common;

use common::*;
use weft_base::{ClientId, Credentials, DataTime, Handle, MILLISECOND, ROOT_HANDLE, SECOND, ServerId, Status, WallTime};
use weft_rt_sim::{DiskFaultKind, Fault};
use weft_wire::Rights;
use weft_wire::ops::*;

const WRITE: Rights = Rights::WRITE;

fn set_size(handle: Handle, size: u64) -> SetAttrRequest {
    SetAttrRequest { size: Some(size), ..SetAttrRequest::of(handle, Credentials::ROOT) }
}

fn open(handle: Handle, rights: Rights, open_sequence: u64, truncate: bool) -> OpenRequest {
    OpenRequest { truncate, ..OpenRequest::of(handle, rights, open_sequence, Credentials::ROOT) }
}

impl Cluster {
    fn removed(&self, handle: Handle) -> bool {
        self.data_state.borrow().calls.contains(&DataCall::Remove(handle))
    }
}

#[test]
fn size_is_exact_after_close_and_asked_for_while_somebody_else_writes() {
    let cluster = Cluster::new(1, 1, |_| {});
    let (writer, reader) = (cluster.caller(1), cluster.caller(2));
    cluster.block_on(|| async move {
        let file = writer.create(ROOT_HANDLE, "f", WRITE).await.unwrap().handle;
        assert!(writer.getattr(file).await.unwrap().ask_data.is_none(), "the writer knows its own end");
        let state = reader.getattr(file).await.unwrap();
        assert!(state.ask_data.is_some_and(|capability| capability.rights == Rights::READ));
        writer.close(file, 5000, 0).await.unwrap();
        let state = reader.getattr(file).await.unwrap();
        assert_eq!((state.attr.size, state.ask_data), (5000, None));
        // A second report of less does not shrink it.
        writer.close(file, 4000, 0).await.unwrap();
        assert_eq!(reader.getattr(file).await.unwrap().attr.size, 5000);
    });
}

#[test]
fn a_truncation_cuts_the_data_before_the_new_size_counts() {
    let cluster = Cluster::new(2, 1, |_| {});
    let client = cluster.caller(1);
    let data = std::rc::Rc::clone(&cluster.data_state);
    cluster.block_on(|| async move {
        let file = client.create(ROOT_HANDLE, "f", WRITE).await.unwrap().handle;
        data.borrow_mut().sizes.insert(file, 5000);
        client.close(file, 5000, 0).await.unwrap();
        let state = client.call(ServerId(0), &set_size(file, 100)).await.unwrap();
        assert_eq!((state.attr.size, state.attr.truncate_epoch), (100, 1));
        assert_eq!(data.borrow().calls, [DataCall::Truncate(file, 100)]);
        // Extending and keeping the size concerns nobody else.
        let state = client.call(ServerId(0), &set_size(file, 1 << 40)).await.unwrap();
        assert_eq!((state.attr.size, state.attr.truncate_epoch), (1 << 40, 1));
        assert_eq!(data.borrow().calls.len(), 1);
        // A file that was never opened for writing has no data.
        let empty = client.create(ROOT_HANDLE, "e", Rights::default()).await.unwrap().handle;
        client.call(ServerId(0), &set_size(empty, 10)).await.unwrap();
        client.call(ServerId(0), &set_size(empty, 0)).await.unwrap();
        assert_eq!(data.borrow().calls.len(), 1);
        let opened = client.call(ServerId(0), &open(file, WRITE, 5, true)).await.unwrap();
        assert_eq!((opened.state.attr.size, opened.state.attr.truncate_epoch), (0, 2));
        assert_eq!(data.borrow().calls[1], DataCall::Truncate(file, 0));
    });
}

#[test]
fn a_report_across_a_truncation_asks_the_data_servers() {
    let cluster = Cluster::new(3, 1, |_| {});
    let client = cluster.caller(1);
    let data = std::rc::Rc::clone(&cluster.data_state);
    cluster.block_on(|| async move {
        let file = client.create(ROOT_HANDLE, "f", WRITE).await.unwrap().handle;
        data.borrow_mut().sizes.insert(file, 5000);
        client.call(ServerId(0), &set_size(file, 0)).await.unwrap();
        // It wrote 70 bytes after the truncation, but reports what it knew before.
        data.borrow_mut().sizes.insert(file, 70);
        client.close(file, 5000, 0).await.unwrap();
        let state = client.getattr(file).await.unwrap();
        assert_eq!((state.attr.size, state.ask_data), (70, None));
    });
}

type Cut = std::pin::Pin<Box<dyn Future<Output = FileState>>>;

/// Runs a truncation to 100 bytes or nothing with a crash at every await point: it is done exactly
/// once, and answered.
fn truncate_with_crashes(size: u64, cut: fn(TestClient, Handle) -> Cut) {
    for polls in 1.. {
        let cluster = Cluster::new(4, 1, |_| {});
        let client = cluster.caller(1);
        let data = std::rc::Rc::clone(&cluster.data_state);
        let maker = client.clone();
        let made = std::rc::Rc::clone(&data);
        let file = cluster.block_on(|| async move {
            let file = maker.create(ROOT_HANDLE, "f", WRITE).await.unwrap().handle;
            made.borrow_mut().sizes.insert(file, 5000);
            maker.close(file, 5000, 0).await.unwrap();
            file
        });
        let node = cluster.meta[0];
        let before = cluster.sim.polls(node);
        cluster.sim.strike_after_polls(node, polls, Fault::Crash { node, down_ns: 20 * MILLISECOND });
        let cutter = client.clone();
        let state = cluster.block_on(|| cut(cutter, file));
        let struck = cluster.sim.polls(node) - before >= polls;
        assert_eq!((state.attr.size, state.attr.truncate_epoch), (size, 1), "poll {polls}");
        assert_eq!(data.borrow().sizes[&file], size, "poll {polls}");
        let state = cluster.block_on(|| async move { client.getattr(file).await.unwrap() });
        assert_eq!((state.attr.size, state.attr.truncate_epoch), (size, 1), "poll {polls}");
        if !struck {
            assert!(polls > 5, "the fault must have struck in the middle");
            return;
        }
    }
}

#[test]
fn a_truncation_survives_a_crash_at_every_await_point_and_is_done_once() {
    truncate_with_crashes(100, |client, file| Box::pin(async move { client.call(ServerId(0), &set_size(file, 100)).await.unwrap() }));
}

#[test]
fn an_open_that_truncates_survives_a_crash_at_every_await_point_and_truncates_once() {
    truncate_with_crashes(0, |client, file| {
        Box::pin(async move {
            let reply = client.call(ServerId(0), &open(file, WRITE, 7, true)).await.unwrap();
            // It is open, whatever has happened: others are told to ask.
            let other = TestClient { caller: std::rc::Rc::new(weft_call::Caller::new(client.caller.rt().clone(), ClientId(99), 1)) };
            assert!(other.getattr(file).await.unwrap().ask_data.is_some());
            reply.state
        })
    });
}

#[test]
fn a_file_that_is_open_outlives_its_name() {
    let cluster = Cluster::new(5, 1, |_| {});
    let (user, remover) = (cluster.caller(1), cluster.caller(2));
    let keeper = user.clone();
    let file = cluster.block_on(|| async move {
        let file = keeper.create(ROOT_HANDLE, "f", WRITE.with(Rights::READ)).await.unwrap().handle;
        remover.unlink(ROOT_HANDLE, "f").await.unwrap();
        file
    });
    cluster.sim.run_for(10 * SECOND);
    let keeper = user.clone();
    cluster.block_on(|| async move {
        assert_eq!(keeper.getattr(file).await.unwrap().attr.nlink, 0);
        keeper.close(file, 10, 0).await.unwrap();
    });
    cluster.sim.run_for(SECOND);
    assert!(cluster.removed(file));
    let gone = cluster.block_on(|| async move { user.getattr(file).await });
    assert_eq!(gone.unwrap_err(), Status::Stale);
}

#[test]
fn the_grace_after_a_restart_protects_unlinked_files_that_are_reclaimed() {
    let cluster = Cluster::new(6, 1, |_| {});
    let client = cluster.caller(1);
    let maker = client.clone();
    let data = std::rc::Rc::clone(&cluster.data_state);
    let (kept, lost) = cluster.block_on(|| async move {
        let mut files = Vec::new();
        for name in ["kept", "lost"] {
            let file = maker.create(ROOT_HANDLE, name, WRITE).await.unwrap().handle;
            data.borrow_mut().sizes.insert(file, 10);
            files.push(file);
            maker.unlink(ROOT_HANDLE, name).await.unwrap();
        }
        (files[0], files[1])
    });
    cluster.crash_and_restart(0);
    let reclaimer = client.clone();
    cluster.block_on(|| async move {
        let opens = vec![OpenFile { handle: kept, rights: WRITE, open_sequence: 1 }];
        reclaimer.call(ServerId(0), &ReclaimRequest { opens, locks: None, goes_on: None }).await.unwrap();
    });
    cluster.sim.run_for(SECOND);
    assert!(!cluster.removed(lost), "the grace is not over");
    cluster.sim.run_for(10 * SECOND);
    assert!(cluster.removed(lost) && !cluster.removed(kept));
    let closer = client.clone();
    cluster.block_on(|| async move { closer.close(kept, 10, 0).await.unwrap() });
    cluster.sim.run_for(SECOND);
    assert!(cluster.removed(kept));
}

/// A restart waits for those who may have had a file open, and for nobody else.
#[test]
fn who_had_nothing_open_before_a_restart_keeps_no_appender_waiting() {
    let appends = WRITE.with(Rights::APPEND);
    for (has_closed, outcome) in [(true, Ok(())), (false, Err(Status::TimedOut))] {
        let cluster = Cluster::new(10, 1, |config| config.session_grace_ns = 30 * SECOND);
        let [one, other, gone] = [1, 2, 3].map(|id| cluster.caller(id));
        let file = cluster.block_on({
            let (one, other) = (one.clone(), other.clone());
            || async move {
                let file = gone.create(ROOT_HANDLE, "log", WRITE).await.unwrap().handle;
                let elsewhere = gone.create(ROOT_HANDLE, "elsewhere", WRITE).await.unwrap().handle;
                for client in [one, other] {
                    client.call(ServerId(0), &open(file, WRITE, 1, false)).await.unwrap();
                }
                gone.close(elsewhere, 5, 0).await.unwrap();
                if has_closed {
                    gone.close(file, 5, 0).await.unwrap();
                }
                file
            }
        });
        // Who has written nothing for long is no writer.
        cluster.sim.run_for(100 * SECOND);
        cluster.crash_and_restart(0);
        let appended = cluster.block_on(|| async move {
            for client in [&one, &other] {
                let opens = vec![OpenFile { handle: file, rights: WRITE, open_sequence: 1 }];
                client.call(ServerId(0), &ReclaimRequest { opens, locks: None, goes_on: None }).await.unwrap();
                client.close(file, 10, 0).await.unwrap();
            }
            one.once(ServerId(0), &open(file, appends, 2, false), 5 * SECOND).await
        });
        assert_eq!(appended.map(drop), outcome, "has closed: {has_closed}");
    }
}

/// Nobody can have opened for writing what is beside its inode, whatever a client says.
#[test]
fn a_content_that_somebody_says_to_write_to_stays_as_it_is() {
    let cluster = Cluster::new(9, 1, |config| config.inline_limit = 8192);
    let client = cluster.caller(1);
    cluster.sim.run_for(SECOND);
    let handle = cluster.block_on(|| async move {
        let content = Some(bytes::Bytes::from_static(b"bytes"));
        let put = CreateRequest { exclusive: false, content, ..create_request(ROOT_HANDLE, "f", WRITE) };
        let made = client.call(ServerId(0), &put).await.unwrap();
        assert!(made.state.is_some_and(|state| state.attr.is_inline()));
        let opens = vec![OpenFile { handle: made.handle, rights: WRITE.with(Rights::READ), open_sequence: 1 }];
        client.call(ServerId(0), &ReclaimRequest { opens, locks: None, goes_on: None }).await.unwrap();
        made.handle
    });
    // Its server would ask data servers about a writer that was lost.
    cluster.crash_and_restart(0);
    let other = cluster.caller(2);
    let state = cluster.block_on(|| async move { other.getattr(handle).await.unwrap() });
    assert_eq!((state.attr.size, state.attr.is_inline(), state.ask_data), (5, true, None));
}

#[test]
fn a_late_copy_of_a_reclaim_opens_nothing() {
    use weft_base::{ClientId, RequestId};
    use weft_rt::{Bulk, Outgoing, Runtime};
    use weft_wire::ops::CloseRequest;
    use weft_wire::{Header, Operation, Wire};

    let cluster = Cluster::new(8, 1, |_| {});
    // Each says that the requests before it have their answers.
    fn send<O: Operation + 'static>(cluster: &Cluster, sequence: u64, request: O) -> weft_base::Result<bytes::Bytes> {
        let rt = cluster.sim.rt(cluster.client);
        cluster.block_on(move || async move {
            let id = RequestId { client: ClientId(9), incarnation: 1, sequence };
            let (header, body) = (Header::request(O::OP, ServerId(0), id, 0), request.to_bytes());
            let frame = rt.request(ServerId(0), Outgoing { header, body, bulk: Bulk::None }, rt.now() + 5 * SECOND).await?;
            frame.status().map(|()| frame.body)
        })
    }
    let created = send(&cluster, 1, create_request(ROOT_HANDLE, "f", WRITE)).unwrap();
    let handle = CreateReply::from_bytes(created).unwrap().handle;
    cluster.crash_and_restart(0);
    let opens = vec![OpenFile { handle, rights: WRITE, open_sequence: 1 }];
    let reclaim = ReclaimRequest { opens, locks: None, goes_on: None };
    send(&cluster, 2, reclaim.clone()).unwrap();
    send(&cluster, 3, CloseRequest { handle, open_sequence: 1, keeps: Rights::default(), written: None }).unwrap();
    assert_eq!(send(&cluster, 2, reclaim), Err(Status::StaleRequest));
}

#[test]
fn the_end_of_a_file_survives_crashes_and_unreachable_data_servers() {
    let cluster = Cluster::new(7, 1, |config| config.session_grace_ns = 100 * MILLISECOND);
    let client = cluster.caller(1);
    let files = cluster.block_on(|| async move {
        let mut files = Vec::new();
        for i in 0..200 {
            let name = format!("f{i}");
            let file = client.create(ROOT_HANDLE, &name, WRITE).await.unwrap().handle;
            client.close(file, 1, 0).await.unwrap();
            files.push((name, file));
        }
        for (name, _) in &files {
            client.unlink(ROOT_HANDLE, name).await.unwrap();
        }
        files
    });
    cluster.crash_and_restart(0);
    cluster.sim.partition(cluster.meta[0], cluster.data, 3 * SECOND);
    cluster.sim.run_for(SECOND);
    cluster.crash_and_restart(0);
    cluster.sim.run_for(60 * SECOND);
    assert!(files.iter().all(|(_, file)| cluster.removed(*file)), "every datafile is removed");
    let client = cluster.caller(2);
    let objects = cluster.block_on(|| async move { client.call(ServerId(0), &PingRequest {}).await.unwrap().objects });
    assert_eq!(objects, 1, "only the root is left");
}

#[test]
fn a_lost_writer_does_not_leave_a_wrong_size() {
    for crash in [false, true] {
        let cluster = Cluster::new(8, 1, |_| {});
        let (writer, reader) = (cluster.caller(1), cluster.caller(2));
        let data = std::rc::Rc::clone(&cluster.data_state);
        let file = cluster.block_on(|| async move {
            let file = writer.create(ROOT_HANDLE, "f", WRITE).await.unwrap().handle;
            data.borrow_mut().sizes.insert(file, 4321);
            file
        });
        if crash {
            cluster.crash_and_restart(0);
        } else {
            // All clients of this node lose their connections; the writer never comes back.
            cluster.sim.break_connections(cluster.client);
        }
        let asker = reader.clone();
        let before = cluster.block_on(|| async move { asker.getattr(file).await.unwrap() });
        assert!(before.ask_data.is_some(), "until the grace is over, readers ask");
        cluster.sim.run_for(10 * SECOND);
        let after = cluster.block_on(|| async move { reader.getattr(file).await.unwrap() });
        assert_eq!((after.attr.size, after.ask_data), (4321, None), "crash {crash}");
    }
}

#[test]
fn a_failing_disk_stops_the_server_with_a_reason() {
    let cluster = Cluster::new(9, 1, |_| {});
    let client = cluster.caller(1);
    let maker = client.clone();
    cluster.block_on(|| async move { maker.create(ROOT_HANDLE, "a", Rights::default()).await.unwrap() });
    cluster.sim.fail_disk(cluster.meta[0], DiskFaultKind::Write, 1);
    let result =
        cluster.block_on(|| async move { client.once(ServerId(0), &create_request(ROOT_HANDLE, "b", Rights::default()), SECOND).await });
    assert!(result.is_err(), "what was not journaled is not acknowledged");
    let errors = cluster.errors.borrow();
    assert_eq!(errors.len(), 1);
    assert!(errors[0].1.to_string().contains("write the journal"), "{}", errors[0].1);
}

#[test]
fn many_closes_in_one_request_are_judged_one_by_one() {
    let cluster = Cluster::new(8, 1, |_| {});
    let client = cluster.caller(1);
    let user = client.clone();
    let (first, last) = cluster.block_on(|| async move {
        let mut files = Vec::new();
        for name in ["a", "b", "c"] {
            files.push(user.create(ROOT_HANDLE, name, WRITE).await.unwrap().handle);
        }
        let close = |handle, end_bytes, truncate_epoch| {
            let written = Some(Written { end_bytes, mtime: DataTime { epoch: 0, at: WallTime(i64::MAX) }, truncate_epoch });
            CloseRequest { handle, open_sequence: u64::MAX, keeps: Rights::default(), written }
        };
        let nobody = Handle::new(ServerId(0), 9999);
        // The second one was overtaken by a truncation: its size must be asked at the data servers.
        let closes = vec![close(files[0], 7, 0), close(files[1], 8, 9), close(nobody, 1, 0), close(files[2], 9, 0)];
        let reply = user.call(ServerId(0), &CloseManyRequest { contents: None, attributes: None, read: None, closes }).await.unwrap();
        assert_eq!(reply.outcomes, [Ok(()), Err(Status::Busy), Err(Status::Stale), Ok(())]);
        // Who has read a file says so, and is believed if he had it open for reading.
        let atime = async |file| user.getattr(file).await.unwrap().attr.atime;
        let before = [atime(files[0]).await, atime(files[2]).await];
        let open = OpenRequest::of(files[0], Rights::READ, 3, Credentials::ROOT);
        user.call(ServerId(0), &open).await.unwrap();
        let close = |handle| CloseRequest { handle, open_sequence: u64::MAX, keeps: Rights::default(), written: None };
        let closes = vec![close(files[2]), close(files[0])];
        let read = Some(vec![0, 1, 77].into());
        assert_eq!(
            user.call(ServerId(0), &CloseManyRequest { contents: None, attributes: None, closes, read }).await.unwrap().outcomes,
            [Ok(()), Ok(())]
        );
        assert_eq!(atime(files[2]).await, before[1]);
        assert!(atime(files[0]).await > before[0]);
        let closes = vec![close(files[0]); CLOSES_MAX + 1];
        assert_eq!(
            user.call(ServerId(0), &CloseManyRequest { contents: None, attributes: None, read: None, closes }).await.unwrap_err(),
            Status::TooBig
        );
        (files[0], files[2])
    });
    cluster.crash_and_restart(0);
    cluster.sim.run_for(SECOND);
    let sizes =
        cluster.block_on(|| async move { [client.getattr(first).await.unwrap().attr.size, client.getattr(last).await.unwrap().attr.size] });
    assert_eq!(sizes, [7, 9]);
}
