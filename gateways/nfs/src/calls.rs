//! From the bytes of a call to those of its answer: read, known from before or carried out.

use bytes::Bytes;
use weft_base::{MILLISECOND, crc32c};
use weft_rt::Runtime;

use crate::gateway::{Caller, Nfs, Peer, Results, lock};
use crate::locks;
use crate::procedures;
use crate::replies::{Before, CallId};
use crate::rpc::{self, Call, Refusal, RpcAnswer};
use crate::types::{Failure, NfsStatus};

/// The program number of NFS.
pub(crate) const NFS_PROGRAM: u32 = 100_003;
/// The program number of MOUNT.
pub(crate) const MOUNT_PROGRAM: u32 = 100_005;
/// The version of both that is served.
pub(crate) const VERSION: u32 = 3;
/// After so long a repeated call looks for the answer of the first one, and then after twice as
/// long, in nanoseconds.
const LOOK_NS: u64 = 5 * MILLISECOND;
/// The longest pause between two looks, in nanoseconds.
const LOOK_NS_MAX: u64 = 80 * MILLISECOND;

impl<R: Runtime> Nfs<R> {
    /// Answers a record; `None` for what is no call.
    pub async fn answer(&self, peer: Peer, record: Bytes) -> Option<RpcAnswer> {
        let (bytes, checksum) = (record.len(), record.clone());
        let call = match rpc::parse(record) {
            Ok(call) => call,
            Err(refused) => return refused.map(|(xid, refusal)| rpc::refused(xid, refusal)),
        };
        let (xid, procedure) = (call.xid, call.procedure);
        let is_done_once = match (call.program, call.version) {
            (NFS_PROGRAM, VERSION) => procedures::is_done_once(procedure),
            (locks::NLM_PROGRAM, locks::NLM_VERSION) => locks::is_done_once(procedure),
            _ => false,
        };
        if !is_done_once {
            return Some(self.carry_out(peer, call).await);
        }
        let id = CallId { address: peer.address, xid, procedure, bytes, checksum: crc32c(&checksum) };
        let mut before = lock(&self.replies).begin(id, self.now());
        let mut pause = LOOK_NS;
        loop {
            let asked = match before {
                Before::Nothing => break,
                Before::Answered(head) => return Some(RpcAnswer { head, data: Vec::new() }),
                // The client has asked once more, and waits there.
                Before::Replaced => return None,
                Before::Running(asked) => asked,
            };
            self.posix.rt().sleep_until(self.now() + pause).await;
            pause = (pause * 2).min(LOOK_NS_MAX);
            before = lock(&self.replies).look(id, asked, self.now());
        }
        let answer = self.carry_out(peer, call).await;
        let mut replies = lock(&self.replies);
        // Who shall ask again later means the same call.
        match is_for_later(&answer) {
            true => replies.not_done(&id),
            false => replies.answered(id, answer.head.clone(), self.now()),
        }
        Some(answer)
    }

    async fn carry_out(&self, peer: Peer, call: Call) -> RpcAnswer {
        let Call { xid, program, version, procedure, identity, arguments } = call;
        let caller = Caller { peer, identity };
        let mut results = Results { out: rpc::accepted(xid), data: Vec::new() };
        let head = results.out.0.len();
        let outcome = match (program, version) {
            (NFS_PROGRAM, VERSION) => Box::pin(procedures::carry_out(self, &caller, procedure, arguments, &mut results)).await,
            (MOUNT_PROGRAM, VERSION) => Box::pin(self.mount_procedure(&caller, procedure, arguments, &mut results.out)).await,
            (locks::NLM_PROGRAM, locks::NLM_VERSION) => {
                Box::pin(self.lock_procedure(&caller, procedure, arguments, &mut results.out)).await
            }
            (locks::NLM_PROGRAM, _) => Err(Refusal::NoVersion(locks::NLM_VERSION, locks::NLM_VERSION).into()),
            (NFS_PROGRAM | MOUNT_PROGRAM, _) => Err(Refusal::NoVersion(VERSION, VERSION).into()),
            _ => Err(Refusal::NoProgram.into()),
        };
        match outcome {
            Ok(()) => RpcAnswer { head: results.out.0, data: results.data },
            Err(Failure::Refused(refusal)) => rpc::refused(xid, refusal),
            Err(Failure::Failed(NfsStatus(status))) => {
                results.out.0.truncate(head);
                results.out.u32(status);
                for _ in 0..procedures::options_of_failure(procedure) {
                    results.out.bool(false);
                }
                RpcAnswer { head: results.out.0, data: Vec::new() }
            }
        }
    }
}

/// True if the answer tells the client to ask again later.
fn is_for_later(answer: &RpcAnswer) -> bool {
    answer.head.get(24..28) == Some(&NfsStatus::LATER.0.to_be_bytes())
}
