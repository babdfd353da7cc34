//! A tree is watched while servers die, messages are lost and checkpoints drop the journal: who
//! follows the changes, and looks again where it is told that some are lost, knows the tree.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use weft_base::{Credentials, FileKind, Handle, MILLISECOND, ROOT_HANDLE, SECOND, ServerId, Status};
use weft_client::{Client, CreateOptions, RenameFlags, TreeChange, WatchedTree};
use weft_rt::Runtime;
use weft_rt_sim::{FaultPlan, FaultSettings, MessageFaults, SimRt};
use weft_sim_tests::cluster::{ClusterConfig, Durability};
use weft_sim_tests::stage::Stage;
use weft_wire::ops::{ChangeCursor, ChangeKind, ChangesReply};

const WHO: Credentials = Credentials::ROOT;
const NOW: ChangeCursor = ChangeCursor { log: 0, lsn: 0, segment: 0, offset: 0 };

/// What a person would write down.
#[derive(Default)]
struct Notes {
    paths: BTreeSet<Vec<u8>>,
    cursors: BTreeMap<ServerId, ChangeCursor>,
    told: u32,
    lost: u32,
}

impl Notes {
    fn take(&mut self, change: TreeChange) {
        self.told += 1;
        let below = |path: &[u8], above: &[u8]| path == above || path.strip_prefix(above).is_some_and(|rest| rest.starts_with(b"/"));
        match change.what {
            ChangeKind::Created => drop(self.paths.insert(change.path)),
            ChangeKind::Removed => self.paths.retain(|path| !below(path, &change.path)),
            ChangeKind::Renamed => {
                let to = change.to.expect("a rename has two names");
                let moved: Vec<Vec<u8>> = self.paths.iter().filter(|path| below(path, &change.path)).cloned().collect();
                self.paths.retain(|path| !below(path, &change.path) && !below(path, &to));
                self.paths.extend(moved.into_iter().map(|path| [&to[..], &path[change.path.len()..]].concat()));
            }
            ChangeKind::Changed | ChangeKind::Written => {}
        }
    }
}

async fn insist<T>(client: &Client<SimRt>, mut ask: impl AsyncFnMut() -> weft_client::Result<T>) -> T {
    for _ in 0..200 {
        if let Ok(answer) = ask().await {
            return answer;
        }
        client.rt().sleep_until(client.rt().now() + 100 * MILLISECOND).await;
    }
    panic!("no answer for long")
}

/// All paths below the root, as they are.
async fn listed(client: &Client<SimRt>) -> BTreeSet<Vec<u8>> {
    let (mut paths, mut due) = (BTreeSet::new(), vec![(ROOT_HANDLE, Vec::new())]);
    while let Some((dir, path)) = due.pop() {
        let page = insist(client, async || match client.readdir(&WHO, dir, 0, 1 << 20, false).await {
            Err(error) if matches!(error.status, Status::NotFound | Status::Stale) => Ok(None),
            page => page.map(Some),
        });
        for entry in page.await.map_or(Vec::new(), |page| page.entries) {
            let path = if path.is_empty() { entry.name.to_vec() } else { [&path[..], &entry.name].join(&b'/') };
            if entry.kind == FileKind::Directory {
                due.push((entry.handle, path.clone()));
            }
            paths.insert(path);
        }
    }
    paths
}

async fn ask(client: &Client<SimRt>, server: ServerId, after: ChangeCursor, wait_ms: u32) -> ChangesReply {
    insist(client, async || client.changes(server, after, wait_ms).await).await
}

/// The names as they are, behind cursors that are known.
async fn look(client: &Client<SimRt>, notes: &RefCell<Notes>) -> WatchedTree {
    let tree = insist(client, async || client.watched_tree(&WHO, ROOT_HANDLE, |_| {}).await).await;
    notes.borrow_mut().paths = listed(client).await;
    tree
}

/// Follows one server after the other until `is_over`, and then to the end.
async fn follow(client: &Client<SimRt>, notes: &RefCell<Notes>, is_over: &Cell<bool>) {
    let servers: Vec<ServerId> = client.map().meta.iter().map(|entry| entry.id).collect();
    for server in &servers {
        if !notes.borrow().cursors.contains_key(server) {
            let now = ask(client, *server, NOW, 0).await.until;
            notes.borrow_mut().cursors.insert(*server, now);
        }
    }
    let mut tree = look(client, notes).await;
    loop {
        let (was_over, mut is_quiet) = (is_over.get(), true);
        for server in &servers {
            let after = notes.borrow().cursors[server];
            let reply = ask(client, *server, after, 20).await;
            is_quiet &= !reply.lost && !reply.more && reply.changes.is_empty();
            notes.borrow_mut().cursors.insert(*server, reply.until);
            if reply.lost {
                notes.borrow_mut().lost += 1;
                tree = look(client, notes).await;
            }
            for change in client.watch(&WHO, &mut tree, reply.changes).await {
                notes.borrow_mut().take(change);
            }
        }
        if was_over && is_quiet {
            return;
        }
    }
}

/// Changes names in three directories, which are on servers of their own.
async fn work(client: &Client<SimRt>, rounds: u32) {
    let mut dirs: Vec<Handle> = Vec::new();
    for dir in 0..3 {
        let name = format!("dir{dir}");
        let made = insist(client, async || match client.mkdir(&WHO, ROOT_HANDLE, name.as_bytes(), 0o755).await {
            Err(error) if error.status == Status::Exists => client.lookup(&WHO, ROOT_HANDLE, name.as_bytes()).await,
            made => made,
        });
        dirs.push(made.await.handle);
    }
    for round in 0..rounds {
        let random = client.rt().random();
        let (one, other) = (dirs[random as usize % 3], dirs[(random >> 8) as usize % 3]);
        let (name, to) = (format!("n{}", (random >> 16) % 5), format!("n{}", (random >> 24) % 5));
        // Whether it succeeds or not, and whoever knows: the changes say.
        match (random >> 32) % 6 {
            0 | 1 => drop(client.create_many(&WHO, one, &[name.into()], &CreateOptions::default()).await),
            2 => drop(client.unlink(&WHO, one, name.as_bytes()).await),
            3 => drop(client.rename(&WHO, one, name.as_bytes(), other, to.as_bytes(), RenameFlags::default()).await),
            4 => drop(client.mkdir(&WHO, one, format!("d{round}").as_bytes(), 0o755).await),
            _ => {
                if let Ok(attr) = client.lookup(&WHO, one, format!("d{}", round.saturating_sub(5)).as_bytes()).await {
                    client.create_many(&WHO, attr.handle, &["inside".into()], &CreateOptions::default()).await;
                    client.remove_tree(&WHO, one, &format!("d{}", round.saturating_sub(5)).into(), attr.handle, |_| {}).await;
                }
            }
        }
        client.rt().sleep_until(client.rt().now() + random % (10 * MILLISECOND)).await;
    }
}

/// Returns how many changes were told, and how often some were lost.
fn run(seed: u64) -> (u32, u32) {
    let config = ClusterConfig { meta: 3, data: 1, contract: Durability::Batch, ..ClusterConfig::small() };
    let mut stage = Stage::new(seed, &config, 0);
    stage.wait_for_servers().expect("a new cluster serves");
    let servers = stage.cluster.servers().to_vec();
    let [watcher, worker] = ["watcher", "worker"].map(|name| stage.add_worker(name, 2 * SECOND));
    let nodes = [watcher.0, worker.0];
    let settings = FaultSettings {
        crashes: 3,
        breaks: 3,
        partitions: 1,
        messages: MessageFaults::BAD,
        down_max_ns: 200 * MILLISECOND,
        ..FaultSettings::none(2 * SECOND)
    };
    let plan = FaultPlan::draw(&settings, &servers, &nodes, &mut stage.random);
    stage.sim.schedule(&plan);
    let (notes, is_over) = (Rc::new(RefCell::new(Notes::default())), Rc::new(Cell::new(false)));
    let following = {
        let (notes, is_over) = (Rc::clone(&notes), Rc::clone(&is_over));
        stage.begin(watcher.0, watcher.1, async move |worker| follow(&worker.client, &notes, &is_over).await)
    };
    let working = stage.begin(worker.0, worker.1, async |worker| work(&worker.client, 150).await);
    stage.wait(&[working]).unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"));
    stage.recover().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    is_over.set(true);
    stage.wait(&[following]).unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"));
    let seen = stage.with_auditor(async |worker| Ok(listed(&worker.client).await)).expect("the servers answer");
    let notes = notes.borrow();
    assert_eq!(notes.paths, seen, "seed {seed}");
    (notes.told, notes.lost)
}

#[test]
fn who_follows_the_changes_knows_the_tree() {
    for seed in 9200..9230 {
        let (told, lost) = run(seed);
        assert!(told > 50 && lost == 0, "seed {seed}: {told} changes, {lost} times lost");
    }
}

#[test]
fn what_the_journal_has_dropped_is_said_to_be_lost() {
    let config = ClusterConfig { meta: 1, data: 1, checkpoint_bytes: 64 << 10, ..ClusterConfig::small() };
    let mut stage = Stage::new(9300, &config, 0);
    stage.wait_for_servers().expect("a new cluster serves");
    stage
        .with_auditor(async |worker| {
            let (client, server) = (&worker.client, ServerId(0));
            let first = ask(client, server, NOW, 0).await;
            assert!(!first.lost && first.changes.is_empty());
            for round in 0..20 {
                let names: Vec<_> = (0..200).map(|file| format!("f{round}.{file}").into()).collect();
                client.create_many(&WHO, ROOT_HANDLE, &names, &CreateOptions::default()).await;
                client.rt().sleep_until(client.rt().now() + 100 * MILLISECOND).await;
            }
            client.rt().sleep_until(client.rt().now() + SECOND).await;
            let late = ask(client, server, first.until, 0).await;
            assert!(late.lost && late.changes.is_empty(), "{late:?}");
            // It goes on from there; a cursor of another journal, and one of the future, are lost.
            client.mkdir(&WHO, ROOT_HANDLE, b"new", 0o755).await.expect("a new name");
            let next = ask(client, server, late.until, 1000).await;
            assert_eq!((next.lost, next.changes.len(), next.changes[0].what), (false, 1, ChangeKind::Created));
            for wrong in [ChangeCursor { log: 5, ..next.until }, ChangeCursor { lsn: u64::MAX, ..next.until }] {
                assert!(ask(client, server, wrong, 0).await.lost, "{wrong:?}");
            }
            // Nothing has changed: the answer comes when it was waited for, or at once.
            for (wait_ms, least) in [(0, 0), (700, 700 * MILLISECOND), (u32::MAX, SECOND)] {
                let begun = client.rt().now();
                let nothing = ask(client, server, next.until, wait_ms).await;
                let waited = client.rt().now().since(begun);
                assert!(nothing.changes.is_empty() && waited >= least && waited < 2 * SECOND, "{wait_ms}: {waited}");
            }
            Ok(())
        })
        .expect("the server answers");
}
