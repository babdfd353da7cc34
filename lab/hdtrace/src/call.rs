//! Calls of programs as texts, for traces whose records have no room for what a call was given: its
//! element as it stands in a trace, without its times. Whoever keeps such texts keeps them as names
//! of objects that no file has.

use crate::project::Project;
use crate::xml::{Element, parse_document};
use crate::xml_write::write_element;

/// The object whose name is the project of the calls: communicators, datatypes and files.
pub const PROJECT_OBJECT: u64 = 0xfffd << 48;
/// The object of the call of span 0; those of others follow.
const FIRST_CALL: u64 = 0xfffe << 48;

/// The element in a project of a run that was simulated: its calls say all that its ranks did, so
/// the time between them is no work of theirs.
pub const SIMULATED: &str = "Simulated";
/// The element in a state that stands for a call: its only child is the call.
pub const CALL: &str = "Call";

/// The object whose name is what the span of a call was given. Spans of calls have numbers of their
/// own in the whole run.
pub fn call_object(span: u32) -> u64 {
    FIRST_CALL | u64::from(span)
}

impl Element {
    /// The element with all that is in it.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        write_element(&mut text, 0, self);
        text.truncate(text.trim_end().len());
        text
    }

    /// The element that a text is; none if it is cut or damaged.
    pub fn from_text(text: &str) -> Option<Element> {
        parse_document(text.as_bytes()).complete().ok().flatten()
    }
}

impl Project {
    /// True if its calls were simulated.
    pub fn is_simulated(&self) -> bool {
        self.other.iter().any(|element| element.name == SIMULATED)
    }
}

/// Ranges of a file as `<Data>` elements. Three and more ranges of one size at one distance are one
/// element with `count` and `stride`.
pub fn range_elements(ranges: &[(u64, u64)]) -> Vec<Element> {
    let mut elements = Vec::new();
    let mut rest = ranges;
    while let Some((first, more)) = rest.split_first() {
        let stride = more.first().map_or(0, |next| i128::from(next.0) - i128::from(first.0));
        let regular = |(number, range): (usize, &(u64, u64))| {
            range.1 == first.1 && i128::from(range.0) == i128::from(first.0) + stride * (number as i128 + 1)
        };
        let count = 1 + more.iter().enumerate().take_while(|pair| regular(*pair)).count();
        let element = Element::new("Data").with("offset", first.0).with("size", first.1);
        if count > 2 {
            elements.push(element.with("count", count).with("stride", stride));
            rest = &rest[count..];
        } else {
            elements.push(element);
            rest = more;
        }
    }
    elements
}

/// The ranges of `<Data>` elements in their order, if each is sound and there are no more than
/// `ranges_max`.
pub fn ranges(data: &[Element], ranges_max: u64) -> Option<Vec<(u64, u64)>> {
    let mut ranges = Vec::new();
    for element in data.iter().filter(|element| element.name == "Data") {
        let (offset, size): (u64, u64) = (element.attribute("offset")?.parse().ok()?, element.attribute("size")?.parse().ok()?);
        let optional = |name, without: i64| element.attribute(name).map_or(Some(without), |text| text.parse::<i64>().ok());
        let (count, stride) = (u64::try_from(optional("count", 1)?).ok()?, optional("stride", 0)?);
        if count.saturating_add(ranges.len() as u64) > ranges_max {
            return None;
        }
        for number in 0..i64::try_from(count).ok()? {
            let offset = offset.checked_add_signed(stride.checked_mul(number)?)?;
            offset.checked_add(size)?;
            ranges.push((offset, size));
        }
    }
    Some(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_the_same_after_it_was_a_text() {
        let call = Element { children: vec![Element::new("For").with("aid", 3)], ..Element::new("Wait").with("rank", "0 \"<&") };
        assert_eq!(Element::from_text(&call.to_text()), Some(call.clone()));
        let text = call.to_text();
        assert_eq!(Element::from_text(&text[..text.len() - 3]), None, "what is cut is no call");
    }

    #[test]
    fn ranges_are_the_same_after_they_were_elements() {
        let regular: Vec<(u64, u64)> = (0..1000).map(|number| (number * 40, 10)).collect();
        assert_eq!(range_elements(&regular).len(), 1);
        let backwards = [(100, 8), (80, 8), (60, 8), (0, 0), (7, 1), (8, 1), (5, 2)];
        for list in [&regular[..], &backwards, &[(3, 4)], &[]] {
            assert_eq!(ranges(&range_elements(list), 1000).as_deref(), Some(list));
        }
        assert_eq!(ranges(&range_elements(&regular), 999), None);
        let wild = Element::new("Data").with("offset", 5).with("size", 1).with("count", 3).with("stride", -3);
        assert_eq!(ranges(&[wild], 10), None, "before the file");
        assert_eq!(ranges(&[Element::new("Data").with("offset", u64::MAX).with("size", 1)], 10), None);
    }
}
