//! XML as these formats use it: a scanner that gives tags one by one with their place (for traces,
//! which are long), and elements kept whole (for everything else). Positions survive into elements,
//! so that a missing attribute can be named with its line.

use quick_xml::errors::{IllFormedError, SyntaxError};
use quick_xml::events::{BytesStart, Event as XmlEvent};
use quick_xml::{Reader, XmlVersion};

use crate::error::{Error, Partial, Problem, line_of};

/// Elements may be nested this deep: far more than any tool wrote, and little enough for recursion
/// over them.
pub(crate) const DEPTH_MAX: usize = 200;

/// An XML element with everything in it. Text is kept without the space around it; its place among
/// the children is not.
#[derive(Clone, Debug, Default)]
pub struct Element {
    /// Name of the tag.
    pub name: String,
    /// Attributes in the order of the file.
    pub attributes: Vec<(String, String)>,
    /// Child elements in the order of the file.
    pub children: Vec<Element>,
    /// All text directly inside, trimmed.
    pub text: String,
    /// Where it began, for messages.
    pub(crate) offset: usize,
    /// True if the file ended inside it.
    pub(crate) cut: bool,
}

/// Where an element was read from does not make it another element.
impl PartialEq for Element {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.attributes, &self.children, &self.text) == (&other.name, &other.attributes, &other.children, &other.text)
    }
}

impl Element {
    /// An element without content.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// The same element with one more attribute.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.attributes.push((name.to_owned(), value.to_string()));
        self
    }

    /// The same element with these children instead of its own.
    #[must_use]
    pub fn around(mut self, children: Vec<Element>) -> Self {
        self.children = children;
        self
    }

    /// Value of an attribute.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// First child of that name.
    pub fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.name == name)
    }

    /// All children of that name.
    pub fn children_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Element> {
        self.children.iter().filter(move |child| child.name == name)
    }
}

/// Looks values up in elements and makes errors with their place. One for each file.
#[derive(Clone, Copy)]
pub(crate) struct Lookup<'a> {
    bytes: &'a [u8],
}

impl<'a> Lookup<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(crate) fn error(&self, offset: usize, problem: Problem) -> Error {
        Error { offset: offset as u64, line: Some(line_of(self.bytes, offset)), problem }
    }

    /// Refuses an element inside which the file ended: what is missing in it cannot be known.
    pub(crate) fn whole(&self, element: &Element) -> Result<(), Error> {
        if element.cut {
            return Err(self.error(self.bytes.len(), Problem::Truncated(format!("<{}>", element.name))));
        }
        Ok(())
    }

    /// An attribute that must be there.
    pub(crate) fn required<'e>(&self, element: &'e Element, name: &str) -> Result<&'e str, Error> {
        element.attribute(name).ok_or_else(|| {
            let problem = Problem::Missing { element: element.name.clone(), part: format!("attribute {name}") };
            self.error(element.offset, problem)
        })
    }

    /// An attribute that must be there and read as a number (or whatever `T` reads).
    pub(crate) fn number<T: std::str::FromStr>(&self, element: &Element, name: &str, expected: &'static str) -> Result<T, Error> {
        let found = self.required(element, name)?;
        found.trim().parse().map_err(|_| self.wrong(element, &format!("attribute {name}"), found, expected))
    }

    /// The trimmed text of a child that must be there.
    pub(crate) fn child_text<'e>(&self, element: &'e Element, name: &str) -> Result<&'e str, Error> {
        element.child(name).map(|child| child.text.as_str()).ok_or_else(|| {
            let problem = Problem::Missing { element: element.name.clone(), part: format!("<{name}>") };
            self.error(element.offset, problem)
        })
    }

    pub(crate) fn wrong(&self, element: &Element, part: &str, found: &str, expected: &'static str) -> Error {
        let problem = Problem::Value { element: element.name.clone(), part: part.to_owned(), found: found.to_owned(), expected };
        self.error(element.offset, problem)
    }
}

/// Reads a whole document. A document that ends early gives its root with everything that was
/// there, and the error.
pub(crate) fn parse_document(bytes: &[u8]) -> Partial<Option<Element>> {
    let mut scanner = Scanner::new(bytes);
    loop {
        match scanner.next() {
            Ok(Some(Token::Start(element))) => {
                let root = finish_element(&mut scanner, element);
                return root.map(Some);
            }
            Ok(Some(_)) => continue,
            Ok(None) => {
                let error = scanner.error(bytes.len(), Problem::Truncated("the space before the first element".to_owned()));
                return Partial { value: None, error: Some(error) };
            }
            Err(error) => return Partial { value: None, error: Some(error) },
        }
    }
}

/// Reads up to the end of an element whose start was just seen. On an error the value holds what
/// came before it.
pub(crate) fn finish_element(scanner: &mut Scanner<'_>, element: Element) -> Partial<Element> {
    let mut open = vec![element];
    let error = loop {
        match scanner.next() {
            Ok(Some(Token::Start(child))) if open.len() >= DEPTH_MAX => break Some(scanner.error(child.offset, Problem::TooDeep)),
            Ok(Some(Token::Start(child))) => open.push(child),
            Ok(Some(Token::Text(text))) => add_text(open.last_mut().expect("the outermost element is open"), &text),
            Ok(Some(Token::End)) => {
                let done = open.pop().expect("the scanner pairs tags");
                match open.last_mut() {
                    Some(parent) => parent.children.push(done),
                    None => return Partial { value: trimmed(done), error: None },
                }
            }
            Ok(None) => break Some(scanner.truncated(open.last().map_or("", |element| element.name.as_str()))),
            Err(error) => break Some(error),
        }
    };
    open.iter_mut().for_each(|element| element.cut = true);
    let mut value = open.pop().expect("the outermost element is open");
    while let Some(mut parent) = open.pop() {
        parent.children.push(value);
        value = parent;
    }
    Partial { value: trimmed(value), error }
}

fn add_text(element: &mut Element, text: &str) {
    element.text.push_str(text);
}

fn trimmed(mut element: Element) -> Element {
    let trimmed_text = element.text.trim();
    if trimmed_text.len() != element.text.len() {
        element.text = trimmed_text.to_owned();
    }
    element.children = element.children.into_iter().map(trimmed).collect();
    element
}

/// A piece of a document.
pub(crate) enum Token {
    /// A start tag with its attributes; also of an empty element, whose `End` follows.
    Start(Element),
    /// The end tag of the innermost open element.
    End,
    /// Text or CDATA, with references resolved.
    Text(String),
}

/// Gives the tokens of a document one by one.
pub(crate) struct Scanner<'a> {
    reader: Reader<&'a [u8]>,
    bytes: &'a [u8],
    /// Length of the part that is UTF-8.
    sound: usize,
    open: usize,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        let (text, sound) = match std::str::from_utf8(bytes) {
            Ok(text) => (text, bytes.len()),
            Err(error) => {
                let sound = error.valid_up_to();
                (std::str::from_utf8(&bytes[..sound]).expect("checked up to here"), sound)
            }
        };
        let mut reader = Reader::from_str(text);
        reader.config_mut().expand_empty_elements = true;
        Self { reader, bytes, sound, open: 0 }
    }

    /// The next token; `None` at the end of the file, wherever that is.
    pub(crate) fn next(&mut self) -> Result<Option<Token>, Error> {
        loop {
            let offset = self.offset();
            let event = match self.reader.read_event() {
                Ok(event) => event,
                Err(error) => return Err(self.syntax_error(&error)),
            };
            match event {
                XmlEvent::Start(tag) | XmlEvent::Empty(tag) => {
                    let element = element_of(&tag, offset).map_err(|text| self.error(offset, Problem::Syntax(text)))?;
                    self.open += 1;
                    return Ok(Some(Token::Start(element)));
                }
                XmlEvent::End(_) => {
                    self.open -= 1;
                    return Ok(Some(Token::End));
                }
                XmlEvent::Text(text) => {
                    let text = text.xml10_content();
                    if !text.is_empty() {
                        return Ok(Some(Token::Text(text.into_owned())));
                    }
                }
                XmlEvent::CData(text) => return Ok(Some(Token::Text(text.xml10_content().into_owned()))),
                XmlEvent::GeneralRef(reference) => {
                    let text = match reference.resolve_char_ref() {
                        Ok(Some(letter)) => Some(letter.to_string()),
                        Ok(None) => quick_xml::escape::resolve_predefined_entity(&reference).map(str::to_owned),
                        Err(_) => None,
                    };
                    let unknown = || self.error(offset, Problem::Syntax(format!("unknown reference &{};", &*reference)));
                    return text.ok_or_else(unknown).map(|text| Some(Token::Text(text)));
                }
                XmlEvent::Eof if self.sound < self.bytes.len() => {
                    return Err(self.error(self.sound, self.encoding_problem()));
                }
                XmlEvent::Eof => return Ok(None),
                XmlEvent::Comment(_) | XmlEvent::Decl(_) | XmlEvent::PI(_) | XmlEvent::DocType(_) => {}
            }
        }
    }

    /// The start tag of the outermost element, which must have this name.
    pub(crate) fn root(&mut self, name: &str) -> Result<Element, Error> {
        loop {
            match self.next()? {
                Some(Token::Start(root)) if root.name == name => return Ok(root),
                Some(Token::Start(root)) => {
                    return Err(self.error(root.offset, Problem::Misplaced(format!("<{}> as the outermost element", root.name))));
                }
                Some(_) => {}
                None => return Err(self.truncated(name)),
            }
        }
    }

    /// True while an element is open.
    pub(crate) fn is_inside(&self) -> bool {
        self.open > 0
    }

    /// Byte after the last token.
    pub(crate) fn offset(&self) -> usize {
        usize::try_from(self.reader.buffer_position()).expect("a position in a slice")
    }

    pub(crate) fn error(&self, offset: usize, problem: Problem) -> Error {
        Lookup::new(self.bytes).error(offset, problem)
    }

    /// The error of a file that ends inside an element.
    pub(crate) fn truncated(&self, element: &str) -> Error {
        self.error(self.bytes.len(), Problem::Truncated(format!("<{element}>")))
    }

    /// Nearly all errors of syntax mean that the end of the input came before the end of a tag,
    /// comment or reference.
    fn syntax_error(&self, error: &quick_xml::Error) -> Error {
        let offset = usize::try_from(self.reader.error_position()).expect("a position in a slice");
        let rest_is_cut = match error {
            quick_xml::Error::Syntax(SyntaxError::InvalidBangMarkup) => self.sound - offset < "<![CDATA[".len(),
            quick_xml::Error::Syntax(_) => true,
            quick_xml::Error::IllFormed(IllFormedError::UnclosedReference) => !self.bytes[offset..self.sound].contains(&b'<'),
            _ => false,
        };
        if rest_is_cut && self.sound == self.bytes.len() {
            self.error(offset, Problem::Truncated(format!("markup ({error})")))
        } else if rest_is_cut {
            self.error(self.sound, self.encoding_problem())
        } else {
            self.error(offset, Problem::Syntax(error.to_string()))
        }
    }

    /// Bytes that are not UTF-8 at the very end of a file are a cut letter.
    fn encoding_problem(&self) -> Problem {
        match std::str::from_utf8(&self.bytes[self.sound..]) {
            Err(error) if error.error_len().is_none() => Problem::Truncated("a letter".to_owned()),
            _ => Problem::Syntax("not UTF-8".to_owned()),
        }
    }
}

fn element_of(tag: &BytesStart<'_>, offset: usize) -> Result<Element, String> {
    let mut element = Element { name: tag.name().as_ref().to_owned(), offset, ..Element::default() };
    for attribute in tag.attributes() {
        let attribute = attribute.map_err(|error| format!("<{}>: {error}", element.name))?;
        let value = attribute.normalized_value(XmlVersion::Implicit1_0).map_err(|error| format!("<{}>: {error}", element.name))?;
        element.attributes.push((attribute.key.as_ref().to_owned(), value.into_owned()));
    }
    Ok(element)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_keep_attributes_children_and_text() {
        let text = b"<?xml version='1.0'?><!-- no --><a x='1' y=\"&lt;&#65;\"> hi &amp; <b/><![CDATA[<c>]]> </a>";
        let root = parse_document(text).complete().expect("well-formed").expect("has a root");
        let expected =
            Element { text: "hi & <c>".to_owned(), children: vec![Element::new("b")], ..Element::new("a").with("x", 1).with("y", "<A") };
        assert_eq!(root, expected);
    }

    #[test]
    fn an_early_end_keeps_what_came_before_and_says_where() {
        let cut = parse_document(b"<a>\n<b n='1'/>\n<c m='2'><d>");
        let root = cut.value.expect("the root began");
        assert_eq!(root.children.len(), 2);
        assert_eq!(cut.error.expect("cut").to_string(), "line 3 (byte 27): the file ends inside <d>");
        let cut = parse_document(b"<a>\n<b n='1");
        assert!(matches!(cut.error, Some(Error { line: Some(2), problem: Problem::Truncated(_), .. })), "{:?}", cut.error);
    }

    #[test]
    fn wrong_documents_are_refused_with_a_place() {
        for (text, line) in [("<a>\n</b>", 2), ("<a>\n<b x=1/></a>", 2), ("<a x='1' x='2'/>", 1), ("<a>\n\n&nix;</a>", 3)] {
            let error = parse_document(text.as_bytes()).error.expect(text);
            assert_eq!(error.line, Some(line), "{text}: {error}");
            assert!(matches!(error.problem, Problem::Syntax(_)), "{text}: {error}");
        }
        let error = parse_document(b"<a>\xff</a>").error.expect("not UTF-8");
        assert_eq!(error.problem, Problem::Syntax("not UTF-8".to_owned()));
        let deep = "<a>".repeat(DEPTH_MAX + 1);
        assert_eq!(parse_document(deep.as_bytes()).error.expect("too deep").problem, Problem::TooDeep);
    }
}
