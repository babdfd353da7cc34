//! SVG text: elements, escaping, numbers. The document stands alone: no font, image or script from
//! outside.

use std::fmt::Write;

use crate::palette::{Fill, Pattern, text_on};

/// Where a text is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// Height of usual text in pixels.
pub(crate) const TEXT: f64 = 12.0;

/// Width of small text beside usual one.
pub(crate) const SMALL: f64 = 10.0 / TEXT;

/// A picture that is being drawn.
#[derive(Debug)]
pub(crate) struct Svg {
    width: f64,
    height: f64,
    body: String,
    patterns: Vec<Fill>,
}

/// Styles; a page that shows the picture inline can override them.
const STYLE: &str = "\
text{font:12px system-ui,'DejaVu Sans',sans-serif;fill:#222}\
.title{font-size:16px;font-weight:600}.sub{fill:#555}.small{font-size:10px}\
.halo{paint-order:stroke;stroke:#fff;stroke-width:3px;stroke-linejoin:round}\
.grid{stroke:#ddd;stroke-width:1}.axis{stroke:#555;stroke-width:1}.ref{stroke:#222;stroke-width:1.5;stroke-dasharray:6 3}\
.mark{stroke:#222;stroke-width:1;stroke-dasharray:3 3}.bg{fill:#fff}.band{fill:#000;fill-opacity:.07}rect{shape-rendering:crispEdges}";

impl Svg {
    pub(crate) fn new(width: f64, height: f64) -> Svg {
        Svg { width, height, body: String::new(), patterns: Vec::new() }
    }

    pub(crate) fn set_height(&mut self, height: f64) {
        self.height = height;
    }

    pub(crate) fn rect(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), fill: Fill, title: &str) {
        let fill = self.fill(fill);
        self.element(
            "rect",
            &[("x", x), ("y", y), ("width", width.max(0.0)), ("height", height.max(0.0))],
            &format!("fill=\"{fill}\""),
            title,
        );
    }

    /// A rectangle of a class of the style.
    pub(crate) fn area(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), class: &str, title: &str) {
        let numbers = [("x", x), ("y", y), ("width", width.max(0.0)), ("height", height.max(0.0))];
        self.element("rect", &numbers, &format!("class=\"{class}\""), title);
    }

    /// An area that is not seen, for a page to make a button.
    pub(crate) fn target(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), category: usize, title: &str) {
        let numbers = [("x", x), ("y", y), ("width", width.max(0.0)), ("height", height.max(0.0))];
        self.element("rect", &numbers, &format!("class=\"target\" fill=\"none\" data-category=\"{category}\""), title);
    }

    pub(crate) fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        self.element("line", &[("x1", x1), ("y1", y1), ("x2", x2), ("y2", y2)], &format!("class=\"{class}\""), "");
    }

    pub(crate) fn circle(&mut self, (x, y): (f64, f64), radius: f64, color: u32, title: &str) {
        self.element("circle", &[("cx", x), ("cy", y), ("r", radius)], &format!("fill=\"{}\"", hex(color)), title);
    }

    /// A line through points; `dash` as in SVG, empty for none.
    pub(crate) fn polyline(&mut self, points: &[(f64, f64)], color: u32, width: f64, dash: &str, title: &str) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{},{}", number(*x), number(*y))).collect();
        let dash = if dash.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dash}\"") };
        let attributes = format!(
            "points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" stroke-linejoin=\"round\"{dash}",
            points.join(" "),
            hex(color),
            number(width)
        );
        self.element("polyline", &[], &attributes, title);
    }

    /// An area of any shape; `data` as SVG's path has it.
    pub(crate) fn path(&mut self, data: &str, fill: Fill, title: &str) {
        let fill = self.fill(fill);
        self.element("path", &[], &format!("d=\"{data}\" fill=\"{fill}\""), title);
    }

    /// An arrow from one point to another.
    pub(crate) fn arrow(&mut self, from: (f64, f64), to: (f64, f64), color: u32, title: &str) {
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let length = dx.hypot(dy).max(1e-9);
        let (ux, uy) = (dx / length * 6.0, dy / length * 6.0);
        let head = [(to.0 - ux - uy / 2.0, to.1 - uy + ux / 2.0), to, (to.0 - ux + uy / 2.0, to.1 - uy - ux / 2.0)];
        self.polyline(&[from, to], color, 1.0, "", title);
        self.polyline(&head, color, 1.0, "", "");
    }

    pub(crate) fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, class: &str, text: &str) {
        let attributes = format!("class=\"{class}\" text-anchor=\"{}\"", anchor_name(anchor));
        self.text_element(&[("x", x), ("y", y)], &attributes, text);
    }

    /// Text over an area of this fill, readable on its pattern too.
    pub(crate) fn text_over(&mut self, (x, y): (f64, f64), fill: Fill, text: &str) {
        let halo = match fill.pattern {
            Pattern::None => String::new(),
            _ => format!(";stroke:{};stroke-width:4px;stroke-linejoin:round;paint-order:stroke", hex(fill.color)),
        };
        let attributes = format!("class=\"small\" style=\"fill:{}{halo}\" text-anchor=\"middle\"", hex(text_on(fill.color)));
        self.text_element(&[("x", x), ("y", y)], &attributes, text);
    }

    /// Text that runs upwards.
    pub(crate) fn text_up(&mut self, (x, y): (f64, f64), anchor: Anchor, class: &str, text: &str) {
        let turn =
            format!("class=\"{class}\" text-anchor=\"{}\" transform=\"rotate(-90 {} {})\"", anchor_name(anchor), number(x), number(y));
        self.text_element(&[("x", x), ("y", y)], &turn, text);
    }

    /// The document.
    pub(crate) fn finish(self, title: &str, description: &str) -> String {
        let (width, height) = (number(self.width), number(self.height));
        let patterns: String = self.patterns.iter().map(|fill| pattern(*fill)).collect();
        let defs = if patterns.is_empty() { String::new() } else { format!("<defs>\n{patterns}</defs>\n") };
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">
<title>{}</title>\n<desc>{}</desc>\n<style>{STYLE}</style>
{defs}<rect class=\"bg\" x=\"0\" y=\"0\" width=\"{width}\" height=\"{height}\"/>
{}</svg>\n",
            escape(title),
            escape(description),
            self.body
        )
    }

    fn fill(&mut self, fill: Fill) -> String {
        if fill.pattern == Pattern::None {
            return hex(fill.color);
        }
        if !self.patterns.contains(&fill) {
            self.patterns.push(fill);
        }
        format!("url(#{})", pattern_id(fill))
    }

    fn element(&mut self, name: &str, numbers: &[(&str, f64)], attributes: &str, title: &str) {
        let _ = write!(self.body, "<{name}");
        numbers.iter().for_each(|(name, value)| self.body.push_str(&format!(" {name}=\"{}\"", number(*value))));
        let _ = write!(self.body, " {attributes}");
        match title {
            "" => self.body.push_str("/>\n"),
            _ => {
                let _ = writeln!(self.body, "><title>{}</title></{name}>", escape(title));
            }
        }
    }

    fn text_element(&mut self, numbers: &[(&str, f64)], attributes: &str, text: &str) {
        self.body.push_str("<text");
        numbers.iter().for_each(|(name, value)| self.body.push_str(&format!(" {name}=\"{}\"", number(*value))));
        let _ = writeln!(self.body, " {attributes}>{}</text>", escape(text));
    }
}

fn anchor_name(anchor: Anchor) -> &'static str {
    match anchor {
        Anchor::Start => "start",
        Anchor::Middle => "middle",
        Anchor::End => "end",
    }
}

fn pattern_id(fill: Fill) -> String {
    let name = if fill.pattern == Pattern::Dots { "dots" } else { "hatch" };
    format!("{name}-{:06x}", fill.color)
}

fn pattern(fill: Fill) -> String {
    let shape = match fill.pattern {
        Pattern::Dots => "<circle cx=\"3\" cy=\"3\" r=\"1.1\" fill=\"#222\"/>",
        _ => "<path d=\"M-1,1l2,-2M0,6l6,-6M5,7l2,-2\" stroke=\"#222\" stroke-width=\"1\"/>",
    };
    format!(
        "<pattern id=\"{}\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\"><rect width=\"6\" height=\"6\" fill=\"{}\"/>{shape}</pattern>\n",
        pattern_id(fill),
        hex(fill.color)
    )
}

pub(crate) fn hex(color: u32) -> String {
    format!("#{:06x}", color & 0xFF_FFFF)
}

/// A coordinate: at most two decimals, and never anything that is not a number.
pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "0".to_string();
    }
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_string() } else { text.to_string() }
}

/// Text as the content of an element or attribute of XML or HTML; characters that XML does not
/// allow at all become U+FFFD.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' | '\r' => out.push(' '),
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

/// About how wide a text of usual size is, in pixels: a little more than sans-serif letters are on
/// the average.
pub(crate) fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * TEXT * 0.56
}

/// A text cut so that it is at most `width` pixels wide.
pub(crate) fn shortened(text: &str, width: f64) -> String {
    if text_width(text) <= width {
        return text.to_string();
    }
    let count = ((width / (TEXT * 0.56)) as usize).saturating_sub(1);
    format!("{}…", text.chars().take(count).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_is_only_text() {
        assert_eq!(escape("<script>\"a\"&'b'\u{1}\n"), "&lt;script&gt;&quot;a&quot;&amp;&#39;b&#39;\u{fffd} ");
    }

    #[test]
    fn numbers_are_short_and_always_numbers() {
        assert_eq!([1.0, 1.5, 1.239, -0.001, f64::NAN, f64::INFINITY].map(number), ["1", "1.5", "1.24", "0", "0", "0"]);
    }

    #[test]
    fn long_texts_are_cut_visibly() {
        assert_eq!(shortened("meta0", 100.0), "meta0");
        assert!(text_width(&shortened(&"x".repeat(99), 100.0)) <= 100.0);
    }
}
