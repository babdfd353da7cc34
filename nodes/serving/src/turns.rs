//! The loop of turns.

use std::rc::Rc;

use weft_rt::{Arrival, FaultPoint, Runtime, ServerRuntime, race};

use crate::{Intake, OutgoingReplies, OutgoingReply, ServerError, Service};

/// Makes turns until the server fails, or is asked to stop: then everything is on stable storage.
///
/// # Errors
/// Why it has failed.
pub async fn serve<S: Service>(server: &Rc<S>) -> Result<(), ServerError> {
    let shell = server.shell();
    shell.rt.spawn(stop_flow(Rc::clone(server)));
    let (mut arrivals, mut answers) = (Vec::new(), Vec::new());
    loop {
        let woken = shell.woken.wait();
        if let Some(failure) = shell.failure() {
            return Err(failure);
        }
        match server.intake(shell.is_to_stop.get()) {
            Intake::Open => drop(race(shell.rt.receive(&mut arrivals), woken).await),
            Intake::Ready => drop(race(shell.rt.receive(&mut arrivals), std::future::ready(())).await),
            Intake::Busy => {}
            Intake::Closed => woken.await,
            Intake::Over => {
                server.bring_to_rest().await?;
                shell.introduction.note_stop(shell.rt.disk(), server.durable_lsn()).await;
                return Ok(());
            }
        }
        if let Err(failure) = turn(server, &mut arrivals, &mut answers).await {
            server.fail(failure);
        }
    }
}

async fn turn<S: Service>(server: &Rc<S>, arrivals: &mut Vec<Arrival>, answers: &mut OutgoingReplies<S>) -> Result<(), ServerError> {
    let (shell, arrived) = (server.shell(), arrivals.len());
    let _turn = weft_trace::span(S::TURN);
    shell.begin_turn(arrived);
    if arrived > 0 {
        shell.rt.pass(FaultPoint::ServerQueue).await;
    }
    server.make_room().await?;
    shell.sample_load(arrived, || server.load());
    shell.work_ends();
    server.work(arrivals, answers).await?;
    let has_answers = !answers.is_empty();
    finish(server, answers).await?;
    if arrived > 0 || has_answers {
        shell.end_turn();
    }
    server.look_after(has_answers).await;
    Ok(())
}

/// Notes a connection that was made or broke.
pub fn connection<S: Service>(server: &S, arrival: Arrival) {
    let shell = server.shell();
    match arrival {
        Arrival::Request { .. } => unreachable!("requests are for the server"),
        Arrival::Connected { peer, client, incarnation, key, generation, access } => {
            shell.access.connected(peer, key, generation, access);
            shell.live.borrow_mut().clients.connected(client, shell.rt.peer_name(peer));
            server.connected(client, incarnation);
        }
        Arrival::Disconnected { peer, client, .. } => {
            if shell.access.disconnected(peer) {
                shell.forget_parked(peer);
            }
            shell.live.borrow_mut().clients.disconnected(client);
            server.disconnected(client, shell.turn.at.get());
        }
    }
}

async fn stop_flow<S: Service>(server: Rc<S>) {
    server.shell().rt.stop_requested().await;
    server.shell().is_to_stop.set(true);
    server.shell().wake();
}

/// Commits what was decided; then the answers leave, or wait for what they must wait for.
///
/// # Errors
/// The commit failed. No answer leaves.
pub async fn finish<S: Service>(server: &Rc<S>, answers: &mut OutgoingReplies<S>) -> Result<(), ServerError> {
    server.commit().await?;
    if answers.is_empty() {
        return Ok(());
    }
    server.committed(answers);
    let shell = server.shell();
    let (committed, now) = (shell.work_ends(), shell.rt.now());
    for mut answer in answers.drain(..) {
        answer.served.kept(committed);
        match answer.until.take() {
            None => shell.answer(answer.served, answer.peer, answer.frame, now),
            Some(until) => answer_later(server, answer, until),
        }
    }
    Ok(())
}

fn answer_later<S: Service>(server: &Rc<S>, answer: OutgoingReply<S::Until>, until: S::Until) {
    let OutgoingReply { peer, frame, mut served, .. } = answer;
    let this = Rc::clone(server);
    let shell = server.shell();
    shell.list(&mut served);
    shell.rt.spawn(async move {
        let holds = this.wait(until).await;
        if holds {
            let shell = this.shell();
            served.kept(weft_trace::now());
            shell.answer(served, peer, frame, shell.rt.now());
        }
    });
}
