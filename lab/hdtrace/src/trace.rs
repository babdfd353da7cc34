//! Traces (`.trc`): `<Program timeAdjustment=...>` with one element for each state, `<Event>`
//! elements, and `<Nested>` blocks. A block holds what happened inside the state that follows it,
//! because a state is written when it ends.

use crate::error::{Error, Partial, Problem};
use crate::time::Time;
use crate::xml::{DEPTH_MAX, Element, Lookup, Scanner, Token, finish_element};
use crate::xml_write::{attribute, close_tag, indent, open_tag, write_content};

/// A whole trace in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// What to add to every time of the trace to get a time since 1970.
    pub time_adjustment: Time,
    /// Further attributes of `<Program>`, such as the processor's model.
    pub attributes: Vec<(String, String)>,
    /// States and events of the outermost level in the order of the file.
    pub entries: Vec<Entry>,
}

/// One entry of a trace.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// Something that took time.
    State(State),
    /// Something that happened at a moment.
    Event(Event),
}

/// Something that a process did for a while, usually a call of MPI.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// Name of the call; not `Event` and not `Nested`, which mean something else in the file.
    pub name: String,
    /// When it began, before the time adjustment.
    pub begin: Time,
    /// When it ended, before the time adjustment.
    pub end: Time,
    /// Further attributes, such as sizes, ranks, tags and the place in the source.
    pub attributes: Vec<(String, String)>,
    /// Contained data, such as lists of offsets.
    pub data: Vec<Element>,
    /// Contained text.
    pub text: String,
    /// What happened inside it.
    pub nested: Vec<Entry>,
    /// Byte of the file at which its tag began, for messages; 0 in traces that were not read.
    pub offset: Offset,
}

/// Something that happened at a moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Event {
    /// Name.
    pub name: String,
    /// When, before the time adjustment.
    pub time: Time,
    /// Further attributes.
    pub attributes: Vec<(String, String)>,
    /// Contained data.
    pub data: Vec<Element>,
    /// Contained text.
    pub text: String,
}

/// A place in a file. Equal to every other: where something was read from does not make it another
/// thing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offset(pub u64);

impl PartialEq for Offset {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl State {
    /// Value of an attribute.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

impl Trace {
    /// Reads a whole trace. Of a file that ends early, all entries of the outermost level that were
    /// complete are kept.
    pub fn read(bytes: &[u8]) -> Partial<Trace> {
        let mut trace = Trace::default();
        let mut reader = match TraceReader::new(bytes) {
            Ok(reader) => reader,
            Err(error) => return Partial { value: trace, error: Some(error) },
        };
        trace.time_adjustment = reader.time_adjustment;
        trace.attributes = std::mem::take(&mut reader.attributes);
        let error = loop {
            match reader.next_entry() {
                Ok(Some(entry)) => trace.entries.push(entry),
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        Partial { value: trace, error }
    }

    /// The trace file of this trace.
    pub fn write(&self) -> String {
        let mut out = String::new();
        open_tag(&mut out, "Program", &[("timeAdjustment".to_owned(), self.time_adjustment.to_string())]);
        self.attributes.iter().for_each(|(key, value)| attribute(&mut out, key, value));
        out.push_str(">\n");
        write_entries(&mut out, 0, &self.entries);
        close_tag(&mut out, "Program");
        out
    }
}

/// Reads a trace entry by entry.
pub struct TraceReader<'a> {
    /// What to add to every time of the trace.
    pub time_adjustment: Time,
    /// Further attributes of `<Program>`.
    pub attributes: Vec<(String, String)>,
    scanner: Scanner<'a>,
    lookup: Lookup<'a>,
    /// The outermost level and the `<Nested>` blocks that are open.
    levels: Vec<Level>,
    finished: bool,
}

#[derive(Default)]
struct Level {
    /// Entries of this block; stays empty on the outermost level, which hands them out.
    entries: Vec<Entry>,
    /// Entries of a block that ended and waits for its state.
    waiting: Vec<Entry>,
    /// Byte at which the block that waits began.
    waiting_since: Option<usize>,
    /// Byte at which this block began.
    began: usize,
}

impl<'a> TraceReader<'a> {
    /// Reads up to and including the start tag of `<Program>`.
    ///
    /// # Errors
    /// The file is empty, or begins with something else.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        let mut scanner = Scanner::new(bytes);
        let lookup = Lookup::new(bytes);
        let mut program = scanner.root("Program")?;
        let time_adjustment = match take(&mut program.attributes, "timeAdjustment") {
            Some(text) => parse_time(lookup, &program, "timeAdjustment", &text)?,
            None => Time(0),
        };
        let levels = vec![Level::default()];
        Ok(Self { time_adjustment, attributes: program.attributes, scanner, lookup, levels, finished: false })
    }

    /// The next entry of the outermost level; `None` after the end of the program.
    ///
    /// # Errors
    /// The first fault of the rest of the file. After an error there is nothing more to read.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, Error> {
        if self.finished {
            return Ok(None);
        }
        let result = self.search();
        self.finished = !matches!(result, Ok(Some(_)));
        result
    }

    fn search(&mut self) -> Result<Option<Entry>, Error> {
        loop {
            match self.scanner.next()? {
                Some(Token::Start(element)) if element.name == "Nested" => {
                    if self.levels.len() >= DEPTH_MAX {
                        return Err(self.lookup.error(element.offset, Problem::TooDeep));
                    }
                    self.levels.push(Level { began: element.offset, ..Level::default() });
                }
                Some(Token::Start(element)) => {
                    let element = finish_element(&mut self.scanner, element).complete()?;
                    let outermost = self.levels.len() == 1;
                    let level = self.levels.last_mut().expect("the outermost level stays");
                    let entry = entry_of(self.lookup, element, level)?;
                    if outermost {
                        return Ok(Some(entry));
                    }
                    level.entries.push(entry);
                }
                Some(Token::End) => {
                    let done = self.levels.pop().expect("the outermost level stays until the end of the program");
                    if let Some(offset) = done.waiting_since {
                        let problem = Problem::Misplaced("<Nested> without a state after it".to_owned());
                        return Err(self.lookup.error(offset, problem));
                    }
                    let Some(parent) = self.levels.last_mut() else {
                        return Ok(None);
                    };
                    if !done.entries.is_empty() {
                        parent.waiting.extend(done.entries);
                        parent.waiting_since.get_or_insert(done.began);
                    }
                }
                Some(Token::Text(text)) if text.trim().is_empty() => {}
                Some(Token::Text(text)) => {
                    let problem = Problem::Misplaced(format!("the text {:?}", text.trim()));
                    return Err(self.lookup.error(self.scanner.offset().saturating_sub(text.len()), problem));
                }
                None => {
                    let inside = if self.levels.len() > 1 { "Nested" } else { "Program" };
                    debug_assert!(self.scanner.is_inside(), "the end of the program was seen before");
                    return Err(self.scanner.truncated(inside));
                }
            }
        }
    }
}

fn entry_of(lookup: Lookup<'_>, mut element: Element, level: &mut Level) -> Result<Entry, Error> {
    let begin = take_time(lookup, &mut element, "time")?;
    if element.name == "Event" {
        let name = lookup.required(&element, "name")?.to_owned();
        let _ = take(&mut element.attributes, "name");
        let Element { attributes, children: data, text, .. } = element;
        return Ok(Entry::Event(Event { name, time: begin, attributes, data, text }));
    }
    let end = take_time(lookup, &mut element, "end")?;
    let nested = std::mem::take(&mut level.waiting);
    level.waiting_since = None;
    let Element { name, attributes, children: data, text, offset, .. } = element;
    Ok(Entry::State(State { name, begin, end, attributes, data, text, nested, offset: Offset(offset as u64) }))
}

fn take(attributes: &mut Vec<(String, String)>, name: &str) -> Option<String> {
    let at = attributes.iter().position(|(key, _)| key == name)?;
    Some(attributes.remove(at).1)
}

fn take_time(lookup: Lookup<'_>, element: &mut Element, name: &str) -> Result<Time, Error> {
    let text = lookup.required(element, name)?.to_owned();
    let time = parse_time(lookup, element, name, &text)?;
    let _ = take(&mut element.attributes, name);
    Ok(time)
}

fn parse_time(lookup: Lookup<'_>, element: &Element, name: &str, text: &str) -> Result<Time, Error> {
    Time::parse(text).ok_or_else(|| lookup.wrong(element, &format!("attribute {name}"), text, "seconds"))
}

fn write_entries(out: &mut String, depth: usize, entries: &[Entry]) {
    for entry in entries {
        match entry {
            Entry::Event(event) => {
                indent(out, depth);
                open_tag(out, "Event", &[("name".to_owned(), event.name.clone()), ("time".to_owned(), event.time.to_string())]);
                write_rest(out, depth, "Event", &event.attributes, &event.data, &event.text);
            }
            Entry::State(state) => {
                if !state.nested.is_empty() {
                    indent(out, depth);
                    out.push_str("<Nested>\n");
                    write_entries(out, depth + 1, &state.nested);
                    indent(out, depth);
                    close_tag(out, "Nested");
                }
                indent(out, depth);
                open_tag(out, &state.name, &[("time".to_owned(), state.begin.to_string()), ("end".to_owned(), state.end.to_string())]);
                write_rest(out, depth, &state.name, &state.attributes, &state.data, &state.text);
            }
        }
    }
}

/// The further attributes and the content of an element whose tag is open.
fn write_rest(out: &mut String, depth: usize, name: &str, attributes: &[(String, String)], data: &[Element], text: &str) {
    attributes.iter().for_each(|(key, value)| attribute(out, key, value));
    write_content(out, depth, name, data, text);
}
