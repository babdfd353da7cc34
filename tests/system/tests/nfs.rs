//! `weft nfs` with libnfs, a client that nobody here wrote, and with peers that are none.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use weft_system_tests::{FileSystem, Need, NfsGateway as Gateway, Random, Signal, alive, available, ok, run, signal, wait_until, weft};

const PATIENCE: Duration = Duration::from_secs(60);
const LIBNFS: Need = Need::Programs(&["nfs-ls", "nfs-cp", "nfs-cat"]);

#[test]
fn a_gateway_is_listed_and_traced() {
    let fs = FileSystem::up(&["--data", "1"]);
    let gateway = Gateway::start(&fs, 0, &["/"]);
    let address = format!("127.0.0.1:{}", gateway.port);
    let (_, report) = fs.status();
    assert_eq!(report["gateways"], serde_json::json!([{ "address": address, "pid": gateway.child.id() }]));
    ok(weft().args(["trace", "on"]).arg(fs.state()));
    let name = format!("nfs-127.0.0.1-{}", gateway.port);
    assert!(ok(weft().args(["trace", "status"]).arg(fs.state())).contains(&name));
    if available("a_gateway_is_listed_and_traced", &[LIBNFS]) {
        ok(Command::new("nfs-ls").arg(gateway.url("/")));
    }
    let into = fs.path("traces");
    ok(weft().args(["trace", "off"]).arg(fs.state()).arg("--into").arg(&into));
    let files: Vec<String> = fs::read_dir(&into).unwrap().flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    assert!(files.iter().any(|file| file.starts_with(&name.replace('.', "_"))), "{files:?}");
    signal(gateway.child.id(), Signal::TERM).unwrap();
    wait_until("the end of the gateway", PATIENCE, || fs.status().1["gateways"] == serde_json::json!([]));
}

/// Handles that clients keep, and users that they name, would be refused later.
#[test]
fn a_key_with_limits_serves_no_nfs() {
    let fs = FileSystem::up(&["--meta", "1", "--data", "1"]);
    ok(weft().args(["mkdir", &fs.at("/dir")]));
    for (name, rights) in
        [("some", ["--users", "1000-1999"]), ("nobody", ["--root-squash", "--users=any"]), ("below", ["--subtree", "/dir"])]
    {
        let file = fs.path(name);
        ok(weft().args(["key", "add", name, "--state"]).arg(fs.state()).args(rights).arg("--output").arg(&file));
        for export in ["/", "/dir"] {
            let mut command = weft();
            command.arg("nfs").arg(fs.state()).args(["--listen", "127.0.0.1:0", "--export", export, "--key-file"]).arg(&file);
            let refused = run(&mut command, PATIENCE);
            assert!(!refused.is_success() && refused.words().contains("a key for all of"), "{name}, {export}: {}", refused.words());
        }
    }
    let file = fs.path("reads");
    ok(weft().args(["key", "add", "reads", "--read-only", "--state"]).arg(fs.state()).arg("--output").arg(&file));
    let reads = Gateway::start_with(&fs, "127.0.0.1:0", &["/"], &["--key-file", file.to_str().unwrap()]);
    assert!(is_heard(&mut connect(&reads)));
}

/// A file with random bytes.
fn write_random(path: &Path, bytes: usize) -> Vec<u8> {
    let data = Random::new(bytes as u64).bytes(bytes);
    fs::write(path, &data).expect("a file");
    data
}

/// What `nfs-cat` says of a file.
fn cat(gateway: &Gateway, path: &str) -> Vec<u8> {
    let output = Command::new("nfs-cat").arg(gateway.url(path)).output().expect("nfs-cat runs");
    assert!(output.status.success(), "nfs-cat {path}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn copy(from: &Path, gateway: &Gateway, path: &str) -> bool {
    run(Command::new("nfs-cp").arg(from).arg(gateway.url(path)), PATIENCE).is_success()
}

#[test]
fn promise_gateways_agree() {
    if !available("promise_gateways_agree", &[LIBNFS]) {
        return;
    }
    let fs = FileSystem::up(&["--meta", "2", "--data", "3", "--stripe-size", "64KiB"]);
    ok(weft().args(["mkdir", &fs.at("/dir")]));
    let one = Gateway::start(&fs, 0, &["/:no_root_squash,127.0.0.0/8"]);
    let two = Gateway::start(&fs, 0, &["/:no_root_squash"]);
    let local = fs.path("local");
    for (round, bytes) in [0, 100_000, 1_500_001].into_iter().enumerate() {
        let data = write_random(&local, bytes);
        let (here, there) = if round % 2 == 0 { (&one, &two) } else { (&two, &one) };
        assert!(copy(&local, here, "/dir/file"));
        assert!(cat(there, "/dir/file") == data, "{bytes} bytes through the other gateway");
        assert!(cat(here, "/dir/file") == data);
        let command = weft().arg("cat").arg(fs.at("/dir/file")).output().expect("weft runs");
        assert!(command.stdout == data, "{bytes} bytes by a command");
        ok(weft().args(["mv", &fs.at("/dir/file"), &fs.at("/dir/moved")]));
        let listed = ok(Command::new("nfs-ls").arg(there.url("/dir")));
        assert!(listed.contains(" moved") && !listed.contains(" file"), "{listed}");
        ok(weft().args(["rm", &fs.at("/dir/moved")]));
    }
    // Rules of exports.
    let data = write_random(&local, 5000);
    let squashing = Gateway::start(&fs, 0, &["/dir", "/:ro,no_root_squash"]);
    assert!(copy(&local, &one, "/dir/theirs"));
    assert!(!copy(&local, &squashing, "/dir/mine"), "root of a client is nobody");
    assert!(!copy(&local, &squashing, "//mine"), "a read-only export");
    ok(weft().args(["cp", &local.display().to_string(), &fs.at("/top")]));
    assert_eq!(cat(&squashing, "//top"), data);
    let refused = run(Command::new("nfs-ls").arg(Gateway::start(&fs, 0, &["/:10.0.0.0/8"]).url("/")), PATIENCE);
    assert!(!refused.is_success(), "another network");
    let log = run(weft().arg("nfs").arg(fs.state()).args(["--listen", "127.0.0.1:0", "--export", "/none:10.0.0.0/8"]), PATIENCE);
    assert!(!log.is_success() && log.words().contains("cannot export /none"), "{}", log.words());
    assert!(log.words().contains("is for other machines") && log.words().contains("--listen 0.0.0.0:"), "{}", log.words());
}

#[test]
fn promise_a_gateway_loses_nothing() {
    if !available("promise_a_gateway_loses_nothing", &[LIBNFS]) {
        return;
    }
    let fs = FileSystem::up(&["--data", "2"]);
    let mut gateway = Gateway::start(&fs, 0, &["/:no_root_squash"]);
    let local = fs.path("local");
    let data = write_random(&local, 24 << 20);
    let mut client = Command::new("nfs-cp").arg(&local).arg(gateway.url("//copy")).stdout(Stdio::null()).spawn().expect("nfs-cp runs");
    wait_until("the first bytes of the copy", PATIENCE, || {
        let found = weft().args(["stat", "--json", &fs.at("/copy")]).output().expect("weft runs");
        found.status.success() && !String::from_utf8_lossy(&found.stdout).contains("\"size\": 0,")
    });
    // It waits while its gateway dies and comes back.
    signal(client.id(), Signal::STOP).expect("it can be stopped");
    let is_in_the_middle = client.try_wait().expect("its state").is_none();
    let port = gateway.port;
    gateway.kill();
    drop(gateway);
    let gateway = Gateway::start(&fs, port, &["/:no_root_squash"]);
    if is_in_the_middle {
        signal(client.id(), Signal::CONT).expect("it can go on");
    }
    wait_until("the end of the copy", PATIENCE, || client.try_wait().expect("its state").is_some());
    assert!(client.wait().expect("its state").success());
    assert!(cat(&gateway, "//copy") == data, "the copy differs");
}

#[test]
fn promise_strangers_keep_no_nfs_client_out() {
    if !available("promise_strangers_keep_no_nfs_client_out", &[LIBNFS]) {
        return;
    }
    let fs = FileSystem::up(&[]);
    let gateway = Gateway::start(&fs, 0, &["/:no_root_squash"]);
    let connect = || TcpStream::connect(("127.0.0.1", gateway.port)).expect("it listens");
    // Nonsense: the gateway says goodbye.
    let mut random = Random::new(3);
    for bytes in [b"GET / HTTP/1.1\r\n\r\n".to_vec(), vec![0xff; 100], u32::MAX.to_be_bytes().to_vec(), random.bytes(100)] {
        let mut stranger = connect();
        stranger.set_read_timeout(Some(PATIENCE)).unwrap();
        stranger.write_all(&bytes).unwrap();
        // A record of which more is to come is waited for; at the latest its end ends it.
        stranger.shutdown(std::net::Shutdown::Write).unwrap();
        let mut said = Vec::new();
        match stranger.read_to_end(&mut said) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
        }
        assert!(said.len() < 100);
    }
    // A call with strange insides is answered or not, and the next one is.
    let mut stranger = connect();
    stranger.set_read_timeout(Some(PATIENCE)).unwrap();
    for round in 0..200u32 {
        let mut call: Vec<u8> = [round, 0, 2, 100_003, 3, round % 23, 0, 0, 0, 0].iter().flat_map(|word| word.to_be_bytes()).collect();
        let rest = random.below(200) as usize / 4 * 4;
        call.extend(random.bytes(rest));
        stranger.write_all(&(call.len() as u32 | 1 << 31).to_be_bytes()).unwrap();
        stranger.write_all(&call).unwrap();
        let mut mark = [0; 4];
        stranger.read_exact(&mut mark).expect("an answer");
        let mut answer = vec![0; (u32::from_be_bytes(mark) & !(1 << 31)) as usize];
        stranger.read_exact(&mut answer).expect("an answer");
        assert_eq!(answer[..4], round.to_be_bytes(), "calls of one connection are answered");
    }
    // More that say nothing than it takes, some of them in the middle of a word.
    let idle: Vec<TcpStream> = (0..300)
        .map(|number| {
            let mut idle = connect();
            if number % 3 == 0 {
                idle.write_all(&[0x80, 0]).unwrap();
            }
            idle
        })
        .collect();
    std::thread::sleep(Duration::from_millis(1500));
    let local = fs.path("local");
    let data = write_random(&local, 100_000);
    assert!(copy(&local, &gateway, "//file"));
    assert!(cat(&gateway, "//file") == data);
    drop(idle);
    // In good order.
    signal(gateway.child.id(), Signal::TERM).expect("it can be ended");
    wait_until("the end of the gateway", PATIENCE, || !alive(gateway.child.id()));
}

/// The record of a call by a user who does not say who he is, with these arguments.
fn call(number: u32, (program, procedure): (u32, u32), arguments: &[u8]) -> Vec<u8> {
    let head = [number, 0, 2, program, 3, procedure, 0, 0, 0, 0].map(u32::to_be_bytes).concat();
    let mark = (head.len() + arguments.len()) as u32 | 1 << 31;
    [&mark.to_be_bytes(), &head[..], arguments].concat()
}

/// Bytes of variable length in a call.
fn opaque(bytes: &[u8]) -> Vec<u8> {
    let filled = [0; 3][..(4 - bytes.len() % 4) % 4].to_vec();
    [&(bytes.len() as u32).to_be_bytes(), bytes, &filled].concat()
}

/// The next answer: the number of its call, and the results.
fn answer(connection: &mut TcpStream) -> std::io::Result<(u32, Vec<u8>)> {
    let mut mark = [0; 4];
    connection.read_exact(&mut mark)?;
    let mut record = vec![0; (u32::from_be_bytes(mark) & !(1 << 31)) as usize];
    connection.read_exact(&mut record)?;
    let number = u32::from_be_bytes(record[..4].try_into().expect("four bytes"));
    Ok((number, record.split_off(24)))
}

fn connect(gateway: &Gateway) -> TcpStream {
    let connection = TcpStream::connect(("127.0.0.1", gateway.port)).expect("it listens");
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    connection
}

/// Says NULL, which needs no rights; true if it is answered.
fn is_heard(connection: &mut TcpStream) -> bool {
    connection.write_all(&call(7, (100_003, 0), &[])).and_then(|()| answer(connection)).is_ok_and(|(number, _)| number == 7)
}

/// How often threads of a process have begun to wait.
fn waits(process: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{process}/task")).expect("it lives").flatten();
    let statuses = threads.filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok());
    statuses.filter_map(|status| status.split_once("\nvoluntary_ctxt_switches:")?.1.lines().next()?.trim().parse::<u64>().ok()).sum()
}

#[test]
fn a_call_at_a_time_wakes_one_thread_for_each() {
    const CALLS: u64 = 4000;
    let fs = FileSystem::up(&["--meta", "1", "--data", "1"]);
    let gateway = Gateway::start(&fs, 0, &["/"]);
    let mut connection = connect(&gateway);
    assert!(is_heard(&mut connection));
    let before = waits(gateway.child.id());
    for _ in 0..CALLS {
        assert!(is_heard(&mut connection));
    }
    let waits = waits(gateway.child.id()) - before;
    println!("waits for {CALLS} calls: {waits}");
    assert!(waits < CALLS * 3 / 2, "{CALLS} calls made the threads of the gateway wait {waits} times");
}

#[test]
fn a_silent_server_holds_up_its_own_calls_only_and_makes_each_change_once() {
    let fs = FileSystem::up(&["--meta", "1", "--data", "1"]);
    ok(weft().args(["mkdir", "-m", "777", &fs.at("/dir")]));
    let gateway = Gateway::start_with(&fs, "127.0.0.1:0", &["/dir"], &["--timeout", "2"]);
    let mut connection = connect(&gateway);
    connection.write_all(&call(0, (100_005, 1), &opaque(b"/dir"))).unwrap();
    let (_, mounted) = answer(&mut connection).unwrap();
    assert_eq!(mounted[..8], [0, 0, 0, 0, 0, 0, 0, 44], "a handle");
    let dir = opaque(&mounted[8..52]);
    fs.signal("meta0", Signal::STOP);
    // More than one connection may have under way.
    for number in 1..=20u32 {
        let name = opaque(format!("made{number}").as_bytes());
        connection.write_all(&call(number, (100_003, 9), &[&dir[..], &name, &[0; 6 * 4]].concat())).unwrap();
    }
    connection.write_all(&call(99, (100_003, 0), &[])).unwrap();
    // Twice as long as a call waits for a server that it only asks.
    std::thread::sleep(Duration::from_secs(4));
    let (number, _) = answer(&mut connection).expect("an answer");
    assert_eq!(number, 99, "what needs no server is answered, and nothing else");
    fs.signal("meta0", Signal::CONT);
    for _ in 1..=20 {
        let (number, results) = answer(&mut connection).expect("an answer");
        assert_eq!(results[..4], [0; 4], "change {number} is told of as it was made");
    }
}

#[test]
fn promise_busy_strangers_keep_no_nfs_client_out() {
    let fs = FileSystem::up(&[]);
    let gateway = Gateway::start(&fs, 0, &["/"]);
    let mut strangers: Vec<TcpStream> = (0..256).map(|_| connect(&gateway)).collect();
    assert!(strangers.iter_mut().all(is_heard), "it takes so many");
    for _ in 0..20 {
        // All of them have spoken within the last moment.
        let heard = strangers.iter_mut().filter_map(|stranger| is_heard(stranger).then_some(())).count();
        assert!(heard > 200, "{heard} strangers are heard");
        let mut client = connect(&gateway);
        assert!(is_heard(&mut client), "the next one comes in");
        assert!(is_heard(&mut client), "and stays");
    }
    // Whom no export admits is not heard at all.
    let elsewhere = Gateway::start(&fs, 0, &["/:10.0.0.0/8"]);
    assert!(!is_heard(&mut connect(&elsewhere)));
}

/// A client may send its next calls before it takes a long answer: the one that answers gives up
/// the turn to read.
#[test]
fn a_long_answer_that_is_not_taken_keeps_no_call_from_being_read() {
    const DUMP: (u32, u32) = (100_005, 2);
    let fs = FileSystem::up(&["--meta", "1", "--data", "1"]);
    ok(weft().args(["mkdir", "-m", "777", &fs.at("/dir")]));
    let gateway = Gateway::start(&fs, 0, &["/dir"]);
    let mut connection = connect(&gateway);
    let mut dir = Vec::new();
    // The list of mounts becomes long, and is answered at once: no server is asked for it.
    for slashes in 0..512 {
        connection.write_all(&call(0, (100_005, 1), &opaque(format!("{}dir", "/".repeat(450 + slashes)).as_bytes()))).unwrap();
        let (_, mounted) = answer(&mut connection).unwrap();
        assert_eq!(mounted[..8], [0, 0, 0, 0, 0, 0, 0, 44], "a handle");
        dir = opaque(&mounted[8..52]);
    }
    let lists = 12;
    for number in 1..=lists {
        connection.write_all(&call(number, DUMP, &[])).unwrap();
        // Each is alone: whoever sees another call behind it gives up the turn in any case.
        std::thread::sleep(Duration::from_millis(50));
    }
    connection.write_all(&call(99, (100_003, 9), &[&dir[..], &opaque(b"made"), &[0; 6 * 4]].concat())).unwrap();
    // Longer than that an answer is not waited for until it is taken.
    wait_until("what was asked last", Duration::from_secs(20), || {
        weft().arg("stat").arg(fs.at("/dir/made")).output().unwrap().status.success()
    });
    let mut numbers: Vec<u32> = (0..=lists).map(|_| answer(&mut connection).expect("an answer").0).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=lists).chain([99]).collect::<Vec<u32>>());
}
