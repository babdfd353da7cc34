//! Which requests are executed when. Requests for different objects go at the same time; those for one object keep their order wherever it
//! matters: two that touch the same bytes, one of them writing; truncations and removals against everything; a copy of a request
//! against the request.
//!
//! # Within a turn
//! In the page cache an access is short, and the turn waits for all of its requests. Requests for one object go one after another; where a
//! cache layer gathers, neighbours whose order does not matter go together, so that the layer sees them together.
//!
//! # Over turns
//! With direct I/O an access takes as long as the disk takes, and requests that arrive meanwhile shall meet in the cache layer those that
//! wait. So a turn does not wait for the accesses that it starts: a request becomes a *flight*, a flow of its own, and a later turn
//! journals and answers what has landed. Of two requests whose order matters the later one waits until the earlier has landed, and
//! whoever comes after it waits behind it, so nothing starves. What waits has changed nothing, and is judged again before it
//! starts: its client may have given it up meanwhile.
//!
//! With a bounded number of requests or bytes under way nothing is received: the connections fill up and hold the clients back.

use std::rc::Rc;

use weft_base::Status;
use weft_rt::{ServerRuntime, join_all};
use weft_serving::{Answer, Answers};
use weft_store::objects::ObjectKey;

use crate::clients::Verdict;
use crate::done::When;
use crate::flights::{Claim, Job, joins, object_of, offset_of};
use crate::state::Server;

impl<R: ServerRuntime> Server<R> {
    /// Executes requests and waits for all of them.
    pub async fn execute_all(&self, mut jobs: Vec<Job>, answers: &mut Answers<Self>) {
        if jobs.len() > 1 {
            jobs.sort_by_key(|job| object_of(&job.request));
        }
        let same = |a: &Job, b: &Job| object_of(&a.request) == object_of(&b.request);
        if jobs.chunk_by(same).nth(1).is_none() {
            return self.execute_in_order(jobs, answers).await;
        }
        let mut groups: Vec<Vec<Job>> = Vec::new();
        for job in jobs {
            match groups.last_mut() {
                Some(group) if group.last().is_some_and(|last| same(last, &job)) => group.push(job),
                _ => groups.push(vec![job]),
            }
        }
        let groups = groups.into_iter().map(|group| async {
            let mut answers = Vec::with_capacity(group.len());
            self.execute_in_order(group, &mut answers).await;
            answers
        });
        answers.extend(join_all(groups).await.into_iter().flatten());
    }

    /// Executes requests for one object.
    async fn execute_in_order(&self, jobs: Vec<Job>, answers: &mut Answers<Self>) {
        let mut rest = jobs.into_iter().peekable();
        while let Some(job) = rest.next() {
            if !self.cache.gathers() || rest.peek().is_none() {
                answers.push(self.execute_one(job).await);
                continue;
            }
            let mut claims: Vec<Claim> = Claim::of(&job).map(|(_, claim)| claim).into_iter().collect();
            let mut group = vec![job];
            while let Some(job) = rest.next_if(|job| Claim::of(job).is_some_and(|(_, claim)| joins(&mut claims, claim))) {
                group.push(job);
            }
            // New space is given out in this order, so neighbours in the object become neighbours on the disk.
            group.sort_by_key(|job| offset_of(&job.request));
            match group.len() {
                1 => answers.push(self.execute_one(group.remove(0)).await),
                _ => answers.extend(join_all(group.into_iter().map(|job| self.execute_one(job))).await),
            }
        }
    }

    /// Starts requests; gives the answers of those that need no order, and of what has landed.
    pub async fn start_all(self: &Rc<Self>, jobs: Vec<Job>, answers: &mut Answers<Self>) {
        for job in jobs {
            match Claim::of(&job) {
                Some((object, claim)) => {
                    if let Some((number, job)) = self.flights.take(object, claim, job) {
                        self.launch(object, number, job);
                    }
                }
                None => answers.push(self.execute_one(job).await),
            }
        }
        self.flights.take_landed(answers);
    }

    fn launch(self: &Rc<Self>, object: ObjectKey, number: u64, job: Job) {
        let server = self.clone();
        self.rt.spawn(async move {
            let answer = server.execute_now(job).await;
            for (number, job) in server.flights.land(object, number, answer) {
                server.launch(object, number, job);
            }
            server.shell.wake();
        });
    }

    /// Executes a request that may have waited: what its client has given up or finished since it arrived is refused.
    async fn execute_now(&self, mut job: Job) -> Answer<When> {
        let verdict = self.clients.borrow_mut().admit(&job.header);
        if verdict == Verdict::Stale {
            return self.refuse(job.peer, &job.header, job.served, Status::StaleRequest);
        }
        job.executed = job.executed || verdict == Verdict::Executed;
        self.execute_one(job).await
    }
}
