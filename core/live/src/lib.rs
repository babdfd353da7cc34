//! What a server counts about its own work while it works: operations with their times
//! ([`Operations`]), the busiest clients and objects of the last seconds ([`Tops`], on sketches of
//! bounded memory, [`Sketch`]) and the requests that are not answered yet ([`InFlight`]). All of it
//! is always on, so it has to cost next to nothing: a request adds to a few numbers that its turn
//! has in the cache already, and reads no clock of its own. It never does I/O, never reads a clock,
//! and never decides anything.

mod clients;
mod in_flight;
mod operations;
mod sketch;
mod tops;

use std::collections::BTreeSet;

use weft_base::{ClientId, Handle, Nanos};
use weft_wire::Op;
use weft_wire::ops::{ClientName, LiveReply, OLDEST_MAX, ServerInfo, TOP_MAX};

pub use clients::ClientNames;
pub use in_flight::{InFlight, Ticket};
pub use operations::{Operations, SLOTS, slot_of, slot_upper_ns};
pub use sketch::{Estimate, Sketch};
pub use tops::Tops;

/// All that a server counts.
#[derive(Debug)]
pub struct Live {
    operations: Operations,
    tops: Tops,
    /// Requests that are here and not answered, as far as their owner has put them in.
    pub in_flight: InFlight,
    /// Where clients are.
    pub clients: ClientNames,
    read_bytes: u64,
    written_bytes: u64,
}

/// What only the server itself can say at the moment it is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Requests that are here and not answered.
    pub queued: u32,
    /// Clients with a connection.
    pub clients: u32,
    /// Bytes that the cache layer holds.
    pub cache_bytes: u64,
    /// Most bytes that it may hold.
    pub cache_bytes_max: u64,
    /// Bytes of names and inodes in memory and in the page file, if that is known.
    pub page_bytes: Option<(u64, u64)>,
}

/// True for what dashboards ask.
fn is_of_dashboards(op: Option<Op>) -> bool {
    matches!(op, Some(Op::Live | Op::Ping))
}

impl Live {
    /// Nothing has been done yet.
    pub fn new(now: Nanos) -> Live {
        Live {
            operations: Operations::default(),
            tops: Tops::new(now),
            in_flight: InFlight::default(),
            clients: ClientNames::default(),
            read_bytes: 0,
            written_bytes: 0,
        }
    }

    /// A turn begins: what was busy long ago is forgotten.
    pub fn turn(&mut self, now: Nanos) {
        self.tops.roll(now);
    }

    /// A request is here, about this object (0: none). Questions of dashboards are not counted
    /// among the busiest.
    pub fn asked(&mut self, op: Option<Op>, client: ClientId, object: Handle) {
        if !is_of_dashboards(op) {
            self.tops.request(client, object);
        }
    }

    /// A request was answered, `ns` nanoseconds after the turn that took it began.
    #[inline]
    pub fn answered(&mut self, op: Option<Op>, is_error: bool, ns: u64) {
        self.operations.add(op, is_error, ns);
    }

    /// A request that is in [`Live::in_flight`] was answered.
    pub fn ended(&mut self, ticket: Ticket, is_error: bool, now: Nanos) {
        let (op, since) = self.in_flight.end(ticket);
        self.operations.add(op, is_error, now.since(since));
    }

    /// A client was given bytes of a file.
    pub fn read(&mut self, client: ClientId, object: Handle, bytes: u64) {
        self.read_bytes += bytes;
        self.tops.bytes(client, object, bytes);
    }

    /// A client has written bytes of a file.
    pub fn written(&mut self, client: ClientId, object: Handle, bytes: u64) {
        self.written_bytes += bytes;
        self.tops.bytes(client, object, bytes);
    }

    /// Everything, for a dashboard.
    pub fn report(&mut self, now: Nanos, info: ServerInfo, gauges: Gauges) -> LiveReply {
        self.tops.roll(now);
        let mut reply = LiveReply {
            info,
            read_bytes: self.read_bytes,
            written_bytes: self.written_bytes,
            queued: gauges.queued,
            clients: gauges.clients,
            cache_bytes: gauges.cache_bytes,
            cache_bytes_max: gauges.cache_bytes_max,
            page_memory_bytes: gauges.page_bytes.map(|(memory, _)| memory),
            page_file_bytes: gauges.page_bytes.map(|(_, file)| file),
            operations: self.operations.used(),
            top_ns: self.tops.covers_ns(now),
            clients_by_requests: self.tops.clients_by_requests(TOP_MAX),
            clients_by_bytes: self.tops.clients_by_bytes(TOP_MAX),
            objects_by_requests: self.tops.objects_by_requests(TOP_MAX),
            objects_by_bytes: self.tops.objects_by_bytes(TOP_MAX),
            oldest: self.in_flight.oldest(now, OLDEST_MAX),
            client_names: Vec::new(),
        };
        reply.client_names = self.names_of_clients(&reply);
        reply
    }

    /// Where those clients are that an answer names.
    fn names_of_clients(&self, reply: &LiveReply) -> Vec<ClientName> {
        let rows = reply.clients_by_requests.iter().chain(&reply.clients_by_bytes).map(|row| ClientId(row.key));
        let named: BTreeSet<ClientId> = rows.chain(reply.oldest.iter().map(|waiting| waiting.client)).collect();
        let name = |client| Some(ClientName { client, name: self.clients.name(client)?.to_string() });
        named.into_iter().filter_map(name).collect()
    }
}
