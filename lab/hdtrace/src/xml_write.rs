//! Writing elements: two spaces for each level, attributes in double quotes.

use crate::xml::Element;

/// Appends an element with all that is in it, indented by `depth` levels, and a line end.
pub(crate) fn write_element(out: &mut String, depth: usize, element: &Element) {
    indent(out, depth);
    open_tag(out, &element.name, &element.attributes);
    write_content(out, depth, &element.name, &element.children, &element.text);
}

/// What is in an element whose start tag has all its attributes, and the end of it.
pub(crate) fn write_content(out: &mut String, depth: usize, name: &str, children: &[Element], text: &str) {
    if children.is_empty() && text.is_empty() {
        out.push_str("/>\n");
        return;
    }
    out.push('>');
    escape_into(out, text);
    if !children.is_empty() {
        out.push('\n');
        children.iter().for_each(|child| write_element(out, depth + 1, child));
        indent(out, depth);
    }
    close_tag(out, name);
}

/// `<name key="value"...` without the closing bracket.
pub(crate) fn open_tag(out: &mut String, name: &str, attributes: &[(String, String)]) {
    out.push('<');
    out.push_str(&checked_name(name));
    for (key, value) in attributes {
        attribute(out, key, value);
    }
}

/// ` key="value"`.
pub(crate) fn attribute(out: &mut String, key: &str, value: &str) {
    out.push(' ');
    out.push_str(&checked_name(key));
    out.push_str("=\"");
    escape_into(out, value);
    out.push('"');
}

/// `</name>` and a line end.
pub(crate) fn close_tag(out: &mut String, name: &str) {
    out.push_str("</");
    out.push_str(&checked_name(name));
    out.push_str(">\n");
}

/// Two spaces for each level.
pub(crate) fn indent(out: &mut String, depth: usize) {
    out.extend(std::iter::repeat_n("  ", depth));
}

/// Space other than a blank is written as a reference, because readers turn it into blanks in
/// attributes. Letters that XML 1.0 cannot hold become U+FFFD.
fn escape_into(out: &mut String, text: &str) {
    for letter in text.chars() {
        match letter {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            '\r' => out.push_str("&#13;"),
            '\t' => out.push_str("&#9;"),
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            _ => out.push(letter),
        }
    }
}

/// A name of a tag or attribute must not break the file: what cannot stand in one becomes `_`.
fn checked_name(name: &str) -> std::borrow::Cow<'_, str> {
    let starts = |letter: char| letter.is_alphabetic() || letter == '_';
    let continues = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.' | ':');
    if name.starts_with(starts) && name.chars().all(continues) {
        return name.into();
    }
    let cleaned: String = name.chars().map(|letter| if continues(letter) { letter } else { '_' }).collect();
    if cleaned.starts_with(starts) { cleaned.into() } else { format!("_{cleaned}").into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xml::parse_document;

    #[test]
    fn whatever_is_written_can_be_read() {
        let odd = Element { text: "a<b".to_owned(), ..Element::new("1 x").with("q\"", "\n\t<&>\"'\u{1}") };
        let mut out = String::new();
        write_element(&mut out, 0, &odd);
        let read = parse_document(out.as_bytes()).complete().expect("well-formed").expect("has a root");
        assert_eq!(read, Element { text: "a<b".to_owned(), ..Element::new("_1_x").with("q_", "\n\t<&>\"'\u{fffd}") });
    }
}
