//! What operations cost in messages, and what errors say.

use weft_base::{ClientId, Credentials, Handle, ROOT_HANDLE, SECOND, ServerId, Status};
use weft_rt::Runtime;
use weft_wire::ops::Op;

use crate::fake::{FakeRt, Fate};
use crate::{Client, ClientOptions, CreateOptions, OpenFile};

const META0: ServerId = ServerId(0);

#[test]
fn a_dead_server_is_an_error_with_its_name_at_the_deadline() {
    let rt = FakeRt::new(1, 1, 1 << 20);
    let client = rt.client(1);
    rt.fates(|_| Fate::Lost);
    let begin = rt.now();
    let error = rt.run(client.getattr(ROOT_HANDLE)).expect_err("nobody answers");
    assert_eq!(error.status, Status::TimedOut);
    assert!(error.explain(client.map()).starts_with("getattr of h0.1 at meta0 (unix:/meta0): no answer before the deadline; is the"));
    assert!(rt.now().since(begin) <= 30 * SECOND);
    assert!(rt.now().since(begin) > 27 * SECOND, "it did try");

    rt.fates(|_| Fate::NoConnection);
    let error = rt.run(client.ping(META0)).expect_err("nobody is there");
    assert_eq!((error.status, error.server), (Status::Unreachable, Some(META0)));
}

#[test]
fn errors_of_the_operation_are_not_retried() {
    let rt = FakeRt::new(1, 1, 1 << 20);
    let client = rt.client(1);
    let error = rt.run(client.lookup(&Credentials::ROOT, ROOT_HANDLE, b"x")).expect_err("no such name");
    assert_eq!((error.status, rt.take_sent().len()), (Status::NotFound, 1));
    let error = rt.run(client.mkdir(&Credentials::ROOT, ROOT_HANDLE, &[b'x'; 256], 0o755)).expect_err("too long");
    assert_eq!((error.status, rt.take_sent().len()), (Status::NameTooLong, 0));
    let error = rt.run(client.getattr(Handle::new(ServerId(9), 1))).expect_err("no such server");
    assert_eq!((error.status, rt.take_sent().len()), (Status::Stale, 0));
}

#[test]
fn df_names_the_server_that_does_not_answer() {
    let rt = FakeRt::new(2, 3, 1 << 20);
    let client = rt.client(1);
    rt.fates(|sent| if sent.server == ServerId::data(1) { Fate::NoConnection } else { Fate::Arrives });
    let stats = rt.run(client.statfs()).expect("the others answer");
    assert_eq!((stats.capacity_bytes, stats.free_bytes, stats.used_bytes, stats.inodes), (2000, 1800, 200, 20));
    assert_eq!(stats.unanswered.iter().map(|error| error.server).collect::<Vec<_>>(), [Some(ServerId::data(1))]);
}

#[test]
fn a_create_is_one_request_and_so_is_a_close() {
    let rt = FakeRt::new(2, 4, 1 << 20);
    let client = rt.client(1);
    let options = CreateOptions::default();
    let (attr, file, created) = rt.run(client.create(&Credentials::ROOT, ROOT_HANDLE, b"a", &options)).expect("the server makes it");
    assert!(created);
    assert_eq!(attr.handle, file.handle());
    assert_eq!(rt.take_sent(), [(META0, Op::Create)]);
    rt.run(client.close(file)).expect("the server notes it");
    assert_eq!(rt.take_sent(), [(META0, Op::Close)]);
    assert!(rt.0.borrow().opens.is_empty());
}

/// Threads share a client and its files, whatever the runtime, if they may share that. Compiling it
/// is the test.
#[allow(dead_code)]
fn threads_share_a_client_and_its_files<R: Runtime + Send + Sync>() {
    fn shared<T: Send + Sync>() {}
    shared::<Client<R>>();
    shared::<OpenFile>();
}

#[test]
fn several_calls_share_the_deadline_of_one_operation() {
    let rt = FakeRt::new(1, 1, 1 << 20);
    let client = rt.client(1);
    let begin = rt.now();
    let one = client.for_one_operation();
    let mut times = 0;
    rt.fates(move |_| {
        times += 1;
        if times <= 2 { Fate::Lost } else { Fate::Arrives }
    });
    rt.run(one.getattr(ROOT_HANDLE)).expect("it answers in time");
    rt.fates(|_| Fate::Lost);
    rt.run(one.getattr(ROOT_HANDLE)).expect_err("nobody answers");
    assert!(rt.now().since(begin) <= 30 * SECOND, "{} ns", rt.now().since(begin));
    let again = rt.now();
    rt.run(client.getattr(ROOT_HANDLE)).expect_err("nobody answers");
    assert!(rt.now().since(again) > 20 * SECOND, "the next operation has its own");
}

#[test]
fn telling_a_restarted_server_what_is_open_takes_no_longer_than_the_operation() {
    let rt = FakeRt::new(1, 1, 1 << 20);
    let options = ClientOptions { deadline_ns: 4 * SECOND, ..ClientOptions::new(ClientId(1), 1) };
    let client = rt.client_with(options);
    let (_, _file, _) = rt.run(client.create(&Credentials::ROOT, ROOT_HANDLE, b"file", &CreateOptions::default())).expect("it is made");
    rt.0.borrow_mut().boots.insert(META0, 2);
    let begin = rt.now();
    let mut times = 0;
    rt.fates(move |sent| {
        times += 1;
        let is_lost = times == 1 || sent.request.op() == Op::Reclaim;
        if is_lost { Fate::Lost } else { Fate::Arrives }
    });
    rt.run(client.getattr(ROOT_HANDLE)).expect("it answers in time");
    assert!(rt.now().since(begin) <= 4 * SECOND, "{} ns", rt.now().since(begin));
    // It is told with the next answer.
    rt.fates(|_| Fate::Arrives);
    rt.run(client.getattr(ROOT_HANDLE)).expect("it answers");
    assert_eq!(rt.0.borrow().reclaimed.len(), 1);
}
