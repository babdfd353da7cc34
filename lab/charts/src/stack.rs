//! Pictures below one another as one picture.

use crate::svg::{escape, number};

/// Puts pictures of this crate below one another, from above, as one document with this title.
pub fn stacked(title: &str, pictures: &[String]) -> String {
    let (mut width, mut height) = (0.0f64, 0.0f64);
    let mut body = String::new();
    for picture in pictures {
        let Some((wide, high)) = size(picture) else { continue };
        body += &picture.replacen("<svg ", &format!("<svg y=\"{}\" ", number(height)), 1);
        (width, height) = (width.max(wide), height + high);
    }
    let (width, height) = (number(width), number(height));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n\
         <title>{}</title>\n<rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n{body}</svg>\n",
        escape(title)
    )
}

/// Width and height of a picture of this crate.
fn size(picture: &str) -> Option<(f64, f64)> {
    let after = picture.split("viewBox=\"0 0 ").nth(1)?;
    let (width, rest) = after.split_once(' ')?;
    Some((width.parse().ok()?, rest.split('"').next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::svg::Svg;

    #[test]
    fn heights_add_up_and_the_widest_counts() {
        let one = Svg::new(300.0, 100.0).finish("a", "");
        let other = Svg::new(200.0, 50.5).finish("b", "");
        let both = stacked("both <>", &[one, other, "no picture".to_string()]);
        assert!(both.contains("viewBox=\"0 0 300 150.5\"") && both.contains("<title>both &lt;&gt;</title>"), "{both}");
        assert!(both.contains("<svg y=\"0\" ") && both.contains("<svg y=\"100\" "), "{both}");
        assert_eq!(both.matches("</svg>").count(), 3);
    }
}
