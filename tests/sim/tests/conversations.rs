//! Conversations with a small file system in virtual time, as text: a block has commands, a line
//! `----`, and what was answered. A reader of a change sees what behaves otherwise.
//! `WEFT_BLESS=1 cargo test -p weft-sim-tests --test conversations` writes the answers of today
//! into the files; read the difference before it is committed.
//!
//! Commands, beside which the number of requests that each took stands in brackets:
//! `mkdir PATH [MODE]` · `create PATH [MODE]` · `rm PATH` · `rmdir PATH` · `mv PATH PATH` ·
//! `ln PATH PATH` · `symlink TARGET PATH` · `stat PATH` · `ls PATH` · `chmod MODE PATH` ·
//! `truncate BYTES PATH` · `write PATH OFFSET TEXT` · `read PATH OFFSET BYTES` · `open NAME PATH`
//! (for reading and writing; later commands take `=NAME` for the open file) · `close NAME` ·
//! `user UID` (who asks from now on) · `crash NODE` · `powercut NODE` · `wait MILLISECONDS`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use weft_base::{Attr, Credentials, Handle, MILLISECOND, Payload, SECOND};
use weft_client::{Client, CreateOptions, OpenFile, RenameFlags, SetAttr};
use weft_rt::{Bulk, Runtime};
use weft_rt_sim::{Control, Profile, Sim, SimRt};
use weft_sim_tests::cluster::{Cluster, ClusterConfig, Durability};
use weft_wire::Rights;

/// More virtual time than a conversation takes, in nanoseconds.
const LIMIT_NS: u64 = 3600 * SECOND;

struct Talker {
    control: Control,
    client: Client<SimRt>,
    rt: SimRt,
    who: Credentials,
    open: BTreeMap<String, Arc<OpenFile>>,
}

type Answer = Result<String, Box<dyn std::error::Error>>;

impl Talker {
    /// The answer to one command.
    async fn answer(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        let before = self.requests();
        let answer = match self.execute(&words).await {
            Ok(answer) => answer,
            Err(error) => format!("{error}"),
        };
        let requests = self.requests() - before;
        let answer = answer.trim_end();
        format!("{}{}[{requests}]\n", answer, if answer.is_empty() { "" } else { " " })
    }

    fn requests(&self) -> u64 {
        let node = self.control.nodes().into_iter().find(|node| self.control.name(*node) == "client").expect("it was added");
        self.control.usage(node).runtime.sent_messages
    }

    async fn execute(&mut self, words: &[&str]) -> Answer {
        let (client, who) = (self.client.clone(), self.who.clone());
        let mode = |at: usize, otherwise| words.get(at).map_or(Ok(otherwise), |mode| u32::from_str_radix(mode, 8));
        match *words {
            ["mkdir", path, ..] => {
                let (dir, name) = client.resolve_parent(&who, path.as_bytes()).await?;
                Ok(shown(&client.mkdir(&who, dir, &name, mode(2, 0o755)?).await?))
            }
            ["create", path, ..] => {
                let (dir, name) = client.resolve_parent(&who, path.as_bytes()).await?;
                let options = CreateOptions { exclusive: true, mode: mode(2, 0o644)?, ..CreateOptions::default() };
                let (attr, file, _) = client.create(&who, dir, &name, &options).await?;
                client.close(file).await?;
                Ok(shown(&attr))
            }
            ["rm", path] => {
                let (dir, name) = client.resolve_parent(&who, path.as_bytes()).await?;
                client.unlink(&who, dir, &name).await?;
                Ok(String::new())
            }
            ["rmdir", path] => {
                let (dir, name) = client.resolve_parent(&who, path.as_bytes()).await?;
                client.rmdir(&who, dir, &name).await?;
                Ok(String::new())
            }
            ["mv", from, to] => {
                let (from_dir, from_name) = client.resolve_parent(&who, from.as_bytes()).await?;
                let (to_dir, to_name) = client.resolve_parent(&who, to.as_bytes()).await?;
                client.rename(&who, from_dir, &from_name, to_dir, &to_name, RenameFlags::default()).await?;
                Ok(String::new())
            }
            ["ln", path, to] => {
                let handle = self.handle(path).await?;
                let (dir, name) = client.resolve_parent(&who, to.as_bytes()).await?;
                Ok(shown(&client.link(&who, handle, dir, &name).await?))
            }
            ["symlink", target, path] => {
                let (dir, name) = client.resolve_parent(&who, path.as_bytes()).await?;
                Ok(shown(&client.symlink(&who, dir, &name, target.as_bytes()).await?))
            }
            ["stat", path] => {
                let handle = self.handle(path).await?;
                Ok(shown(&client.getattr(handle).await?))
            }
            ["ls", path] => {
                let handle = self.handle(path).await?;
                let page = client.readdir(&who, handle, 0, 1 << 20, false).await?;
                let mut names: Vec<_> = page.entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect();
                names.sort();
                Ok(names.join(" "))
            }
            ["chmod", mode, path] => {
                let changes = SetAttr { mode: Some(u32::from_str_radix(mode, 8)?), ..SetAttr::default() };
                Ok(shown(&client.setattr(&who, self.handle(path).await?, &changes).await?))
            }
            ["truncate", bytes, path] => {
                let changes = SetAttr { size: Some(bytes.parse()?), ..SetAttr::default() };
                Ok(shown(&client.setattr(&who, self.handle(path).await?, &changes).await?))
            }
            ["write", path, offset, ref text @ ..] => {
                let (file, own) = self.file(path, Rights::WRITE).await?;
                let written = client.write(&file, offset.parse()?, Bulk::Slices(vec![text.join(" ").as_bytes()])).await;
                if own {
                    client.close(file).await?;
                }
                Ok(written.map(|()| String::new())?)
            }
            ["read", path, offset, bytes] => {
                let (file, own) = self.file(path, Rights::READ).await?;
                let read = client.read(&file, offset.parse()?, bytes.parse()?).await;
                if own {
                    client.close(file).await?;
                }
                let text = Payload::concat(&read?);
                Ok(format!("{:?}", String::from_utf8_lossy(&text)))
            }
            ["open", name, path] => {
                let (_, file) = client.open(&who, self.handle(path).await?, Rights::READ.with(Rights::WRITE), false).await?;
                self.open.insert(name.into(), file);
                Ok(String::new())
            }
            ["close", name] => {
                client.close(self.open.remove(name).ok_or("no such open file")?).await?;
                Ok(String::new())
            }
            ["user", uid] => {
                self.who = Credentials { uid: uid.parse()?, gid: uid.parse()?, ..Credentials::ROOT };
                Ok(String::new())
            }
            [fault @ ("crash" | "powercut"), node] => {
                let node = self.control.nodes().into_iter().find(|known| self.control.name(*known) == node).ok_or("no such node")?;
                if fault == "crash" {
                    self.control.crash(node)
                } else {
                    self.control.power_cut(node)
                };
                self.control.restart(node);
                Ok(String::new())
            }
            ["wait", milliseconds] => {
                self.rt.sleep_until(self.rt.now() + milliseconds.parse::<u64>()? * MILLISECOND).await;
                Ok(String::new())
            }
            _ => Err("no such command".into()),
        }
    }

    /// The handle of a path, or of an open file.
    async fn handle(&self, path: &str) -> Result<Handle, Box<dyn std::error::Error>> {
        match path.strip_prefix('=') {
            Some(name) => Ok(self.open.get(name).ok_or("no such open file")?.handle()),
            None => Ok(self.client.resolve(&self.who, path.as_bytes(), false).await?.handle),
        }
    }

    /// An open file; true if it was opened just now.
    async fn file(&self, path: &str, rights: Rights) -> Result<(Arc<OpenFile>, bool), Box<dyn std::error::Error>> {
        match path.strip_prefix('=') {
            Some(name) => Ok((self.open.get(name).ok_or("no such open file")?.clone(), false)),
            None => Ok((self.client.open(&self.who, self.handle(path).await?, rights, false).await?.1, true)),
        }
    }
}

fn shown(attr: &Attr) -> String {
    format!("{} {:?} {:o} uid {} links {} size {}", attr.handle, attr.kind, attr.mode, attr.uid, attr.nlink, attr.size)
}

/// The file with the answers of now.
fn held(text: &str) -> String {
    let sim = Sim::new(1, Profile::default());
    let cluster = Cluster::start(&sim, &ClusterConfig { contract: Durability::Sync, ..ClusterConfig::small() });
    let (node, client) = cluster.add_client("client", 30 * SECOND);
    let control = sim.control();
    let text = text.to_owned();
    let conversation = sim.block_on(node, LIMIT_NS, move |rt| async move {
        while client.ping_all().await.iter().any(|(_, answer)| answer.as_ref().map_or(true, |info| info.state != "serving")) {}
        let mut talker = Talker { control, client, rt, who: Credentials::ROOT, open: BTreeMap::new() };
        let (mut out, mut in_answer, mut answers) = (String::new(), false, String::new());
        for line in text.lines() {
            match line {
                "----" => {
                    out.push_str("----\n");
                    out.push_str(&std::mem::take(&mut answers));
                    in_answer = true;
                }
                "" => {
                    out.push('\n');
                    in_answer = false;
                }
                _ if in_answer => {}
                comment if comment.starts_with('#') => out.push_str(&format!("{comment}\n")),
                command => {
                    out.push_str(&format!("{command}\n"));
                    answers.push_str(&talker.answer(command).await);
                }
            }
        }
        out
    });
    conversation.unwrap_or_else(|stuck| panic!("{stuck:?}"))
}

#[test]
fn conversations_go_as_they_are_written_down() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("conversations");
    let mut files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "no conversation in {}", folder.display());
    for file in files {
        let written = fs::read_to_string(&file).unwrap();
        let held = held(&written);
        if std::env::var_os("WEFT_BLESS").is_some() {
            fs::write(&file, &held).unwrap();
        }
        let difference = written.lines().zip(held.lines()).find(|(before, now)| before != now);
        assert!(written == held || std::env::var_os("WEFT_BLESS").is_some(), "{}: {difference:?}\n\n{held}", file.display());
    }
}
