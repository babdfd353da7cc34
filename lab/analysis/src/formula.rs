//! Metrics that a person writes as a formula: `bytes / time`, `busy / count`,
//! `100 * failed / max(count, 1)`. Numbers, names, `+ - * /`, brackets, `min` and `max`; nothing
//! else is understood, so a formula from an address can do no harm. Who asks says which names there
//! are: those of an interval of Running ([`Formula::of_interval`]), or those of the timeline's
//! lanes ([`crate::metrics`]).

use std::fmt;

/// What a formula about an interval of Running may name.
pub const INTERVAL_NAMES: [&str; 5] = ["count", "bytes", "time", "busy", "failed"];

/// A formula that was understood.
#[derive(Clone, Debug, PartialEq)]
pub struct Formula {
    root: Term,
}

/// Why a formula or an expression was not understood: at which letter, and what belongs there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misread {
    at: usize,
    reason: String,
}

impl Misread {
    /// Something is wrong at a letter, counted from 0.
    pub(crate) fn new(at: usize, reason: impl Into<String>) -> Misread {
        Misread { at, reason: reason.into() }
    }
}

impl fmt::Display for Misread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at letter {}: {}", self.at + 1, self.reason)
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Term {
    Number(f64),
    Name(usize),
    Negative(Box<Term>),
    Two(char, Box<Term>, Box<Term>),
}

/// Longer formulas, and brackets within brackets beyond this, are refused.
const LENGTH_MAX: usize = 200;
const DEPTH_MAX: usize = 30;

/// Says which of the values a name means, perhaps with what stands in brackets behind it; or why it
/// means none.
pub type Meaning<'a> = dyn FnMut(&str, Option<&str>) -> Result<usize, String> + 'a;

impl Formula {
    /// Reads a formula whose names mean what `meaning` says.
    ///
    /// # Errors
    /// Where and why it is none.
    pub fn new(text: &str, meaning: &mut Meaning<'_>) -> Result<Formula, Misread> {
        let letters: Vec<char> = text.chars().collect();
        let mut reader = Reader { letters: &letters, at: 0, depth: 0, meaning };
        if letters.len() > LENGTH_MAX {
            return Err(reader.misread(&format!("more than {LENGTH_MAX} letters")));
        }
        let root = reader.sum()?;
        match reader.peek() {
            None => Ok(Formula { root }),
            Some(letter) => Err(reader.misread(&format!("'{letter}' does not belong here"))),
        }
    }

    /// Reads a formula about an interval of Running: its values are those of [`INTERVAL_NAMES`].
    ///
    /// # Errors
    /// Where and why it is none.
    pub fn of_interval(text: &str) -> Result<Formula, Misread> {
        let unknown = |word: &str| format!("{word} is unknown; there are {}, min and max", INTERVAL_NAMES.join(", "));
        Formula::new(text, &mut |word, inside| match inside {
            Some(_) => Err(unknown(&format!("{word}(...)"))),
            None => INTERVAL_NAMES.iter().position(|name| *name == word).ok_or_else(|| unknown(word)),
        })
    }

    /// Its value; `None` where it has none, for example 0 / 0.
    pub fn value(&self, values: &[f64]) -> Option<f64> {
        Some(value(&self.root, values)).filter(|value| value.is_finite())
    }
}

fn value(term: &Term, values: &[f64]) -> f64 {
    match term {
        Term::Number(number) => *number,
        Term::Name(name) => values.get(*name).copied().unwrap_or(f64::NAN),
        Term::Negative(inner) => -value(inner, values),
        Term::Two(sign, left, right) => {
            let (left, right) = (value(left, values), value(right, values));
            match sign {
                '+' => left + right,
                '-' => left - right,
                '*' => left * right,
                '/' => left / right,
                '<' => left.min(right),
                _ => left.max(right),
            }
        }
    }
}

struct Reader<'a, 'b> {
    letters: &'a [char],
    at: usize,
    depth: usize,
    meaning: &'a mut Meaning<'b>,
}

impl Reader<'_, '_> {
    fn misread(&self, reason: &str) -> Misread {
        Misread { at: self.at, reason: reason.to_string() }
    }

    fn peek(&mut self) -> Option<char> {
        while self.letters.get(self.at).is_some_and(|letter| letter.is_whitespace()) {
            self.at += 1;
        }
        self.letters.get(self.at).copied()
    }

    fn take(&mut self, wanted: char) -> bool {
        let is = self.peek() == Some(wanted);
        self.at += usize::from(is);
        is
    }

    fn expect(&mut self, wanted: char) -> Result<(), Misread> {
        if self.take(wanted) { Ok(()) } else { Err(self.misread(&format!("a '{wanted}' is missing"))) }
    }

    fn chain(&mut self, signs: [char; 2], part: fn(&mut Self) -> Result<Term, Misread>) -> Result<Term, Misread> {
        let mut left = part(self)?;
        while let Some(sign) = self.peek().filter(|sign| signs.contains(sign)) {
            self.at += 1;
            left = Term::Two(sign, Box::new(left), Box::new(part(self)?));
        }
        Ok(left)
    }

    fn sum(&mut self) -> Result<Term, Misread> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.misread("too many brackets"));
        }
        let sum = self.chain(['+', '-'], |reader| reader.chain(['*', '/'], Self::factor));
        self.depth -= 1;
        sum
    }

    fn factor(&mut self) -> Result<Term, Misread> {
        match self.peek() {
            Some('-') => {
                self.at += 1;
                self.depth += 1;
                if self.depth > DEPTH_MAX {
                    return Err(self.misread("too many signs"));
                }
                let inner = self.factor();
                self.depth -= 1;
                Ok(Term::Negative(Box::new(inner?)))
            }
            Some('(') => {
                self.at += 1;
                let inner = self.sum()?;
                self.expect(')')?;
                Ok(inner)
            }
            Some(letter) if letter.is_ascii_digit() || letter == '.' => self.number(),
            Some(letter) if letter.is_ascii_alphabetic() => self.name(),
            Some(letter) => Err(self.misread(&format!("'{letter}' does not belong here"))),
            None => Err(self.misread("a number, a name or a bracket is missing")),
        }
    }

    fn word(&mut self, belongs: fn(char) -> bool) -> String {
        let rest = &self.letters[self.at..];
        let word: String = rest.iter().take_while(|letter| belongs(**letter)).collect();
        self.at += word.chars().count();
        word
    }

    fn number(&mut self) -> Result<Term, Misread> {
        let begin = self.at;
        let word = self.word(|letter| letter.is_ascii_digit() || letter == '.' || letter == 'e');
        word.parse().map(Term::Number).map_err(|_| Misread { at: begin, reason: format!("{word} is no number") })
    }

    fn name(&mut self) -> Result<Term, Misread> {
        let begin = self.at;
        let word = self.word(|letter| letter.is_ascii_alphanumeric() || letter == '_');
        let sign = match word.as_str() {
            "min" => '<',
            "max" => '>',
            _ => {
                let inside = self.inside()?;
                let meant = (self.meaning)(&word, inside.as_deref());
                return meant.map(Term::Name).map_err(|reason| Misread { at: begin, reason });
            }
        };
        self.expect('(')?;
        let left = self.sum()?;
        self.expect(',')?;
        let right = self.sum()?;
        self.expect(')')?;
        Ok(Term::Two(sign, Box::new(left), Box::new(right)))
    }

    /// What stands in brackets behind a name: the name of a gauge or of events, `disk.*`.
    fn inside(&mut self) -> Result<Option<String>, Misread> {
        if !self.take('(') {
            return Ok(None);
        }
        self.peek();
        let word = self.word(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-' | '*'));
        self.expect(')')?;
        Ok(Some(word))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// count, bytes, time, busy, failed.
    const VALUES: [f64; 5] = [10.0, 4096.0, 2.0, 5.0, 0.0];

    fn of(text: &str) -> Option<f64> {
        Formula::of_interval(text).unwrap_or_else(|error| panic!("{text}: {error}")).value(&VALUES)
    }

    #[test]
    fn formulas_are_computed_as_at_school() {
        assert_eq!(of("bytes/time"), Some(2048.0));
        assert_eq!(of("1 + 2 * 3 - 8 / 4 / 2"), Some(6.0));
        assert_eq!(of("-(count - 4) * -2"), Some(12.0));
        assert_eq!(of("max(count, min(3, 4)) + .5"), Some(10.5));
        assert_eq!(of("count / failed"), None, "there is no such number");
    }

    #[test]
    fn what_is_no_formula_is_refused_with_its_place() {
        for (text, place) in
            [("", 1), ("bytes/", 7), ("(count", 7), ("count count", 7), ("alert(1)", 1), ("1..2", 1), ("min(1)", 6), ("a;b", 1)]
        {
            let error = Formula::of_interval(text).unwrap_err();
            assert_eq!(error.at + 1, place, "{text}: {error}");
        }
        for text in ["(".repeat(100), "-".repeat(150), "1+".repeat(150)] {
            assert!(Formula::of_interval(&text).is_err());
        }
    }

    #[test]
    fn names_with_brackets_mean_what_the_asker_says() {
        let mut asked = Vec::new();
        let formula = Formula::new("count( disk.* ) / max(2, rise(net_in_bytes)) + queue", &mut |word, inside| {
            asked.push((word.to_string(), inside.map(str::to_string)));
            Ok(asked.len() - 1)
        });
        let inside = |word: &str, inside: &str| (word.to_string(), Some(inside.to_string()));
        assert_eq!(formula.unwrap().value(&[12.0, 3.0, 0.5]), Some(4.5));
        assert_eq!(asked, [inside("count", "disk.*"), inside("rise", "net_in_bytes"), ("queue".to_string(), None)]);
        assert!(Formula::new("count(disk", &mut |_, _| Ok(0)).is_err());
    }

    proptest! {
        /// Any text: read or refused, never a crash.
        #[test]
        fn any_text_is_survived(text in "[-+*/()., 0-9a-z]{0,220}") {
            if let Ok(formula) = Formula::new(&text, &mut |_, _| Ok(0)) {
                let _ = formula.value(&VALUES);
            }
        }
    }
}
