//! TOML files whose every value knows its place, so that an error in a plan names file, line and
//! key; and values that stand for several, which make a plan a sweep.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, anyhow};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Values that one key of a plan may stand for.
const VALUES_MAX: usize = 10_000;

/// A TOML file.
pub struct Document {
    /// Name, for errors.
    name: String,
    text: String,
    /// Keys with their tables, and values that go before those of the text.
    set: Vec<Setting>,
}

/// Where keys stand that do not come from the text.
const NOT_IN_TEXT: Range<usize> = usize::MAX..usize::MAX;

/// A key with its tables, and a value that goes before the one of the text.
struct Setting {
    key: String,
    value: String,
    /// Somebody asked for its table.
    is_in_a_table: AtomicBool,
}

impl Document {
    /// A file of this name, for errors, with this text.
    pub fn new(name: &str, text: String) -> Document {
        Document { name: name.to_string(), text, set: Vec::new() }
    }

    /// The same with other values: each is `KEY=VALUE` with the tables of the key before it
    /// (`workload.block=64KiB`). What is not a value of TOML is a text; commas make a list.
    ///
    /// # Errors
    /// There is no `=`.
    pub fn with(mut self, set: &[String]) -> Result<Document> {
        for words in set {
            let (key, value) = words.split_once('=').ok_or_else(|| anyhow!("{words} is not KEY=VALUE"))?;
            let quoted = |part: &str| if DeValue::parse(part).is_ok() { part.to_string() } else { in_quotes(part) };
            let value = match value.split_once(',') {
                Some(_) if DeValue::parse(value).is_err() => format!("[{}]", value.split(',').map(quoted).collect::<Vec<_>>().join(", ")),
                _ => quoted(value),
            };
            self.set.push(Setting { key: key.to_string(), value, is_in_a_table: AtomicBool::new(false) });
        }
        Ok(self)
    }

    /// The outermost table.
    ///
    /// # Errors
    /// The text is not TOML.
    pub fn root(&self) -> Result<Table<'_>> {
        let table = DeTable::parse(&self.text).map_err(|error| self.error(error.span().unwrap_or(0..0), error.message()))?;
        Ok(Table::new(self, String::new(), table))
    }

    /// After all has been read: no value was set in a table that nobody asked for.
    ///
    /// # Errors
    /// Names the key.
    pub fn finish(&self) -> Result<()> {
        match self.set.iter().find(|setting| !setting.is_in_a_table.load(Ordering::Relaxed)) {
            None => Ok(()),
            Some(Setting { key, .. }) => {
                let table = key.rsplit_once('.').map_or("", |(table, _)| table);
                Err(anyhow!("{}: {key}: no such key: there is no table {table} here", self.name))
            }
        }
    }

    /// An error at a place of the file.
    fn error(&self, span: Range<usize>, message: &str) -> anyhow::Error {
        if span == NOT_IN_TEXT {
            return anyhow!("{}, by the command line: {message}", self.name);
        }
        let line = 1 + self.text[..span.start.min(self.text.len())].matches('\n').count();
        anyhow!("{}:{line}: {message}", self.name)
    }
}

/// A table of a file. It remembers which keys were asked for: the others have no meaning, see
/// [`Table::finish`].
pub struct Table<'a> {
    document: &'a Document,
    /// Name with a dot at the end, empty for the outermost.
    prefix: String,
    span: Range<usize>,
    table: DeTable<'a>,
    known: RefCell<Vec<String>>,
}

impl<'a> Table<'a> {
    fn new(document: &'a Document, prefix: String, table: Spanned<DeTable<'a>>) -> Table<'a> {
        let (span, mut table) = (table.span(), table.into_inner());
        let own = document.set.iter().filter_map(|setting| Some((setting.key.strip_prefix(&prefix)?, setting)));
        for (key, setting) in own.filter(|(key, _)| !key.contains('.')) {
            setting.is_in_a_table.store(true, Ordering::Relaxed);
            let value = DeValue::parse(&setting.value).expect("it was parsed when it was set").into_inner();
            let key = Spanned::new(NOT_IN_TEXT, std::borrow::Cow::Borrowed(key));
            table.remove(&key);
            table.insert(key, Spanned::new(NOT_IN_TEXT, value));
        }
        Table { document, prefix, span, table, known: RefCell::default() }
    }

    fn find(&self, key: &str) -> Option<(&Spanned<DeValue<'a>>, Range<usize>)> {
        self.known.borrow_mut().push(key.to_string());
        let (name, value) = self.table.iter().find(|(name, _)| name.get_ref() == key)?;
        Some((value, name.span()))
    }

    /// All keys, in their order.
    pub fn keys(&self) -> Vec<String> {
        self.table.keys().map(|key| key.get_ref().to_string()).collect()
    }

    /// Whether a key is there.
    pub fn has(&self, key: &str) -> bool {
        self.table.iter().any(|(name, _)| name.get_ref() == key)
    }

    /// File, line and key, as errors begin.
    pub fn place(&self, key: &str) -> String {
        let text = self.error(key, "").to_string();
        text.trim_end_matches(": ").to_string()
    }

    /// An error about a key (or, if the key is not there, about the table).
    pub fn error(&self, key: &str, message: &str) -> anyhow::Error {
        let span = self.find(key).map_or(self.span.clone(), |(_, span)| span);
        self.document.error(span, &format!("{}{key}: {message}", self.prefix))
    }

    /// A table inside this one; an empty one if it is not there.
    ///
    /// # Errors
    /// The key holds something else.
    pub fn table(&self, key: &str) -> Result<Table<'a>> {
        let prefix = format!("{}{key}.", self.prefix);
        match self.find(key).map(|(value, _)| value.clone()) {
            None => Ok(Table::new(self.document, prefix, Spanned::new(self.span.clone(), DeTable::new()))),
            Some(value) => self.inner_table(key, prefix, value),
        }
    }

    /// All tables `[[key]]`.
    ///
    /// # Errors
    /// The key holds something else.
    pub fn tables(&self, key: &str) -> Result<Vec<Table<'a>>> {
        let Some((value, _)) = self.find(key) else { return Ok(Vec::new()) };
        let DeValue::Array(items) = value.get_ref() else {
            return Err(self.error(key, &format!("must be written as [[{key}]]")));
        };
        items.iter().map(|item| self.inner_table(key, format!("{}{key}.", self.prefix), item.clone())).collect()
    }

    fn inner_table(&self, key: &str, prefix: String, value: Spanned<DeValue<'a>>) -> Result<Table<'a>> {
        let span = value.span();
        match value.into_inner() {
            DeValue::Table(table) => Ok(Table::new(self.document, prefix, Spanned::new(span, table))),
            _ => Err(self.error(key, "must be a table")),
        }
    }

    /// One value.
    ///
    /// # Errors
    /// `read` refuses the value; its text says what is expected.
    pub fn value<T>(&self, key: &str, read: impl Fn(&DeValue<'_>) -> Result<T, String>) -> Result<Option<T>> {
        let Some((value, span)) = self.find(key) else { return Ok(None) };
        read(value.get_ref()).map(Some).map_err(|problem| self.document.error(span, &format!("{}{key}: {problem}", self.prefix)))
    }

    /// The value that `choices` picks of those that a key stands for: a single value, a list, or a
    /// range of whole numbers such as `{ from = 1, to = 64, times = 2 }` or
    /// `{ from = 0, to = 9, plus = 1 }`.
    ///
    /// # Errors
    /// `read` refuses one of them, the list is empty, or the range is none.
    pub fn swept<T>(&self, key: &str, choices: &mut Choices, read: impl Fn(&DeValue<'_>) -> Result<T, String>) -> Result<Option<T>> {
        let mut values = Vec::new();
        let picked = self.sweep(key, choices, &mut |value| read(value).map(|value| values.push(value)))?;
        Ok(picked.and_then(|picked| values.into_iter().nth(picked)))
    }

    /// The part of [`Table::swept`] that is the same code for all types: which of the values that
    /// `read` was given is picked.
    fn sweep(&self, key: &str, choices: &mut Choices, read: &mut dyn FnMut(&DeValue<'_>) -> Result<(), String>) -> Result<Option<usize>> {
        let Some((value, span)) = self.find(key) else { return Ok(None) };
        let name = format!("{}{key}", self.prefix);
        let fail =
            |at, problem: &str| self.document.error(if span == NOT_IN_TEXT { NOT_IN_TEXT } else { at }, &format!("{name}: {problem}"));
        let mut labels = Vec::new();
        match value.get_ref() {
            DeValue::Array(items) => {
                for item in items {
                    read(item.get_ref()).map_err(|problem| fail(item.span(), &problem))?;
                    labels.push(show(item.get_ref()));
                }
            }
            DeValue::Table(range) => {
                for number in numbers(range).map_err(|problem| fail(span.clone(), &problem))? {
                    let written = number.to_string();
                    let parsed = DeValue::parse(&written).map_err(|error| fail(span.clone(), error.message()))?;
                    read(parsed.get_ref()).map_err(|problem| fail(span.clone(), &problem))?;
                    labels.push(written);
                }
            }
            single => {
                read(single).map_err(|problem| fail(value.span(), &problem))?;
                labels.push(show(single));
            }
        }
        if labels.is_empty() || labels.len() > VALUES_MAX {
            return Err(fail(span.clone(), &format!("needs 1 to {VALUES_MAX} values")));
        }
        Ok(Some(choices.pick(&name, labels)))
    }

    /// All values that a key stands for: none if it is not there.
    ///
    /// # Errors
    /// `read` refuses one of them.
    pub fn all<T>(&self, key: &str, read: impl Fn(&DeValue<'_>) -> Result<T, String>) -> Result<Vec<T>> {
        let Some((value, span)) = self.find(key) else { return Ok(Vec::new()) };
        let items = match value.get_ref() {
            DeValue::Array(items) => items.iter().map(|item| item.get_ref()).collect(),
            single => vec![single],
        };
        let values: Result<Vec<T>, String> = items.into_iter().map(read).collect();
        values.map_err(|problem| self.document.error(span, &format!("{}{key}: {problem}", self.prefix)))
    }

    /// Refuses keys that nobody asked for.
    ///
    /// # Errors
    /// There is one.
    pub fn finish(&self) -> Result<()> {
        let mut known = self.known.borrow().clone();
        known.sort();
        known.dedup();
        match self.table.keys().find(|key| !known.iter().any(|known| known == key.get_ref().as_ref())) {
            None => Ok(()),
            Some(key) => {
                let message = format!("{}{}: no such key; here may stand {}", self.prefix, key.get_ref(), known.join(", "));
                Err(self.document.error(key.span(), &message))
            }
        }
    }
}

/// A text as TOML writes it.
fn in_quotes(text: &str) -> String {
    let escaped = |letter: char| match letter {
        '"' | '\\' => format!("\\{letter}"),
        _ if letter.is_control() => format!("\\u{:04x}", u32::from(letter)),
        _ => letter.to_string(),
    };
    format!("\"{}\"", text.chars().map(escaped).collect::<String>())
}

/// The numbers of a range.
fn numbers(range: &DeTable<'_>) -> Result<Vec<u64>, String> {
    const HINT: &str = "a range is { from = 1, to = 64, times = 2 } or { from = 0, to = 9, plus = 1 }";
    let get = |key: &str| match range.iter().find(|(name, _)| name.get_ref() == key) {
        None => Ok(None),
        Some((_, value)) => integer(value.get_ref()).map(Some),
    };
    let (from, to) = (get("from")?.ok_or(HINT)?, get("to")?.ok_or(HINT)?);
    let next: Box<dyn Fn(u64) -> Option<u64>> = match (get("plus")?, get("times")?) {
        (Some(step), None) if step > 0 => Box::new(move |number: u64| number.checked_add(step)),
        (None, Some(factor)) if factor > 1 && from > 0 => Box::new(move |number: u64| number.checked_mul(factor)),
        _ => return Err(HINT.to_string()),
    };
    if range.len() != 3 {
        return Err(HINT.to_string());
    }
    let steps = std::iter::successors(Some(from), |&number| next(number));
    Ok(steps.take_while(|&number| number <= to).take(VALUES_MAX + 1).collect())
}

/// A whole number.
pub fn integer(value: &DeValue<'_>) -> Result<u64, String> {
    match value {
        DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).map_err(|_| format!("{number} is not a count")),
        other => Err(format!("{} is not a whole number", show(other))),
    }
}

/// A text.
pub fn text(value: &DeValue<'_>) -> Result<String, String> {
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        other => Err(format!("{} is not a text in quotes", show(other))),
    }
}

/// `true` or `false`.
pub fn truth(value: &DeValue<'_>) -> Result<bool, String> {
    match value {
        DeValue::Boolean(truth) => Ok(*truth),
        other => Err(format!("{} is not true or false", show(other))),
    }
}

/// A value as it is written.
pub fn show(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(truth) => truth.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(_) => "a list".to_string(),
        DeValue::Table(_) => "a table".to_string(),
    }
}

/// Goes through all combinations of the values of a plan: the plan is read again and again, and
/// each key that stands for several values asks here which one it is this time. Keys may depend on
/// the values of earlier ones.
#[derive(Debug, Default)]
pub struct Choices {
    /// Index picked by each key that had a choice, and how many there were.
    picked: Vec<(usize, usize)>,
    position: usize,
    /// Names and values of the keys that had a choice, in this reading.
    labels: Vec<(String, String)>,
}

impl Choices {
    fn pick(&mut self, name: &str, labels: Vec<String>) -> usize {
        if labels.len() == 1 {
            return 0;
        }
        if self.position == self.picked.len() {
            self.picked.push((0, labels.len()));
        }
        let (index, _) = self.picked[self.position];
        self.position += 1;
        self.labels.push((name.to_string(), labels[index].clone()));
        index
    }

    /// The choices of a reading that was made before, to make it again.
    pub fn repeat(picked: Vec<(usize, usize)>) -> Choices {
        Choices { picked, ..Choices::default() }
    }

    /// Combinations that there are if no key of another case stands for more values than in the
    /// reading that just ended, and the key with the most of them.
    pub fn combinations(&self) -> (u128, Option<&str>) {
        let all = self.picked.iter().map(|&(_, count)| count as u128).fold(1, u128::saturating_mul);
        let most = self.picked.iter().zip(&self.labels).max_by_key(|((_, count), _)| *count);
        (all, most.map(|(_, (key, _))| key.as_str()))
    }

    /// The choices that the next reading begins with.
    pub fn picked(&self) -> Vec<(usize, usize)> {
        self.picked.clone()
    }

    /// What was picked in the reading that just ended; then makes ready for the next one. `false`
    /// as second: there is none.
    pub fn next_case(&mut self) -> (Vec<(String, String)>, bool) {
        self.position = 0;
        let labels = std::mem::take(&mut self.labels);
        while let Some((index, count)) = self.picked.pop() {
            if index + 1 < count {
                self.picked.push((index + 1, count));
                return (labels, true);
            }
        }
        (labels, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cases(text: &str, keys: &[&str]) -> Result<Vec<Vec<u64>>, String> {
        let document = Document::new("plan", text.to_string());
        let mut choices = Choices::default();
        let mut cases = Vec::new();
        loop {
            let root = document.root().map_err(|error| error.to_string())?;
            let mut case = Vec::new();
            for key in keys {
                case.extend(root.swept(key, &mut choices, integer).map_err(|error| error.to_string())?);
            }
            root.finish().map_err(|error| error.to_string())?;
            cases.push(case);
            if !choices.next_case().1 {
                return Ok(cases);
            }
        }
    }

    #[test]
    fn lists_and_ranges_make_every_combination() {
        let found = cases("a = [1, 2]\nb = 7\nc = { from = 1, to = 9, times = 3 }", &["a", "b", "c"]).expect("sound");
        assert_eq!(found, [[1, 7, 1], [1, 7, 3], [1, 7, 9], [2, 7, 1], [2, 7, 3], [2, 7, 9]]);
        let found = cases("a = { from = 0, to = 5, plus = 2 }", &["a"]).expect("sound");
        assert_eq!(found, [[0], [2], [4]]);
    }

    #[test]
    fn a_value_in_a_table_that_nobody_asks_for_is_told() {
        let document =
            Document::new("plan", "[inner]\nkey = 1\n".into()).with(&["iner.key=2".into(), "inner.key=3".into()]).expect("sound");
        let inner = document.root().and_then(|root| root.table("inner")).expect("sound");
        assert_eq!(inner.value("key", integer).expect("a number"), Some(3));
        let said = document.finish().expect_err("nothing has read it").to_string();
        assert_eq!(said, "plan: iner.key: no such key: there is no table iner here");
    }

    #[test]
    fn values_that_are_set_go_before_those_of_the_file() {
        let set = ["a=1,2", "b.c=64KiB", "b.d=[7]", "b.e=8"].map(String::from);
        let document = Document::new("plan", "a = 5\n[b]\nc = 3".to_string()).with(&set).expect("good words");
        let root = document.root().expect("sound");
        assert_eq!(root.all("a", integer).expect("numbers"), [1, 2]);
        let inner = root.table("b").expect("a table");
        assert_eq!(inner.value("c", text).expect("a text"), Some("64KiB".to_string()));
        assert_eq!(inner.all("d", integer).expect("numbers"), [7]);
        assert!(inner.finish().is_err(), "nobody asked for e");
        assert!(Document::new("plan", String::new()).with(&["a".to_string()]).is_err());
    }

    #[test]
    fn values_that_are_set_are_any_text_and_their_errors_name_no_line() {
        for value in ["gro\u{308}\u{df}e", "a\u{1b}[31m", "C:\\x", "a\"b", "1 # one", "x\ny", "'"] {
            let document = Document::new("plan", String::new()).with(&[format!("a={value}"), format!("b={value},y")]).expect("good words");
            let root = document.root().expect("sound");
            assert_eq!(root.value("a", text).expect("a text").as_deref(), Some(value));
            assert_eq!(root.all("b", text).expect("texts")[0], value);
        }
        let said = |set: &str| {
            let document = Document::new("plan", "b = 1\na = 2\n".to_string()).with(&[set.to_string()]).expect("good words");
            let root = document.root().expect("sound");
            root.swept("a", &mut Choices::default(), integer).expect_err("no number").to_string()
        };
        assert_eq!(said("a=x"), "plan, by the command line: a: x is not a whole number");
        assert_eq!(said("a=1,x"), "plan, by the command line: a: x is not a whole number");
    }

    #[test]
    fn errors_name_file_line_and_key() {
        for (text, message) in [
            ("a = 1\nb = 2\n", "plan:2: b: no such key; here may stand a"),
            ("\na = [1,\n 'x']", "plan:3: a: x is not a whole number"),
            ("a = []", "plan:1: a: needs 1 to 10000 values"),
            ("a = -1", "plan:1: a: -1 is not a count"),
            ("a = { from = 1, to = 2 }", "plan:1: a: a range is { from = 1, to = 64, times = 2 } or { from = 0, to = 9, plus = 1 }"),
            ("a = 1\na = 2", "plan:2: duplicate key"),
        ] {
            assert_eq!(cases(text, &["a"]).expect_err(text), message);
        }
        assert!(cases("x = 1\na = = 2", &["a"]).expect_err("not TOML").starts_with("plan:2: "));
    }
}
