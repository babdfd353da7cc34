//! What stands behind the question mark of an address.

use std::collections::BTreeMap;

/// The query of an address.
#[derive(Debug, Default)]
pub struct Query(BTreeMap<String, String>);

impl Query {
    /// From the text behind the question mark.
    pub fn new(text: &str) -> Query {
        let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
        Query(pairs.map(|(name, value)| (name.to_string(), decoded(value))).collect())
    }

    /// The value of a name, or nothing.
    pub fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// A number, or `default` if it is not there or is none.
    pub fn number(&self, name: &str, default: u64) -> u64 {
        // The browser computes with fractions of nanoseconds.
        self.text(name).parse::<f64>().ok().filter(|number| number.is_finite()).map_or(default, |number| number.max(0.0) as u64)
    }

    /// Numbers separated by commas.
    pub fn numbers(&self, name: &str) -> Vec<u64> {
        self.text(name).split(',').filter_map(|number| number.parse().ok()).collect()
    }
}

/// `%XX` and `+` undone; what is no text is replaced.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped =
            after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok()).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (first, escaped) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
                continue;
            }
            (b'+', _) => bytes.push(b' '),
            _ => bytes.push(*first),
        }
        rest = after;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded_and_never_trusted() {
        let query = Query::new("q=a%20b%3C+%zz%&from=-5&to=1e400&n=12.7&hide=1,x,3");
        assert_eq!((query.text("q"), query.number("from", 9), query.number("to", 9), query.number("n", 0)), ("a b< %zz%", 0, 9, 12));
        assert_eq!(query.numbers("hide"), [1, 3]);
    }
}
