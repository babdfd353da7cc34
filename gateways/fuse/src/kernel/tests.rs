//! Requests in the bytes of the kernel, and what a file system hears of them.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::abi::{IN_HEADER_BYTES, Malformed, fixed_bytes, opcode};
use super::answer::{
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLock, ReplyOpen, ReplyWrite, ReplyXattr, ServingThread,
};
use super::dispatch::dispatch;
use super::filesystem::Filesystem;
use super::init::KernelConfig;
use super::notify::Notifier;
use super::request::{Pieces, Request};
use super::test_service;
use super::types::{
    Errno, FileAttr, FileHandle, FileLock, FileType, FopenFlags, INodeNo, KernelTime, LockOwner, OpenFlags, RenameFlags, TimeOrNow, Ttls,
};

/// Writes down what it is asked.
#[derive(Default)]
struct Recorder(Mutex<Vec<String>>);

impl Recorder {
    fn heard(&self, words: String) {
        self.0.lock().expect("no panic").push(words);
    }
}

fn attr(ino: u64) -> FileAttr {
    FileAttr {
        ino: INodeNo(ino),
        size: 0,
        blocks: 0,
        atime: KernelTime(0),
        mtime: KernelTime(0),
        ctime: KernelTime(0),
        born: None,
        kind: FileType::REGULAR,
        perm: 0o644,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 512,
    }
}

impl Filesystem for Recorder {
    fn init(&self, _: &mut KernelConfig, _: &Notifier) {}

    fn warn(&self, _: &str) {}

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.heard(format!("lookup {} {name:?} by {} {} {}", parent.0, request.uid(), request.gid(), request.pid()));
        reply.entry(Ttls { name: Duration::new(1, 2), attr: Duration::new(1, 2) }, INodeNo(77), &attr(77));
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        file: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        self.heard(format!("setattr {} {mode:?} {uid:?} {gid:?} {size:?} {atime:?} {mtime:?} {file:?}", ino.0));
        reply.attr(&Duration::ZERO, &attr(ino.0));
    }

    fn symlink(&self, _: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        self.heard(format!("symlink {} {name:?} {target:?}", parent.0));
        reply.error(Errno::from_i32(libc::EACCES));
    }

    fn rename(&self, _: &Request, parent: INodeNo, name: &OsStr, new: INodeNo, newname: &OsStr, flags: RenameFlags, reply: ReplyEmpty) {
        self.heard(format!("rename {} {name:?} {} {newname:?} {}", parent.0, new.0, flags.bits()));
        reply.ok();
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.heard(format!("open {} {}", ino.0, flags.0));
        assert!(reply.opened(FileHandle(5), FopenFlags::FOPEN_DIRECT_IO));
    }

    fn create(&self, _: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, flags: i32, reply: ReplyCreate) {
        self.heard(format!("create {} {name:?} {mode:o} {umask:o} {flags}", parent.0));
        reply.created(Ttls::default(), &attr(8), FileHandle(6), FopenFlags::empty());
    }

    fn tmpfile(&self, _: &Request, parent: INodeNo, mode: u32, umask: u32, flags: i32, reply: ReplyCreate) {
        self.heard(format!("tmpfile {} {mode:o} {umask:o} {flags}", parent.0));
        reply.created(Ttls::default(), &attr(8), FileHandle(7), FopenFlags::empty());
    }

    fn read(&self, _: &Request, _: INodeNo, file: FileHandle, at: u64, size: u32, reply: ReplyData) {
        self.heard(format!("read {} {at} {size}", file.0));
        reply.data(b"abc");
    }

    fn write(&self, _: &Request, _: INodeNo, file: FileHandle, at: u64, data: &[u8], flags: OpenFlags, reply: ReplyWrite) {
        self.heard(format!("write {} {at} {data:?} {}", file.0, flags.0));
        reply.written(data.len() as u32);
    }

    fn readdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: u64, mut reply: ReplyDirectory) {
        assert!(!reply.add(INodeNo(1), 1, FileType(libc::S_IFDIR), OsStr::new("first")));
        assert!(reply.add(INodeNo(2), 2, FileType::REGULAR, OsStr::new("second")));
        reply.ok();
    }

    fn setxattr(&self, _: &Request, _: INodeNo, name: &OsStr, value: &[u8], flags: i32, kills_setgid: bool, reply: ReplyEmpty) {
        self.heard(format!("setxattr {name:?} {value:?} {flags} {kills_setgid}"));
        drop(reply);
    }

    fn getxattr(&self, _: &Request, _: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        self.heard(format!("getxattr {name:?} {size}"));
        reply.size(9);
    }

    fn getlk(&self, _: &Request, _: INodeNo, _: FileHandle, owner: LockOwner, lock: &FileLock, reply: ReplyLock) {
        self.heard(format!("getlk {} {lock:?}", owner.0));
        reply.lock(&FileLock { start: 1, end: 2, kind: libc::F_WRLCK, pid: 3 });
    }

    fn setlk(&self, _: &Request, _: INodeNo, _: FileHandle, owner: LockOwner, lock: &FileLock, bsd: bool, sleep: bool, reply: ReplyEmpty) {
        self.heard(format!("setlk {} {}..{} {bsd} {sleep}", owner.0, lock.start, lock.end));
        assert!(reply.is_awaited() && reply.ok_if_awaited());
    }
}

/// The bytes of a request with unique number 10 about node 2.
fn whole(code: u32, fixed: &[u8], rest: &[u8]) -> Vec<u8> {
    let len = (IN_HEADER_BYTES + fixed.len() + rest.len()) as u32;
    let mut bytes: Vec<u8> = [len, code].iter().flat_map(|number| number.to_ne_bytes()).collect();
    bytes.extend([10u64, 2].iter().flat_map(|number| number.to_ne_bytes()));
    bytes.extend([1000u32, 1001, 4242, 0].iter().flat_map(|number| number.to_ne_bytes()));
    bytes.extend_from_slice(fixed);
    bytes.extend_from_slice(rest);
    bytes
}

fn longs(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

fn words(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

/// What the file system heard, and the answer: error and body.
fn ask(code: u32, fixed: &[u8], rest: &[u8]) -> (String, i32, Vec<u8>) {
    let (recorder, service) = (Recorder::default(), Arc::new(test_service()));
    let bytes = whole(code, fixed, rest);
    let pieces = Pieces::of_whole(&bytes).expect("a request");
    service.begin(pieces.header.unique, pieces.header.pid, 1);
    dispatch(&recorder, &service, pieces);
    let answers: Vec<Vec<u8>> = ServingThread::answers(&service);
    assert_eq!(answers.len(), 1, "one answer to each request");
    let answer = &answers[0];
    assert_eq!(answer[..4], (answer.len() as u32).to_ne_bytes());
    assert_eq!(answer[8..16], 10u64.to_ne_bytes());
    let error = i32::from_ne_bytes(answer[4..8].try_into().expect("four"));
    (recorder.0.into_inner().expect("no panic").join("; "), error, answer[16..].to_vec())
}

#[test]
fn names_and_numbers_are_found_where_the_kernel_puts_them() {
    let (heard, error, body) = ask(opcode::LOOKUP, &[], b"name\0");
    assert_eq!((heard.as_str(), error, body.len()), ("lookup 2 \"name\" by 1000 1001 4242", 0, 128));
    assert_eq!(body[..8], 77u64.to_ne_bytes());
    assert_eq!(ask(opcode::SYMLINK, &[], b"link\0to/where\0"), ("symlink 2 \"link\" \"to/where\"".into(), -libc::EACCES, vec![]));
    assert_eq!(ask(opcode::RENAME, &longs(&[9]), b"a\0b\0").0, "rename 2 \"a\" 9 \"b\" 0");
    assert_eq!(ask(opcode::RENAME2, &[longs(&[9]), words(&[2, 0])].concat(), b"a\0b\0").0, "rename 2 \"a\" 9 \"b\" 2");
    let (heard, _, body) = ask(opcode::OPEN, &words(&[libc::O_RDWR as u32, 0]), &[]);
    assert_eq!((heard.as_str(), body), ("open 2 2", [longs(&[5]), words(&[1, 0])].concat()));
    let (heard, _, body) = ask(opcode::CREATE, &words(&[0o101, 0o640, 0o22, 0]), b"new\0");
    assert_eq!((heard.as_str(), body.len()), ("create 2 \"new\" 640 22 65", 144));
    assert_eq!(body[128..], [longs(&[6]), words(&[0, 0])].concat());
    let (heard, _, body) = ask(opcode::TMPFILE, &words(&[0o101, 0o640, 0o22, 0]), b"/\0");
    assert_eq!((heard.as_str(), body.len()), ("tmpfile 2 640 22 65", 144));
    let fixed = [longs(&[5, 4096]), words(&[3, 2]), longs(&[99]), words(&[1, 0])].concat();
    assert_eq!(ask(opcode::READ, &fixed, &[]), ("read 5 4096 3".into(), 0, b"abc".to_vec()));
    assert_eq!(ask(opcode::WRITE, &fixed, b"xyz"), ("write 5 4096 [120, 121, 122] 1".into(), 0, words(&[3, 0])));
    let (_, _, body) = ask(opcode::READDIR, &[longs(&[5, 0]), words(&[32, 0]), longs(&[0]), words(&[0, 0])].concat(), &[]);
    assert_eq!(body.len(), 32);
    assert_eq!(ask(opcode::GETXATTR, &words(&[0, 0]), b"user.k\0"), ("getxattr \"user.k\" 0".into(), 0, words(&[9, 0])));
    let (heard, error, _) = ask(opcode::SETXATTR, &words(&[2, 1]), b"user.k\0vv");
    assert_eq!((heard.as_str(), error), ("setxattr \"user.k\" [118, 118] 1 false", -libc::EIO), "an answer that is dropped");
    let (heard, _, _) = ask(opcode::SETXATTR, &words(&[2, 1, 1, 0]), b"user.k\0vv");
    assert_eq!(heard, "setxattr \"user.k\" [118, 118] 1 true", "the longer record of newer kernels");
    let lock = [longs(&[5, 6, 0, u64::MAX]), words(&[libc::F_RDLCK as u32, 44, 1, 0])].concat();
    assert_eq!(ask(opcode::SETLKW, &lock, &[]).0, format!("setlk 6 0..{} true true", u64::MAX));
    assert_eq!(ask(opcode::GETLK, &lock, &[]).2, [longs(&[1, 2]), words(&[libc::F_WRLCK as u32, 3])].concat());
    assert_eq!(ask(4000, &[], b"whatever").1, -libc::ENOSYS);
}

#[test]
fn only_what_is_marked_is_set() {
    let fixed = |valid: u32| {
        let times = longs(&[11, (-12i64) as u64, 13]);
        [words(&[valid, 0]), longs(&[5, 600, 0]), times, words(&[1, 2, 3, 0o4755, 0, 7, 8, 0])].concat()
    };
    assert_eq!(ask(opcode::SETATTR, &fixed(0), &[]).0, "setattr 2 None None None None None None None");
    let all = ask(opcode::SETATTR, &fixed(0b100_0111_1111), &[]).0;
    let expected = format!(
        "setattr 2 Some({}) Some(7) Some(8) Some(600) {:?} {:?} Some(FileHandle(5))",
        0o4755,
        Some(TimeOrNow::SpecificTime(KernelTime(11_000_000_001))),
        Some(TimeOrNow::SpecificTime(KernelTime(-11_999_999_998)))
    );
    assert_eq!(all, expected);
    let now = ask(opcode::SETATTR, &fixed(1 << 4 | 1 << 5 | 1 << 7 | 1 << 8), &[]).0;
    assert!(now.contains("Some(Now) Some(Now)"), "{now}");
}

#[test]
fn malformed_requests_are_refused_and_heard_by_nobody() {
    let good = whole(opcode::WRITE, &[0; 40], b"");
    for cut in 0..good.len() {
        let mut bytes = good[..cut].to_vec();
        assert_eq!(Pieces::of_whole(&bytes).err(), Some(Malformed), "it says that it is longer");
        if cut >= 4 {
            bytes[..4].copy_from_slice(&(cut as u32).to_ne_bytes());
            assert!(Pieces::of_whole(&bytes).is_err(), "a record is cut short at {cut}");
        }
    }
    let mut size = [0; 40];
    size[16] = 4;
    for (code, fixed, rest) in [
        (opcode::WRITE, &size[..], &b"abc"[..]),
        (opcode::LOOKUP, &[], b"no end"),
        (opcode::SYMLINK, &[], b"name\0no end"),
        (opcode::RENAME, &[0; 8], b"name\0"),
        (opcode::SETXATTR, &[9, 0, 0, 0, 0, 0, 0, 0], b"user.k\0short"),
    ] {
        assert_eq!(ask(code, fixed, rest), (String::new(), -libc::EIO, vec![]), "operation {code}");
    }
    assert_eq!(fixed_bytes(opcode::SETATTR), Some(88));
}

#[test]
fn an_interrupted_request_has_one_answer() {
    let service = Arc::new(test_service());
    service.begin(10, 1, 1);
    assert!(service.interrupt(10) && !service.interrupt(10));
    let pieces = whole(opcode::OPEN, &[0; 8], &[]);
    // The file system opens it all the same, and learns that nobody will close it.
    struct Opens(Mutex<Option<bool>>);
    impl Filesystem for Opens {
        fn init(&self, _: &mut KernelConfig, _: &Notifier) {}

        fn warn(&self, line: &str) {
            panic!("{line}");
        }
        fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
            *self.0.lock().expect("no panic") = Some(reply.is_awaited() || reply.opened(FileHandle(1), FopenFlags::empty()));
        }
    }
    let opens = Opens(Mutex::new(None));
    dispatch(&opens, &service, Pieces::of_whole(&pieces).expect("a request"));
    assert_eq!(*opens.0.lock().expect("no panic"), Some(false));
    assert_eq!(service.answers().len(), 1);
}
