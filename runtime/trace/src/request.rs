//! The key that ties client, server and disk: one word that both sides compute from what is in
//! every message anyway.

use weft_base::{RequestId, ServerId};

/// Computes keys of the requests of one client at one server.
///
/// A request is named by client, incarnation, server and sequence, together 27 bytes. The key is a
/// hash of the first three plus the sequence: consecutive requests have consecutive keys. Two pairs
/// of client and server collide if their ranges overlap: with 10^4 pairs of 10^9 requests each the
/// chance is (10^4)^2 * 10^9 / 2^64, half a percent, and it would confuse two requests only if both
/// fall into one window of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestKey {
    base: u64,
}

impl RequestKey {
    /// For requests of this client (and life) at this server.
    pub fn new(request: RequestId, server: ServerId) -> RequestKey {
        let identity = request.client.0 ^ u64::from(request.incarnation).rotate_left(32);
        RequestKey { base: mix(mix(identity) ^ u64::from(server.0)) }
    }

    /// The key of the request with this sequence; never 0.
    pub fn of(self, sequence: u64) -> u64 {
        self.base.wrapping_add(sequence).max(1)
    }
}

/// The key of one request.
pub fn request_key(request: RequestId, server: ServerId) -> u64 {
    RequestKey::new(request, server).of(request.sequence)
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
/// OOPSLA 2014, figure 14).
fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ word >> 31
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use weft_base::ClientId;

    use super::*;

    #[test]
    fn keys_differ_by_client_life_server_and_sequence() {
        let mut keys = BTreeSet::new();
        for client in 1..20 {
            for incarnation in 1..4 {
                for server in [0, 1, 0x8000, 0x8001] {
                    for sequence in 1..50 {
                        let request = RequestId { client: ClientId(client), incarnation, sequence };
                        keys.insert(request_key(request, ServerId(server)));
                    }
                }
            }
        }
        assert_eq!(keys.len(), 19 * 3 * 4 * 49);
    }
}
