//! Expressions as text: words, signs, and what they mean together.

use weft_trace::merge::TracedNode;
use weft_trace::record::flags;

use super::{Expression, Field, Relation, Test, Text, is_like};
use crate::formula::Misread;
use crate::levels;
use crate::run::Run;

/// Brackets in brackets at most: the text comes from anybody.
const DEPTH_MAX: usize = 32;
/// Tests at most.
const TESTS_MAX: usize = 200;

/// What is read, and the letter at which it begins.
type Found = (usize, Token);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Open,
    Close,
    Not,
    And,
    Or,
    Relation(Relation),
    Word(String),
    /// In quotes: never a keyword.
    Quoted(String),
}

struct Parser<'a> {
    run: &'a Run,
    tokens: Vec<Found>,
    at: usize,
    /// Letters of the text.
    end: usize,
    tests: usize,
}

/// Reads an expression.
///
/// # Errors
/// Where and why it is none.
pub(super) fn read(run: &Run, text: &str) -> Result<Expression, Misread> {
    let mut parser = Parser { run, tokens: tokens(text)?, at: 0, end: text.chars().count(), tests: 0 };
    if parser.tokens.is_empty() {
        return Ok(Expression::All(Vec::new()));
    }
    let holds = parser.any(0)?;
    match parser.token() {
        None => Ok(holds),
        Some(_) => Err(parser.misread("a bracket is closed that was not opened")),
    }
}

impl Parser<'_> {
    fn token(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(_, token)| token)
    }

    /// The letter at which the next token begins.
    fn letter(&self) -> usize {
        self.tokens.get(self.at).map_or(self.end, |(letter, _)| *letter)
    }

    fn misread(&self, reason: impl Into<String>) -> Misread {
        Misread::new(self.letter(), reason)
    }

    fn take(&mut self, token: &Token) -> bool {
        let found = self.token() == Some(token);
        self.at += usize::from(found);
        found
    }

    fn any(&mut self, depth: usize) -> Result<Expression, Misread> {
        let mut parts = vec![self.all(depth)?];
        while self.take(&Token::Or) {
            parts.push(self.all(depth)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expression::Any(parts) })
    }

    fn all(&mut self, depth: usize) -> Result<Expression, Misread> {
        let mut parts = vec![self.one(depth)?];
        while self.take(&Token::And) || !matches!(self.token(), None | Some(Token::Close | Token::Or)) {
            parts.push(self.one(depth)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expression::All(parts) })
    }

    fn one(&mut self, depth: usize) -> Result<Expression, Misread> {
        if depth > DEPTH_MAX {
            return Err(self.misread(format!("more than {DEPTH_MAX} brackets in one another")));
        }
        if self.take(&Token::Not) {
            return Ok(Expression::Not(Box::new(self.one(depth + 1)?)));
        }
        let opened = self.letter();
        if self.take(&Token::Open) {
            let inside = self.any(depth + 1)?;
            return if self.take(&Token::Close) { Ok(inside) } else { Err(Misread::new(opened, "a bracket is not closed")) };
        }
        self.tests += 1;
        if self.tests > TESTS_MAX {
            return Err(self.misread(format!("more than {TESTS_MAX} tests")));
        }
        self.test().map(Expression::Test)
    }

    /// What something is compared with, and the letter at which it begins.
    fn value(&mut self) -> Result<(usize, String), Misread> {
        let (letter, value) = (self.letter(), self.token());
        match value {
            Some(Token::Word(word) | Token::Quoted(word)) => {
                let word = word.clone();
                self.at += 1;
                Ok((letter, word))
            }
            _ => Err(self.misread("something to compare with is missing")),
        }
    }

    fn test(&mut self) -> Result<Test, Misread> {
        let (letter, token) = (self.letter(), self.token().cloned());
        let at = |letter: usize| move |reason: String| Misread::new(letter, reason);
        match token {
            Some(Token::Relation(relation)) => {
                self.at += 1;
                let (letter, value) = self.value()?;
                Ok(Test::Duration(relation, nanoseconds(&value).map_err(at(letter))?))
            }
            Some(Token::Quoted(text)) => {
                self.at += 1;
                Ok(self.named(&text))
            }
            Some(Token::Word(word)) => {
                self.at += 1;
                let relation = if let Some(Token::Relation(relation)) = self.token() { Some(*relation) } else { None };
                // `create >1ms` is a name and a duration; `bytes > 1` is one test.
                if let Some(relation) = relation.filter(|_| FIELDS.contains(&word.as_str())) {
                    self.at += 1;
                    let (letter, value) = self.value()?;
                    return self.compared(&word, relation, &value, false).map_err(at(letter));
                }
                match word.split_once(':') {
                    Some((field, "")) if FIELDS.contains(&field) => {
                        let (letter, value) = self.value()?;
                        self.compared(field, Relation::Equal, &value, true).map_err(at(letter))
                    }
                    Some((field, value)) if FIELDS.contains(&field) => {
                        self.compared(field, Relation::Equal, value, true).map_err(at(letter + field.chars().count() + 1))
                    }
                    _ => match flag(&word).unwrap_or_else(|| self.named(&word)) {
                        Test::Kind(kinds) if relation.is_some() && !kinds.contains(&true) => {
                            Err(Misread::new(letter, format!("there is no attribute {word}; there are {}", FIELDS.join(", "))))
                        }
                        test => Ok(test),
                    },
                }
            }
            _ => Err(self.misread("a test is missing")),
        }
    }

    fn named(&self, text: &str) -> Test {
        let is = |name: &str| if text.contains('*') { is_like(name, text) } else { name.contains(text) };
        Test::Kind(self.run.lanes.kinds.iter().map(|kind| is(&kind.name)).collect())
    }

    fn compared(&self, field: &str, relation: Relation, value: &str, part: bool) -> Result<Test, String> {
        let not = relation == Relation::Unequal;
        let text = Text { wanted: value.to_string(), part, not };
        let is_text = matches!(
            field,
            "name" | "op" | "node" | "host" | "server" | "lane" | "peer" | "file" | "seek" | "req" | "request" | "obj" | "object"
        );
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
            // What stands behind the point of a name.
            "op" => {
                Test::Kind(self.run.lanes.kinds.iter().map(|kind| text.holds(kind.name.rsplit('.').next().unwrap_or(&kind.name))).collect())
            }
            "host" => Test::Node((0..nodes.len()).map(|node| text.holds(levels::host(self.run, node))).collect()),
            "peer" | "server" => {
                let positive = Text { not: false, ..text };
                let is_server = |node: &TracedNode| node.server.is_some() && positive.holds(&node.name);
                let servers = nodes.iter().filter(|node| is_server(node)).filter_map(|node| node.server).collect();
                match field {
                    "peer" => Test::Peer(servers, not),
                    _ => Test::Server(nodes.iter().map(is_server).collect(), Box::new(Test::Peer(servers, false)), not),
                }
            }
            "thread" => Test::Number(Field::Thread, relation, amount(value)?),
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

const FIELDS: [&str; 20] = [
    "name", "op", "node", "host", "server", "thread", "lane", "peer", "file", "seek", "req", "request", "obj", "object", "duration", "dur",
    "wait", "bytes", "offset", "result",
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

/// Signs that are words of their own; longer ones first.
const SIGNS: [(&str, Token); 14] = [
    ("==", Token::Relation(Relation::Equal)),
    ("<=", Token::Relation(Relation::AtMost)),
    (">=", Token::Relation(Relation::AtLeast)),
    ("!=", Token::Relation(Relation::Unequal)),
    ("<", Token::Relation(Relation::Less)),
    (">", Token::Relation(Relation::Greater)),
    ("=", Token::Relation(Relation::Equal)),
    ("(", Token::Open),
    (")", Token::Close),
    ("!", Token::Not),
    ("&&", Token::And),
    ("&", Token::And),
    ("||", Token::Or),
    ("|", Token::Or),
];

fn tokens(text: &str) -> Result<Vec<Found>, Misread> {
    let mut tokens = Vec::new();
    let (mut rest, mut letter) = (text, 0);
    while let Some(first) = rest.chars().next() {
        let length = match SIGNS.into_iter().find(|(sign, _)| rest.starts_with(sign)) {
            Some((sign, token)) => {
                tokens.push((letter, token));
                sign.len()
            }
            None if first == '"' => {
                let (inside, _) = rest[1..].split_once('"').ok_or_else(|| Misread::new(letter, "a quotation mark is not closed"))?;
                tokens.push((letter, Token::Quoted(inside.to_string())));
                inside.len() + 2
            }
            None if first.is_whitespace() => first.len_utf8(),
            None => {
                let ends = |letter: char| letter.is_whitespace() || "()<>=!&|\"".contains(letter);
                let word = &rest[..rest.find(ends).unwrap_or(rest.len())];
                tokens.push((
                    letter,
                    match word.to_ascii_lowercase().as_str() {
                        "and" => Token::And,
                        "or" => Token::Or,
                        "not" => Token::Not,
                        _ => Token::Word(word.to_string()),
                    },
                ));
                word.len()
            }
        };
        letter += rest[..length].chars().count();
        rest = &rest[length..];
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
