//! What spans are searched for and filtered by: tests that are joined by `and` (or nothing), `or`,
//! `not` and brackets; `&&`, `||`, `!` and `==` are understood, too.
//!
//! | test | holds for spans |
//! |---|---|
//! | `create`, `disk.*` | whose event has this in its name; with `*`, whose whole name is like this |
//! | `>5ms`, `duration <= 10us` | that took so long |
//! | `wait > 1ms`, `bytes >= 64KiB`, `offset = 0`, `result != 0` | with such a number |
//! | `node = meta0`, `host = n1`, `lane = disk`, `peer = data1`, `file = /a/*` | with such a text; `:` instead of `=`: which have it in their text |
//! | `op = read` | whose event ends so, behind its point: `client.read`, `data.read` |
//! | `server = data1` | at this server, or requests to it |
//! | `thread = 2` | of this thread of their process |
//! | `req:1f`, `obj:2a` | of this request, about this object (hexadecimal) |
//! | `seek = far` | disk accesses of this class: `no`, `near`, `far` |
//! | `failed`, `retry`, `cached`, `sync`, `running`, `sampled` | with this flag |
//!
//! Texts with spaces, brackets or signs stand in double quotes.

mod parser;

use weft_trace::record::{Body, fine};

use crate::run::Run;

/// An expression, ready to be asked about spans of one run.
#[derive(Debug)]
pub struct Pattern<'a> {
    run: &'a Run,
    holds: Expression,
}

#[derive(Debug)]
enum Expression {
    All(Vec<Expression>),
    Any(Vec<Expression>),
    Not(Box<Expression>),
    Test(Test),
}

#[derive(Debug)]
enum Test {
    /// By kind.
    Kind(Vec<bool>),
    /// By node.
    Node(Vec<bool>),
    Duration(Relation, u64),
    Number(Field, Relation, u64),
    Peer(Vec<u16>, bool),
    /// By node, a test of the server that is talked to, and whether neither shall hold.
    Server(Vec<bool>, Box<Test>, bool),
    Request(u64),
    Object(u64),
    File(Text),
    Flag(u16),
    Class(u8, bool),
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Wait,
    Bytes,
    Offset,
    Result,
    Thread,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Less,
    AtMost,
    Equal,
    Unequal,
    AtLeast,
    Greater,
}

impl Relation {
    fn holds(self, left: u64, right: u64) -> bool {
        match self {
            Relation::Less => left < right,
            Relation::AtMost => left <= right,
            Relation::Equal => left == right,
            Relation::Unequal => left != right,
            Relation::AtLeast => left >= right,
            Relation::Greater => left > right,
        }
    }
}

/// A text that is compared.
#[derive(Debug)]
struct Text {
    wanted: String,
    /// A part of the text is enough.
    part: bool,
    not: bool,
}

impl Text {
    fn holds(&self, text: &str) -> bool {
        let found = if self.part && !self.wanted.contains('*') { text.contains(&self.wanted) } else { is_like(text, &self.wanted) };
        found != self.not
    }
}

impl<'a> Pattern<'a> {
    /// Reads an expression.
    ///
    /// # Errors
    /// A sentence about what is wrong with it, with the letter at which it is.
    pub fn new(run: &'a Run, text: &str) -> Result<Pattern<'a>, String> {
        let holds = parser::read(run, text).map_err(|misread| misread.to_string())?;
        Ok(Pattern { run, holds })
    }

    /// True if it holds for the span at this position. Records that take no time are no spans.
    pub fn holds(&self, position: u32) -> bool {
        let kind = self.run.lanes.kind(&self.run.merged.events, position);
        kind.is_some_and(|kind| self.holds_of(&self.holds, position, kind))
    }

    fn holds_of(&self, expression: &Expression, position: u32, kind: u16) -> bool {
        match expression {
            Expression::All(all) => all.iter().all(|one| self.holds_of(one, position, kind)),
            Expression::Any(any) => any.iter().any(|one| self.holds_of(one, position, kind)),
            Expression::Not(one) => !self.holds_of(one, position, kind),
            Expression::Test(test) => self.test(test, position, kind),
        }
    }

    fn test(&self, test: &Test, position: u32, kind: u16) -> bool {
        let events = &self.run.merged.events;
        let span = || match events.event(position).record.body {
            Body::Span(span) => Some(span),
            _ => None,
        };
        match test {
            Test::Kind(kinds) => kinds[usize::from(kind)],
            Test::Node(nodes) => nodes[events.node(position)],
            Test::Duration(relation, ns) => relation.holds(events.dur_ns(position), *ns),
            Test::Request(number) => events.request(position) == *number,
            Test::Failed => events.is_failed(position),
            Test::Object(number) => span().is_some_and(|span| span.obj == *number),
            Test::File(text) => {
                let name = span().filter(|span| span.obj != 0).and_then(|span| self.run.names.get(span.obj));
                name.map_or(text.not, |name| text.holds(name))
            }
            Test::Flag(bit) => events.event(position).record.flags & bit != 0,
            Test::Class(class, not) => (events.event(position).record.class == *class) != *not,
            Test::Peer(servers, not) => span().is_some_and(|span| servers.contains(&span.peer) != *not && self.is_message(kind)),
            Test::Server(nodes, test, not) => (nodes[events.node(position)] || self.test(test, position, kind)) != *not,
            Test::Number(Field::Thread, relation, value) => relation.holds(u64::from(events.event(position).ring), *value),
            Test::Number(Field::Result, relation, value) => relation.holds(u64::from(events.event(position).record.res), *value),
            Test::Number(field, relation, value) => span().is_some_and(|span| {
                let own = match field {
                    Field::Bytes => u64::from(span.len),
                    Field::Offset => span.off,
                    _ => {
                        let ticks = u128::from(fine(span.wait).min(span.dur)) * u128::from(events.dur_ns(position));
                        (ticks / u128::from(span.dur.max(1))) as u64
                    }
                };
                relation.holds(own, *value)
            }),
        }
    }

    /// Only spans of messages name a server.
    fn is_message(&self, kind: u16) -> bool {
        self.run.lanes.kinds[usize::from(kind)].name.starts_with("net.")
    }
}

/// True if a text is like a pattern, in which `*` stands for any letters.
pub fn is_like(text: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => text == pattern,
        Some((begin, rest)) => text.strip_prefix(begin).is_some_and(|text| {
            text.char_indices().map(|(at, _)| at).chain([text.len()]).any(|at| is_like(&text[at..], rest.trim_start_matches('*')))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::is_span;
    use crate::sample::{Sample, merged};

    fn run() -> Run {
        Run::new(merged(&Sample { operations: 200, ..Sample::default() }), Vec::new())
    }

    fn found(run: &Run, text: &str) -> Vec<u32> {
        let pattern = Pattern::new(run, text).unwrap_or_else(|reason| panic!("{text}: {reason}"));
        (0..run.merged.events.len() as u32).filter(|position| pattern.holds(*position)).collect()
    }

    /// What a closure says of every span.
    fn spans(run: &Run, of: impl Fn(&str, &weft_trace::events::Event) -> bool) -> Vec<u32> {
        let name = |event: &weft_trace::events::Event| run.merged.nodes[event.node].events.name(event.record.event);
        let all = (0..run.merged.events.len() as u32).map(|position| (position, run.merged.events.event(position)));
        all.filter(|(_, event)| is_span(event) && of(&name(event), event)).map(|(position, _)| position).collect()
    }

    #[test]
    fn expressions_mean_what_they_say() {
        let run = run();
        let node = |event: &weft_trace::events::Event| run.merged.nodes[event.node].name.clone();
        let len = |event: &weft_trace::events::Event| if let Body::Span(span) = &event.record.body { u64::from(span.len) } else { 0 };
        let same = |text: &str, wanted: Vec<u32>| {
            assert!(!wanted.is_empty(), "{text}: the sample has such spans");
            assert_eq!(found(&run, text), wanted, "{text}");
        };
        same("", spans(&run, |_, _| true));
        same("create", spans(&run, |name, _| name.contains("create")));
        same("disk.*", spans(&run, |name, _| name.starts_with("disk.")));
        same(
            "create >20us node:meta",
            spans(&run, |name, event| name.contains("create") && event.dur_ns > 20_000 && node(event).contains("meta")),
        );
        same(
            "create > 20us and node=meta0",
            spans(&run, |name, event| name.contains("create") && event.dur_ns > 20_000 && node(event) == "meta0"),
        );
        same("create or disk", spans(&run, |name, _| name.contains("create") || name.contains("disk")));
        // `and` binds more tightly than `or`; brackets and `not` change that.
        same("create or disk <20us", spans(&run, |name, event| name.contains("create") || name.contains("disk") && event.dur_ns < 20_000));
        same(
            "(create or disk) <20us",
            spans(&run, |name, event| (name.contains("create") || name.contains("disk")) && event.dur_ns < 20_000),
        );
        same("not (create or disk)", spans(&run, |name, _| !name.contains("create") && !name.contains("disk")));
        same("!disk node!=meta0", spans(&run, |name, event| !name.contains("disk") && node(event) != "meta0"));
        same("bytes >= 4KiB", spans(&run, |_, event| matches!(event.record.body, Body::Span(_)) && len(event) >= 4096));
        same("disk seek=far", spans(&run, |name, event| name.contains("disk") && event.record.class == 3));
        same("lane=disk duration>=10us", spans(&run, |name, event| name.starts_with("disk.") && event.dur_ns >= 10_000));
        same("name=\"meta.create\"", spans(&run, |name, _| name == "meta.create"));
        // As in programs.
        same(
            "op == \"write\" && bytes>=4KiB&&server == \"data1\"",
            spans(&run, |name, event| {
                let to = if let Body::Span(span) = &event.record.body { span.peer } else { 0 };
                let is_there = node(event) == "data1" || name.starts_with("net.") && to == weft_base::ServerId::data(1).0;
                name.ends_with(".write") && len(event) >= 4096 && is_there
            }),
        );
        same("op=create||!(lane==disk)", spans(&run, |name, _| name.ends_with(".create") || !name.starts_with("disk.")));
        same(
            "server != data1",
            spans(&run, |name, event| {
                let to = if let Body::Span(span) = &event.record.body { span.peer } else { 0 };
                node(event) != "data1" && !(name.starts_with("net.") && to == weft_base::ServerId::data(1).0)
            }),
        );
        // A comparison with nothing before it is of the duration, whatever stands before that.
        same("node:data0 >10us", spans(&run, |_, event| node(event).contains("data0") && event.dur_ns > 10_000));
        same("disk !failed <20us", spans(&run, |name, event| name.contains("disk") && event.dur_ns < 20_000 && event.record.res == 0));
        assert!(Pattern::new(&run, "failed >5ms retry <1s").is_ok());
        same("host:client thread=0", spans(&run, |_, event| node(event).starts_with("client") && event.ring == 0));
        assert_eq!(found(&run, "\"or\""), spans(&run, |name, _| name.contains("or")), "in quotes it is a name");
    }

    #[test]
    fn what_is_not_understood_is_said() {
        let run = run();
        for (text, words) in [
            ("(create", "not closed"),
            ("create)", "not opened"),
            (">soon", "a time is a number"),
            ("bytes > many", "64KiB"),
            ("node > meta0", "with = or !="),
            ("req:zz", "hexadecimal"),
            ("create or", "at letter 10: a test is missing"),
            ("op == \"read\" && bites > 5", "at letter 17: there is no attribute bites"),
            ("create && nodde == meta0", "at letter 11: there is no attribute nodde"),
            ("op == \"read\" && bytes > many", "at letter 25"),
            ("disk &&", "at letter 8"),
            ("é && )", "at letter 6"),
            ("bytes >", "missing"),
            ("\"create", "quotation"),
            ("seek=high", "no, near or far"),
        ] {
            let reason = Pattern::new(&run, text).expect_err(text);
            assert!(reason.contains(words), "{text}: {reason}");
        }
        assert!(Pattern::new(&run, &"(".repeat(10_000)).is_err());
        assert!(Pattern::new(&run, &"! ".repeat(10_000)).is_err());
        assert!(Pattern::new(&run, &"x ".repeat(10_000)).is_err());
    }
}
