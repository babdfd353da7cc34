//! Relations (`.rel`): which work was done on behalf of which. A token stands for one piece of
//! work; it may be created out of a token of another process or host, has states that start and
//! end, and is destroyed.

use crate::error::{Error, Partial, Problem};
use crate::time::Time;
use crate::xml::{Element, Lookup, Scanner, Token, finish_element};
use crate::xml_write::{attribute, close_tag, open_tag, write_element};

/// A relation file in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Relations {
    /// Who wrote it.
    pub header: RelationHeader,
    /// Its entries in the order of the file.
    pub entries: Vec<Relation>,
}

/// The first line of a relation file. Tokens of other files name this one by these values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelationHeader {
    /// Host that wrote the file.
    pub host: String,
    /// Process on that host.
    pub process: String,
    /// Number of this file in the process.
    pub topology_number: u64,
    /// What to add to every time of the file to get a time since 1970.
    pub time_adjustment: Time,
    /// Further attributes, such as the processor's model.
    pub attributes: Vec<(String, String)>,
}

/// An entry. Times are before the time adjustment.
#[derive(Clone, Debug, PartialEq)]
pub enum Relation {
    /// A token begins to exist.
    Create {
        /// The token, unique in this file.
        token: u64,
        /// When.
        time: Time,
        /// The tokens it was made from; none for the first of a chain.
        parents: Vec<Parent>,
    },
    /// A state of a token starts.
    Start {
        /// The token.
        token: u64,
        /// When.
        time: Time,
        /// Name of the state.
        name: String,
        /// Further attributes.
        attributes: Vec<(String, String)>,
        /// Contained data.
        data: Vec<Element>,
    },
    /// The state of a token that started last ends.
    End {
        /// The token.
        token: u64,
        /// When.
        time: Time,
        /// Further attributes.
        attributes: Vec<(String, String)>,
        /// Contained data.
        data: Vec<Element>,
    },
    /// A token ceases to exist.
    Destroy {
        /// The token.
        token: u64,
        /// When.
        time: Time,
    },
}

/// A token that another one was made from, by how far away it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parent {
    /// Of this very file.
    Internal(u64),
    /// Of another file of this process.
    Process {
        /// Number of the file in the process.
        topology_number: u64,
        /// Token in that file.
        token: u64,
    },
    /// Of another process of this host.
    Host {
        /// The process.
        process: String,
        /// Number of the file in the process.
        topology_number: u64,
        /// Token in that file.
        token: u64,
    },
    /// Of another host.
    Remote {
        /// The host.
        host: String,
        /// The process.
        process: String,
        /// Number of the file in the process.
        topology_number: u64,
        /// Token in that file.
        token: u64,
    },
}

impl Relations {
    /// Reads a relation file. Of a file that ends early, all complete entries are kept.
    pub fn read(bytes: &[u8]) -> Partial<Relations> {
        let mut relations = Relations::default();
        let error = read_into(bytes, &mut relations).err();
        Partial { value: relations, error }
    }

    /// The relation file of these entries.
    pub fn write(&self) -> String {
        let mut out = String::new();
        let header = &self.header;
        let pairs = [
            ("version", "1".to_owned()),
            ("hostID", header.host.clone()),
            ("localToken", header.process.clone()),
            ("topologyNumber", header.topology_number.to_string()),
            ("timeAdjustment", header.time_adjustment.to_string()),
        ];
        open_tag(&mut out, "relation", &pairs.map(|(key, value)| (key.to_owned(), value)));
        header.attributes.iter().for_each(|(key, value)| attribute(&mut out, key, value));
        out.push_str(">\n");
        self.entries.iter().for_each(|entry| write_element(&mut out, 0, &entry_element(entry)));
        close_tag(&mut out, "relation");
        out
    }
}

fn read_into(bytes: &[u8], relations: &mut Relations) -> Result<(), Error> {
    let lookup = Lookup::new(bytes);
    let mut scanner = Scanner::new(bytes);
    relations.header = read_header(lookup, scanner.root("relation")?)?;
    loop {
        match scanner.next()? {
            Some(Token::Start(element)) => {
                let element = finish_element(&mut scanner, element).complete()?;
                relations.entries.push(read_entry(lookup, element)?);
            }
            Some(Token::End) => return Ok(()),
            Some(Token::Text(_)) => {}
            None => return Err(scanner.truncated("relation")),
        }
    }
}

fn read_header(lookup: Lookup<'_>, root: Element) -> Result<RelationHeader, Error> {
    let time_adjustment = match root.attribute("timeAdjustment") {
        Some(_) => time_of(lookup, &root, "timeAdjustment")?,
        None => Time(0),
    };
    let known = |key: &str| matches!(key, "version" | "hostID" | "localToken" | "topologyNumber" | "timeAdjustment");
    Ok(RelationHeader {
        host: lookup.required(&root, "hostID")?.to_owned(),
        process: lookup.required(&root, "localToken")?.to_owned(),
        topology_number: lookup.number(&root, "topologyNumber", "a number")?,
        time_adjustment,
        attributes: root.attributes.iter().filter(|(key, _)| !known(key)).cloned().collect(),
    })
}

fn read_entry(lookup: Lookup<'_>, element: Element) -> Result<Relation, Error> {
    let token = lookup.number(&element, "t", "a token")?;
    let time = time_of(lookup, &element, "time")?;
    let rest = |element: Element, also: &str| {
        let known = |key: &str| matches!(key, "t" | "time") || key == also;
        let attributes = element.attributes.into_iter().filter(|(key, _)| !known(key)).collect();
        (attributes, element.children)
    };
    match element.name.as_str() {
        "rel" => {
            let mut parents = read_parents(lookup, &element)?;
            for child in element.children_named("p") {
                parents.extend(read_parents(lookup, child)?);
            }
            Ok(Relation::Create { token, time, parents })
        }
        "s" => {
            let name = lookup.required(&element, "name")?.to_owned();
            let (attributes, data) = rest(element, "name");
            Ok(Relation::Start { token, time, name, attributes, data })
        }
        "e" => {
            let (attributes, data) = rest(element, "");
            Ok(Relation::End { token, time, attributes, data })
        }
        "un" => Ok(Relation::Destroy { token, time }),
        other => Err(lookup.error(element.offset, Problem::Misplaced(format!("<{other}>")))),
    }
}

fn time_of(lookup: Lookup<'_>, element: &Element, name: &str) -> Result<Time, Error> {
    let text = lookup.required(element, name)?;
    Time::parse(text).ok_or_else(|| lookup.wrong(element, &format!("attribute {name}"), text, "seconds"))
}

fn read_parents(lookup: Lookup<'_>, element: &Element) -> Result<Vec<Parent>, Error> {
    let mut parents = Vec::new();
    for (key, value) in &element.attributes {
        let wrong = |expected| lookup.wrong(element, &format!("attribute {key}"), value, expected);
        parents.push(match key.as_str() {
            "i" => Parent::Internal(value.parse().map_err(|_| wrong("token"))?),
            "p" => process_parent(value).ok_or_else(|| wrong("file:token"))?,
            "l" => host_parent(value).ok_or_else(|| wrong("process:file:token"))?,
            "r" => remote_parent(value).ok_or_else(|| wrong("host:process:file:token"))?,
            _ => continue,
        });
    }
    Ok(parents)
}

fn process_parent(text: &str) -> Option<Parent> {
    let (topology_number, token) = text.split_once(':')?;
    Some(Parent::Process { topology_number: topology_number.parse().ok()?, token: token.parse().ok()? })
}

/// The last two numbers are split off from the right, because names may hold colons.
fn host_parent(text: &str) -> Option<Parent> {
    let (rest, token) = text.rsplit_once(':')?;
    let (process, topology_number) = rest.rsplit_once(':')?;
    Some(Parent::Host { process: process.to_owned(), topology_number: topology_number.parse().ok()?, token: token.parse().ok()? })
}

fn remote_parent(text: &str) -> Option<Parent> {
    let Parent::Host { process, topology_number, token } = host_parent(text)? else {
        return None;
    };
    let (host, process) = process.rsplit_once(':')?;
    Some(Parent::Remote { host: host.to_owned(), process: process.to_owned(), topology_number, token })
}

fn parent_attribute(parent: &Parent) -> (&'static str, String) {
    match parent {
        Parent::Internal(token) => ("i", token.to_string()),
        Parent::Process { topology_number, token } => ("p", format!("{topology_number}:{token}")),
        Parent::Host { process, topology_number, token } => ("l", format!("{process}:{topology_number}:{token}")),
        Parent::Remote { host, process, topology_number, token } => ("r", format!("{host}:{process}:{topology_number}:{token}")),
    }
}

fn entry_element(entry: &Relation) -> Element {
    let start = |name: &str, token: &u64, time: &Time| Element::new(name).with("t", token).with("time", time);
    match entry {
        Relation::Create { token, time, parents } => {
            let mut element = start("rel", token, time);
            if let [parent] = parents.as_slice() {
                let (key, value) = parent_attribute(parent);
                return element.with(key, value);
            }
            let child = |parent| {
                let (key, value) = parent_attribute(parent);
                Element::new("p").with(key, value)
            };
            element.children = parents.iter().map(child).collect();
            element
        }
        Relation::Start { token, time, name, attributes, data } => {
            let mut element = Element::new("s").with("name", name).with("t", token).with("time", time);
            element.attributes.extend(attributes.iter().cloned());
            Element { children: data.clone(), ..element }
        }
        Relation::End { token, time, attributes, data } => {
            let mut element = start("e", token, time);
            element.attributes.extend(attributes.iter().cloned());
            Element { children: data.clone(), ..element }
        }
        Relation::Destroy { token, time } => start("un", token, time),
    }
}
