//! The executor, timers and disk of a server that runs.

mod support;

use std::cell::RefCell;
use std::rc::Rc;

use support::*;
use weft_base::{MILLISECOND, Payload};
use weft_rt::{Disk, Runtime, ServerRuntime, Signal, join_all};
use weft_rt_real::{DiskConfig, Log, ServeError, ShardConfig, StopHandle, serve};

fn config(directory: &std::path::Path, stop: &StopHandle) -> ShardConfig {
    ShardConfig {
        server: SERVER,
        fs_id: FS,
        fs_name: NAME.to_string(),
        keys: None,
        listen: Vec::new(),
        disk: DiskConfig::Directory(directory.to_path_buf()),
        servers: Vec::new(),
        share_memory: true,
        encrypt_tcp: false,
        stop: stop.clone(),
        log: Log::new(|_| {}),
    }
}

#[test]
fn helper_threads_wake_a_sleeping_server() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let stop = StopHandle::new().expect("an event");
    let outcome = serve(config(dir.path(), &stop), |rt| async move {
        let disk = rt.disk().clone();
        let file = disk.open("file", true).await.expect("created");
        for round in 0..30u64 {
            disk.write(file, round * 8, Payload::from(round.to_le_bytes().to_vec())).await.expect("written");
            disk.sync(file).await.expect("synced");
        }
        let others = (0..10).map(|i| {
            let disk = disk.clone();
            async move { disk.open(&format!("other{i}"), true).await.expect("created") }
        });
        assert_eq!(join_all(others).await.len(), 10);
        assert_eq!(disk.list().await.expect("listed").len(), 11);
        disk.len(file).await.expect("its length")
    });
    assert_eq!(outcome.expect("it ran"), Some(240));
}

#[test]
fn flows_sleep_wake_each_other_and_end_with_the_server() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let stop = StopHandle::new().expect("an event");
    let outcome = serve(config(dir.path(), &stop), |rt| async move {
        let order = Rc::new(RefCell::new(Vec::new()));
        let event = Signal::new();
        for (name, pause) in [("third", 30), ("first", 2), ("second", 15)] {
            let (flow, order, event) = (rt.clone(), order.clone(), event.clone());
            rt.spawn(async move {
                flow.sleep_until(flow.now() + pause * MILLISECOND).await;
                order.borrow_mut().push(name);
                event.notify();
            });
        }
        let forever = rt.clone();
        rt.spawn(async move { forever.sleep_until(weft_base::Nanos::NEVER).await });
        while order.borrow().len() < 3 {
            event.wait().await;
        }
        assert!(rt.usage().cpu_us < 10_000_000);
        order.take()
    });
    assert_eq!(outcome.expect("it ran"), Some(vec!["first", "second", "third"]));
}

#[test]
fn a_stop_waits_for_flushes_under_way() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let stop = StopHandle::new().expect("an event");
    let synced = Rc::new(RefCell::new(0));
    let (count, asked) = (synced.clone(), stop.clone());
    let outcome = serve(config(dir.path(), &stop), |rt| async move {
        let disk = rt.disk().clone();
        let file = disk.open("file", true).await.expect("created");
        let flushing = disk.clone();
        rt.spawn(async move {
            flushing.write(file, 0, Payload::from(vec![1; 1 << 20])).await.expect("written");
            flushing.sync(file).await.expect("synced");
            *count.borrow_mut() += 1;
        });
        // Let it begin, then stop from another thread as a signal would.
        rt.sleep_until(rt.now()).await;
        let event = Signal::new();
        let stopper = std::thread::spawn(move || asked.stop());
        event.wait().await;
        stopper.join().expect("never reached");
    });
    assert!(outcome.expect("it ran").is_none());
    assert_eq!(*synced.borrow(), 1);
    assert!(stop.is_stopping());
}

#[test]
fn a_server_that_waits_for_a_stop_ends_by_itself() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let stop = StopHandle::new().expect("an event");
    let asked = stop.clone();
    let outcome = serve(config(dir.path(), &stop), |rt| async move {
        let stopper = std::thread::spawn(move || asked.stop());
        rt.stop_requested().await;
        stopper.join().expect("it has stopped us");
        let disk = rt.disk();
        let file = disk.open("file", true).await.expect("created");
        for round in 0..3 {
            disk.write(file, round, Payload::from(vec![1])).await.expect("written");
            disk.sync(file).await.expect("synced");
            rt.sleep_until(rt.now() + 5 * MILLISECOND).await;
        }
        disk.len(file).await.expect("its length")
    });
    assert_eq!(outcome.expect("it ran"), Some(3));
}

#[test]
fn a_missing_directory_is_named() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let stop = StopHandle::new().expect("an event");
    let error = serve(config(&dir.path().join("none"), &stop), |_| async {}).expect_err("not there");
    assert!(matches!(&error, ServeError::Disk { path, .. } if path.ends_with("none")), "{error}");
}
