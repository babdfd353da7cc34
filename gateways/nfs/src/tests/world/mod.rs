//! Servers in virtual time, gateways before them, and a user of NFS who builds his calls himself.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;

use bytes::Bytes;
use weft_base::{ClientId, ClusterMap, Credentials, FsId, MILLISECOND, Nanos, ROOT_HANDLE, SECOND, ServerId};
use weft_client::{Client, ClientOptions, XattrFlags};
use weft_data_server::DataServerConfig;
use weft_meta_server::{Durability, MetaServerConfig, ServingConfig};
use weft_rt::Runtime;
use weft_rt_sim::{Fault, NodeConfig, NodeId, Profile, Random, Sim, SimRt};
use weft_virtual_cluster::{Servers, cluster_map};
use weft_wire::ClusterKey;

use crate::calls::{MOUNT_PROGRAM, NFS_PROGRAM};
use crate::exports::Export;
use crate::gateway::{Nfs, Peer, Warnings};
use crate::locks::{Grant, NLM_PROGRAM, Told};
use crate::rpc::RpcAnswer;
use crate::xdr::{Reader, Writer};

mod at_once;
mod seen;
pub(crate) use at_once::{Call, Done, Replay, UNANSWERED};
pub(crate) use seen::{SeenByNfs, args, mode, read_after, read_attr, read_change, size};

/// Longest wait of a test, in virtual nanoseconds.
const LIMIT: u64 = 1000 * SECOND;
/// Where clients are.
const ADDRESS: [u8; 4] = [127, 0, 0, 1];

/// A file system and the world around it.
pub(crate) struct World {
    sim: Sim,
    servers: Servers,
    map: ClusterMap,
    node: NodeId,
    next: Cell<u64>,
    /// Something has failed.
    fails: Cell<bool>,
}

/// A gateway of it.
#[derive(Clone)]
pub(crate) struct Gate {
    pub nfs: Rc<Nfs<SimRt>>,
    /// What clients were told of locks for which they waited, and what they answer.
    pub told: Rc<RefCell<Vec<Grant>>>,
    pub answers: Rc<Cell<Told>>,
    pub node: NodeId,
}

impl World {
    pub fn new(meta: u16, data: u16) -> World {
        World::of(1, meta, data)
    }

    pub fn of(seed: u64, meta: u16, data: u16) -> World {
        let mut profile = Profile::instant();
        (profile.net.latency_ns, profile.net.jitter_ns) = (50_000, 0);
        let sim = Sim::new(seed, profile);
        let map = cluster_map(FsId(7), "test", meta, data, 4096, 0);
        let key = ClusterKey([3; 32]);
        let serving = |server| ServingConfig {
            create: true,
            durability: Durability::Sync,
            journal_segment_bytes: 256 << 10,
            ..ServingConfig::new(server, map.clone(), key.clone())
        };
        let meta = MetaServerConfig::new(serving(ServerId(0)));
        let servers = Servers::start(&sim, &meta, &DataServerConfig::new(serving(ServerId::data(0))));
        let node = sim.add_node(NodeConfig::client("test"));
        let world = World { sim, servers, map, node, next: Cell::new(1), fails: Cell::default() };
        world.serves();
        world
    }

    fn serves(&self) {
        let client = self.client();
        self.run(async move {
            while !client.ping_all().await.iter().all(|(_, answer)| answer.as_ref().is_ok_and(|info| info.state == "serving")) {
                client.rt().sleep_until(client.rt().now() + MILLISECOND).await;
            }
        });
    }

    /// Directories that are made from now on have their names on all metadata servers.
    pub fn spreads_directories(&self) {
        let (client, flags) = (self.client(), XattrFlags::default());
        let name = "user.weft.presplit";
        self.run(
            async move { client.set_xattr(&Credentials::ROOT, ROOT_HANDLE, name.as_bytes(), b"all", flags).await.expect("it is set") },
        );
    }

    /// A client that is no gateway.
    pub fn client(&self) -> Client<SimRt> {
        self.client_on(self.node)
    }

    fn client_on(&self, node: NodeId) -> Client<SimRt> {
        let id = self.next.replace(self.next.get() + 1);
        Client::new(self.sim.rt(node), self.map.clone(), ClientOptions::new(ClientId(id), 1))
    }

    /// Drives a flow to its end.
    pub fn run<T: 'static>(&self, flow: impl Future<Output = T> + 'static) -> T {
        let joined = self.sim.spawn_on(self.node, |_| flow);
        let limit = Nanos(self.sim.rt(self.node).now().0 + LIMIT);
        self.sim.run_until_true(limit, || joined.is_over()).expect("a flow that waits for nothing never ends");
        joined.take().expect("it is over")
    }

    /// Lets so much time pass, in nanoseconds.
    pub fn pass(&self, ns: u64) {
        let rt = self.sim.rt(self.node);
        self.run(async move { rt.sleep_until(rt.now() + ns).await });
    }

    /// A server dies and starts again.
    pub fn restart(&self, server: ServerId) {
        let control = self.sim.control();
        let node = control.node_of(server).expect("the server is one of the map");
        control.crash(node);
        control.restart(node);
        self.serves();
    }

    /// A server stands still for so long, in nanoseconds, after so many more of its steps (0: now);
    /// what it is sent meanwhile it does afterwards.
    pub fn pause(&self, server: ServerId, steps: u64, ns: u64) {
        let control = self.sim.control();
        let node = control.node_of(server).expect("the server is one of the map");
        match steps {
            0 => control.strike(&Fault::Pause { node, ns }),
            _ => control.strike_after_polls(node, steps, Fault::Pause { node, ns }),
        }
    }

    /// A fault strikes after so many more steps of this node; 0: now.
    pub fn strike(&self, node: NodeId, steps: u64, fault: Fault) {
        self.fails.set(true);
        match steps {
            0 => self.sim.control().strike(&fault),
            _ => self.sim.control().strike_after_polls(node, steps, fault),
        }
    }

    /// The machines of all servers.
    pub fn servers(&self) -> Vec<NodeId> {
        self.servers.nodes().into_iter().map(|(_, node)| node).collect()
    }

    /// Random numbers of this run.
    pub fn random(&self) -> Random {
        self.sim.control().random()
    }

    /// All servers go on.
    pub fn go_on(&self) {
        self.sim.control().heal();
    }

    /// A gateway with these exports, on a machine of its own, that finds nothing to warn of.
    pub fn gateway(&self, exports: &[&str]) -> Gate {
        self.gateway_that_warns(exports, Box::new(|line| panic!("{line}")))
    }

    /// The same, of servers that do not answer all the time.
    pub fn gateway_that_warns(&self, exports: &[&str], log: Warnings) -> Gate {
        self.gateway_by(Some(ClusterKey([3; 32])), exports, log).expect("the exports are there")
    }

    /// The same, of a file system with this key or without one.
    pub fn gateway_by(&self, key: Option<ClusterKey>, exports: &[&str], log: Warnings) -> Result<Gate, String> {
        let node = self.sim.add_node(NodeConfig::client(format!("gateway{}", self.next.get())));
        let client = self.client_on(node);
        let exports = exports.iter().map(|text| Export::parse(text).expect("an export")).collect();
        let nfs = Rc::new(self.run(async move { Nfs::open(client, key, exports, log).await })?);
        let flows = [nfs.clone(), nfs.clone(), nfs.clone(), nfs.clone()];
        let [closer, keeper, tender, listener] = flows;
        self.sim.spawn_on(node, |_| async move { closer.posix.close_in_background().await });
        self.sim.spawn_on(node, |_| async move { keeper.posix.keep_alive().await });
        self.sim.spawn_on(node, |_| async move { tender.tend(|| true).await });
        for server in self.map.meta.iter().map(|entry| entry.id) {
            let listener = listener.clone();
            self.sim.spawn_on(node, move |_| async move { listener.posix.hear_notices(server).await });
        }
        Ok(Gate { nfs, told: Rc::default(), answers: Rc::new(Cell::new(Told::Taken)), node })
    }

    /// The machine of a gateway has not stopped.
    pub fn is_running(&self, gate: &Gate) -> bool {
        self.runs(gate.node)
    }

    fn runs(&self, node: NodeId) -> bool {
        self.sim.control().is_running(node)
    }

    /// The time.
    pub fn now(&self) -> Nanos {
        self.sim.rt(self.node).now()
    }

    /// The machine of a gateway stops.
    pub fn kill(&self, gate: &Gate) {
        self.sim.control().crash(gate.node);
    }

    /// Clients of this gateway wait for locks from now on that were taken when they asked.
    fn drive_waits(&self, gate: &Gate) {
        let begun = if self.is_running(gate) { gate.nfs.begun_waits() } else { Vec::new() };
        for number in begun {
            let Gate { nfs, told, answers, node } = gate.clone();
            let tell = async move |grant: &Grant| {
                told.borrow_mut().push(grant.clone());
                answers.get()
            };
            self.sim.spawn_on(node, move |_| async move { nfs.wait_for_lock(number, tell).await });
        }
    }

    /// A user of a client of a gateway.
    pub fn user<'a>(&'a self, gate: &Gate, uid: u32) -> User<'a> {
        let (address, groups) = (IpAddr::from(ADDRESS), Vec::new());
        let (xid, other, is_again) = (Rc::default(), Rc::default(), Rc::default());
        User { world: self, gate: gate.clone(), other, is_again, uid, groups, address, port: 700, xid, replay: None }
    }
}

/// A file handle.
pub(crate) type Fh = Bytes;

/// An entry of a listing, with its handle if that was asked for.
pub(crate) type ListedByNfs = (String, Option<Fh>);

/// Who calls a gateway.
#[derive(Clone)]
pub(crate) struct User<'a> {
    pub world: &'a World,
    pub gate: Gate,
    /// The gateway to which the client turned when that one had stopped.
    pub other: Rc<RefCell<Option<Gate>>>,
    /// A call without an answer was made again there.
    pub is_again: Rc<Cell<bool>>,
    pub uid: u32,
    pub groups: Vec<u32>,
    pub address: IpAddr,
    pub port: u16,
    pub xid: Rc<Cell<u32>>,
    /// It is one of several that call at the same time.
    pub replay: Option<Rc<RefCell<Replay>>>,
}

/// A result with the number of the status.
pub(crate) type Outcome<T> = Result<T, u32>;

impl User<'_> {
    /// The bytes of a call.
    pub fn record(&self, xid: u32, program: u32, procedure: u32, arguments: &Writer) -> Bytes {
        let mut user = Writer::default();
        user.u32(1).opaque(b"client").u32(self.uid).u32(self.uid).u32(self.groups.len() as u32);
        self.groups.iter().for_each(|group| {
            user.u32(*group);
        });
        let mut call = Writer::default();
        let version = if program == NLM_PROGRAM { 4 } else { 3 };
        call.u32(xid).u32(0).u32(2).u32(program).u32(version).u32(procedure).u32(1).opaque(&user.0).u32(0).u32(0);
        call.0.extend_from_slice(&arguments.0);
        call.0.into()
    }

    /// The gateway that it uses.
    pub fn gate(&self) -> Gate {
        self.other.borrow().clone().unwrap_or_else(|| self.gate.clone())
    }

    /// What the gateway answers to a record; `None` also if it stops before.
    pub fn send(&self, record: Bytes) -> Option<RpcAnswer> {
        let (gate, from, sim) = (self.gate(), self.peer(), &self.world.sim);
        if !sim.control().is_running(gate.node) {
            return None;
        }
        let nfs = gate.nfs.clone();
        let joined = sim.spawn_on(gate.node, |_| async move { nfs.answer(from, record).await });
        let limit = Nanos(sim.rt(self.world.node).now().0 + LIMIT);
        let is_over = || joined.is_over() || !sim.control().is_running(gate.node);
        sim.run_until_true(limit, is_over).expect("a flow that waits for nothing never ends");
        let answer = joined.take().flatten();
        self.world.drive_waits(&gate);
        answer
    }

    /// Both ends of the connection.
    pub fn peer(&self) -> Peer {
        Peer { address: self.address, port: self.port, at: IpAddr::from(ADDRESS) }
    }

    /// The results of a call, from its status on. Panics if it was not carried out.
    pub fn call(&self, program: u32, procedure: u32, arguments: &Writer) -> Reader {
        if let Some(replay) = &self.replay {
            return replay.borrow_mut().answer(program, procedure, arguments);
        }
        let xid = self.xid.replace(self.xid.get() + 1);
        let record = self.record(xid, program, procedure, arguments);
        let answer = loop {
            if let Some(answer) = self.send(record.clone()) {
                break answer;
            }
            assert!(!self.world.sim.control().is_running(self.gate().node), "an answer");
            self.turn_to_another_gateway();
        };
        assert_eq!(answer.to_bytes().len() % 4, 0);
        let mut reader = Reader::new(answer.to_bytes().into());
        let head: Vec<u32> = (0..6).map(|_| reader.u32().expect("a head")).collect();
        assert_eq!(head, [xid, 1, 0, 0, 0, 0], "it is carried out");
        reader
    }

    fn turn_to_another_gateway(&self) {
        self.is_again.set(true);
        loop {
            if let Ok(gate) = self.world.gateway_by(Some(ClusterKey([3; 32])), &["/:no_root_squash"], Box::new(|_| {})) {
                return *self.other.borrow_mut() = Some(gate);
            }
            self.world.pass(SECOND);
        }
    }

    /// The results of a procedure of NFS behind its status.
    pub fn nfs(&self, procedure: u32, write: impl for<'w> FnOnce(&'w mut Writer) -> &'w mut Writer) -> Outcome<Reader> {
        let mut reader = self.call(NFS_PROGRAM, procedure, &args(write));
        match reader.u32().expect("a status") {
            0 => Ok(reader),
            UNANSWERED => Err(UNANSWERED),
            status => {
                for _ in 0..crate::procedures::options_of_failure(procedure) {
                    assert_eq!(reader.bool(), Ok(false));
                }
                assert!(reader.u32().is_err(), "nothing follows");
                Err(status)
            }
        }
    }

    pub fn mount(&self, path: &str) -> Outcome<Fh> {
        let mut reader = self.call(MOUNT_PROGRAM, 1, &args(|out| out.opaque(path.as_bytes())));
        match reader.u32().expect("a status") {
            0 => Ok(reader.opaque(64).expect("a handle")),
            status => Err(status),
        }
    }

    pub fn getattr(&self, fh: &Fh) -> Outcome<SeenByNfs> {
        let mut reader = self.nfs(1, |out| out.opaque(fh))?;
        Ok(read_attr(&mut reader))
    }

    pub fn lookup(&self, dir: &Fh, name: &str) -> Outcome<Fh> {
        let mut reader = self.nfs(3, |out| out.opaque(dir).opaque(name.as_bytes()))?;
        Ok(reader.opaque(64).expect("a handle"))
    }

    pub fn access(&self, fh: &Fh) -> Outcome<u32> {
        let mut reader = self.nfs(4, |out| out.opaque(fh).u32(63))?;
        read_after(&mut reader);
        Ok(reader.u32().expect("bits"))
    }

    /// CREATE with a mode; `how`: 0 or 1.
    pub fn create(&self, dir: &Fh, name: &str, how: u32, bits: u32) -> Outcome<Fh> {
        self.make(8, |out| {
            out.opaque(dir).opaque(name.as_bytes()).u32(how);
            mode(out, bits)
        })
    }

    pub fn create_exclusive(&self, dir: &Fh, name: &str, verifier: [u8; 8]) -> Outcome<Fh> {
        self.make(8, |out| out.opaque(dir).opaque(name.as_bytes()).u32(2).fixed(&verifier))
    }

    pub fn mkdir(&self, dir: &Fh, name: &str, bits: u32) -> Outcome<Fh> {
        self.make(9, |out| {
            out.opaque(dir).opaque(name.as_bytes());
            mode(out, bits)
        })
    }

    /// A procedure that makes an object.
    pub fn make(&self, procedure: u32, write: impl for<'w> FnOnce(&'w mut Writer) -> &'w mut Writer) -> Outcome<Fh> {
        let mut reader = self.nfs(procedure, write)?;
        assert_eq!(reader.bool(), Ok(true));
        let fh = reader.opaque(64).expect("a handle");
        assert!(read_after(&mut reader).is_some() || self.world.fails.get());
        read_change(&mut reader);
        assert!(reader.u32().is_err(), "nothing follows");
        Ok(fh)
    }

    /// Returns how it was committed and the verifier.
    pub fn write(&self, fh: &Fh, offset: u64, data: &[u8], stable: u32) -> Outcome<(u32, [u8; 8])> {
        let mut reader = self.nfs(7, |out| out.opaque(fh).u64(offset).u32(data.len() as u32).u32(stable).opaque(data))?;
        read_change(&mut reader);
        assert_eq!(reader.u32(), Ok(data.len() as u32));
        Ok((reader.u32().expect("how"), reader.array().expect("a verifier")))
    }

    /// Returns the data and whether the file ends with it.
    pub fn read(&self, fh: &Fh, offset: u64, count: u32) -> Outcome<(Bytes, bool)> {
        let mut reader = self.nfs(6, |out| out.opaque(fh).u64(offset).u32(count))?;
        read_after(&mut reader);
        let (count, is_end) = (reader.u32().expect("a count"), reader.bool().expect("a flag"));
        let data = reader.opaque(1 << 20).expect("data");
        assert_eq!(data.len(), count as usize);
        Ok((data, is_end))
    }

    pub fn commit(&self, fh: &Fh) -> Outcome<[u8; 8]> {
        let mut reader = self.nfs(21, |out| out.opaque(fh).u64(0).u32(0))?;
        read_change(&mut reader);
        Ok(reader.array().expect("a verifier"))
    }

    pub fn remove(&self, dir: &Fh, name: &str) -> Outcome<()> {
        self.nfs(12, |out| out.opaque(dir).opaque(name.as_bytes())).map(drop)
    }

    pub fn rmdir(&self, dir: &Fh, name: &str) -> Outcome<()> {
        self.nfs(13, |out| out.opaque(dir).opaque(name.as_bytes())).map(drop)
    }

    pub fn rename(&self, from: (&Fh, &str), to: (&Fh, &str)) -> Outcome<()> {
        self.nfs(14, |out| out.opaque(from.0).opaque(from.1.as_bytes()).opaque(to.0).opaque(to.1.as_bytes())).map(drop)
    }

    pub fn chmod(&self, fh: &Fh, bits: u32) -> Outcome<()> {
        self.setattr(fh, |out| mode(out, bits), None).map(drop)
    }

    pub fn link(&self, fh: &Fh, dir: &Fh, name: &str) -> Outcome<()> {
        self.nfs(15, |out| out.opaque(fh).opaque(dir).opaque(name.as_bytes())).map(drop)
    }

    /// With `sattr3` as written, and a guard. Returns what was before, if that is told, and after.
    pub fn setattr(
        &self,
        fh: &Fh,
        change: impl for<'w> FnOnce(&'w mut Writer) -> &'w mut Writer,
        guard: Option<i64>,
    ) -> Outcome<(bool, Option<SeenByNfs>)> {
        let mut reader = self.nfs(2, |out| {
            out.opaque(fh);
            change(out);
            out.bool(guard.is_some());
            match guard {
                Some(guard) => out.u32((guard / 1_000_000_000) as u32).u32((guard % 1_000_000_000) as u32),
                None => out,
            }
        })?;
        Ok(read_change(&mut reader))
    }

    /// All names by READDIR (`None`) or READDIRPLUS, with so many bytes for each answer; handles
    /// with READDIRPLUS. Returns the number of answers, too.
    pub fn list(&self, dir: &Fh, bytes: u32, plus: bool) -> Outcome<(Vec<ListedByNfs>, usize)> {
        let (mut names, mut cookie, mut verifier, mut answers) = (Vec::new(), 0, [0; 8], 0);
        loop {
            let mut reader = self.nfs(if plus { 17 } else { 16 }, |out| {
                out.opaque(dir).u64(cookie).fixed(&verifier).u32(bytes);
                if plus { out.u32(bytes) } else { out }
            })?;
            answers += 1;
            read_after(&mut reader);
            verifier = reader.array().expect("a verifier");
            while reader.bool().expect("an entry or none") {
                reader.u64().expect("a number");
                let name = String::from_utf8(reader.opaque(255).expect("a name").to_vec()).expect("words");
                cookie = reader.u64().expect("a cookie");
                let mut fh = None;
                if plus {
                    read_after(&mut reader);
                    fh = reader.option(|reader| reader.opaque(64)).expect("a handle");
                }
                names.push((name, fh));
            }
            if reader.bool().expect("a flag") {
                return Ok((names, answers));
            }
        }
    }

    /// Requests that the gateway has sent to servers so far.
    pub fn messages(&self) -> u64 {
        self.gate.nfs.posix.stats().requests
    }
}
