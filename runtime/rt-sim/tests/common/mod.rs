//! An echo server and requests to it, for all tests.
#![allow(dead_code)] // each test file uses a part of it

use std::rc::Rc;

use bytes::Bytes;
use weft_base::{ClientId, Nanos, Payload, RequestId, SECOND, ServerId, Status};
use weft_rt::{Arrival, Bulk, Outgoing, Runtime, ServerRuntime, Work};
use weft_rt_sim::{NodeConfig, NodeId, Sim, SimRt};
use weft_wire::{Frame, Header, Op};

pub const SERVER: ServerId = ServerId(0);

/// Answers every request with its own body and bulk data.
pub async fn echo(rt: SimRt) {
    let mut arrivals = Vec::new();
    loop {
        rt.receive(&mut arrivals).await;
        for arrival in arrivals.drain(..) {
            if let Arrival::Request { peer, frame } = arrival {
                rt.cpu(Work::Request).await;
                rt.reply(peer, Frame::reply(&frame.header, Ok(frame.body), frame.bulk));
            }
        }
    }
}

/// A server that does this with all that arrives, and a client.
pub fn server_and_client(sim: &Sim, take: impl Fn(&SimRt, Arrival) + 'static) -> NodeId {
    let server = sim.add_node(NodeConfig::server(SERVER));
    let take = Rc::new(take);
    sim.start(server, move |rt| {
        let take = Rc::clone(&take);
        async move {
            let mut arrivals = Vec::new();
            loop {
                rt.receive(&mut arrivals).await;
                arrivals.drain(..).for_each(|arrival| take(&rt, arrival));
            }
        }
    });
    sim.add_node(NodeConfig::client("client0"))
}

/// A server that runs [`echo`], and so many clients.
pub fn echo_cluster(sim: &Sim, clients: usize) -> (NodeId, Vec<NodeId>) {
    let server = sim.add_node(NodeConfig::server(SERVER));
    sim.start(server, echo);
    let clients = (0..clients).map(|index| sim.add_node(NodeConfig::client(format!("client{index}")))).collect();
    (server, clients)
}

pub fn header(client: u64, sequence: u64) -> Header {
    let request = RequestId { client: ClientId(client), incarnation: 1, sequence };
    Header::request(Op::Ping, SERVER, request, 0)
}

/// One attempt of one request, with a deadline of 2 s.
pub async fn ask(rt: &SimRt, client: u64, sequence: u64, body: &[u8]) -> Result<Frame, Status> {
    let request = Outgoing { header: header(client, sequence), body: Bytes::copy_from_slice(body), bulk: Bulk::None };
    rt.request(SERVER, request, rt.now() + 2 * SECOND).await
}

/// Like [`ask`] with synthetic bulk data.
pub async fn ask_bulk(rt: &SimRt, client: u64, sequence: u64, len: u64) -> Result<Payload, Status> {
    let request = Outgoing { header: header(client, sequence), body: Bytes::new(), bulk: Bulk::Synthetic { len, tag: sequence } };
    Ok(rt.request(SERVER, request, rt.now() + 60 * SECOND).await?.bulk)
}

pub async fn sleep(rt: &SimRt, ns: u64) {
    rt.sleep_until(rt.now() + ns).await;
}

pub fn at(ns: u64) -> Nanos {
    Nanos(ns)
}
