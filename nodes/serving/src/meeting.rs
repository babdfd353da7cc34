//! How a server introduces itself, and answers those that do: see
//! [`Introduction`](crate::Introduction).

use std::rc::Rc;

use weft_base::{ClusterMap, MILLISECOND, Result, SECOND, ServerId, Status};
use weft_rt::{Runtime, ServerRuntime, join_all, race};
use weft_wire::ops::{MeetReply, MeetRequest};

use crate::introduction::REGISTRAR;
use crate::keys::{follow_keys, wait_for_keys};
use crate::start::hint_for_older;
use crate::{Introduction, Meets, ServerError, Service, Shell};

/// How long one attempt to be introduced takes at most, in nanoseconds.
const ATTEMPT_NS: u64 = 5 * SECOND;
/// How long a server that was introduced before waits for metadata server 0 to say that its store
/// has what it had, in nanoseconds.
const JUDGED_WITHIN_NS: u64 = SECOND;
/// How often servers meet again to say how far their journals are, in nanoseconds.
const MEET_AGAIN_NS: u64 = 60 * SECOND;
/// The pause before another attempt, in nanoseconds.
const PAUSE_NS: u64 = 100 * MILLISECOND;
/// The pause while another meeting is being noted, in nanoseconds.
const BUSY_NS: u64 = MILLISECOND;
/// How long a new metadata server 0 waits for others to say that they have met another one, in
/// nanoseconds.
const ASK_NS: u64 = SECOND;
/// The longest pause before somebody who did not answer is told of a new map again, in nanoseconds:
/// at his next start he asks.
const TELL_AGAIN_NS_MAX: u64 = 60 * SECOND;

/// Introduces the server, at every start. One that was introduced before serves meanwhile.
pub async fn introduce<S: Service>(server: Rc<S>) {
    let shell = server.shell();
    shell.rt.learn_servers(&shell.introduction.map());
    if shell.introduction.meets == Meets::Nobody {
        return;
    }
    shell.rt.spawn(note_again(server.clone()));
    if shell.identity.server != REGISTRAR {
        if let Some(keys) = shell.identity.process.keys.clone() {
            if !shell.introduction.is_agreed() {
                wait_for_keys(&*server, &*keys).await;
            }
            shell.rt.spawn(follow_keys(server.clone(), keys));
        }
        return introduce_to_registrar(server).await;
    }
    if !shell.introduction.is_known() {
        ask_everybody(&*server).await;
    }
    keep_own_words(&server).await;
    shell.rt.spawn(ask_claimants(server.clone()));
    tell_others(server.clone()).await;
}

/// At the start, and now and then: whatever else has happened meanwhile, a store that is not the
/// one that the other side knows ends the server.
async fn introduce_to_registrar<S: Service>(server: Rc<S>) {
    let Shell { rt, introduction, .. } = server.shell();
    let mut within_ns = if introduction.is_agreed() { JUDGED_WITHIN_NS } else { ATTEMPT_NS };
    let mut was_met = false;
    while !server.shell().has_failed() {
        was_met |= meet_registrar(&*server, within_ns).await;
        within_ns = ATTEMPT_NS;
        if !introduction.is_complete() && !server.shell().has_failed() {
            introduction.judged();
            server.shell().wake();
        }
        let pause = if was_met { MEET_AGAIN_NS } else { PAUSE_NS };
        rt.sleep_until(rt.now() + pause).await;
    }
}

/// One attempt. True if it came to a result.
async fn meet_registrar<S: Service>(server: &S, within_ns: u64) -> bool {
    let Shell { rt, caller, introduction, identity, .. } = server.shell();
    let me = (identity.server, introduction.birth());
    let request = request_to(introduction, REGISTRAR, None);
    let (outcome, other) = match caller.call(REGISTRAR, &request, rt.now() + within_ns).await {
        Ok(reply) => {
            if hear(server, REGISTRAR, &reply) {
                // It is told so when it asks.
                return false;
            }
            let met = [(REGISTRAR, reply.birth), me];
            // While it was under way the registrar may have told of a newer one.
            let map = reply.map.filter(|map| map.epoch < request.epoch || map.epoch >= introduction.epoch());
            (take(server, &met, map).await, REGISTRAR)
        }
        Err(status @ (Status::StoreReplaced | Status::MapChanged)) => (Err(status), identity.server),
        // It says that it is another one than this server has met.
        Err(Status::WrongServer) => (Err(Status::StoreReplaced), REGISTRAR),
        Err(_) => return false,
    };
    let is_over = outcome != Err(Status::Busy);
    if is_over {
        judge(server, outcome, other);
    }
    is_over
}

/// A server has answered. If it has heard that this one was further, this one ends. What it says of
/// its own journal is noted, unless that was further when it was heard of before: then its store is
/// older, and this is true.
fn hear<S: Service>(server: &S, other: ServerId, reply: &MeetReply) -> bool {
    let introduction = &server.shell().introduction;
    let was_further = |before: Option<u64>, now: Option<u64>| before.zip(now).is_some_and(|(before, now)| now < before);
    if was_further(reply.yours_lsn, server.durable_lsn()) && introduction.meets != Meets::OthersWithOlderStore {
        let name = &server.shell().identity.name;
        server.fail(ServerError::Store(format!(
            "the store of {name} is an older copy of itself (a backup, a snapshot), or has lost the end of its journal: others know of \
             changes that are not in it. {}",
            hint_for_older(name)
        )));
    }
    let is_older = was_further(introduction.journal_of(other), reply.durable_lsn) && reply.is_older != Some(true);
    if !is_older {
        introduction.heard_of(other, reply.durable_lsn);
    }
    is_older
}

/// Stores now and then what was heard of journals, and how far the own one is.
async fn note_again<S: Service>(server: Rc<S>) {
    let Shell { rt, introduction, .. } = server.shell();
    while !server.shell().has_failed() {
        rt.sleep_until(rt.now() + MEET_AGAIN_NS).await;
        introduction.note_heard(rt.disk(), server.durable_lsn()).await;
    }
}

/// Metadata server 0, when it is new, asks everybody whether they have met another one.
async fn ask_everybody<S: Service>(server: &S) {
    let Shell { rt, caller, introduction, identity, .. } = server.shell();
    let deadline = rt.now() + ASK_NS;
    let others: Vec<ServerId> = introduction.map().servers().map(|entry| entry.id).filter(|id| *id != REGISTRAR).collect();
    let request = request_to(introduction, REGISTRAR, None);
    let answers = join_all(others.iter().map(|other| caller.call(*other, &request, deadline))).await;
    // Who does not answer is asked no more: it finds out at its next start, and then this server
    // does.
    if answers.contains(&Err(Status::StoreReplaced)) {
        return judge(server, Err(Status::StoreReplaced), REGISTRAR);
    }
    let met = [(identity.server, introduction.birth())];
    judge(server, take_in_time(server, &met, || None).await, REGISTRAR);
}

/// Metadata server 0 asks nobody about what it is called, where it is and what the file system is
/// called: its configuration says so.
async fn keep_own_words<S: Service>(server: &Rc<S>) {
    let introduction = &server.shell().introduction;
    let told = || {
        let (map, config) = (introduction.map(), &introduction.config);
        let named = ClusterMap { fs_name: config.fs_name.clone(), ..map.with_server(&introduction.me).unwrap_or_else(|| (*map).clone()) };
        (named != *map).then(|| ClusterMap { epoch: map.epoch + 1, ..named })
    };
    judge(&**server, take_in_time(&**server, &[], told).await, REGISTRAR);
}

/// Metadata server 0 tells everybody who has not heard of its map.
async fn tell_others<S: Service>(server: Rc<S>) {
    let Shell { rt, caller, introduction, .. } = server.shell();
    // At a start, the others are just about to ask.
    let mut pause = PAUSE_NS;
    loop {
        let changed = introduction.changed.wait();
        let (map, told) = (introduction.map(), introduction.told.borrow().clone());
        let is_told = |id: ServerId| id == REGISTRAR || told.get(&id).is_some_and(|epoch| *epoch >= map.epoch);
        let others: Vec<ServerId> = map.servers().map(|entry| entry.id).filter(|id| !is_told(*id)).collect();
        match others.is_empty() {
            true => changed.await,
            false => drop(race(rt.sleep_until(rt.now() + pause), changed).await),
        }
        if server.shell().has_failed() {
            return;
        }
        if introduction.epoch() != map.epoch {
            pause = 0;
            continue;
        }
        let tell = |other: ServerId| {
            let request = request_to(introduction, other, Some(&map));
            async move { (other, caller.call(other, &request, rt.now() + ATTEMPT_NS).await) }
        };
        for (other, answer) in join_all(others.into_iter().map(tell)).await {
            match answer {
                Ok(reply) if reply.epoch > introduction.epoch() => return judge(&*server, Err(Status::MapChanged), other),
                Ok(reply) => {
                    // One that is older hears it when it asks.
                    hear(&*server, other, &reply);
                    introduction.told.borrow_mut().insert(other, reply.epoch);
                }
                Err(Status::MapChanged) => return judge(&*server, Err(Status::MapChanged), other),
                Err(_) => {}
            }
        }
        pause = (2 * pause).clamp(PAUSE_NS, TELL_AGAIN_NS_MAX);
    }
}

/// Metadata server 0 asks back whoever says that it is a new server, or has another name or
/// address: one message changes no map.
async fn ask_claimants<S: Service>(server: Rc<S>) {
    let Shell { rt, introduction, .. } = server.shell();
    while !server.shell().has_failed() {
        let claimed = introduction.claimed.wait();
        let claims = introduction.claims.take();
        if claims.is_empty() {
            claimed.await;
            continue;
        }
        join_all(claims.into_values().map(|claim| ask_back(&*server, claim))).await;
        // Nobody is looked for where it is not.
        rt.learn_servers(&introduction.map());
    }
}

/// Asks a server at the address that somebody has named for it. If it is there and says the same of
/// itself, the next map has it; it hears of that when it introduces itself again.
async fn ask_back<S: Service>(server: &S, claim: MeetRequest) {
    let Shell { rt, caller, introduction, .. } = server.shell();
    let id = claim.server.id;
    let Some(next) = introduction.map().with_server(&claim.server) else { return };
    rt.learn_servers(&next);
    let request = MeetRequest { yours: 0, ..request_to(introduction, id, None) };
    let Ok(reply) = caller.call(id, &request, rt.now() + ATTEMPT_NS).await else { return };
    if (reply.birth, reply.server.as_ref()) != (claim.birth, Some(&claim.server)) {
        return;
    }
    // A store that was made again is told so when it introduces itself.
    if take_in_time(server, &[(id, claim.birth)], || introduction.map().with_server(&claim.server)).await == Ok(true) {
        introduction.told.borrow_mut().insert(id, introduction.epoch());
        introduction.changed.notify();
    }
}

fn request_to(introduction: &Introduction, other: ServerId, map: Option<&ClusterMap>) -> MeetRequest {
    MeetRequest {
        server: introduction.me.clone(),
        birth: introduction.birth(),
        yours: if other == introduction.me.id { 0 } else { introduction.birth_of(other) },
        epoch: introduction.epoch(),
        map: map.cloned(),
    }
}

/// Answers a server that introduces itself, or metadata server 0 that tells of a new map.
pub(crate) async fn meet<S: Service>(server: &S, request: MeetRequest) -> Result<MeetReply> {
    let Shell { introduction, identity, .. } = server.shell();
    if introduction.meets == Meets::Nobody {
        return Ok(reply(server, request.server.id, None));
    }
    if request.yours != 0 && request.yours != introduction.birth() {
        if !introduction.is_known() {
            // The asker has met the one before us.
            judge(server, Err(Status::StoreReplaced), identity.server);
            return Err(Status::NotReady);
        }
        return Err(Status::WrongServer);
    }
    let is_registrar = identity.server == REGISTRAR;
    if is_registrar {
        if request.epoch > introduction.epoch() {
            // Its own answer says whether it is so (`tell_others`): one message does not end this
            // server.
            introduction.told.borrow_mut().remove(&request.server.id);
            introduction.changed.notify();
            return Err(Status::NotReady);
        }
        if request.server.id == REGISTRAR {
            return Err(Status::WrongServer);
        }
        if let Some(next) = introduction.map().with_server(&request.server) {
            next.check()?;
            introduction.check_birth(request.server.id, request.birth)?;
            introduction.claim(request)?;
            return Err(Status::NotReady);
        }
        take(server, &[(request.server.id, request.birth)], None).await?;
        // Its own answer says how far its journal is.
        introduction.told.borrow_mut().remove(&request.server.id);
        introduction.changed.notify();
    } else {
        introduction.check_birth(request.server.id, request.birth)?;
        // An older one is no news: who sends it learns from the answer that there are newer ones.
        let map = request.map.filter(|map| request.server.id == REGISTRAR && map.epoch >= introduction.epoch());
        if let Some(map) = map.filter(|_| introduction.is_agreed()) {
            let outcome = take(server, &[], Some(map)).await;
            if outcome == Err(Status::MapChanged) {
                judge(server, outcome, REGISTRAR);
            }
            outcome?;
        }
    }
    let map = is_registrar.then(|| (*introduction.map()).clone());
    Ok(reply(server, request.server.id, map))
}

fn reply<S: Service>(server: &S, to: ServerId, map: Option<ClusterMap>) -> MeetReply {
    let introduction = &server.shell().introduction;
    MeetReply {
        birth: introduction.birth(),
        epoch: introduction.epoch(),
        map,
        server: Some(introduction.me.clone()),
        durable_lsn: server.durable_lsn(),
        yours_lsn: introduction.journal_of(to),
        // Said only where it is so.
        is_older: (introduction.meets == Meets::OthersWithOlderStore).then_some(true),
    }
}

/// Notes births and a new map, and goes by that map from now on. True if it is new.
async fn take<S: Service>(server: &S, births: &[(ServerId, u64)], map: Option<ClusterMap>) -> Result<bool> {
    let Shell { rt, introduction, .. } = server.shell();
    let is_new = introduction.note(rt.disk(), births, map).await?;
    if is_new {
        let map = introduction.map();
        assert!(map.epoch > 0 && map.epoch == introduction.epoch(), "a server goes by the map that it has agreed to");
        rt.learn_servers(&map);
        server.placed(&map);
    }
    // Who was not introduced may serve now.
    server.shell().wake();
    Ok(is_new)
}

/// As [`take`], waiting for other meetings that are being noted.
async fn take_in_time<S: Service>(server: &S, births: &[(ServerId, u64)], map: impl Fn() -> Option<ClusterMap>) -> Result<bool> {
    let rt = &server.shell().rt;
    loop {
        match take(server, births, map()).await {
            Err(Status::Busy) => rt.sleep_until(rt.now() + BUSY_NS).await,
            outcome => return outcome,
        }
    }
}

/// Ends the server after a meeting with `other` that shows that it must not serve.
fn judge<S: Service>(server: &S, outcome: Result<bool>, other: ServerId) {
    let Err(status) = outcome else { return };
    let introduction = &server.shell().introduction;
    let name = introduction
        .map()
        .server(other)
        .or(introduction.config.server(other))
        .map_or_else(|| other.to_string(), |entry| entry.name.clone());
    server.fail(ServerError::Store(match status {
        Status::StoreReplaced => format!(
            "the store of {name} is not the one that the file system knows: it was lost and made again, and what it held is missing; or \
             its id is that of another server. Give {name} its old folder back, or an id of its own; nothing is served in its place, \
             since files would read as zeros"
        ),
        Status::MapChanged => format!(
            "{name} and metadata server 0 have cluster maps that contradict each other; this server has that of epoch {}. Is a folder \
             an old copy? Nothing is served, since files would be looked for on the wrong servers",
            introduction.epoch()
        ),
        status => format!("cannot note that this server knows {name}: {status}"),
    }));
}
