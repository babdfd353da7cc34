//! The ids of servers in a config: numbers that a server keeps for ever. A person who adds a server
//! need not choose one.

use std::fs;
use std::path::Path;

use toml::Spanned;
use weft_base::{ServerId, ServerRole};

use super::{Config, ConfigError, RawConfig, RawServer, at, write_in_one_step};
use crate::stores;

/// Largest id of a server.
pub(super) const ID_MAX: u16 = 32766;

impl Config {
    /// Writes ids into a file for servers that have none, see [`crate::stores::ids`].
    ///
    /// # Errors
    /// If the file cannot be written; what else is wrong with it [`Config::load`] says.
    pub fn give_ids(file: &Path) -> anyhow::Result<()> {
        let Ok(text) = fs::read_to_string(file) else { return Ok(()) };
        let base = file.parent().unwrap_or(Path::new("/"));
        match with_ids(base, &text, stores::ids) {
            Some(text) if Config::parse(file, &text).is_ok() => write_in_one_step(file, text.as_bytes(), 0o644),
            _ => Ok(()),
        }
    }
}

/// The number of a server of a config, if it has one.
pub(super) fn check(server: &RawServer) -> Result<Option<ServerId>, ConfigError> {
    let Some(id) = &server.id else { return Ok(None) };
    match *id.get_ref() {
        number if number > ID_MAX => Err(at(id, "server.id", format!("give a number from 0 to {ID_MAX}"))),
        number => Ok(Some(numbered(server.role, number))),
    }
}

fn numbered(role: ServerRole, number: u16) -> ServerId {
    if role == ServerRole::Meta { ServerId(number) } else { ServerId::data(number) }
}

/// What to do about a server without an id; `free` is one for it.
pub(super) fn missing(server: &RawServer, free: u16) -> ConfigError {
    let name = server.name.get_ref();
    let message = format!(
        "`{name}` has no id: add the line `id = {free}` to its entry, or let `weft up` do it. A server keeps its id for ever, and no other \
         one gets it"
    );
    at(&server.name, "server.id", message)
}

/// An id that no server of this role has.
pub(super) fn next(servers: &[Spanned<RawServer>], role: ServerRole) -> u16 {
    let of_role = servers.iter().map(Spanned::get_ref).filter(|server| server.role == role);
    let ids = of_role.filter_map(|server| Some(*server.id.as_ref()?.get_ref()));
    ids.max().map_or(0, |max| max.saturating_add(1).min(ID_MAX))
}

/// Gives servers without an id one: that of the store in their folder, or else one that no server
/// has or had. The rest of the text stays as it is. `known` gives the server of the store in a
/// folder, and all that it knows. `None` if all have ids, or the text is no config, which others
/// say better.
fn with_ids(base: &Path, text: &str, known: impl Fn(&Path) -> Vec<ServerId>) -> Option<String> {
    let raw: RawConfig = toml::from_str(text).ok()?;
    let mut taken: Vec<ServerId> = Vec::new();
    let mut lines = Vec::new();
    for server in raw.server.iter().map(Spanned::get_ref) {
        taken.extend(server.id.as_ref().map(|id| numbered(server.role, (*id.get_ref()).min(ID_MAX))));
        taken.extend(known(&base.join(server.dir.get_ref())));
    }
    for server in raw.server.iter().map(Spanned::get_ref).filter(|server| server.id.is_none()) {
        let role = server.role;
        let stored = known(&base.join(server.dir.get_ref())).first().copied().filter(|id| id.role() == role);
        let highest = taken.iter().filter(|id| id.role() == role).map(|id| id.index() + 1).max().unwrap_or(0);
        let id = stored.map_or(highest, |id| id.index());
        taken.push(numbered(role, (id as u16).min(ID_MAX)));
        let key = text[..server.name.span().start].rfind("name")?;
        let indent = &text[text[..key].rfind('\n').map_or(0, |end| end + 1)..key];
        let separator = if indent.trim().is_empty() { format!("\n{indent}") } else { ", ".into() };
        lines.push((key, format!("id = {id}{separator}")));
    }
    if lines.is_empty() {
        return None;
    }
    let mut text = text.to_string();
    for (at, line) in lines.into_iter().rev() {
        text.insert_str(at, &line);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(role: &str, name: &str, more: &str) -> String {
        format!("# of {name}\n[[server]]\n{more}name = \"{name}\"\nrole = \"{role}\"\naddress = \"unix:run/{name}\"\ndir = \"d/{name}\"\n")
    }

    #[test]
    fn servers_without_ids_get_those_that_nobody_has_or_had() {
        let head = "[fs]\nname = \"demo\"\nid = \"00000000000000ab\"\n";
        let given = |id: u16| format!("id = {id}\n");
        let text = [
            head.to_string(),
            entry("meta", "m", &given(0)),
            entry("data", "a", &given(1)),
            entry("data", "b", ""),
            entry("data", "lost", ""),
            entry("meta", "n", "  "),
        ]
        .concat();
        let known = |dir: &Path| match dir.file_name().and_then(|name| name.to_str()) {
            // Somebody has known data server 6, and the folder of `lost` holds the store of data
            // server 0.
            Some("m") => vec![ServerId(0), ServerId::data(6)],
            Some("lost") => vec![ServerId::data(0)],
            _ => Vec::new(),
        };
        let full = with_ids(Path::new("/state"), &text, known).expect("ids are missing");
        let want = [
            head.to_string(),
            entry("meta", "m", &given(0)),
            entry("data", "a", &given(1)),
            entry("data", "b", &given(7)),
            entry("data", "lost", &given(0)),
            entry("meta", "n", "  id = 1\n  "),
        ];
        assert_eq!(full, want.concat());
        assert_eq!(with_ids(Path::new("/state"), &full, known), None, "nothing is missing");
        assert_eq!(with_ids(Path::new("/state"), "no config", known), None);
    }

    #[test]
    fn entries_in_one_line_get_theirs_too() {
        let head = "server = [{ role = \"meta\", name = \"m\", address = \"tcp:h:1\", dir = \"m\" }]\n";
        let text = format!("{head}[fs]\nname = \"demo\"\nid = \"00000000000000ab\"\n");
        let full = with_ids(Path::new("/state"), &text, |_| Vec::new()).expect("an id is missing");
        assert_eq!(full, text.replace("name = \"m\"", "id = 0, name = \"m\""));
    }

    #[test]
    fn a_server_without_an_id_is_none_of_the_file_system_yet() {
        let head = "[fs]\nname = \"demo\"\nid = \"00000000000000ab\"\n";
        let given = |name: &str| entry(if name == "m" { "meta" } else { "data" }, name, "id = 0\n");
        let new = entry("data", "new", "");
        let parse = |text: String| Config::parse(Path::new("/state/weft.toml"), &text);
        let config = parse([head.to_string(), given("m"), given("a"), new.clone()].concat()).unwrap();
        assert_eq!((config.servers.len(), config.map().data.len()), (2, 1));
        let message = config.server("new").unwrap_err().to_string();
        assert!(message.starts_with("/state/weft.toml: server.id: `new` has no id: add the line `id = 1`"), "{message}");
        // What else is wrong with it is said all the same.
        let error = parse([head.to_string(), given("m"), given("a"), new.replace("run/new", "run/a")].concat()).unwrap_err();
        assert!(error.message.contains("`a` has the same address"), "{}", error.message);
    }
}
