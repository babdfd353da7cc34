//! Two clients that do several things at the same time to the same few names, while servers,
//! networks and gateways fail: what they are answered, and what is there afterwards, is what some
//! order gives in which one thing follows the other.
//!
//! `WEFT_NFS_TOGETHER_SEEDS=100..200` runs other seeds.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use weft_base::{MILLISECOND, Nanos, SECOND, ServerRole};
use weft_rt::Runtime;
use weft_rt_sim::Random;

use super::histories::{EXISTS, NOT_FOUND, Place, fail_somewhere};
use super::world::{Call, Done, Fh, Outcome, User, World, size};
use crate::types::NfsStatus;

const NOT_DIRECTORY: u32 = NfsStatus::NOT_DIRECTORY.0;
const IS_DIRECTORY: u32 = NfsStatus::IS_DIRECTORY.0;
const STALE: u32 = NfsStatus::STALE.0;
/// Names of each directory.
const NAMES: u64 = 3;
/// How often things are done at once.
const ROUNDS: u32 = 25;
const TOGETHER_MAX: u64 = 5;
const FILE_BYTES_MAX: u64 = 20_000;

#[derive(Clone, Debug)]
enum Act {
    /// 0: unchecked, 1: guarded, 2: exclusive.
    Create(Place, u32),
    Mkdir(Place),
    Remove(Place),
    Rmdir(Place),
    Rename(Place, Place),
    Link(Fh, Place),
    Lookup(Place),
    Getattr(Fh),
    /// Until it is committed.
    Write(Fh, u64, Vec<u8>, bool),
    Resize(Fh, u64),
    Read(Fh),
    List(usize),
}

/// What an act gives.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Gives {
    Nothing,
    Object(Fh),
    Links(u32),
    Bytes(Bytes),
    Names(Vec<(String, Option<Fh>)>),
}

/// What names lead to; directories by themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Names {
    places: BTreeMap<Place, Fh>,
    dirs: BTreeSet<Fh>,
}

impl Names {
    fn links(&self, object: &Fh) -> u32 {
        self.places.values().filter(|there| *there == object).count() as u32
    }

    fn is_dir(&self, place: Place) -> bool {
        self.places.get(&place).is_some_and(|object| self.dirs.contains(object))
    }

    /// The name leads to this. What nobody was told of at its birth gets its handle here.
    fn leads_to(&mut self, place: Place, object: &Fh) -> bool {
        let Some(there) = self.places.get(&place).cloned() else { return false };
        if there.len() == 1 && self.links(object) == 0 {
            self.places.values_mut().filter(|fh| **fh == there).for_each(|fh| *fh = object.clone());
            if self.dirs.remove(&there) {
                self.dirs.insert(object.clone());
            }
        }
        self.places[&place] == *object
    }

    /// What an act gives here; `new` is the handle of what it makes.
    fn act(&mut self, act: &Act, new: Fh) -> Outcome<Option<Fh>> {
        let known = |names: &Names, place: &Place| names.places.get(place).cloned();
        match act {
            Act::Create(place, _) | Act::Mkdir(place) => {
                let is_dir = matches!(act, Act::Mkdir(_));
                match known(self, place) {
                    None => {
                        self.places.insert(*place, new.clone());
                        self.dirs.extend(is_dir.then(|| new.clone()));
                        Ok(Some(new))
                    }
                    Some(there) if matches!(act, Act::Create(_, 0)) && !self.is_dir(*place) => Ok(Some(there)),
                    Some(_) => Err(EXISTS),
                }
            }
            Act::Remove(place) | Act::Rmdir(place) => {
                let wants_dir = matches!(act, Act::Rmdir(_));
                known(self, place).ok_or(NOT_FOUND)?;
                if self.is_dir(*place) != wants_dir {
                    return Err(if wants_dir { NOT_DIRECTORY } else { IS_DIRECTORY });
                }
                self.places.remove(place);
                Ok(None)
            }
            Act::Rename(from, to) => {
                let object = known(self, from).ok_or(NOT_FOUND)?;
                if let Some(there) = known(self, to) {
                    if there == object {
                        return Ok(None);
                    }
                    match (self.is_dir(*from), self.is_dir(*to)) {
                        (false, true) => return Err(IS_DIRECTORY),
                        (true, false) => return Err(NOT_DIRECTORY),
                        _ => {}
                    }
                }
                self.places.remove(from);
                self.places.insert(*to, object);
                Ok(None)
            }
            Act::Link(object, place) => {
                if self.links(object) == 0 {
                    return Err(STALE);
                }
                if known(self, place).is_some() {
                    return Err(EXISTS);
                }
                self.places.insert(*place, object.clone());
                Ok(None)
            }
            Act::Lookup(place) => known(self, place).map(Some).ok_or(NOT_FOUND),
            Act::Getattr(object) | Act::Write(object, ..) | Act::Resize(object, _) | Act::Read(object) => match self.links(object) {
                0 => Err(STALE),
                _ => Ok(None),
            },
            Act::List(_) => Ok(None),
        }
    }

    /// True if it may have been answered like this here.
    fn explains(&mut self, act: &Act, outcome: &Outcome<Gives>) -> bool {
        let before = self.clone();
        let new = if let Ok(Gives::Object(object)) = outcome { object.clone() } else { Fh::new() };
        match (self.act(act, new.clone()), outcome, act) {
            (Ok(Some(_)), Ok(Gives::Object(_)), Act::Create(place, _) | Act::Mkdir(place)) => match before.places.get(place) {
                None => before.links(&new) == 0,
                Some(_) => self.leads_to(*place, &new),
            },
            (Ok(Some(_)), Ok(Gives::Object(object)), Act::Lookup(place)) => self.leads_to(*place, object),
            (Ok(None), Ok(Gives::Links(links)), Act::Getattr(object)) => self.links(object) == *links,
            (Ok(None), Ok(Gives::Nothing | Gives::Names(_) | Gives::Bytes(_)), _) => true,
            // Which of two reasons is said first is open.
            (Err(STALE), Err(EXISTS), Act::Link(_, place)) => before.places.contains_key(place),
            (Err(expected), Err(status), _) => expected == *status,
            _ => false,
        }
    }
}

type Acts = [(Act, Done<Gives>)];

/// Finds an order, and what is there after it: what was over before something else began comes
/// before that, what may have been done twice is done up to twice.
fn explain(names: &Names, acts: &Acts, left: u32, ghosts: u32, is_it: &dyn Fn(&Names) -> Option<Names>) -> Option<Names> {
    if left == 0
        && let Some(found) = is_it(names)
    {
        return Some(found);
    }
    (0..acts.len()).find_map(|at| {
        let (act, done) = &acts[at];
        let is_left = |at: usize| left & 1 << at != 0;
        let is_next = is_left(at) && (0..acts.len()).all(|other| !is_left(other) || acts[other].1.to >= done.from);
        let mut next = names.clone();
        if is_next && next.explains(act, &done.outcome) {
            let found = explain(&next, acts, left & !(1 << at), ghosts, is_it);
            if found.is_some() {
                return found;
            }
        }
        let mut next = names.clone();
        if ghosts & 1 << at != 0 && next.act(act, Bytes::from(vec![at as u8])).is_ok() && next != *names {
            return explain(&next, acts, left, ghosts & !(1 << at), is_it);
        }
        None
    })
}

struct Together<'a> {
    world: &'a World,
    random: Random,
    users: [User<'a>; 2],
    dirs: [Fh; 2],
    names: Names,
    contents: BTreeMap<Fh, Vec<u8>>,
    seed: u64,
}

fn name(number: u64) -> String {
    format!("file{number}")
}

fn call(dirs: [Fh; 2], act: Act, verifier: [u8; 8]) -> Call<Gives> {
    Box::new(move |user| {
        let at = |(dir, number): &Place| (&dirs[*dir], name(*number));
        match &act {
            Act::Create(place, 2) => user.create_exclusive(at(place).0, &at(place).1, verifier).map(Gives::Object),
            Act::Create(place, how) => user.create(at(place).0, &at(place).1, *how, 0o644).map(Gives::Object),
            Act::Mkdir(place) => user.mkdir(at(place).0, &at(place).1, 0o755).map(Gives::Object),
            Act::Remove(place) => user.remove(at(place).0, &at(place).1).map(|()| Gives::Nothing),
            Act::Rmdir(place) => user.rmdir(at(place).0, &at(place).1).map(|()| Gives::Nothing),
            Act::Rename(from, to) => {
                let ((from, from_name), (to, to_name)) = (at(from), at(to));
                user.rename((from, &from_name), (to, &to_name)).map(|()| Gives::Nothing)
            }
            Act::Link(object, place) => user.link(object, at(place).0, &at(place).1).map(|()| Gives::Nothing),
            Act::Lookup(place) => user.lookup(at(place).0, &at(place).1).map(Gives::Object),
            Act::Getattr(object) => user.getattr(object).map(|attr| Gives::Links(attr.links)),
            Act::Write(object, offset, data, is_stable) => loop {
                let (how, verifier) = user.write(object, *offset, data, if *is_stable { 2 } else { 0 })?;
                if how == 2 || user.commit(object)? == verifier {
                    return Ok(Gives::Nothing);
                }
            },
            Act::Resize(object, bytes) => user.setattr(object, |out| size(out, *bytes), None).map(|_| Gives::Nothing),
            Act::Read(object) => user.read(object, 0, 1 << 17).map(|(bytes, _)| Gives::Bytes(bytes)),
            Act::List(dir) => user.list(&dirs[*dir], 400, true).map(|(names, _)| Gives::Names(names)),
        }
    })
}

impl Together<'_> {
    /// Something to do, one time in two to the name that all are at.
    fn draw(&mut self, hot: Place) -> Act {
        let random = &mut self.random;
        let place = |random: &mut Random| -> Place { if random.coin() { hot } else { (random.below(2) as usize, random.below(NAMES)) } };
        let files: Vec<Fh> = self.names.places.values().filter(|object| !self.names.dirs.contains(*object)).cloned().collect();
        let at = place(random);
        let file = random.pick(&files).cloned();
        match (random.below(17), file) {
            (0 | 1, _) => Act::Create(at, random.below(3) as u32),
            (2, _) => Act::Mkdir(at),
            (3, _) => Act::Remove(at),
            (4, _) => Act::Rmdir(at),
            (5 | 6, _) => Act::Rename(at, place(random)),
            (7, Some(file)) => Act::Link(file, at),
            (8, Some(file)) => Act::Getattr(file),
            (9..=11, Some(file)) => {
                let data = vec![random.below(255) as u8 + 1; 1 + random.below(FILE_BYTES_MAX / 2) as usize];
                Act::Write(file, random.below(FILE_BYTES_MAX / 2), data, random.coin())
            }
            (12, Some(file)) => Act::Resize(file, random.below(FILE_BYTES_MAX)),
            (13, Some(file)) => Act::Read(file),
            (14, _) => Act::List(at.0),
            _ => Act::Lookup(at),
        }
    }

    /// What is listed by who comes afterwards.
    fn there(&self, user: &User<'_>) -> BTreeMap<Place, Fh> {
        let list = |dir: usize| {
            let names = loop {
                match user.list(&self.dirs[dir], 1000, true) {
                    Ok((names, _)) => break names,
                    Err(status) => assert_eq!(status, NfsStatus::LATER.0, "seed {}", self.seed),
                }
                self.world.pass(50 * MILLISECOND);
            };
            let of_place =
                move |(name, fh): (String, Option<Fh>)| Some(((dir, name.strip_prefix("file")?.parse().ok()?), fh.expect("a handle")));
            names.into_iter().filter_map(of_place).collect::<Vec<_>>()
        };
        [list(0), list(1)].into_iter().flatten().collect()
    }

    fn round(&mut self) {
        if self.random.below(4) == 0 {
            fail_somewhere(self.world, &mut self.random, &self.users);
        }
        let hot = (self.random.below(2) as usize, self.random.below(NAMES));
        let acts: Vec<Act> = (0..2 + self.random.below(TOGETHER_MAX - 1)).map(|_| self.draw(hot)).collect();
        let mut calls = Vec::new();
        for act in &acts {
            let user = self.users[self.random.below(2) as usize].clone();
            let after_ns = *self.random.pick(&[0, 60_000, 200_000, 2 * MILLISECOND]).expect("there are some");
            let verifier = self.random.draw().to_be_bytes();
            calls.push((user, after_ns, call(self.dirs.clone(), act.clone(), verifier)));
        }
        let outcomes = self.world.at_once(calls);
        let acts: Vec<_> = acts.into_iter().zip(outcomes).collect();
        let user = self.users[self.random.below(2) as usize].clone();
        let there = self.there(&user);
        let is_it = |names: &Names| {
            let mut names = names.clone();
            let all = there.iter().all(|(place, object)| names.leads_to(*place, object));
            (all && names.places == there).then_some(names)
        };
        let ghosts = acts.iter().enumerate().filter(|(_, (_, done))| done.is_again).map(|(at, _)| 1 << at).sum();
        let before = std::mem::take(&mut self.names);
        let seed = self.seed;
        self.names = explain(&before, &acts, (1 << acts.len()) - 1, ghosts, &is_it)
            .unwrap_or_else(|| panic!("no order explains, seed {seed}: {before:#?}\n{acts:#?}\n{there:#?}"));
        self.listings(&before, &acts);
        self.data(&user, &acts);
    }

    /// A name that nobody touched is listed once, others at most once for each time.
    fn listings(&self, before: &Names, acts: &Acts) {
        for (act, done) in acts {
            let (Act::List(dir), Ok(Gives::Names(listed))) = (act, &done.outcome) else { continue };
            for number in 0..NAMES {
                let is_touched = before.places.get(&(*dir, number)) != self.names.places.get(&(*dir, number))
                    || acts.iter().any(|(act, _)| match act {
                        Act::Create(place, _) | Act::Mkdir(place) | Act::Remove(place) | Act::Rmdir(place) | Act::Link(_, place) => {
                            *place == (*dir, number)
                        }
                        Act::Rename(from, to) => [from, to].contains(&&(*dir, number)),
                        _ => false,
                    });
                let found: Vec<_> = listed.iter().filter(|(listed, _)| *listed == name(number)).collect();
                let expected = before.places.get(&(*dir, number));
                let is_right = found.len() == usize::from(expected.is_some())
                    && found.iter().all(|(_, fh)| fh.as_ref().is_none_or(|fh| Some(fh) == expected));
                assert!(if is_touched { found.len() <= 1 } else { is_right }, "{listed:?}, {before:?}, seed {}", self.seed);
            }
        }
    }

    /// Every byte, at the end and for whoever reads meanwhile, is of a change that no other one
    /// has followed before.
    fn data(&mut self, user: &User<'_>, acts: &Acts) {
        let files: BTreeSet<Fh> = self.names.places.values().filter(|object| !self.names.dirs.contains(*object)).cloned().collect();
        self.contents.retain(|file, _| files.contains(file));
        for file in files {
            let old = self.contents.remove(&file).unwrap_or_default();
            let mut changes: Vec<_> = acts
                .iter()
                .filter_map(|(act, done)| match act {
                    Act::Write(of, offset, data, _) if *of == file => Some((done.from, done.to, *offset as usize, Some(data))),
                    Act::Resize(of, bytes) if *of == file => Some((done.from, done.to, *bytes as usize, None)),
                    _ => None,
                })
                .collect();
            changes.sort_by_key(|(from, ..)| *from);
            let read = loop {
                match user.read(&file, 0, 1 << 17) {
                    Ok((read, true)) => break read,
                    outcome => assert!(outcome.is_err_and(|status| status == NfsStatus::LATER.0), "seed {}", self.seed),
                }
                self.world.pass(50 * MILLISECOND);
            };
            let mut reads = vec![(self.world.now(), self.world.now(), &read)];
            for (act, done) in acts {
                if let (Act::Read(of), Ok(Gives::Bytes(bytes))) = (act, &done.outcome)
                    && *of == file
                {
                    reads.push((done.from, done.to, bytes));
                }
            }
            for (from, to, bytes) in reads {
                for (at, byte) in bytes.iter().enumerate() {
                    // What each of the changes has made of this byte.
                    let of_byte: Vec<_> = changes
                        .iter()
                        .filter_map(|(from, to, start, data)| match data {
                            Some(data) => at.checked_sub(*start).and_then(|at| data.get(at)).map(|byte| (*from, *to, *byte)),
                            None => (at >= *start).then_some((*from, *to, 0)),
                        })
                        .collect();
                    let is_over = |after: Nanos| of_byte.iter().any(|other| after < other.0 && other.1 < from);
                    let is_old = !is_over(Nanos(0)) && *byte == old.get(at).copied().unwrap_or(0);
                    let is_new = of_byte.iter().any(|one| one.2 == *byte && one.0 <= to && !is_over(one.1));
                    let is_right = is_old || is_new;
                    assert!(is_right, "{byte} at {at}, {of_byte:?}, read from {from:?} to {to:?}, seed {}: {acts:#?}", self.seed);
                }
            }
            let (mut length, old_length) = (old.len(), old.len());
            for (.., at, data) in &changes {
                length = data.map_or(*at, |data| length.max(at + data.len()));
            }
            let least_cut = changes.iter().filter(|(.., data)| data.is_none()).map(|(_, _, bytes, _)| *bytes).min();
            let is_length = match least_cut.filter(|_| changes.windows(2).any(|two| two[0].1 >= two[1].0)) {
                None => read.len() == length,
                // Of a write beside a cut some stripes may be left.
                Some(least) => {
                    let ends = changes.iter().map(|(.., at, data)| at + data.map_or(0, Vec::len));
                    (least.min(old_length)..=ends.fold(old_length, usize::max)).contains(&read.len())
                }
            };
            assert!(is_length, "{} bytes of {length}, seed {}: {acts:#?}", read.len(), self.seed);
            self.contents.insert(file, read.to_vec());
        }
    }

    /// All is removed: nothing is left.
    fn end(&mut self) {
        let user = self.world.user(&self.world.gateway_that_warns(&["/:no_root_squash"], Box::new(|_| {})), 0);
        let there = self.there(&user);
        assert_eq!(there, self.names.places, "seed {}", self.seed);
        self.data(&user, &[]);
        for (dir, number) in there.keys() {
            match self.names.is_dir((*dir, *number)) {
                true => user.rmdir(&self.dirs[*dir], &name(*number)).unwrap(),
                false => user.remove(&self.dirs[*dir], &name(*number)).unwrap(),
            }
        }
        user.rmdir(&self.dirs[0], "dir").unwrap();
        let client = self.world.client();
        let wrong = self.world.run(async move {
            let mut wrong = Vec::new();
            for _ in 0..100 {
                wrong.clear();
                for (server, info) in client.ping_all().await {
                    let (objects, owns_root) = info.map_or((u64::MAX, false), |info| (info.objects, info.owns_root));
                    wrong.extend((objects != u64::from(server.role() == ServerRole::Meta && owns_root)).then_some((server, objects)));
                }
                if wrong.is_empty() {
                    break;
                }
                client.rt().sleep_until(client.rt().now() + 10 * SECOND).await;
                for server in client.map().data.iter().map(|entry| entry.id) {
                    let _ = client.check_datafiles(server, true, drop).await;
                }
            }
            wrong
        });
        assert!(wrong.is_empty(), "left: {wrong:?}, seed {}", self.seed);
    }
}

fn run(seed: u64) {
    let world = World::of(seed, 1 + (seed % 3) as u16, 3);
    if seed % 4 > 1 {
        world.spreads_directories();
    }
    let gate = || world.gateway_that_warns(&["/:no_root_squash"], Box::new(|_| {}));
    let first = world.user(&gate(), 0);
    let second = if seed.is_multiple_of(5) { User { port: 701, ..world.user(&first.gate, 0) } } else { world.user(&gate(), 0) };
    // No two calls of a machine look the same.
    second.xid.set(1 << 20);
    let root = first.mount("/").unwrap();
    let sub = first.mkdir(&root, "dir", 0o755).unwrap();
    let (random, names, contents) = (world.random(), Names::default(), BTreeMap::new());
    let mut together = Together { world: &world, random, users: [first, second], dirs: [root, sub], names, contents, seed };
    (0..ROUNDS).for_each(|_| together.round());
    world.go_on();
    world.pass(60 * SECOND);
    together.end();
}

#[test]
fn what_clients_do_at_the_same_time_follows_one_another() {
    let seeds = std::env::var("WEFT_NFS_TOGETHER_SEEDS").unwrap_or("0..10".into());
    let (from, to) = seeds.split_once("..").expect("FROM..TO");
    (from.parse().expect("a number")..to.parse().expect("a number")).for_each(run);
}
