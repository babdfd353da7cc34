//! How a server introduces itself, and answers those that do: see [`Introduction`](crate::Introduction).

use std::rc::Rc;

use weft_base::{MILLISECOND, Result, SECOND, ServerId, Status};
use weft_journal::Superblock;
use weft_rt::{Runtime, ServerRuntime, join_all};
use weft_wire::ops::{MeetReply, MeetRequest};

use crate::introduction::REGISTRAR;
use crate::{Service, Shell};

/// How long one attempt to be introduced takes at most, in nanoseconds.
const ATTEMPT_NS: u64 = 5 * SECOND;
/// The pause before another attempt, in nanoseconds.
const PAUSE_NS: u64 = 100 * MILLISECOND;
/// The pause while another meeting is being noted, in nanoseconds.
const BUSY_NS: u64 = MILLISECOND;
/// How long a new metadata server 0 waits for others to say that they have met another one, in nanoseconds.
const ASK_NS: u64 = SECOND;

/// Introduces the server, at every start. One that was introduced before serves meanwhile.
pub async fn introduce<S: Service>(server: Rc<S>) {
    let shell = server.shell();
    let Some(known) = shell.introduction.known().filter(|_| shell.introduction.is_needed) else { return };
    match shell.identity.server {
        REGISTRAR if known.is_introduced() => {}
        REGISTRAR => ask_everybody(&*server, known.birth).await,
        _ => introduce_to_registrar(&*server, &known).await,
    }
}

async fn introduce_to_registrar<S: Service>(server: &S, known: &Superblock) {
    let Shell { rt, caller, introduction, .. } = server.shell();
    let yours = known.births.get(&REGISTRAR).copied().unwrap_or(0);
    let request = MeetRequest { server: known.server, birth: known.birth, yours };
    loop {
        match caller.call(REGISTRAR, &request, rt.now() + ATTEMPT_NS).await {
            Ok(reply) => match introduction.note(rt.disk(), &[(REGISTRAR, reply.birth), (known.server, known.birth)]).await {
                Err(Status::Busy) => {}
                outcome => return judge(server, outcome, REGISTRAR),
            },
            Err(Status::StoreReplaced) => return judge(server, Err(Status::StoreReplaced), known.server),
            // It says that it is another one than this server has met.
            Err(Status::WrongServer) => return judge(server, Err(Status::StoreReplaced), REGISTRAR),
            Err(_) => {}
        }
        rt.sleep_until(rt.now() + PAUSE_NS).await;
    }
}

/// Metadata server 0, when it is new, asks everybody whether they have met another one.
async fn ask_everybody<S: Service>(server: &S, birth: u64) {
    let Shell { rt, caller, introduction, identity, .. } = server.shell();
    let deadline = rt.now() + ASK_NS;
    let others: Vec<ServerId> = identity.map.servers().map(|entry| entry.id).filter(|id| *id != REGISTRAR).collect();
    let request = MeetRequest { server: REGISTRAR, birth, yours: 0 };
    let answers = join_all(others.iter().map(|other| caller.call(*other, &request, deadline))).await;
    // Who does not answer is asked no more: it finds out at its next start, and then this server does.
    if answers.contains(&Err(Status::StoreReplaced)) {
        return judge(server, Err(Status::StoreReplaced), REGISTRAR);
    }
    let mut outcome = introduction.note(rt.disk(), &[(REGISTRAR, birth)]).await;
    while outcome == Err(Status::Busy) {
        rt.sleep_until(rt.now() + BUSY_NS).await;
        outcome = introduction.note(rt.disk(), &[(REGISTRAR, birth)]).await;
    }
    judge(server, outcome, REGISTRAR);
}

/// Answers a server that introduces itself.
pub(crate) async fn meet<S: Service>(server: &S, request: MeetRequest) -> Result<MeetReply> {
    let Shell { rt, introduction, identity, .. } = server.shell();
    let Some(known) = introduction.known() else { return Ok(MeetReply { birth: 0 }) };
    if request.yours != 0 && request.yours != known.birth {
        if !known.is_introduced() {
            // The asker has met the one before us.
            judge(server, Err(Status::StoreReplaced), identity.server);
            return Err(Status::NotReady);
        }
        return Err(Status::WrongServer);
    }
    match identity.server {
        REGISTRAR => introduction.note(rt.disk(), &[(request.server, request.birth)]).await?,
        _ => drop(known.clone().meet(request.server, request.birth)?),
    }
    Ok(MeetReply { birth: known.birth })
}

/// Ends the server after a meeting with `other` that shows that it must not serve.
fn judge<S: Service>(server: &S, outcome: Result<()>, other: ServerId) {
    let Err(status) = outcome else { return };
    let name = server.shell().identity.map.server(other).map_or_else(|| other.to_string(), |entry| entry.name.clone());
    server.fail(S::foreign(match status {
        Status::StoreReplaced => format!(
            "the store of {name} is not the one that the file system knows: it was lost and made again, and what it held is missing. \
             Give {name} its old folder back; nothing is served in its place, since files would read as zeros"
        ),
        status => format!("cannot note that this server knows {name}: {status}"),
    }));
}
