//! Locks of these clients, and of a program beside them that uses no NFS: what each believes to
//! hold excludes what the others believe, and nobody is kept out by nobody.

use std::collections::BTreeMap;

use weft_base::{ClientId, Credentials, Handle, Nanos, SECOND};
use weft_locks::Ranges;
use weft_posix::{InodeNumber, OpenHow, Refusal};
use weft_rt_sim::{NodeId, Random};
use weft_wire::Rights;
use weft_wire::ops::{Family, HeldLock, Lock, LockKind};

use super::super::locks::Program;
use super::super::world::{Call, Fh, Gate, UNANSWERED, User, World};
use crate::gateway::lock;
use crate::locks::{NlmStatus, Told};
use crate::types::NfsStatus;

/// How clients call themselves.
const NAMES: [&str; 2] = ["one", "two"];
/// Who uses no NFS.
const BESIDE: ClientId = ClientId(2);
/// How long locks may stay of who has died, or may have been done although it failed, in
/// nanoseconds.
const LEFT_NS: u64 = 40 * SECOND;
const BOTH: Rights = Rights(Rights::READ.0 | Rights::WRITE.0);

/// What one of several does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Lock,
    Wait,
    Unlock,
    Cancel,
}

pub(super) struct Believed<'a> {
    world: &'a World,
    users: [User<'a>; 2],
    held: BTreeMap<Fh, Ranges>,
    waits: Vec<(Fh, HeldLock)>,
    /// The gateways that the clients used last.
    gates: [NodeId; 2],
    /// How often the clients have restarted.
    states: [u32; 2],
    /// Until then somebody may be in the way of whom nothing is known.
    unknown_until: Nanos,
    beside: Gate,
    opened: BTreeMap<Fh, u64>,
    seed: u64,
}

fn excludes(lock: &HeldLock, wanted: &HeldLock) -> bool {
    let mut ranges = Ranges::default();
    ranges.put(*lock);
    ranges.conflict(wanted).is_some()
}

fn overlaps(one: &HeldLock, two: &HeldLock) -> bool {
    (one.client, one.lock.owner) == (two.client, two.lock.owner) && one.lock.start <= two.lock.end && two.lock.start <= one.lock.end
}

impl<'a> Believed<'a> {
    pub fn new(world: &'a World, users: &[User<'a>; 2], beside: Gate, seed: u64) -> Believed<'a> {
        let (users, gates) = (users.clone(), [0, 1].map(|at: usize| users[at].gate().node));
        let (held, waits, opened) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        Believed { world, users, held, waits, gates, states: [1, 1], unknown_until: Nanos(0), beside, opened, seed }
    }

    fn program(&self, client: usize, svid: u64, file: &Fh) -> Program<'a> {
        let (user, name, state) = (self.users[client].clone(), NAMES[client], self.states[client]);
        Program { user, name, svid: svid as u32, state, file: file.clone() }
    }

    /// A call that is made again for as long as the gateway asks for that.
    fn insist(&mut self, call: impl Fn() -> u32) -> u32 {
        loop {
            let status = call();
            self.notice();
            match status {
                status if status == NlmStatus::LATER.0 => self.world.pass(SECOND / 20),
                status => return status,
            }
        }
    }

    /// Whose gateway has died has no locks any more; who was told of one has it.
    pub fn notice(&mut self) {
        for client in 0..2 {
            let gate = self.users[client].gate();
            if gate.node != self.gates[client] || !self.world.is_running(&gate) {
                self.lost(client);
                self.gates[client] = gate.node;
            }
            let told = std::mem::take(&mut *gate.told.borrow_mut());
            for grant in told.into_iter().filter(|_| gate.answers.get() == Told::Taken) {
                let mut said = grant.arguments();
                let (_, _, name) = (said.opaque(8).unwrap(), said.bool(), said.opaque(64).unwrap());
                let (file, _, svid) = (said.opaque(64).unwrap(), said.opaque(64).unwrap(), said.u32().unwrap());
                let range = (said.u64().unwrap(), said.u64().unwrap());
                let is_it = |(of, wait): &(Fh, HeldLock)| {
                    let Lock { owner, start, end, .. } = wait.lock;
                    let ends = if range.1 == 0 { u64::MAX } else { range.0 + range.1 - 1 };
                    *of == file && NAMES[wait.client.0 as usize] == name && (owner, start, end) == (svid.into(), range.0, ends)
                };
                if let Some(at) = self.waits.iter().position(is_it) {
                    let (file, wait) = self.waits.remove(at);
                    self.believe(&file, wait);
                }
            }
        }
    }

    fn lost(&mut self, client: usize) {
        let client = ClientId(client as u64);
        self.held.values_mut().for_each(|held| held.drop_where(|lock| lock.client == client));
        self.waits.retain(|(_, wait)| wait.client != client);
        self.unknown_until = self.world.now() + LEFT_NS;
    }

    fn believe(&mut self, file: &Fh, wanted: HeldLock) {
        let held = self.held.entry(file.clone()).or_default();
        let conflict = held.conflict(&wanted);
        assert!(held.lock(wanted), "{wanted:?} beside {conflict:?} at {:?}, seed {}", self.world.now(), self.seed);
    }

    /// Somebody else has this lock, waits for it, or had it until a moment ago.
    fn may_be_in_the_way(&self, file: &Fh, wanted: &HeldLock) -> bool {
        let is_held = self.held.get(file).is_some_and(|held| held.conflict(wanted).is_some());
        is_held || self.waits.iter().any(|(of, wait)| of == file && excludes(wait, wanted)) || self.world.now() < self.unknown_until
    }

    #[track_caller]
    fn is_in_the_way(&self, file: &Fh, wanted: &HeldLock) {
        assert!(self.may_be_in_the_way(file, wanted), "who is in the way of {wanted:?}? {:?}, seed {}", self.world.now(), self.seed);
    }

    /// Gives up what is believed of a range; returns what that was.
    fn doubt(&mut self, file: &Fh, wanted: &HeldLock) -> Vec<HeldLock> {
        let held = self.held.entry(file.clone()).or_default();
        let before = held.iter().filter(|held| overlaps(held, wanted)).copied().collect();
        held.unlock(wanted.client, &wanted.lock.whole());
        before
    }

    /// Who waits for less than it has loses the rest at the moment when it gets it, and hears that
    /// later: here it asks for as much.
    fn at_least_what_it_has(&self, file: &Fh, wanted: HeldLock) -> HeldLock {
        let has_more = |held: &HeldLock| overlaps(held, &wanted) && held.lock.kind == LockKind::Exclusive;
        let kind = if self.held.get(file).is_some_and(|held| held.iter().any(has_more)) { LockKind::Exclusive } else { wanted.lock.kind };
        HeldLock { lock: Lock { kind, ..wanted.lock }, ..wanted }
    }

    fn end_waits(&mut self, file: &Fh, wanted: &HeldLock) {
        self.waits.retain(|(of, wait)| of != file || !overlaps(wait, wanted));
    }

    /// Something of the locks of a file.
    pub fn step(&mut self, file: &Fh, random: &mut Random) {
        self.notice();
        if random.below(5) == 0 {
            return self.several(file, random);
        }
        let (start, bytes) = if random.below(4) == 0 { (0, 0) } else { (random.below(12), random.below(8)) };
        let kind = if random.coin() { LockKind::Shared } else { LockKind::Exclusive };
        let end = if bytes == 0 { u64::MAX } else { start + bytes - 1 };
        let (client, owner) = (random.below(3) as usize, 1 + random.below(2));
        let lock = Lock { family: Family::Fcntl, owner, kind, start, end, process: 1, file: 0 };
        let wanted = HeldLock { client: ClientId(client as u64), lock };
        if wanted.client == BESIDE {
            return self.step_beside(file, wanted, random.coin());
        }
        let mut program = self.program(client, owner, file);
        let range = (start, bytes);
        match random.below(12) {
            0 => {
                let in_the_way = program.test(range);
                self.notice();
                let exclusive = HeldLock { lock: Lock { kind: LockKind::Exclusive, ..lock }, ..wanted };
                match in_the_way {
                    Some(_) => self.is_in_the_way(file, &exclusive),
                    None => assert_eq!(self.held.get(file).and_then(|held| held.conflict(&exclusive)), None, "seed {}", self.seed),
                }
            }
            1 => {
                self.lost(client);
                if random.coin() {
                    return program.free_all();
                }
                self.states[client] += 2;
                program.state = self.states[client];
                self.lock(&program, wanted, range, random.coin());
            }
            2 => {
                let answer = if random.coin() { Told::Taken } else { Told::Unheard };
                self.users[client].gate().answers.set(answer);
            }
            3..=5 => {
                self.doubt(file, &wanted);
                self.end_waits(file, &wanted);
                assert_eq!(self.insist(|| program.unlock(range)), NlmStatus::GRANTED.0, "seed {}", self.seed);
            }
            6 => {
                let Some(at) = self.waits.iter().position(|(of, wait)| of == file && wait.client == wanted.client) else { return };
                let lock = self.waits[at].1.lock;
                let program = self.program(client, lock.owner, file);
                let range = (lock.start, if lock.end == u64::MAX { 0 } else { lock.end - lock.start + 1 });
                let gates_before = self.gates;
                let status = self.insist(|| program.cancel(range, lock.kind == LockKind::Exclusive));
                let is_it = |(of, wait): &(Fh, HeldLock)| of == file && wait.client == wanted.client && wait.lock == lock;
                let is_there = self.waits.iter().any(is_it);
                let gate = self.users[client].gate();
                if gate.answers.get() == Told::Taken && self.world.is_running(&gate) && gate.node == gates_before[client] {
                    assert_eq!(status == NlmStatus::GRANTED.0, is_there, "{lock:?}, seed {}", self.seed);
                }
                self.waits.retain(|wait| !is_it(wait));
            }
            _ => self.lock(&program, wanted, range, random.coin()),
        }
    }

    fn lock(&mut self, program: &Program<'_>, wanted: HeldLock, range: (u64, u64), waits: bool) {
        let file = &program.file;
        let wanted = if waits { self.at_least_what_it_has(file, wanted) } else { wanted };
        let (before, gates) = (self.doubt(file, &wanted), self.gates);
        let status = self.insist(|| program.ask(waits, wanted.lock.kind == LockKind::Exclusive, range));
        if status != NlmStatus::GRANTED.0 && gates == self.gates {
            before.into_iter().for_each(|lock| self.believe(file, lock));
        }
        self.end_waits(file, &wanted);
        match NlmStatus(status) {
            NlmStatus::GRANTED => self.believe(file, wanted),
            NlmStatus::DENIED => self.is_in_the_way(file, &wanted),
            NlmStatus::BLOCKED => {
                self.is_in_the_way(file, &wanted);
                self.waits.push((file.clone(), wanted));
            }
            NlmStatus::DEADLOCK if waits => {}
            status => panic!("LOCK: {status:?}, seed {}", self.seed),
        }
    }

    /// Several programs ask at the same time.
    fn several(&mut self, file: &Fh, random: &mut Random) {
        let (mut asked, mut calls) = (Vec::new(), Vec::<(_, _, Call<u32>)>::new());
        let were_there = self.held.clone();
        for (client, owner) in [(0, 1), (1, 1), (0, 2), (1, 2)] {
            let waits = self.waits.iter().find(|(of, wait)| of == file && (wait.client.0, wait.lock.owner) == (client, owner));
            let does = match waits {
                Some(_) if random.coin() => Does::Cancel,
                Some(_) => continue,
                None => *random.pick(&[Does::Lock, Does::Wait, Does::Unlock]).expect("there are some"),
            };
            let range = if random.coin() { (0, 0) } else { (random.below(6), 1 + random.below(6)) };
            let kind = if random.below(3) == 0 { LockKind::Shared } else { LockKind::Exclusive };
            let end = if range.1 == 0 { u64::MAX } else { range.0 + range.1 - 1 };
            let lock = Lock { family: Family::Fcntl, owner, kind, start: range.0, end, process: 1, file: 0 };
            let wanted = waits.map_or(HeldLock { client: ClientId(client), lock }, |(_, wait)| *wait);
            let wanted = if does == Does::Wait { self.at_least_what_it_has(file, wanted) } else { wanted };
            let Lock { kind, start, end, .. } = wanted.lock;
            let range = (start, if end == u64::MAX { 0 } else { end - start + 1 });
            let before = if does == Does::Cancel { Vec::new() } else { self.doubt(file, &wanted) };
            let Program { user, name, svid, state, file } = self.program(client as usize, owner, file);
            asked.push((does, wanted, before));
            let after_ns = *random.pick(&[0, 40_000, 100_000, SECOND / 500]).expect("there are some");
            let ask = move |user: &User<'_>| {
                let program = Program { user: user.clone(), name, svid, state, file: file.clone() };
                let status = match does {
                    Does::Lock | Does::Wait => program.ask(does == Does::Wait, kind == LockKind::Exclusive, range),
                    Does::Unlock => program.unlock(range),
                    Does::Cancel => program.cancel(range, kind == LockKind::Exclusive),
                };
                match NlmStatus(status) {
                    NlmStatus::LATER => Err(NfsStatus::LATER.0),
                    NlmStatus(UNANSWERED) => Err(UNANSWERED),
                    NlmStatus(status) => Ok(status),
                }
            };
            calls.push((user, after_ns, Box::new(ask)));
        }
        let all: Vec<_> = self.world.at_once(calls).into_iter().map(|done| done.outcome.expect("a status")).collect();
        let is_lost = [0, 1].map(|client: usize| {
            let gate = self.users[client].gate();
            gate.node != self.gates[client] || !self.world.is_running(&gate)
        });
        for client in (0..2).filter(|client| is_lost[*client]) {
            self.lost(client);
            self.program(client, 1, file).free_all();
        }
        let wanted_by_all: Vec<_> = asked.iter().map(|(_, wanted, _)| *wanted).collect();
        let mut refused = Vec::new();
        for ((does, wanted, before), status) in asked.into_iter().zip(all) {
            if is_lost[wanted.client.0 as usize] {
                continue;
            }
            if !matches!(does, Does::Unlock | Does::Cancel) && status != NlmStatus::GRANTED.0 {
                before.into_iter().for_each(|lock| self.believe(file, lock));
                refused.push(wanted);
            }
            match (does, NlmStatus(status)) {
                (Does::Lock | Does::Wait, NlmStatus::GRANTED) => self.believe(file, wanted),
                (Does::Wait, NlmStatus::BLOCKED) => self.waits.push((file.clone(), wanted)),
                (Does::Lock, NlmStatus::DENIED) | (Does::Wait, NlmStatus::DEADLOCK) | (Does::Unlock, NlmStatus::GRANTED) => {}
                // It was told meanwhile.
                (Does::Cancel, NlmStatus::DENIED) => {}
                (Does::Cancel, NlmStatus::GRANTED) => self.end_waits(file, &wanted),
                (_, status) => panic!("{does:?}: {status:?}, seed {}", self.seed),
            }
        }
        let had = were_there.get(file);
        for wanted in refused {
            let is_in_the_way = |other: &HeldLock| excludes(other, &wanted);
            if had.is_none_or(|had| had.conflict(&wanted).is_none()) && !wanted_by_all.iter().any(is_in_the_way) {
                self.is_in_the_way(file, &wanted);
            }
        }
        self.notice();
    }

    fn step_beside(&mut self, file: &Fh, wanted: HeldLock, gives_back: bool) {
        let posix = self.beside.nfs.clone();
        let node = InodeNumber::of(self.users[0].getattr(file).map_or(Handle(0), |attr| Handle(attr.number)));
        let number = match self.opened.get(file) {
            Some(number) => Some(*number),
            None => {
                let posix = posix.clone();
                let open = async move { posix.posix.open_handle(&Credentials::ROOT, node.handle(), OpenHow::direct(BOTH)).await };
                self.world.run(open).ok().map(|(_, number)| *self.opened.entry(file.clone()).or_insert(number))
            }
        };
        let Some(number) = number else { return };
        let before = self.doubt(file, &wanted);
        let Lock { family, owner, start, end, .. } = wanted.lock;
        let lock = Lock { file: number, ..wanted.lock };
        let outcome = self.world.run(async move {
            if gives_back {
                return posix.posix.unlock(node, family, owner, start, end).await.map(|()| false).map_err(Refusal::Failed);
            }
            posix.posix.lock(node, lock, None).await.map(|()| true)
        });
        self.notice();
        match outcome {
            Ok(true) => self.believe(file, wanted),
            Ok(false) => {}
            Err(Refusal::Taken) => {
                before.into_iter().for_each(|lock| self.believe(file, lock));
                self.is_in_the_way(file, &wanted);
            }
            // It may have been done.
            Err(_) => {
                self.unknown_until = self.world.now() + LEFT_NS;
                let posix = self.beside.nfs.clone();
                self.world.run(async move { posix.posix.unlock(node, family, owner, start, end).await.unwrap() });
            }
        }
    }

    /// A file is gone.
    pub fn forget(&mut self, file: &Fh) {
        self.held.remove(file);
        self.waits.retain(|(of, _)| of != file);
        if let Some(number) = self.opened.remove(file) {
            let posix = self.beside.nfs.clone();
            self.world.run(async move { posix.posix.release(number).await });
        }
    }

    /// Everybody gives everything back: then it is free.
    pub fn end(&mut self, files: &[Fh]) {
        (0..2).for_each(|client| self.program(client, 1, &Fh::new()).free_all());
        files.iter().for_each(|file| self.forget(file));
        self.world.pass(60 * SECOND);
        for (number, file) in files.iter().enumerate() {
            let program = self.program(0, 100 + number as u64, file);
            assert_eq!((program.lock((0, 0)), program.unlock((0, 0))), (0, 0), "seed {}", self.seed);
        }
        self.world.pass(SECOND);
        for user in &self.users {
            assert!(lock(&user.gate().nfs.locks).is_empty(), "seed {}: {:?}", self.seed, lock(&user.gate().nfs.locks));
        }
    }
}
