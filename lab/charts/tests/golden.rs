//! Every chart byte for byte. After a wanted change: `UPDATE_GOLDEN=1 cargo test -p weft-charts`,
//! and look at the pictures.

use std::path::Path;

use weft_charts::{
    Arrow, Axis, Bar, BarSeries, Bars, Block, Frame, GroupedBars, Lane, Line, Lines, Mark, Panel, Rows, Series, Strip, StripLane, Strips,
    Style, Table, Timeline, Unit, categorical, seek, views,
};
use weft_trace::explain::{AskedFor, Explanation, KindReport, StageReport, Step, Wall, Waterfall};
use weft_trace::latency::{Stacked, slot_bounds_ns};

/// Checks a picture against its file, and what must hold for every picture.
fn golden(name: &str, svg: &str, table: &Table) {
    well_formed(svg);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for (file, content) in [(format!("{name}.svg"), svg), (format!("{name}.csv"), &table.csv())] {
        let path = folder.join(&file);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, content).expect("the folder is there");
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(expected == content, "{file} has changed; UPDATE_GOLDEN=1 accepts it");
    }
}

/// Elements are closed in order, attributes are quoted, nothing is NaN or infinite, and every text
/// begins inside the picture.
fn well_formed(svg: &str) {
    assert!(!svg.contains("NaN") && !svg.contains("inf\""), "a coordinate is no number");
    assert!(!svg.contains("<script") && !svg.contains("href") && !svg.contains("http://example"), "nothing from outside");
    let mut open = Vec::new();
    let size = |name: &str| attribute(svg, name).expect("the picture has a size");
    let (width, height) = (size("width"), size("height"));
    for tag in svg.split('<').skip(1).map(|rest| rest.split_once('>').expect("every < has its >").0) {
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.ends_with('/') {
            open.push(tag.split(' ').next().expect("a name"));
        }
        if tag.starts_with("text ") {
            let (x, y) = (attribute(tag, "x").expect("x"), attribute(tag, "y").expect("y"));
            assert!((0.0..=width).contains(&x) && (0.0..=height).contains(&y), "{tag} begins outside of {width} x {height}");
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

fn attribute(tag: &str, name: &str) -> Option<f64> {
    let (_, rest) = tag.split_once(&format!(" {name}=\""))?;
    rest.split('"').next()?.parse().ok()
}

/// Numbers that look like measurements, the same every time.
fn noise(seed: &mut u64) -> f64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) as f64 / (1u64 << 31) as f64
}

/// Creates of four clients: most take 200 to 400 us, some ten thousand have outliers up to 500 ms.
fn creates() -> Stacked {
    let mut stacked = Stacked::default();
    let mut seed = 1;
    for client in ["boron", "chlorine", "fluorine", "neon"] {
        let part = stacked.part(client);
        for number in 0..20_000 {
            let usual = 150_000.0 + 300_000.0 * noise(&mut seed) * noise(&mut seed);
            let factor = if number % 10 == 0 { 10f64.powf(3.0 * noise(&mut seed)) } else { 1.0 };
            part.record((usual * factor) as u64);
        }
    }
    stacked
}

#[test]
fn latency_in_fifty_bins() {
    let frame = Frame::new("Creates in one directory", "80 000 files by 4 clients").with_note("Synthetic data of a test.");
    let chart = views::latency_bins(frame, &creates(), Some(slot_bounds_ns(28).0));
    golden("latency-bins", &chart.svg(), &chart.table());
}

#[test]
fn latency_as_distribution_functions() {
    let creates = creates();
    let parts =
        creates.parts().iter().map(|(name, part)| (name.clone(), std::iter::once((part.min_ns(), 0.0)).chain(part.ecdf()).collect()));
    let chart = views::latency_ecdf(Frame::new("Creates in one directory", "80 000 files by 4 clients"), parts);
    golden("latency-ecdf", &chart.svg(), &chart.table());
}

#[test]
fn running_performance_with_a_bound_and_marks() {
    let mut seed = 7;
    let mut line = |name: &str, color: usize, level: f64| Line {
        name: name.to_string(),
        color: categorical(color).color,
        style: Style::Line,
        points: (0..60).map(|second| (f64::from(second), level * (0.8 + 0.3 * noise(&mut seed)))).collect(),
    };
    let mut lines = vec![line("c0", 0, 1_900.0), line("c0", 0, 2_000.0), line("c1", 1, 1_400.0), line("c1", 1, 1_500.0)];
    let bound = vec![(0.0, 2_400.0), (60.0, 2_400.0)];
    lines.push(Line { name: "bound: 1 / (round trip 417 us)".into(), color: 0x222222, style: Style::Bound, points: bound });
    let marks = vec![Mark { x: 20.0, text: "#1".into() }, Mark { x: 40.0, text: "directory splits".into() }];
    let chart = Lines {
        frame: Frame::new("Creates per second of each process", "colour: client node").with_note("Synthetic data of a test."),
        x: Axis::linear("time", Unit::Seconds),
        y: Axis::linear("creates", Unit::PerSecond),
        lines,
        marks,
    };
    golden("running", &chart.svg(), &chart.table());
}

#[test]
fn bandwidth_over_block_size_with_logarithmic_axes() {
    let measured: Vec<(f64, f64)> =
        (12..24).map(|power| (f64::from(1 << power), 1.1e9 * f64::from(1 << power) / (2e5 + f64::from(1 << power)))).collect();
    let bound = measured.iter().map(|(size, _)| (*size, size / (size / 1.2e9 + 1.5e-4))).collect();
    let chart = Lines {
        frame: Frame::new("Writing with one client", ""),
        x: Axis::log("block size", Unit::Bytes),
        y: Axis::log("bandwidth", Unit::BytesPerSecond),
        lines: vec![
            Line { name: "s / (s / b + l)".into(), color: 0x222222, style: Style::Bound, points: bound },
            Line { name: "median of 5 runs".into(), color: categorical(0).color, style: Style::Line, points: measured.clone() },
            Line { name: "runs".into(), color: categorical(6).color, style: Style::Dots, points: measured },
        ],
        marks: Vec::new(),
    };
    golden("block-size", &chart.svg(), &chart.table());
}

#[test]
fn a_timeline_with_clients_servers_and_arrows() {
    let block = |from: f64, to: f64, class: usize, text: &str| Block { from, to, class, text: text.to_string() };
    let lane = |group: &str, name: &str, blocks: Vec<Block>| Lane { group: group.into(), name: name.into(), blocks };
    let iterations = 0..3;
    let at = |number: i32| f64::from(number) * 0.010;
    let client = |shift: f64| {
        iterations
            .clone()
            .flat_map(|n| [block(at(n) + shift, at(n) + 0.006 + shift, 0, "write"), block(at(n) + 0.006 + shift, at(n) + 0.009, 1, "")])
            .collect()
    };
    let disk = iterations.clone().flat_map(|n| {
        [
            block(at(n) + 0.002, at(n) + 0.003, 2, ""),
            block(at(n) + 0.0031, at(n) + 0.0036, 3, ""),
            block(at(n) + 0.0036, at(n) + 0.0055, 4, ""),
        ]
    });
    let chart = Timeline {
        frame: Frame::new("Three iterations", "2 clients, 1 data server").sized(960, 200),
        x: Axis::linear("time", Unit::Seconds),
        classes: vec![
            ("write".into(), categorical(0)),
            ("compute".into(), categorical(7)),
            ("no seek".into(), seek(1)),
            ("near seek".into(), seek(2)),
            ("far seek".into(), seek(3)),
        ],
        lanes: vec![
            lane("Clients", "c0 operation", client(0.0)),
            lane("Clients", "c1 <hostile & \"name\">", client(0.0005)),
            lane("Servers", "data0 disk", disk.collect()),
        ],
        arrows: iterations.map(|n| Arrow { from: (0, at(n) + 0.001), to: (2, at(n) + 0.002), text: format!("request {n}") }).collect(),
        marks: (0..3).map(|n| Mark { x: at(n), text: format!("#{}", n + 1) }).collect(),
    };
    golden("timeline", &chart.svg(), &chart.table());
}

/// Two runs of two servers: what lies within half a pixel is one, a server's second row belongs to
/// it, marks go through their panel only.
#[test]
fn strips_of_two_runs() {
    let mut seed = 11;
    let mut lane = |name: &str, is_minor: bool| {
        let strip = |number: u32| {
            let from = f64::from(number) * 0.06 + 0.03 * noise(&mut seed);
            Strip { from, to: from + 0.02 + 0.03 * noise(&mut seed), class: (noise(&mut seed) * 3.0) as usize }
        };
        StripLane { name: name.into(), is_minor, strips: (0..if is_minor { 20 } else { 150 }).map(strip).collect() }
    };
    let mut panel = |title: &str, marks: Vec<Mark>| Panel {
        title: title.into(),
        lanes: vec![lane("client0", false), lane("data0", false), lane("", true), lane("data1 <&>", false)],
        marks,
    };
    let chart = Strips {
        frame: Frame::new("Two cache layers", "1 client, 2 data servers").with_note("Synthetic data of a test."),
        x: Axis::linear("time", Unit::Seconds).ranging(0.0, 10.0),
        classes: vec![("no seek".into(), seek(1)), ("near seek".into(), seek(2)), ("far seek".into(), seek(3))],
        panels: vec![
            panel("none", vec![Mark { x: 2.0, text: "#1".into() }, Mark { x: 6.0, text: "#2".into() }]),
            panel("write behind", Vec::new()),
        ],
    };
    golden("strips", &chart.svg(), &chart.table());
}

#[test]
fn stacked_rows_and_thesis_table() {
    let tasks = ["lookup", "create", "open"];
    let values = [[0.35, 0.52, 0.71], [0.5, 0.4, 0.25], [0.15, 0.08, 0.04]];
    let parts = tasks.iter().enumerate().map(|(number, name)| Series {
        name: name.to_string(),
        fill: categorical(number),
        values: values[number].to_vec(),
    });
    let chart = Rows {
        frame: Frame::new("Time by task", "1, 2 and 4 clients").sized(960, 220),
        rows: ["1 client", "2 clients", "4 clients"].map(String::from).to_vec(),
        x: Axis::linear("share of the time", Unit::Share).ranging(0.0, 1.0),
        parts: parts.collect(),
    };
    golden("rows", &chart.svg(), &chart.table());
}

#[test]
fn where_the_time_goes_and_one_request() {
    let stage = |stage, share| StageReport {
        stage,
        share,
        median_share: share,
        tail_share: share,
        seconds: share,
        p50_us: 1.0,
        p99_us: 2.0,
        operations: 9,
    };
    let kind = |operation: &str, stages: Vec<StageReport>| KindReport {
        operation: operation.into(),
        count: 12_345,
        failed: 0,
        seconds: 1.0,
        p50_us: 417.0,
        p99_us: 9_000.0,
        covered: 0.97,
        stages,
        suspects: Vec::new(),
    };
    let create = [
        ("client", 0.05),
        ("kernel", 0.2),
        ("send_queue", 0.03),
        ("network", 0.3),
        ("server_queue", 0.05),
        ("cpu", 0.04),
        ("lock", 0.02),
        ("journal", 0.28),
        ("unseen", 0.03),
    ];
    let read =
        [("client", 0.1), ("network", 0.2), ("cpu", 0.1), ("disk_no_seek", 0.2), ("disk_near", 0.1), ("disk_far", 0.25), ("retry", 0.05)];
    let kinds = vec![
        kind("app.create", create.into_iter().map(|(name, share)| stage(name, share)).collect()),
        kind("app.read", read.into_iter().map(|(name, share)| stage(name, share)).collect()),
    ];
    let explanation = Explanation {
        operations: 24_690,
        seconds: 2.0,
        covered: 0.985,
        asked: AskedFor::default(),
        wall: Wall { recorded_seconds: 1.0, busy_seconds: 1.0, at_once: 2.0 },
        verdict: Vec::new(),
        unfinished_count: 0,
        unfinished: Vec::new(),
        silent: Vec::new(),
        kinds,
        suspects: Vec::new(),
        missing: Vec::new(),
    };
    let chart =
        views::where_time_goes(Frame::new("Where the time goes", "24 690 operations, 98.5 % covered").sized(960, 200), &explanation);
    golden("where-time-goes", &chart.svg(), &chart.table());

    let seconds = views::stage_rows("Seconds by stage", &explanation.kinds, false, 700);
    golden("stages-seconds", &seconds.svg(), &seconds.table());
    let shares = views::stages_of(&explanation.kinds[0], 500);
    golden("stages-of-one", &shares.svg(), &shares.table());

    let step = |stage, place: &str, event: &str, at_us, dur_us| Step { stage, place: place.into(), event: event.into(), at_us, dur_us };
    let request = Waterfall {
        operation: "client.create".into(),
        client: "c0".into(),
        object: 17,
        start_ns: 0,
        dur_us: 5_300.0,
        slower_than: 0.994,
        steps: vec![
            step("client", "c0", "client.create", 0.0, 40.0),
            step("send_queue", "c0 - meta0", "net.call", 40.0, 160.0),
            step("network", "c0 - meta0", "net.call", 200.0, 300.0),
            step("cpu", "meta0", "meta.create", 500.0, 100.0),
            step("journal", "meta0", "meta.create", 600.0, 4_400.0),
            step("network", "c0 - meta0", "net.call", 5_000.0, 300.0),
        ],
    };
    let chart = views::waterfall(Frame::new("One create", "slower than 99.4 % of its kind").sized(960, 200), &request);
    assert_eq!(chart.classes.len(), 5, "only what occurs is in the legend");
    golden("waterfall", &chart.svg(), &chart.table());
}

#[test]
fn plain_bars() {
    let chart = Bars {
        frame: Frame::new("Operations of each server", "").sized(640, 320),
        x_label: "server".into(),
        categories: ["meta0", "meta1", "data0"].map(String::from).to_vec(),
        y: Axis::linear("operations", Unit::Count),
        series: vec![
            Series { name: "reads".into(), fill: categorical(1), values: vec![12_000.0, 11_500.0, 900.0] },
            Series { name: "changes".into(), fill: categorical(3), values: vec![4_000.0, 9_800.0, 0.0] },
        ],
        overlay: None,
        totals: true,
        shaded: None,
    };
    golden("bars", &chart.svg(), &chart.table());
}

/// No data, one value, values that are no numbers: still a picture.
#[test]
fn poor_data_makes_poor_but_sound_pictures() {
    let empty = Stacked::default();
    well_formed(&views::latency_bins(Frame::new("", ""), &empty, None).svg());
    well_formed(&views::latency_ecdf(Frame::new("t", "s"), [("nothing".to_string(), Vec::new())]).svg());
    let lines = |points: Vec<(f64, f64)>| Lines {
        frame: Frame::new(&"long title ".repeat(50), &"x".repeat(900)).sized(300, 100),
        x: Axis::log("x", Unit::Bytes),
        y: Axis::linear("y", Unit::Count),
        lines: vec![Line { name: "n".repeat(400), color: 0, style: Style::Step, points }],
        marks: vec![Mark { x: f64::NAN, text: "m".into() }],
    };
    for points in [vec![], vec![(0.0, 0.0)], vec![(f64::NAN, 1.0), (2.0, f64::INFINITY)], vec![(1.0, -5.0)]] {
        well_formed(&lines(points).svg());
    }
}

proptest::proptest! {
    /// Whatever the names and numbers are, the picture is sound.
    #[test]
    fn any_text_and_numbers_make_a_sound_picture(
        texts in proptest::collection::vec(".*", 4), values in proptest::collection::vec(proptest::num::f64::ANY, 0..8), log: bool,
    ) {
        let axis = if log { Axis::log(&texts[0], Unit::Seconds) } else { Axis::linear(&texts[0], Unit::Seconds) };
        // Numbers as large as a quarter of the largest, so that their sums are numbers.
        let values: Vec<f64> = values.into_iter().map(|value| value / 16.0).collect();
        let chart = Bars {
            frame: Frame::new(&texts[1], &texts[2]),
            x_label: texts[3].clone(),
            categories: texts.clone(),
            y: axis.clone(),
            series: vec![Series { name: texts[0].clone(), fill: categorical(9), values: values.iter().map(|value| value.abs()).collect() }],
            overlay: None,
            totals: true,
            shaded: None,
        };
        well_formed(&chart.svg());
        let points = values.iter().zip(values.iter().skip(1)).map(|(x, y)| (*x, *y)).collect();
        let line = Line { name: texts[1].clone(), color: 1, style: Style::Line, points };
        well_formed(&Lines { frame: Frame::new(&texts[1], ""), x: axis.clone(), y: axis, lines: vec![line], marks: vec![] }.svg());
    }
}

#[test]
fn bars_side_by_side_with_ranges_and_what_was_expected() {
    let bar = |value: f64, range, expected| Some(Bar { value, range, expected, ..Bar::default() });
    let chart = GroupedBars {
        frame: Frame::new("Throughput by cache layer", "10 clients, 10 servers").sized(640, 320),
        x_label: "access and block".into(),
        categories: ["read, 5 KiB", "write, 5 KiB"].map(String::from).to_vec(),
        y: Axis::linear("throughput in MiB/s", Unit::Number),
        series: vec![
            BarSeries {
                name: "none".into(),
                fill: categorical(0),
                bars: vec![bar(8.5, None, Some(8.4)), bar(9.0, Some((8.0, 11.0)), None)],
            },
            BarSeries { name: "aggregation".into(), fill: categorical(1), bars: vec![bar(0.0, None, None), None] },
        ],
        expected: "as printed".into(),
    };
    golden("grouped", &chart.svg(), &chart.table());
}
