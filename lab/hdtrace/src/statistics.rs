//! Statistics (`.stat`): the length of an XML header in decimal digits and a line feed, the header,
//! the moment at which the first interval begins, then rows. A row is the moment at which an
//! interval ended and one value for each column; all numbers are big-endian.

use crate::error::{Error, Partial, Problem};
use crate::time::Time;
use crate::xml::{Element, Lookup, parse_document};
use crate::xml_write::write_element;

/// A statistics file in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Statistics {
    /// What the columns are.
    pub group: StatisticsGroup,
    /// When the first interval began, before the time adjustment.
    pub start: Time,
    /// Intervals in the order of time.
    pub rows: Vec<Row>,
}

/// Description of a group of statistics that are measured together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatisticsGroup {
    /// Name of the group; part of the name of the file.
    pub name: String,
    /// Names of the topology nodes down to the one that was measured; empty in files of older
    /// tools.
    pub topology: Vec<String>,
    /// How moments are stored.
    pub stamp: Stamp,
    /// What to add to every moment to get a time since 1970.
    pub time_adjustment: Time,
    /// The columns.
    pub values: Vec<ValueDescription>,
}

impl StatisticsGroup {
    /// Whole numbers of one node: columns of these names, with times since 1970.
    pub fn of_counts<'a>(name: String, node: String, columns: impl IntoIterator<Item = &'a str>) -> StatisticsGroup {
        let column = |name: &str| ValueDescription {
            name: name.to_string(),
            kind: ValueKind::Int64,
            unit: if name.ends_with("bytes") { "B" } else { "#" }.to_string(),
            grouping: String::new(),
            attributes: Vec::new(),
        };
        let values = columns.into_iter().map(column).collect();
        StatisticsGroup { name, topology: vec![node], stamp: Stamp::Epoch, values, ..StatisticsGroup::default() }
    }
}

/// How a moment is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stamp {
    /// Two 32-bit numbers: seconds and nanoseconds.
    #[default]
    Epoch,
    /// One 32-bit number that counts nanoseconds.
    Nanoseconds,
    /// One 32-bit number that counts microseconds.
    Microseconds,
    /// One 32-bit number that counts milliseconds.
    Milliseconds,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueDescription {
    /// Name, such as `CPU_TOTAL`.
    pub name: String,
    /// How values are stored.
    pub kind: ValueKind,
    /// Unit, such as `%` or `B`; empty if the file does not say.
    pub unit: String,
    /// Columns of one grouping share a scale; empty if the file does not say.
    pub grouping: String,
    /// Further attributes, such as `multiplier`.
    pub attributes: Vec<(String, String)>,
}

/// How the values of a column are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// 32-bit integer.
    Int32,
    /// 64-bit integer.
    Int64,
    /// IEEE single.
    Float,
    /// IEEE double.
    Double,
    /// A 16-bit length and so many bytes of UTF-8.
    Text,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of a column [`ValueKind::Int32`].
    Int32(i32),
    /// Of a column [`ValueKind::Int64`].
    Int64(i64),
    /// Of a column [`ValueKind::Float`].
    Float(f32),
    /// Of a column [`ValueKind::Double`].
    Double(f64),
    /// Of a column [`ValueKind::Text`].
    Text(String),
}

/// One interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// When the interval ended, before the time adjustment. It began where the one before it ended.
    pub end: Time,
    /// One value for each column.
    pub values: Vec<Value>,
}

impl Row {
    /// One of a group of whole numbers ([`StatisticsGroup::of_counts`]).
    pub fn of_counts(end: Time, counts: impl IntoIterator<Item = u64>) -> Row {
        let value = |count| Value::Int64(i64::try_from(count).unwrap_or(i64::MAX));
        Row { end, values: counts.into_iter().map(value).collect() }
    }
}

impl Statistics {
    /// Reads a statistics file. Of a file that ends inside a row, the rows before it are kept.
    pub fn read(bytes: &[u8]) -> Partial<Statistics> {
        let mut statistics = Statistics::default();
        let (group, data_begins) = match read_header(bytes) {
            Ok(header) => header,
            Err(error) => return Partial { value: statistics, error: Some(error) },
        };
        statistics.group = group;
        let mut data = Data { bytes, at: data_begins };
        let error = read_rows(&mut data, &mut statistics).err();
        Partial { value: statistics, error }
    }

    /// The statistics file of these rows.
    ///
    /// # Errors
    /// A row does not fit the columns, a moment does not fit the way moments are stored, or a text
    /// has more than 65535 bytes; the text says which.
    pub fn write(&self) -> Result<Vec<u8>, String> {
        let mut header = String::new();
        write_element(&mut header, 0, &header_element(&self.group));
        let mut out = format!("{}\n{header}", header.len()).into_bytes();
        write_stamp(&mut out, self.group.stamp, self.start)?;
        for (number, row) in self.rows.iter().enumerate() {
            let fits = row.values.len() == self.group.values.len()
                && row.values.iter().zip(&self.group.values).all(|(value, column)| value.kind() == column.kind);
            if !fits {
                return Err(format!("row {number} does not fit the columns"));
            }
            write_stamp(&mut out, self.group.stamp, row.end)?;
            for value in &row.values {
                write_value(&mut out, value)?;
            }
        }
        Ok(out)
    }
}

impl Value {
    /// How this value is stored.
    pub fn kind(&self) -> ValueKind {
        match self {
            Self::Int32(_) => ValueKind::Int32,
            Self::Int64(_) => ValueKind::Int64,
            Self::Float(_) => ValueKind::Float,
            Self::Double(_) => ValueKind::Double,
            Self::Text(_) => ValueKind::Text,
        }
    }
}

const KINDS: [(&str, ValueKind); 5] = [
    ("INT32", ValueKind::Int32),
    ("INT64", ValueKind::Int64),
    ("FLOAT", ValueKind::Float),
    ("DOUBLE", ValueKind::Double),
    ("STRING", ValueKind::Text),
];

/// The group, and the byte at which the data begins.
fn read_header(bytes: &[u8]) -> Result<(StatisticsGroup, usize), Error> {
    let lookup = Lookup::new(bytes);
    let at_start = |problem| lookup.error(0, problem);
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let rest = &bytes[digits..];
    if rest.is_empty() {
        return Err(at_start(Problem::Truncated("the length of the header".to_owned())));
    }
    let length: Option<usize> = std::str::from_utf8(&bytes[..digits]).ok().and_then(|text| text.parse().ok());
    let begin = digits + 1;
    let (Some(length), b'\n') = (length, rest[0]) else {
        return Err(at_start(Problem::Syntax("does not begin with the length of its header and a line feed".to_owned())));
    };
    let Some(end) = begin.checked_add(length).filter(|&end| end <= bytes.len()) else {
        return Err(lookup.error(bytes.len(), Problem::Truncated("the header".to_owned())));
    };
    let moved = |error: Error| Error { offset: error.offset + begin as u64, line: error.line.map(|line| line + 1), ..error };
    let header = &bytes[begin..end];
    let Some(root) = parse_document(header).complete().map_err(moved)? else {
        return Err(at_start(Problem::Missing { element: "Statistics".to_owned(), part: "<Group>".to_owned() }));
    };
    read_group(Lookup::new(header), &root).map_err(moved).map(|group| (group, end))
}

fn read_group(lookup: Lookup<'_>, root: &Element) -> Result<StatisticsGroup, Error> {
    let group = root.child("Group").ok_or_else(|| {
        let problem = Problem::Missing { element: root.name.clone(), part: "<Group>".to_owned() };
        lookup.error(root.offset, problem)
    })?;
    let mut topology = Vec::new();
    let mut next = root.child("TopologyNode").and_then(|node| node.child("Label"));
    while let Some(label) = next {
        topology.push(lookup.required(label, "value")?.to_owned());
        next = label.child("Label");
    }
    let adjustment = group.attribute("timeAdjustment").filter(|text| !text.is_empty()).unwrap_or("0");
    let seconds = || lookup.wrong(group, "attribute timeAdjustment", adjustment, "seconds");
    let time_adjustment = Time::parse(adjustment).ok_or_else(seconds)?;
    let columns = group.children.iter().filter(|child| matches!(child.name.as_str(), "Value" | "Statistics"));
    Ok(StatisticsGroup {
        name: lookup.required(group, "name")?.to_owned(),
        topology,
        stamp: read_stamp_kind(lookup, group)?,
        time_adjustment,
        values: columns.map(|child| read_column(lookup, child)).collect::<Result<_, _>>()?,
    })
}

/// `timeResulution` is how all tools spell it.
fn read_stamp_kind(lookup: Lookup<'_>, group: &Element) -> Result<Stamp, Error> {
    match group.attribute("timestampDatatype").unwrap_or("EPOCH") {
        "EPOCH" | "" => Ok(Stamp::Epoch),
        "INT32" | "INT" => match group.attribute("timeResulution").unwrap_or("") {
            "" => Ok(Stamp::Nanoseconds),
            "Microseconds" | "Mikroseconds" => Ok(Stamp::Microseconds),
            "Milliseconds" => Ok(Stamp::Milliseconds),
            other => Err(lookup.wrong(group, "attribute timeResulution", other, "Microseconds or Milliseconds")),
        },
        other => Err(lookup.wrong(group, "attribute timestampDatatype", other, "EPOCH or INT32")),
    }
}

fn read_column(lookup: Lookup<'_>, element: &Element) -> Result<ValueDescription, Error> {
    let kind_name = lookup.required(element, "type")?;
    let kind = KINDS.iter().find(|(name, _)| name.eq_ignore_ascii_case(kind_name)).map(|(_, kind)| *kind);
    let unknown = || lookup.wrong(element, "attribute type", kind_name, "INT32, INT64, FLOAT, DOUBLE or STRING");
    let text = |name| element.attribute(name).unwrap_or("").to_owned();
    let known = |key: &str| matches!(key, "name" | "type" | "unit" | "grouping");
    Ok(ValueDescription {
        name: lookup.required(element, "name")?.to_owned(),
        kind: kind.ok_or_else(unknown)?,
        unit: text("unit"),
        grouping: text("grouping"),
        attributes: element.attributes.iter().filter(|(key, _)| !known(key)).cloned().collect(),
    })
}

fn read_rows(data: &mut Data<'_>, statistics: &mut Statistics) -> Result<(), Error> {
    statistics.start = data.stamp(statistics.group.stamp).map_err(|at| data.truncated(at, "the moment of the start"))?;
    let mut last = statistics.start;
    while data.at < data.bytes.len() {
        let begin = data.at;
        let inside = |_| Error { offset: begin as u64, line: None, problem: Problem::Truncated(format!("row {}", statistics.rows.len())) };
        let end = data.stamp(statistics.group.stamp).map_err(inside)?;
        if end < last {
            let problem = Problem::Syntax(format!("row {} ends at {end}, before the one ahead of it at {last}", statistics.rows.len()));
            return Err(Error { offset: begin as u64, line: None, problem });
        }
        let mut values = Vec::with_capacity(statistics.group.values.len());
        for column in &statistics.group.values {
            values.push(data.value(column.kind).map_err(inside)?);
        }
        last = end;
        statistics.rows.push(Row { end, values });
    }
    Ok(())
}

/// A cursor; its errors are the bytes at which something was missing.
struct Data<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Data<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], usize> {
        let taken = self.bytes[self.at..].first_chunk::<N>().ok_or(self.at)?;
        self.at += N;
        Ok(*taken)
    }

    fn stamp(&mut self, kind: Stamp) -> Result<Time, usize> {
        let mut number = || self.take().map(i32::from_be_bytes).map(i64::from);
        let first = number()?;
        Ok(Time(match kind {
            Stamp::Epoch => first * 1_000_000_000 + number()?,
            Stamp::Nanoseconds => first,
            Stamp::Microseconds => first * 1000,
            Stamp::Milliseconds => first * 1_000_000,
        }))
    }

    fn value(&mut self, kind: ValueKind) -> Result<Value, usize> {
        Ok(match kind {
            ValueKind::Int32 => Value::Int32(i32::from_be_bytes(self.take()?)),
            ValueKind::Int64 => Value::Int64(i64::from_be_bytes(self.take()?)),
            ValueKind::Float => Value::Float(f32::from_be_bytes(self.take()?)),
            ValueKind::Double => Value::Double(f64::from_be_bytes(self.take()?)),
            ValueKind::Text => {
                let length = usize::from(u16::from_be_bytes(self.take()?));
                let text = self.bytes.get(self.at..self.at + length).ok_or(self.at)?;
                self.at += length;
                Value::Text(String::from_utf8_lossy(text).into_owned())
            }
        })
    }

    fn truncated(&self, at: usize, inside: &str) -> Error {
        Error { offset: at as u64, line: None, problem: Problem::Truncated(inside.to_owned()) }
    }
}

fn header_element(group: &StatisticsGroup) -> Element {
    let mut root = Element::new("Statistics").with("version", 1);
    if !group.topology.is_empty() {
        let mut node = Element::new("TopologyNode");
        let label = |inner: Option<Element>, name: &String| {
            let mut label = Element::new("Label").with("value", name);
            label.children.extend(inner);
            Some(label)
        };
        node.children.extend(group.topology.iter().rev().fold(None, label));
        root.children.push(node);
    }
    let (datatype, resolution) = match group.stamp {
        Stamp::Epoch => ("EPOCH", None),
        Stamp::Nanoseconds => ("INT32", None),
        Stamp::Microseconds => ("INT32", Some("Microseconds")),
        Stamp::Milliseconds => ("INT32", Some("Milliseconds")),
    };
    let mut element = Element::new("Group").with("name", &group.name).with("timestampDatatype", datatype);
    if let Some(resolution) = resolution {
        element = element.with("timeResulution", resolution);
    }
    element = element.with("timeAdjustment", group.time_adjustment);
    element.children = group.values.iter().map(column_element).collect();
    root.children.push(element);
    root
}

fn column_element(column: &ValueDescription) -> Element {
    let kind = KINDS.iter().find(|(_, kind)| *kind == column.kind).map_or("", |(name, _)| name);
    let mut element = Element::new("Value").with("name", &column.name).with("type", kind);
    for (key, value) in [("unit", &column.unit), ("grouping", &column.grouping)] {
        if !value.is_empty() {
            element = element.with(key, value);
        }
    }
    element.attributes.extend(column.attributes.iter().cloned());
    element
}

fn write_stamp(out: &mut Vec<u8>, kind: Stamp, time: Time) -> Result<(), String> {
    const NANOS: i64 = 1_000_000_000;
    let unit = match kind {
        Stamp::Epoch => NANOS,
        Stamp::Nanoseconds => 1,
        Stamp::Microseconds => 1000,
        Stamp::Milliseconds => 1_000_000,
    };
    let first = i32::try_from(time.0.div_euclid(unit)).map_err(|_| format!("the moment {time} does not fit {kind:?}"))?;
    out.extend(first.to_be_bytes());
    let rest = time.0.rem_euclid(unit);
    if kind == Stamp::Epoch {
        out.extend(i32::try_from(rest).expect("less than a second").to_be_bytes());
    } else if rest != 0 {
        return Err(format!("the moment {time} does not fit {kind:?}"));
    }
    Ok(())
}

fn write_value(out: &mut Vec<u8>, value: &Value) -> Result<(), String> {
    match value {
        Value::Int32(number) => out.extend(number.to_be_bytes()),
        Value::Int64(number) => out.extend(number.to_be_bytes()),
        Value::Float(number) => out.extend(number.to_be_bytes()),
        Value::Double(number) => out.extend(number.to_be_bytes()),
        Value::Text(text) => {
            let length = u16::try_from(text.len()).map_err(|_| format!("a text has {} bytes, more than 65535", text.len()))?;
            out.extend(length.to_be_bytes());
            out.extend(text.as_bytes());
        }
    }
    Ok(())
}
