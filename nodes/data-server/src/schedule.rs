//! Which requests are executed when. Requests for different objects go at the same time; those for
//! one object keep their order wherever it matters: two that touch the same bytes, one of them
//! writing; truncations and removals against everything; a copy of a request against the request
//! ([`Claims`]).
//!
//! A request that may run becomes a flow of its own. The others wait for those that are in their
//! way, and later ones wait behind them, so nothing starves. What has waited has changed nothing,
//! and is judged again before it starts: its client may have given it up meanwhile, or a copy of it
//! has been executed.
//!
//! In the page cache an access is short, and a turn ends when all of its requests have finished.
//! With direct I/O an access takes as long as the disk takes, and requests that arrive meanwhile
//! shall meet in the cache layer those that wait; so a turn does not wait for the requests that it
//! starts, and a later one journals and answers what has finished. While the number of requests or
//! bytes in flight is at its bound nothing is received: the connections fill up and hold the
//! clients back.

use std::rc::Rc;

use weft_base::Status;
use weft_rt::{Either, ServerRuntime, race};
use weft_serving::{OutgoingReplies, OutgoingReply};

use crate::clients::Verdict;
use crate::done::When;
use crate::in_flight::{AdmittedRequest, Claims, RunningRequest};
use crate::state::Server;

impl<R: ServerRuntime> Server<R> {
    /// Starts requests; gives the answers of those that need no order, and of what has finished.
    pub async fn start_all(self: &Rc<Self>, mut jobs: Vec<AdmittedRequest>, answers: &mut OutgoingReplies<Self>) {
        let cache = &self.objects.container.cache;
        let waits = !cache.is_served_aside();
        cache.begin_turn(jobs.len());
        if waits && jobs.len() <= 1 {
            // Nobody is in its way.
            let Some(job) = jobs.pop() else { return };
            let answer = match cache.gathers() {
                true => self.beside_cache(Box::pin(self.execute_one(job))).await,
                false => self.execute_one(job).await,
            };
            return answers.push(answer);
        }
        // Between requests that meet in no layer only the object is compared: they are as fast one
        // after another.
        let by_bytes = cache.gathers() || cache.is_served_aside();
        let mut starting = Vec::with_capacity(jobs.len());
        for job in jobs {
            match Claims::of(&job, by_bytes) {
                Some(claims) => starting.extend(self.in_flight.take(claims, job)),
                None => answers.push(self.execute_one(job).await),
            }
        }
        // New space is given out in this order, so neighbours in the object become neighbours on
        // the disk.
        starting.sort_by_key(RunningRequest::place);
        starting.into_iter().for_each(|request| self.launch(request));
        if waits {
            self.beside_cache(self.in_flight.all_finished()).await;
        }
        self.in_flight.take_finished(answers);
    }

    /// Waits for requests while the cache layer, if it gathers, does what they have asked of the
    /// disk: when they are done, nothing is under way there.
    async fn beside_cache<T>(&self, requests: impl Future<Output = T>) -> T {
        if !self.objects.container.cache.gathers() {
            return requests.await;
        }
        match race(requests, self.objects.container.work()).await {
            Either::First(done) => done,
            Either::Second(()) => unreachable!("the cache works for ever"),
        }
    }

    fn launch(self: &Rc<Self>, request: RunningRequest) {
        let server = self.clone();
        self.rt.spawn(async move {
            let mut next = Some(request);
            while let Some(request) = next {
                let RunningRequest { held, has_waited, job } = request;
                let answer = if has_waited { server.execute_late(job).await } else { server.execute_one(job).await };
                let mut freed = server.in_flight.finish(held, answer).into_iter();
                next = freed.next();
                freed.for_each(|request| server.launch(request));
            }
            if server.objects.container.cache.is_served_aside() {
                server.shell.wake();
            }
        });
    }

    /// Executes a request that has waited: what its client has given up or finished since it
    /// arrived is refused.
    async fn execute_late(&self, mut job: AdmittedRequest) -> OutgoingReply<When> {
        let verdict = self.clients.borrow_mut().admit(&job.header);
        if verdict == Verdict::Stale {
            return self.refuse(job.peer, &job.header, job.served, Status::StaleRequest);
        }
        job.executed = job.executed || verdict == Verdict::Executed;
        self.execute_one(job).await
    }
}
