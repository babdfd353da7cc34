//! Locks of NFS clients (NLM) among each other, and with a client of the file system that is none.

use bytes::Bytes;
use weft_base::{Credentials, Handle, SECOND, ServerId};
use weft_client::Client;
use weft_rt_sim::SimRt;
use weft_wire::ops::{Family, Lock, LockKind, LockOutcome};

use super::world::{Fh, Gate, User, World, args};
use crate::calls::NFS_PROGRAM;
use crate::gateway::lock;
use crate::locks::{NLM_PROGRAM, NlmStatus, Told};
use crate::rpc::{Refusal, refused};
use crate::xdr::Writer;

const GRANTED: u32 = NlmStatus::GRANTED.0;
const DENIED: u32 = NlmStatus::DENIED.0;
const NO_ROOM: u32 = NlmStatus::NO_ROOM.0;
const BLOCKED: u32 = NlmStatus::BLOCKED.0;
const DEADLOCK: u32 = NlmStatus::DEADLOCK.0;
const LATER: u32 = NlmStatus::LATER.0;
const STALE: u32 = NlmStatus::STALE.0;
const FAILED: u32 = NlmStatus::FAILED.0;

/// A program on a client machine, and the file that it locks.
#[derive(Clone)]
pub(super) struct Program<'a> {
    pub user: User<'a>,
    pub name: &'static str,
    pub svid: u32,
    pub state: u32,
    pub file: Fh,
}

/// Offset and length.
type Range = (u64, u64);

impl<'a> Program<'a> {
    /// On the machine 10.0.0.`host`, with root's rights.
    fn new(world: &'a World, gate: &Gate, host: u8, svid: u32, file: &Fh) -> Program<'a> {
        let user = User { address: [10, 0, 0, host].into(), ..world.user(gate, 0) };
        Program { user, name: "client", svid, state: 1, file: file.clone() }
    }

    fn put(&self, out: &mut Writer, (offset, length): Range) {
        out.opaque(self.name.as_bytes()).opaque(&self.file).opaque(format!("{}@client", self.svid).as_bytes());
        out.u32(self.svid).u64(offset).u64(length);
    }

    fn status(&self, procedure: u32, write: impl FnOnce(&mut Writer)) -> u32 {
        let mut out = Writer::default();
        out.opaque(b"cookie");
        write(&mut out);
        let mut results = self.user.call(NLM_PROGRAM, procedure, &out);
        assert_eq!(results.opaque(64).unwrap(), "cookie");
        results.u32().unwrap()
    }

    pub fn ask(&self, waits: bool, is_exclusive: bool, range: Range) -> u32 {
        self.status(2, |out| {
            out.bool(waits).bool(is_exclusive);
            self.put(out, range);
            out.bool(false).u32(self.state);
        })
    }

    /// LOCK, exclusive and not to be waited for.
    pub fn lock(&self, range: Range) -> u32 {
        self.ask(false, true, range)
    }

    /// LOCK, exclusive and to be waited for.
    fn wait(&self, range: Range) -> u32 {
        self.ask(true, true, range)
    }

    /// CANCEL of a wait for an exclusive lock, or for a shared one.
    pub fn cancel(&self, range: Range, is_exclusive: bool) -> u32 {
        self.status(3, |out| {
            out.bool(true).bool(is_exclusive);
            self.put(out, range);
        })
    }

    pub fn unlock(&self, range: Range) -> u32 {
        self.status(4, |out| self.put(out, range))
    }

    /// TEST for an exclusive lock: kind, process, owner, offset and length of one in the way.
    pub fn test(&self, range: Range) -> Option<(bool, u32, Bytes, Range)> {
        let mut out = Writer::default();
        out.opaque(b"cookie").bool(true);
        self.put(&mut out, range);
        let mut results = self.user.call(NLM_PROGRAM, 1, &out);
        assert_eq!(results.opaque(64).unwrap(), "cookie");
        match results.u32().unwrap() {
            GRANTED => None,
            LATER => {
                self.user.world.pass(SECOND / 20);
                self.test(range)
            }
            status => {
                assert_eq!(status, DENIED);
                let (kind, svid, oh) = (results.bool().unwrap(), results.u32().unwrap(), results.opaque(64).unwrap());
                Some((kind, svid, oh, (results.u64().unwrap(), results.u64().unwrap())))
            }
        }
    }

    pub fn free_all(&self) {
        self.user.call(NLM_PROGRAM, 23, &args(|out| out.opaque(self.name.as_bytes()).u32(0)));
    }
}

/// A world with a gateway and a file of root that everybody may read.
fn with_file() -> (World, Gate, Fh) {
    let world = World::new(1, 1);
    let gate = world.gateway(&["/:no_root_squash,*"]);
    let root = world.user(&gate, 0);
    let dir = root.mount("/").unwrap();
    let file = root.create(&dir, "file", 1, 0o644).unwrap();
    (world, gate, file)
}

/// Programs 1 and 2 of two machines.
fn two<'a>(world: &'a World, gate: &Gate, file: &Fh) -> (Program<'a>, Program<'a>) {
    (Program::new(world, gate, 1, 1, file), Program::new(world, gate, 2, 2, file))
}

/// A program of a mount, as its client asks.
fn of_mount(world: &World, client: &Client<SimRt>, file: Handle, kind: Option<LockKind>, (start, end): Range) -> Option<LockOutcome> {
    let client = client.clone();
    let lock = Lock { family: Family::Fcntl, owner: 77, kind: kind.unwrap_or(LockKind::Shared), start, end, process: 4711, file: 1 };
    world.run(async move {
        match kind {
            Some(_) => Some(client.lock(file, lock, None).await.unwrap().outcome),
            None => client.unlock(file, &lock.whole()).await.map(|()| None).unwrap(),
        }
    })
}

fn is_idle(gate: &Gate) -> bool {
    lock(&gate.nfs.locks).is_empty()
}

#[test]
fn nfs_clients_and_mounts_exclude_each_other() {
    let (world, gate, fh) = with_file();
    let (one, two) = two(&world, &gate, &fh);
    let mount = world.client();
    let opens = mount.clone();
    let file = world.run(async move { opens.resolve(&Credentials::ROOT, b"/file", true).await.unwrap().handle });
    let exclusive = |range| of_mount(&world, &mount, file, Some(LockKind::Exclusive), range);
    // Readers share.
    assert_eq!((one.ask(false, false, (0, 10)), two.ask(false, false, (5, 10))), (GRANTED, GRANTED));
    assert_eq!(of_mount(&world, &mount, file, Some(LockKind::Shared), (0, 99)), Some(LockOutcome::Granted));
    assert_eq!((one.lock((0, 10)), exclusive((3, 3))), (DENIED, Some(LockOutcome::Taken)));
    of_mount(&world, &mount, file, None, (0, 99));
    assert_eq!((one.unlock((0, 0)), two.unlock((0, 0))), (GRANTED, GRANTED));
    // The mount first, to the end as kernels say it, then the NFS client.
    assert_eq!(exclusive((100, i64::MAX as u64)), Some(LockOutcome::Granted));
    assert_eq!((one.lock((90, 11)), one.lock((90, 10)), one.lock((1 << 40, 1))), (DENIED, GRANTED, DENIED));
    assert_eq!(one.test((1 << 40, 1)), Some((true, 0, Bytes::new(), (100, 0))), "a program of a mount has no name here");
    assert_eq!(exclusive((95, 95)), Some(LockOutcome::Taken));
    of_mount(&world, &mount, file, None, (0, u64::MAX));
    // Halves, 64 bits, no end.
    assert_eq!((one.lock((0, 0)), two.lock((u64::MAX, 1))), (GRANTED, DENIED));
    assert_eq!(two.test((1 << 50, 5)), Some((true, 1, "1@client".into(), (0, 0))));
    assert_eq!(one.test((1 << 50, 5)), None, "one's own is not in the way");
    assert_eq!(one.unlock((1 << 50, 5)), GRANTED);
    assert_eq!((two.lock((1 << 50, 6)), two.lock((1 << 50, 5))), (DENIED, GRANTED));
    assert_eq!(one.test((0, 0)), Some((true, 2, "2@client".into(), (1 << 50, 5))));
    let other_process = Program { svid: 9, ..one.clone() };
    assert_eq!(other_process.lock((0, 1)), DENIED, "of the same machine");
    // Others cannot give it back, and what is over leaves nothing.
    assert_eq!((two.unlock((0, 0)), two.lock((0, 1)), other_process.unlock((0, 0)), two.lock((0, 1))), (GRANTED, DENIED, GRANTED, DENIED));
    assert!(!is_idle(&gate));
    assert_eq!(one.unlock((0, 0)), GRANTED);
    assert_eq!(exclusive((0, u64::MAX)), Some(LockOutcome::Granted));
    assert!(is_idle(&gate));
    assert_eq!(one.lock((2, u64::MAX)), NlmStatus::TOO_FAR.0);
}

#[test]
fn who_waits_is_told() {
    let (world, gate, fh) = with_file();
    let (one, two) = two(&world, &gate, &fh);
    assert_eq!((one.lock((0, 10)), two.wait((5, 10))), (GRANTED, BLOCKED));
    world.pass(10 * SECOND);
    assert!(gate.told.borrow().is_empty());
    assert_eq!(two.wait((5, 10)), BLOCKED, "it asks again");
    assert_eq!(one.unlock((0, 10)), GRANTED);
    world.pass(SECOND);
    assert_eq!(gate.told.borrow().len(), 1);
    let mut said = gate.told.borrow()[0].arguments();
    assert_eq!(
        (said.opaque(8).unwrap().len(), said.bool(), said.opaque(64).unwrap(), said.opaque(64).unwrap()),
        (8, Ok(true), "client".into(), fh)
    );
    assert_eq!((said.opaque(64).unwrap(), said.u32(), said.u64(), said.u64()), ("2@client".into(), Ok(2), Ok(5), Ok(10)));
    world.pass(100 * SECOND);
    assert_eq!((gate.told.borrow().len(), one.lock((0, 10))), (1, DENIED), "it took it, and is not called again");
    assert_eq!((two.cancel((5, 10), true), two.unlock((5, 10))), (DENIED, GRANTED));
    assert!(is_idle(&gate));
}

#[test]
fn who_cannot_be_told_asks_or_loses_it() {
    let (world, gate, fh) = with_file();
    let (one, two) = two(&world, &gate, &fh);
    let range = (0, 10);
    // It asks again and has it.
    gate.answers.set(Told::Unheard);
    assert_eq!((one.lock(range), two.wait(range), one.unlock(range)), (GRANTED, BLOCKED, GRANTED));
    world.pass(30 * SECOND);
    let calls = gate.told.borrow().len();
    assert!((5..=7).contains(&calls), "{calls} calls");
    assert_eq!((two.wait(range), one.lock(range)), (GRANTED, DENIED));
    world.pass(200 * SECOND);
    assert_eq!((gate.told.borrow().len(), one.lock(range)), (calls, DENIED));
    assert_eq!(two.unlock(range), GRANTED);
    // It has certainly not heard and does not ask.
    assert_eq!((one.lock(range), two.wait(range), one.unlock(range)), (GRANTED, BLOCKED, GRANTED));
    world.pass(50 * SECOND);
    assert_eq!(one.lock(range), DENIED);
    world.pass(15 * SECOND);
    assert_eq!((one.lock(range), one.unlock(range)), (GRANTED, GRANTED));
    // It does not want it.
    gate.answers.set(Told::Refused);
    assert_eq!((one.lock(range), two.wait(range), one.unlock(range)), (GRANTED, BLOCKED, GRANTED));
    world.pass(SECOND);
    assert_eq!((one.lock(range), one.unlock(range), is_idle(&gate)), (GRANTED, GRANTED, true));
    // It may have heard, and refuses what it has already: then the lock is its.
    gate.answers.set(Told::Unanswered);
    assert_eq!((one.lock(range), two.wait(range), one.unlock(range)), (GRANTED, BLOCKED, GRANTED));
    world.pass(SECOND);
    gate.answers.set(Told::Refused);
    world.pass(200 * SECOND);
    assert_eq!((one.lock(range), two.unlock(range), one.lock(range)), (DENIED, GRANTED, GRANTED));
}

#[test]
fn a_wait_can_be_given_up() {
    let (world, gate, fh) = with_file();
    let (one, two) = two(&world, &gate, &fh);
    let range = (0, 10);
    assert_eq!((one.lock(range), two.wait(range), two.cancel((0, 9), true), two.cancel(range, true)), (GRANTED, BLOCKED, DENIED, GRANTED));
    assert_eq!((one.unlock(range), two.cancel(range, true)), (GRANTED, DENIED));
    world.pass(5 * SECOND);
    assert!(gate.told.borrow().is_empty() && is_idle(&gate));
    // Also by asking for it without a wait, and by giving it back.
    assert_eq!((one.lock(range), two.wait(range), two.lock(range)), (GRANTED, BLOCKED, DENIED));
    assert_eq!((two.wait(range), two.unlock((3, 1)), one.unlock(range)), (BLOCKED, GRANTED, GRANTED));
    world.pass(5 * SECOND);
    assert!(gate.told.borrow().is_empty() && is_idle(&gate));
    // When it was granted at the same moment: its owner has again what it had.
    gate.answers.set(Told::Unheard);
    assert_eq!((one.ask(false, false, range), two.ask(false, false, (5, 2)), two.wait(range)), (GRANTED, GRANTED, BLOCKED));
    assert_eq!(one.unlock(range), GRANTED);
    world.pass(SECOND);
    assert_eq!((one.ask(false, false, (0, 1)), two.cancel(range, true)), (DENIED, GRANTED));
    assert_eq!((one.lock((0, 5)), one.lock((7, 3)), one.lock((5, 2)), one.ask(false, false, (5, 2))), (GRANTED, GRANTED, DENIED, GRANTED));
}

#[test]
fn a_circle_is_refused() {
    let (world, gate, fh) = with_file();
    let (one, two) = two(&world, &gate, &fh);
    assert_eq!((one.lock((0, 1)), two.lock((1, 1)), one.wait((1, 1)), two.wait((0, 1))), (GRANTED, GRANTED, BLOCKED, DEADLOCK));
    assert_eq!(two.unlock((1, 1)), GRANTED);
    world.pass(SECOND);
    assert_eq!(gate.told.borrow().len(), 1);
}

#[test]
fn a_client_that_was_away_drops_its_locks() {
    let (world, gate, fh) = with_file();
    let (one, two) = two(&world, &gate, &fh);
    let other = Program { svid: 7, ..one.clone() };
    let neighbour = Program { name: "other", ..one.clone() };
    assert_eq!((one.lock((0, 1)), other.lock((1, 1)), neighbour.lock((2, 1)), two.lock((3, 1))), (GRANTED, GRANTED, GRANTED, GRANTED));
    assert_eq!(other.wait((3, 1)), BLOCKED);
    // Nobody speaks for somebody else.
    let liar = Program { name: "client", ..Program::new(&world, &gate, 9, 1, &fh) };
    liar.free_all();
    assert_eq!(two.test((0, 1)).map(|found| found.1), Some(1));
    one.free_all();
    assert_eq!((two.test((0, 2)), two.test((2, 1)).map(|found| found.1)), (None, Some(1)));
    assert_eq!(two.unlock((3, 1)), GRANTED);
    world.pass(SECOND);
    assert!(gate.told.borrow().is_empty(), "it does not wait any more");
    // A machine that has restarted says so with its first lock.
    assert_eq!((one.lock((0, 1)), other.lock((1, 1))), (GRANTED, GRANTED));
    let unknown = Program { state: 0, ..one.clone() };
    assert_eq!(unknown.lock((5, 1)), GRANTED);
    assert!(two.test((1, 1)).is_some(), "it does not say how often it has restarted");
    let after = Program { state: 3, svid: 8, ..one.clone() };
    assert_eq!((after.lock((9, 1)), two.test((0, 2))), (GRANTED, None));
    assert_eq!((after.lock((10, 1)), two.test((9, 2)).map(|found| found.1)), (GRANTED, Some(8)));
    assert!(two.test((2, 1)).is_some(), "the neighbour is another machine");
}

#[test]
fn locks_outlive_a_restart_of_the_server_and_the_name_of_the_file() {
    let (world, gate, fh) = with_file();
    let (one, two) = two(&world, &gate, &fh);
    assert_eq!(one.lock((0, 10)), GRANTED);
    // Longer than what is idle stays open.
    world.pass(20 * SECOND);
    world.restart(ServerId(0));
    world.pass(20 * SECOND);
    assert_eq!((two.lock((0, 1)), two.wait((0, 1))), (DENIED, BLOCKED));
    world.restart(ServerId(0));
    world.pass(20 * SECOND);
    assert_eq!(one.unlock((0, 10)), GRANTED);
    world.pass(5 * SECOND);
    assert_eq!((gate.told.borrow().len(), two.test((0, 1)), one.test((0, 1)).map(|found| found.1)), (1, None, Some(2)));
    let root = world.user(&gate, 0);
    let dir = root.mount("/").unwrap();
    root.remove(&dir, "file").unwrap();
    assert_eq!((one.lock((5, 1)), two.unlock((0, 1)), is_idle(&gate)), (STALE, GRANTED, true));
}

#[test]
fn who_may_not_open_a_file_does_not_lock_it() {
    let (world, gate, fh) = with_file();
    let root = world.user(&gate, 0);
    let dir = root.mount("/").unwrap();
    let secret = root.create(&dir, "secret", 1, 0o600).unwrap();
    let stranger = |file: &Fh| {
        let program = Program::new(&world, &gate, 1, 1, file);
        Program { user: User { uid: 5, ..program.user.clone() }, ..program }
    };
    let (open, closed) = (stranger(&fh), stranger(&secret));
    assert_eq!((open.ask(false, false, (0, 1)), open.lock((0, 1)), closed.ask(false, false, (0, 1))), (GRANTED, FAILED, FAILED));
    assert_eq!((stranger(&dir).ask(false, false, (0, 1)), stranger(&Fh::from_static(&[1; 44])).lock((0, 1))), (FAILED, STALE));
    // Through a read-only export as through a descriptor for reading.
    let read_only = world.gateway(&["/:ro,no_root_squash,*"]);
    let reader = Program::new(&world, &read_only, 1, 1, &fh);
    assert_eq!((reader.ask(false, false, (0, 1)), reader.lock((5, 1))), (GRANTED, NlmStatus::READ_ONLY.0));
    let elsewhere = world.gateway(&["/:192.168.0.0/16"]);
    let user = Program::new(&world, &elsewhere, 1, 1, &fh).user;
    let mut out = Writer::default();
    out.opaque(b"").bool(true);
    Program::new(&world, &elsewhere, 1, 1, &fh).put(&mut out, (0, 1));
    assert_eq!(user.send(user.record(5, NLM_PROGRAM, 1, &out)), Some(refused(5, Refusal::Rejected)));
}

#[test]
fn one_client_does_not_take_the_room_of_others() {
    let (world, gate, fh) = with_file();
    let (one, two) = two(&world, &gate, &fh);
    let taken = (0..600).take_while(|number| one.lock((number * 2, 1)) == GRANTED).count();
    assert_eq!(taken, 511, "one more may be cut in two");
    assert_eq!((one.lock((5000, 1)), two.lock((5000, 1))), (NO_ROOM, GRANTED));
    assert_eq!((one.unlock((0, 0)), one.lock((0, 1))), (GRANTED, GRANTED));
    let waits = (10..110).take_while(|svid| Program { svid: *svid, ..two.clone() }.wait((0, 1)) == BLOCKED).count();
    assert_eq!(waits, 64);
    assert_eq!(Program::new(&world, &gate, 3, 3, &fh).wait((0, 1)), BLOCKED);
    one.free_all();
    two.free_all();
    world.pass(10 * SECOND);
    Program::new(&world, &gate, 3, 3, &fh).free_all();
    world.pass(SECOND);
    assert!(is_idle(&gate));
}

#[test]
fn repeated_calls_are_done_once_and_the_rest_is_said() {
    let (world, gate, fh) = with_file();
    let (one, _) = two(&world, &gate, &fh);
    let mut out = Writer::default();
    out.opaque(b"cookie");
    one.put(&mut out, (0, 10));
    let unlock = one.user.record(9000, NLM_PROGRAM, 4, &out);
    assert_eq!(one.lock((0, 10)), GRANTED);
    let first = one.user.send(unlock.clone());
    assert_eq!(one.lock((0, 10)), GRANTED);
    assert_eq!(one.user.send(unlock), first);
    assert!(two(&world, &gate, &fh).1.test((0, 1)).is_some(), "the later lock is still there");
    // Share modes are not kept; calls whose answers are calls are not taken.
    let share = |procedure: u32| {
        one.status(procedure, |out| {
            out.opaque(b"client").opaque(&fh).opaque(b"owner").u32(1).u32(1).bool(false);
        })
    };
    assert_eq!((share(20), share(21)), (NO_ROOM, GRANTED));
    let answer = |procedure: u32| one.user.send(one.user.record(7, NLM_PROGRAM, procedure, &Writer::default()));
    for procedure in (5..=19).chain([24, 1000]) {
        assert_eq!(answer(procedure), Some(refused(7, Refusal::NoProcedure)), "{procedure}");
    }
    for procedure in (1..=4).chain(20..=23) {
        assert_eq!(answer(procedure), Some(refused(7, Refusal::Arguments)), "{procedure}");
    }
    let mut old = one.user.record(7, NFS_PROGRAM, 0, &Writer::default()).to_vec();
    old[12..16].copy_from_slice(&NLM_PROGRAM.to_be_bytes());
    assert_eq!(one.user.send(old.into()), Some(refused(7, Refusal::NoVersion(4, 4))));
}

#[test]
fn the_end_of_a_gateway_ends_its_locks() {
    let (world, gate, fh) = with_file();
    let (one, two) = two(&world, &gate, &fh);
    assert_eq!((one.lock((0, 10)), two.wait((0, 10))), (GRANTED, BLOCKED));
    gate.nfs.end_all_waits();
    world.pass(SECOND);
    assert!(gate.nfs.has_no_waits());
    assert_eq!(one.lock((20, 1)), NlmStatus::LATER.0);
    let nfs = gate.nfs.clone();
    world.run(async move { nfs.posix.end(SECOND).await });
    let other = world.gateway(&["/:no_root_squash,*"]);
    assert_eq!(Program::new(&world, &other, 1, 1, &fh).lock((0, 10)), GRANTED, "at once");
}
