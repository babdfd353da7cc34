//! What holds for every screen: addresses, poor traces, colours, small windows; and lanes by
//! formula.

use std::fs;

use serde_json::json;

use crate::browser::{Browser, decode_base64, lab, middle_row};
use crate::viewer::{BENCH, Viewer, make_sample, write_trace};

const SCREENS: [&str; 12] =
    ["runs", "overview", "timeline", "histogram", "latency", "where", "request", "running", "compare", "bounds", "report", "health"];

/// A trace without a record, one with one span, one that is cut and has its middle overwritten.
pub fn poor_traces() -> Viewer {
    use weft_trace::event::{CLIENT_CREATE, EventTable};
    use weft_trace::record::{Body, Span, TraceRecord};
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    write_trace(&at("empty").join("client0.trace"), "client0", EventTable::builtin(), []);
    let span = TraceRecord::new(1_000_000, CLIENT_CREATE, Body::Span(Span { dur: 5_000, span: 1, ..Span::default() }));
    write_trace(&at("one").join("client0.trace"), "client0", EventTable::builtin(), [span]);
    make_sample(2_000, 4, &at("damaged"));
    for name in ["meta0", "data1"] {
        let file = at("damaged").join(format!("{name}.trace"));
        let mut bytes = fs::read(&file).unwrap();
        let len = bytes.len();
        bytes[len / 3..len / 2].fill(0xA5);
        fs::write(file, &bytes[..len * 4 / 5]).unwrap();
    }
    let paths = ["empty", "one", "damaged"].map(at);
    Viewer::of(dir, &paths, &[])
}

/// Every screen has something to say, and nothing that is no number.
#[test]
fn poor_traces_make_poor_but_sound_screens() {
    let Some(mut browser) = Browser::new() else {
        eprintln!("skipped: no chromium is installed");
        return;
    };
    let viewer = poor_traces();
    for run in 0..3 {
        for screen in SCREENS {
            browser.go(&viewer, &format!("#/{screen}?r={run}&b={}&mt=g%3Acount", (run + 1) % 3));
            let text = browser.value("document.querySelector('main').innerText").as_str().unwrap().to_string();
            assert!(text.len() > 20, "run {run}, {screen}: {text}");
            for wrong in ["NaN", "undefined", "[object", "Infinity", "null"] {
                assert!(!text.contains(wrong), "run {run}, {screen} says {wrong}: {text}");
            }
            browser.picture(&format!("poor-{run}-{screen}"));
        }
    }
    browser.asked_only_of(&[&viewer]);
}

/// Every control of every screen has a name and changes the address, and the address alone brings
/// it back.
#[test]
fn every_control_is_in_the_address() {
    let Some(mut browser) = Browser::new() else {
        eprintln!("skipped: no chromium is installed");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    make_sample(600, 4, &at("before"));
    make_sample(600, 1, &at("after"));
    fs::write(at("bench.json"), BENCH).unwrap();
    let paths = ["before", "after", "bench.json"].map(at);
    let viewer = Viewer::of(dir, &paths, &[]);
    // A control by its number on a screen; of many that are alike (kinds, runs) the first three.
    // Their values, after what was drawn last.
    let script = r#"
        window.testControls ||= (() => { const controls = () => {
          const seen = new Map();
          return [...document.querySelectorAll("main select, main input:not([type=search])")].filter((one) => {
            const alike = one.type + (one.name || one.closest("fieldset, .legend, .fact-fields") ? "many" : one.ariaLabel);
            seen.set(alike, (seen.get(alike) || 0) + 1);
            return seen.get(alike) <= 3;
          });
        };
        return {
          values: () => JSON.stringify(controls().map((one) => (["checkbox", "radio"].includes(one.type) ? one.checked : one.value))),
          count: () => controls().length,
          change: (number) => {
            const one = controls()[number];
            if (["checkbox", "radio"].includes(one.type)) { if (one.type === "radio" && one.checked) return false; one.click(); return true; }
            if (one.localName === "select") { if (one.options.length < 2) return false; one.selectedIndex = (one.selectedIndex + 1) % one.options.length; }
            else one.value = one.type === "number" ? "7" : "busy / time";
            one.dispatchEvent(new Event("change"));
            return true;
          },
        }; })()"#;
    let mut changed = 0;
    for screen in SCREENS {
        let base = format!("#/{screen}?b=1&mt=l%3Acount");
        browser.go(&viewer, &base);
        browser.value(script);
        let nameless = "[...document.querySelectorAll('button, input, select, a, canvas, svg[role=img]')].filter((one) => !(one.textContent.trim() || one.title || one.getAttribute('aria-label') || one.labels?.length)).map((one) => one.outerHTML)";
        assert_eq!(browser.value(nameless), json!([]), "{screen}: those who cannot see it must be told what it is");
        let count = browser.value("testControls.count()").as_u64().unwrap();
        for number in 0..count {
            browser.go(&viewer, &base);
            let before = browser.value("location.hash");
            if browser.value(&format!("testControls.change({number})")) == json!(false) {
                continue;
            }
            browser.until(&format!("location.hash !== {before} && weftView.idle"));
            let (after, values) = (browser.value("location.hash"), browser.value("testControls.values()"));
            browser.value(&format!("location.hash = {before}"));
            browser.until("weftView.idle");
            assert_ne!(browser.value("testControls.values()"), values, "{screen}, control {number}: {after}");
            browser.value(&format!("location.hash = {after}"));
            browser.until(&format!("weftView.idle && testControls.values() === {values}"));
            changed += 1;
        }
    }
    // Buttons that change what is shown.
    for (screen, press) in [
        ("timeline", "weftView.timeline.key({ key: 't' })"),
        ("timeline", "document.querySelector('.sort').click()"),
        ("timeline", "weftView.timeline.fold(0)"),
        ("timeline", "document.querySelector('[data-track^=hide]').click()"),
        ("compare", "weftView.compare.fold('client0')"),
        ("timeline", "document.querySelector('.metrics button').click()"),
    ] {
        browser.go(&viewer, &format!("#/{screen}?b=1&mt=l%3Acount"));
        let shown =
            format!("document.querySelector('main').innerText + [...weftView.{screen}.rows || weftView.{screen}.halves[1].rows].length");
        browser.until("document.querySelectorAll('.legend tbody tr').length > 5 || weftView.compare");
        let (before, text) = (browser.value("location.hash"), browser.value(&shown));
        browser.value(press);
        browser.until(&format!("location.hash !== {before} && weftView.idle"));
        let (after, changed) = (browser.value("location.hash"), browser.value(&shown));
        assert_ne!(text, changed, "{press}");
        browser.go(&viewer, before.as_str().unwrap());
        browser.until(&format!("{shown} === {text}"));
        browser.go(&viewer, after.as_str().unwrap());
        browser.until(&format!("{shown} === {changed}"));
    }
    assert!(changed > 18, "{changed} controls");
    browser.asked_only_of(&[&viewer]);
}

/// Lanes by formula: per node, named and numbered, in the table, in the exported picture and as
/// CSV; a mistake says what is known.
#[test]
fn a_formula_is_a_lane_of_every_node_that_has_what_it_names() {
    let Some(mut browser) = Browser::new() else {
        eprintln!("skipped: no chromium is installed");
        return;
    };
    let viewer = Viewer::new(8_000, |_| {}, &[]);
    browser.open(&format!("http://{}/#/timeline", viewer.host()));
    browser.value("document.activeElement.blur()");
    let lanes = "weftView.timeline.rows.filter((row) => row.type === 'gauge' && row.height > 20)";
    for formula in ["bytes(disk.*) / time", "rise(queue)", "bites"] {
        browser.until("document.querySelector('.metrics input') || (weftView.timeline.key({ key: 'e' }), false)");
        browser.value(&format!("(() => {{ const field = [...document.querySelectorAll('.metrics input')].at(-1); field.value = '{formula}'; field.dispatchEvent(new Event('change')); }})()"));
        browser.until("weftView.idle");
    }
    browser.until("document.querySelector('.metrics [role=alert]')?.innerText.includes('bites is unknown')");
    // Disks of two metadata and four data servers; the gauge of all six servers.
    browser.until(&format!("{lanes}.length === 12"));
    browser.value("(() => { const choice = document.querySelectorAll('.metrics select')[1]; choice.value = 'line'; choice.dispatchEvent(new Event('change')); })()");
    browser.until(&format!("weftView.idle && {lanes}.filter((row) => row.gauge.style === 'line').length === 6"));
    assert_eq!(browser.value("/mt=g%3Abytes.*%3Bl%3Arise/.test(location.hash)"), json!(true));
    browser.value("weftView.timeline.scroller.scrollTop = 500");
    browser.picture("metrics");
    browser.value("weftView.timeline.exportSvg()");
    assert_eq!(browser.value("weftView.lastSvg.includes('bytes(disk.*) / time') && weftView.lastSvg.includes('<polyline')"), json!(true));
    browser.value("document.activeElement.blur()");
    browser.press("t");
    browser.until("[...document.querySelectorAll('.twin td')].filter((cell) => cell.innerText === 'bytes(disk.*) / time').length === 6");
    let csv = "document.querySelector('.metrics a.button').href";
    let text = browser.value(&format!("fetch({csv}).then((answer) => answer.text())")).as_str().unwrap().to_string();
    assert!(text.starts_with("from_ns,to_ns,node,metric,value\r\n") && text.contains(",data3,bytes(disk.*) / time,"), "{}", &text[..200]);
    browser.asked_only_of(&[&viewer]);
}

/// Three kinds of colour blindness: what stages, seeks and operations look like stays apart, by
/// colour or by pattern; in a small window nothing is cut off, and a dark scheme draws without
/// complaint.
#[test]
fn colours_stay_apart_and_small_windows_hold_everything() {
    let Some(mut browser) = Browser::new() else {
        eprintln!("skipped: no chromium is installed");
        return;
    };
    let viewer = Viewer::new(8_000, |_| {}, &[]);
    browser.open(&format!("http://{}/#/overview", viewer.host()));
    // A swatch of every look side by side, 20 pixels each.
    let show = r#"(() => {
        const { looks, run } = weftView.state;
        const fills = [...Object.values(looks.stages).map((stage) => stage.look), ...looks.seeks, ...[...new Set(run.kinds.map((kind) => kind.colour))].map((colour) => ({ colour, pattern: 0 }))];
        const box = document.createElement("div");
        box.id = "fills";
        box.style.cssText = "position:fixed;inset:0 auto auto 0;display:flex;z-index:9";
        for (const { colour } of fills) { const one = document.createElement("i"); one.style.cssText = `width:20px;height:20px;background:${colour}`; box.append(one); }
        document.body.append(box);
        return [Object.keys(looks.stages).length, looks.seeks.length, fills.map((fill) => fill.pattern)];
    })()"#;
    let shown = browser.value(show);
    let (stages, seeks) = (shown[0].as_u64().unwrap() as usize, shown[1].as_u64().unwrap() as usize);
    let patterns: Vec<u64> = shown[2].as_array().unwrap().iter().map(|pattern| pattern.as_u64().unwrap()).collect();
    for kind in ["none", "protanopia", "deuteranopia", "tritanopia"] {
        browser.call("Emulation.setEmulatedVisionDeficiency", json!({ "type": kind }));
        let clip = json!({ "x": 0, "y": 0, "width": 20 * patterns.len(), "height": 20, "scale": 1 });
        let shot = browser.call("Page.captureScreenshot", json!({ "format": "png", "clip": clip }));
        let colours = middle_row(&decode_base64(shot["data"].as_str().unwrap()));
        let lab: Vec<[f64; 3]> = (0..patterns.len()).map(|number| lab(colours[20 * number + 10])).collect();
        for (from, to) in [(0, stages), (stages, stages + seeks), (stages + seeks, patterns.len())] {
            for one in from..to {
                for other in one + 1..to {
                    let distance = (0..3).map(|axis| (lab[one][axis] - lab[other][axis]).powi(2)).sum::<f64>().sqrt();
                    assert!(patterns[one] != patterns[other] || distance > 8.0, "{kind}: look {one} and {other} of {shown}: {distance}");
                }
            }
        }
        browser.picture(&format!("vision-{kind}"));
    }
    browser.call("Emulation.setEmulatedVisionDeficiency", json!({ "type": "none" }));
    browser.call("Emulation.setDeviceMetricsOverride", json!({ "width": 800, "height": 600, "deviceScaleFactor": 1, "mobile": false }));
    for screen in SCREENS {
        browser.open(&format!("http://{}/#/{screen}", viewer.host()));
        assert_eq!(
            browser.value("document.querySelector('main').scrollWidth <= document.querySelector('main').clientWidth"),
            json!(true),
            "{screen}"
        );
        assert_eq!(browser.value("document.querySelector('header').offsetHeight < 90"), json!(true), "{screen}");
        browser.picture(&format!("small-{screen}"));
    }
    let scheme = json!({ "features": [{ "name": "prefers-color-scheme", "value": "dark" }] });
    browser.call("Emulation.setEmulatedMedia", scheme);
    browser.open(&format!("http://{}/#/timeline", viewer.host()));
    assert_eq!(browser.value("getComputedStyle(document.querySelector('header')).backgroundColor"), json!("rgb(22, 25, 29)"));
    browser.picture("dark-timeline");
    browser.asked_only_of(&[&viewer]);
}
