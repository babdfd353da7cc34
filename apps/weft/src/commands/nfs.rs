//! `weft nfs`: a process that serves a file system to NFS clients, in the foreground: what starts
//! it looks after it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::mpsc;

use anyhow::{Context, Result, anyhow, bail};
use weft_base::ROOT_HANDLE;
use weft_host::command_socket;
use weft_host::connect::{Common, Fs};
use weft_host::output::{self, tell};
use weft_host::process;
use weft_host::stop_signals::{HangUp, StopSignals};
use weft_host::{gateway_list, mount_list};
use weft_nfs::{Export, Nfs, Serving, register};
use weft_wire::ops::MountErrors;

use super::mount;

/// Serve a file system to NFS clients (NFSv3)
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Options of an export, behind the first colon and separated by commas:
  ro                 nothing is changed through it
  root_squash        root of a client counts as nobody (the default)
  all_squash         everybody does
  no_root_squash     only those who do not say who they are
  anonuid=N, anongid=N  user and group of nobody (default 65534)
  secure             only clients whose connection comes from a port below 1024
  10.1.0.0/16, fd00::/8, 192.168.7.9  clients from there; * is everywhere. Without any, only this machine is served

Example: a directory for a network, and how its machines mount it:
  weft nfs ~/fs --listen 0.0.0.0:2049 --export /home:10.1.0.0/16 --portmap
  mount -t nfs -o vers=3,tcp,port=2049,mountport=2049,mountproto=tcp GATEWAY:/home /mnt

Any number of gateways may serve one file system; with the same key they take each other's file handles. Users and groups are what clients say
(AUTH_SYS): serve only networks that you trust. Locks (NLM) are served at the same port, but Linux clients find them only by the portmapper of
the gateway's machine: with --portmap, or they mount with nolock and lock among themselves. SIGTERM ends a gateway in good order, and its clients
lose their locks.")]
pub struct Args {
    /// The file system
    fs: OsString,
    /// Where to listen: ADDRESS:PORT; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:2049")]
    listen: String,
    /// A directory that clients see; may be given several times [default: /]
    #[arg(long = "export", value_name = "PATH[:OPTIONS]", value_parser = Export::parse)]
    exports: Vec<Export>,
    /// Make NFS, MOUNT and NLM known to the portmapper (rpcbind) of this machine, by its socket
    #[arg(long, value_name = "SOCKET", num_args = 0..=1, require_equals = true, default_missing_value = "/run/rpcbind.sock")]
    portmap: Option<PathBuf>,
}

impl Args {
    pub fn run(self, common: &Common) -> Result<()> {
        let Args { fs, listen, mut exports, portmap } = self;
        if exports.is_empty() {
            exports.push(Export::parse("/").map_err(|words| anyhow!(words))?);
        }
        let signals = StopSignals::block()?;
        weft_recording::block_dump_signal()?;
        process::raise_descriptors();
        let listener = weft_host::listen::listen(&listen)?;
        let fs = Fs::open(&fs, common)?;
        let key = fs.key.as_ref();
        if key.is_some_and(|key| key.root != ROOT_HANDLE) {
            bail!(
                "this key is for a directory only, and NFS clients keep handles longer than it lets anybody: use a key for all of {}",
                fs.name
            );
        }
        let key = key.map(|key| key.key.clone());
        let address = listener.local_addr().context("cannot see the own address")?;
        if let Some(export) = exports.iter().find(|export| export.is_for_others() && address.ip().is_loopback()) {
            let (path, port) = (&export.path, address.port());
            tell(&format!("{path} is for other machines, and {address} is reached from this one only: give --listen 0.0.0.0:{port}"));
        }
        let address = address.to_string();
        let shown: Vec<String> = exports.iter().map(|export| export.path.clone()).collect();
        let nfs = fs.run(Nfs::open(fs.client.clone(), key, exports, mount::limited_log("weft nfs"))).map_err(|words| anyhow!(words))?;
        let serving = Serving::begin(nfs, listener).context("cannot serve")?;
        // Forgotten when the gateway ends.
        let known = portmap.map(|socket| register(&socket, serving.address())).transpose().map_err(|words| anyhow!(words))?;
        // What could not begin leaves nothing.
        let listed = list(&fs, &address);
        let (sender, receiver) = mpsc::channel();
        let stop = move || {
            // Whoever waits for it has it, or is gone.
            let _ = sender.send(());
        };
        signals.on_end(HangUp::Ends, "weft nfs", stop, || std::process::exit(130));
        output::print(&format!("serving {} of {} at {}\n", shown.join(", "), fs.name, serving.address()))?;
        // Without a sender nobody could end it in good order.
        let _ = receiver.recv();
        drop(known);
        serving.end();
        // What stays is known to be left behind: nobody holds it.
        listed.iter().flatten().for_each(|path| drop(std::fs::remove_file(path)));
        tell("ended");
        Ok(())
    }
}

/// Lets `weft status` and `weft trace` find this process; gives the files of that. A gateway that
/// they do not find is a gateway all the same.
fn list(fs: &Fs, address: &str) -> Option<[PathBuf; 2]> {
    weft_recording::identify(&gateway_list::trace_name(address), None);
    let begin = || -> Result<[PathBuf; 2]> {
        let dir = mount_list::dir_for(fs.config.as_ref().map(|config| config.file.as_path()))?;
        let (pid_file, path) = gateway_list::take_pid_file(&dir, fs.id(), address)?;
        pid_file.hold_until_exit();
        let socket = command_socket::path_for(&path);
        // It counts no errors of servers: its clients are told of each.
        mount::listen_to_commands(fs, &socket, &dir, || MountErrors { rows: Vec::new() })?;
        Ok([socket, path])
    };
    begin().inspect_err(|error| tell(&format!("`weft status` and `weft trace` will not find this gateway: {error:#}"))).ok()
}
