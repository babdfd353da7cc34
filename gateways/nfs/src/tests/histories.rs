//! Two clients that go on while servers, networks and gateways fail, as the kernels of clients do:
//! they ask again for what was not answered, at another gateway if theirs has stopped, and write
//! again what may be lost by the verifiers of its writes. Programs lock the files meanwhile.
//!
//! `WEFT_NFS_SEEDS=100..200` runs other seeds.

use std::collections::BTreeMap;

use weft_base::{Credentials, Handle, MILLISECOND, Payload, SECOND};
use weft_rt::Runtime;
use weft_rt_sim::{Fault, MessageFaults, Random};
use weft_wire::Rights;

use super::world::{Fh, Outcome, User, World, size};
use crate::types::NfsStatus;

mod believed;
use believed::Believed;

const LATER: u32 = NfsStatus::LATER.0;
pub(super) const NOT_FOUND: u32 = NfsStatus::NOT_FOUND.0;
pub(super) const EXISTS: u32 = NfsStatus::EXISTS.0;
/// Names of each directory.
const NAMES: u64 = 4;
const FILE_BYTES_MAX: u64 = 40_000;
const STEPS: u32 = 60;

/// A directory and a name in it.
pub(super) type Place = (usize, u64);

#[derive(Clone, Default)]
struct File {
    fh: Fh,
    content: Vec<u8>,
    /// What may be lost: written and not committed, with the verifiers of the writes.
    uncommitted: Vec<(usize, usize, [u8; 8])>,
    /// Something has failed since.
    is_unsure: bool,
}

struct History<'a> {
    world: &'a World,
    random: Random,
    users: [User<'a>; 2],
    dirs: [Fh; 2],
    files: BTreeMap<Place, File>,
    locks: Believed<'a>,
    seed: u64,
}

fn name(number: u64) -> String {
    format!("file{number}")
}

/// Asks until there is an answer; the second is true if it may have been done before, at a gateway
/// that has stopped.
fn insist<T>(user: &User<'_>, call: impl Fn(&User<'_>) -> Outcome<T>) -> (Outcome<T>, bool) {
    user.is_again.set(false);
    loop {
        match call(user) {
            Err(LATER) => user.world.pass(50 * MILLISECOND),
            outcome => return (outcome, user.is_again.get()),
        }
    }
}

/// Something fails now or soon.
pub(super) fn fail_somewhere(world: &World, random: &mut Random, users: &[User<'_>; 2]) {
    let node = *random.pick(&world.servers()).expect("there are servers");
    let (down_ns, steps) = (random.below(2 * SECOND), random.below(40));
    let gate = users[random.below(2) as usize].gate().node;
    match random.below(8) {
        0 => world.strike(node, steps, Fault::Crash { node, down_ns }),
        1 | 2 => world.strike(node, steps, Fault::PowerCut { node, down_ns }),
        3 | 4 => world.strike(gate, 1 + steps, Fault::Crash { node: gate, down_ns: 1 << 60 }),
        5 => world.strike(node, steps, Fault::Pause { node, ns: down_ns * 2 }),
        6 => world.strike(node, 0, Fault::BreakConnections { node }),
        _ => world.strike(node, 0, Fault::Messages { faults: MessageFaults::BAD, ns: 2 * SECOND }),
    }
}

impl History<'_> {
    #[track_caller]
    fn must<T>(&self, user: &User<'_>, what: &str, call: impl Fn(&User<'_>) -> Outcome<T>) -> T {
        insist(user, call).0.unwrap_or_else(|status| panic!("{what}: {status}, seed {}", self.seed))
    }

    /// Brings everything of a file to stable storage.
    fn commit(&mut self, user: &User<'_>, place: Place) {
        let Some(mut file) = self.files.get(&place).cloned() else { return };
        while !file.uncommitted.is_empty() {
            let committed = self.must(user, "COMMIT", |user| user.commit(&file.fh));
            file.uncommitted.retain(|(.., verifier)| *verifier != committed);
            for (start, end, verifier) in &mut file.uncommitted {
                *verifier = self.must(user, "WRITE", |user| user.write(&file.fh, *start as u64, &file.content[*start..*end], 0)).1;
            }
        }
        file.is_unsure = false;
        self.files.insert(place, file);
    }

    /// What there is, whoever looks.
    fn check(&mut self, user: &User<'_>, place: Place) {
        let (dir, number) = place;
        if self.files.get(&place).is_some_and(|file| file.is_unsure || self.random.coin()) {
            self.commit(user, place);
        }
        let (names, _) = self.must(user, "READDIRPLUS", |user| user.list(&self.dirs[dir], 1000, true));
        let mut listed: Vec<_> = names.into_iter().filter(|(name, _)| name.starts_with("file")).collect();
        listed.sort();
        let there = self.files.iter().filter(|((of, _), _)| *of == dir);
        let there: Vec<_> = there.map(|((_, number), file)| (name(*number), Some(file.fh.clone()))).collect();
        assert_eq!(listed, there, "directory {dir}, seed {}", self.seed);
        let found = insist(user, |user| user.lookup(&self.dirs[dir], &name(number))).0;
        let Some(file) = self.files.get(&place) else {
            return assert_eq!(found, Err(NOT_FOUND), "{place:?}, seed {}", self.seed);
        };
        assert_eq!(found, Ok(file.fh.clone()), "{place:?}, seed {}", self.seed);
        let attr = self.must(user, "GETATTR", |user| user.getattr(&file.fh));
        assert_eq!(attr.size, file.content.len() as u64, "size of {place:?}, seed {}", self.seed);
        let (read, is_end) = self.must(user, "READ", |user| user.read(&file.fh, 0, 1 << 17));
        let differs = read.iter().zip(&file.content).position(|(read, is)| read != is);
        assert!(read[..] == file.content[..] && is_end, "{place:?}, {} bytes, differ at {differs:?}, seed {}", read.len(), self.seed);
        if self.random.below(3) == 0 {
            let (client, file) = (self.world.client(), Handle(attr.number));
            let read = self.world.run(async move {
                loop {
                    if let Ok((_, open)) = client.open(&Credentials::ROOT, file, Rights::READ, false).await {
                        let read = client.read(&open, 0, 1 << 17).await;
                        let closed = client.close(open).await;
                        if let (Ok(read), Ok(())) = (read, closed) {
                            return Payload::concat(&read);
                        }
                    }
                    client.rt().sleep_until(client.rt().now() + SECOND).await;
                }
            });
            assert!(read == self.files[&place].content, "{place:?} without a gateway, {} bytes, seed {}", read.len(), self.seed);
        }
    }

    fn gone(&mut self, place: Place) {
        if let Some(file) = self.files.remove(&place) {
            self.locks.forget(&file.fh);
        }
    }

    fn step(&mut self) {
        if self.random.below(6) == 0 {
            fail_somewhere(self.world, &mut self.random, &self.users);
            self.files.values_mut().for_each(|file| file.is_unsure = true);
        }
        let user = self.users[self.random.below(2) as usize].clone();
        let place: Place = (self.random.below(2) as usize, self.random.below(NAMES));
        let (dir, number) = place;
        let file = self.files.get(&place).cloned();
        match (self.random.below(10), file) {
            (0 | 1, None) => self.create(&user, place),
            (2, Some(_)) => {
                match insist(&user, |user| user.remove(&self.dirs[dir], &name(number))) {
                    (Ok(()), _) | (Err(NOT_FOUND), true) => {}
                    (outcome, _) => panic!("REMOVE: {outcome:?}, seed {}", self.seed),
                }
                self.gone(place);
            }
            (3, Some(file)) => {
                let to: Place = (self.random.below(2) as usize, self.random.below(NAMES));
                let (from_name, to_name) = (name(number), name(to.1));
                match insist(&user, |user| user.rename((&self.dirs[dir], &from_name), (&self.dirs[to.0], &to_name))) {
                    (Ok(()), _) | (Err(NOT_FOUND), true) => {}
                    (outcome, _) => panic!("RENAME: {outcome:?}, seed {}", self.seed),
                }
                self.files.remove(&place);
                self.gone(to);
                self.files.insert(to, file);
            }
            (4, Some(_)) => {
                self.commit(&user, place);
                let bytes = self.random.below(FILE_BYTES_MAX);
                let file = self.files.get(&place).expect("it was there").clone();
                self.must(&user, "SETATTR", |user| user.setattr(&file.fh, |out| size(out, bytes), None));
                self.files.get_mut(&place).expect("it was there").content.resize(bytes as usize, 0);
            }
            (5..=8, Some(mut file)) => {
                let (start, bytes) = (self.random.below(FILE_BYTES_MAX / 2) as usize, 1 + self.random.below(FILE_BYTES_MAX / 2) as usize);
                let data = vec![self.random.below(255) as u8 + 1; bytes];
                let stable = self.random.below(3) as u32;
                let (how, verifier) = self.must(&user, "WRITE", |user| user.write(&file.fh, start as u64, &data, stable));
                assert!(how >= stable);
                let end = start + bytes;
                file.content.resize(file.content.len().max(end), 0);
                file.content[start..end].copy_from_slice(&data);
                if how == 0 {
                    file.uncommitted.push((start, end, verifier));
                }
                self.files.insert(place, file);
            }
            _ => self.check(&user, place),
        }
        self.locks.notice();
        if let Some(file) = self.files.get(&place).filter(|_| !self.seed.is_multiple_of(4)) {
            (0..self.random.below(8)).for_each(|_| self.locks.step(&file.fh, &mut self.random));
        }
        if self.random.below(3) == 0 {
            let other = self.users[self.random.below(2) as usize].clone();
            self.check(&other, place);
        }
        if self.random.below(4) == 0 {
            let ns = self.random.below(3 * SECOND);
            self.world.pass(ns);
        }
    }

    fn create(&mut self, user: &User<'_>, (dir, number): Place) {
        let (is_exclusive, verifier) = (self.random.coin(), self.random.draw().to_be_bytes());
        let made = insist(user, |user| match is_exclusive {
            true => user.create_exclusive(&self.dirs[dir], &name(number), verifier),
            false => user.create(&self.dirs[dir], &name(number), 1, 0o644),
        });
        let fh = match made {
            (Ok(fh), _) => fh,
            (Err(EXISTS), true) if !is_exclusive => self.must(user, "LOOKUP", |user| user.lookup(&self.dirs[dir], &name(number))),
            (outcome, again) => panic!("CREATE: {outcome:?}, exclusive: {is_exclusive}, again: {again}, seed {}", self.seed),
        };
        self.files.insert((dir, number), File { fh, ..File::default() });
    }
}

fn run(seed: u64) {
    let world = World::of(seed, 1 + (seed % 2) as u16, 3);
    if seed % 8 > 5 {
        world.spreads_directories();
    }
    let gate = || world.gateway_that_warns(&["/:no_root_squash"], Box::new(|_| {}));
    let users = [world.user(&gate(), 0), world.user(&gate(), 0)];
    let root = users[0].mount("/").unwrap();
    let sub = users[1].mkdir(&root, "dir", 0o755).unwrap();
    let (random, locks) = (world.random(), Believed::new(&world, &users, gate(), seed));
    let mut history = History { world: &world, random, users, dirs: [root, sub], files: BTreeMap::new(), locks, seed };
    (0..STEPS).for_each(|_| history.step());
    world.go_on();
    world.pass(60 * SECOND);
    let user = world.user(&gate(), 0);
    for place in (0..2).flat_map(|dir| (0..NAMES).map(move |number| (dir, number))) {
        history.commit(&user, place);
        history.check(&user, place);
    }
    let files: Vec<_> = history.files.values().map(|file| file.fh.clone()).collect();
    history.locks.end(&files);
}

#[test]
fn what_clients_were_told_is_true_whatever_fails() {
    let seeds = std::env::var("WEFT_NFS_SEEDS").unwrap_or("0..16".into());
    let (from, to) = seeds.split_once("..").expect("FROM..TO");
    (from.parse().expect("a number")..to.parse().expect("a number")).for_each(run);
}
