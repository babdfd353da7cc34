//! What spans are searched for and filtered by: tests that are joined by `and` (or nothing), `or`,
//! `not` and brackets.
//!
//! | test | holds for spans |
//! |---|---|
//! | `create`, `disk.*` | whose event has this in its name; with `*`, whose whole name is like this |
//! | `>5ms`, `duration <= 10us` | that took so long |
//! | `wait > 1ms`, `bytes >= 64KiB`, `offset = 0`, `result != 0` | with such a number |
//! | `node = meta0`, `lane = disk`, `peer = data1`, `file = /a/*` | with such a text; `:` instead of `=`: which have it in their text |
//! | `req:1f`, `obj:2a` | of this request, about this object (hexadecimal) |
//! | `seek = far` | disk accesses of this class: `no`, `near`, `far` |
//! | `failed`, `retry`, `cached`, `sync`, `running`, `sampled` | with this flag |
//!
//! Texts with spaces or brackets stand in double quotes.

use weft_trace::record::{Body, fine, flags};

use crate::run::Run;

/// Brackets in brackets at most: the text comes from anybody.
const DEPTH_MAX: usize = 32;
/// Tests at most.
const TESTS_MAX: usize = 200;

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
    const ALL: [(&'static str, Relation); 6] = [
        ("<=", Relation::AtMost),
        (">=", Relation::AtLeast),
        ("!=", Relation::Unequal),
        ("<", Relation::Less),
        (">", Relation::Greater),
        ("=", Relation::Equal),
    ];

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

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Open,
    Close,
    Not,
    Relation(Relation),
    Word(String),
    /// In quotes: never a keyword.
    Quoted(String),
}

impl<'a> Pattern<'a> {
    /// Reads an expression.
    ///
    /// # Errors
    /// A sentence about what is wrong with it.
    pub fn new(run: &'a Run, text: &str) -> Result<Pattern<'a>, String> {
        let mut parser = Parser { run, tokens: tokens(text)?, at: 0, tests: 0 };
        let holds = if parser.tokens.is_empty() { Expression::All(Vec::new()) } else { parser.any(0)? };
        match parser.tokens.get(parser.at) {
            None => Ok(Pattern { run, holds }),
            Some(_) => Err("a bracket is closed that was not opened".to_string()),
        }
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

struct Parser<'a> {
    run: &'a Run,
    tokens: Vec<Token>,
    at: usize,
    tests: usize,
}

impl Parser<'_> {
    fn keyword(&mut self, words: &[&str]) -> bool {
        let found = matches!(self.tokens.get(self.at), Some(Token::Word(word)) if words.contains(&word.to_ascii_lowercase().as_str()));
        self.at += usize::from(found);
        found
    }

    fn any(&mut self, depth: usize) -> Result<Expression, String> {
        let mut parts = vec![self.all(depth)?];
        while self.keyword(&["or", "|", "||"]) {
            parts.push(self.all(depth)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expression::Any(parts) })
    }

    fn all(&mut self, depth: usize) -> Result<Expression, String> {
        let mut parts = vec![self.one(depth)?];
        loop {
            self.keyword(&["and", "&", "&&"]);
            match self.tokens.get(self.at) {
                None | Some(Token::Close) => break,
                Some(Token::Word(word)) if matches!(word.to_ascii_lowercase().as_str(), "or" | "|" | "||") => break,
                Some(_) => parts.push(self.one(depth)?),
            }
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expression::All(parts) })
    }

    fn one(&mut self, depth: usize) -> Result<Expression, String> {
        if depth > DEPTH_MAX {
            return Err(format!("more than {DEPTH_MAX} brackets in one another"));
        }
        if self.keyword(&["not"]) || self.tokens.get(self.at) == Some(&Token::Not) {
            self.at += usize::from(self.tokens.get(self.at) == Some(&Token::Not));
            return Ok(Expression::Not(Box::new(self.one(depth + 1)?)));
        }
        if self.tokens.get(self.at) == Some(&Token::Open) {
            self.at += 1;
            let inside = self.any(depth + 1)?;
            if self.tokens.get(self.at) != Some(&Token::Close) {
                return Err("a bracket is not closed".to_string());
            }
            self.at += 1;
            return Ok(inside);
        }
        self.tests += 1;
        if self.tests > TESTS_MAX {
            return Err(format!("more than {TESTS_MAX} tests"));
        }
        self.test().map(Expression::Test)
    }

    fn value(&mut self) -> Result<String, String> {
        match self.tokens.get(self.at) {
            Some(Token::Word(word) | Token::Quoted(word)) => {
                let word = word.clone();
                self.at += 1;
                Ok(word)
            }
            _ => Err("something to compare with is missing".to_string()),
        }
    }

    fn test(&mut self) -> Result<Test, String> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        match token {
            Some(Token::Relation(relation)) => Ok(Test::Duration(relation, nanoseconds(&self.value()?)?)),
            Some(Token::Quoted(text)) => Ok(self.named(&text)),
            Some(Token::Word(word)) => {
                if let Some(Token::Relation(relation)) = self.tokens.get(self.at).cloned() {
                    // `create >1ms` is a name and a duration; `bytes > 1` is one test.
                    if FIELDS.contains(&word.as_str()) {
                        self.at += 1;
                        let value = self.value()?;
                        return self.compared(&word, relation, &value, false);
                    }
                }
                match word.split_once(':') {
                    Some((field, "")) if FIELDS.contains(&field) => {
                        let value = self.value()?;
                        self.compared(field, Relation::Equal, &value, true)
                    }
                    Some((field, value)) if FIELDS.contains(&field) => self.compared(field, Relation::Equal, value, true),
                    _ => Ok(flag(&word).unwrap_or_else(|| self.named(&word))),
                }
            }
            _ => Err("a test is missing".to_string()),
        }
    }

    fn named(&self, text: &str) -> Test {
        let is = |name: &str| if text.contains('*') { is_like(name, text) } else { name.contains(text) };
        Test::Kind(self.run.lanes.kinds.iter().map(|kind| is(&kind.name)).collect())
    }

    fn compared(&self, field: &str, relation: Relation, value: &str, part: bool) -> Result<Test, String> {
        let not = relation == Relation::Unequal;
        let text = Text { wanted: value.to_string(), part, not };
        let is_text = matches!(field, "name" | "node" | "lane" | "peer" | "file" | "seek" | "req" | "request" | "obj" | "object");
        if is_text && !matches!(relation, Relation::Equal | Relation::Unequal) {
            return Err(format!("{field} is a text: it is compared with = or !="));
        }
        let hex = || {
            let number = u64::from_str_radix(value.trim_start_matches("0x"), 16);
            let number = number.map_err(|_| "request and object are hexadecimal numbers".to_string())?;
            if not { Err(format!("write: not {field}={value}")) } else { Ok(number) }
        };
        let nodes = &self.run.merged.nodes;
        Ok(match field {
            "name" => Test::Kind(self.run.lanes.kinds.iter().map(|kind| text.holds(&kind.name)).collect()),
            "lane" => Test::Kind(self.run.lanes.kinds.iter().map(|kind| text.holds(kind.sub_lane.name())).collect()),
            "node" => Test::Node(nodes.iter().map(|node| text.holds(&node.name)).collect()),
            "peer" => {
                let positive = Text { not: false, ..text };
                let servers = nodes.iter().filter(|node| positive.holds(&node.name)).filter_map(|node| node.server);
                Test::Peer(servers.collect(), not)
            }
            "file" => Test::File(text),
            "req" | "request" => Test::Request(hex()?),
            "obj" | "object" => Test::Object(hex()?),
            "seek" => match ["no", "near", "far"].iter().position(|name| *name == value) {
                Some(class) => Test::Class(class as u8 + 1, not),
                None => return Err("a seek is no, near or far".to_string()),
            },
            "duration" | "dur" => Test::Duration(relation, nanoseconds(value)?),
            "wait" => Test::Number(Field::Wait, relation, nanoseconds(value)?),
            "bytes" => Test::Number(Field::Bytes, relation, amount(value)?),
            "offset" => Test::Number(Field::Offset, relation, amount(value)?),
            _ => Test::Number(Field::Result, relation, amount(value)?),
        })
    }
}

const FIELDS: [&str; 16] = [
    "name", "node", "lane", "peer", "file", "seek", "req", "request", "obj", "object", "duration", "dur", "wait", "bytes", "offset",
    "result",
];

fn flag(word: &str) -> Option<Test> {
    Some(match word {
        "failed" => Test::Failed,
        "retry" => Test::Flag(flags::RETRY),
        "cached" => Test::Flag(flags::HIT),
        "running" => Test::Flag(flags::OPEN),
        "sampled" => Test::Flag(flags::SAMPLED),
        "sync" => Test::Flag(flags::SYNC),
        _ => return None,
    })
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if let Some((sign, relation)) = Relation::ALL.into_iter().find(|(sign, _)| rest.starts_with(sign)) {
            tokens.push(Token::Relation(relation));
            rest = &rest[sign.len()..];
            continue;
        }
        let after = &rest[first.len_utf8()..];
        rest = match first {
            '(' | ')' | '!' => {
                tokens.push(match first {
                    '(' => Token::Open,
                    ')' => Token::Close,
                    _ => Token::Not,
                });
                after
            }
            '"' => {
                let (inside, after) = after.split_once('"').ok_or("a quotation mark is not closed")?;
                tokens.push(Token::Quoted(inside.to_string()));
                after
            }
            _ if first.is_whitespace() => after,
            _ => {
                let ends = |letter: char| letter.is_whitespace() || "()<>=!\"".contains(letter);
                let end = rest.find(ends).unwrap_or(rest.len());
                tokens.push(Token::Word(rest[..end].to_string()));
                &rest[end..]
            }
        };
    }
    Ok(tokens)
}

/// A number and its unit, times the unit.
fn scaled(text: &str, units: &[(&str, f64)], wanted: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = units.iter().find(|(name, _)| *name == &text[digits.len()..]);
    let number = digits.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    match (unit, number) {
        (Some((_, unit)), Some(number)) => Ok((number * unit) as u64),
        _ => Err(wanted.to_string()),
    }
}

fn nanoseconds(text: &str) -> Result<u64, String> {
    let units = [("ns", 1.0), ("us", 1e3), ("", 1e3), ("ms", 1e6), ("s", 1e9)];
    scaled(text, &units, "a time is a number and one of ns, us, ms, s, for example >5ms")
}

fn amount(text: &str) -> Result<u64, String> {
    let kib = 1024.0f64;
    let units = [("", 1.0), ("B", 1.0), ("KiB", kib), ("MiB", kib.powi(2)), ("GiB", kib.powi(3))];
    scaled(text, &units, "a number is written like 4096 or 64KiB")
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
            ("create or", "missing"),
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
