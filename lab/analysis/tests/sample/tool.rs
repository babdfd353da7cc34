//! `cargo run --release -p weft-analysis --example sample -- SPANS DIR`: writes the synthetic trace
//! of the tests with about so many spans into a directory.

#[path = "mod.rs"]
mod sample;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match &words[..] {
        [spans, directory] => {
            let spans = spans.parse().expect("a number of spans");
            println!("{} spans in {directory}", sample::write_spans(spans, 4, directory.as_ref()));
        }
        _ => eprintln!("give a number of spans and a directory"),
    }
}
