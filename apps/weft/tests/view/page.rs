//! The page in a browser: every screen, walks with keys and pointer, names that are markup.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::viewer::{BENCH, Viewer, make_sample, weft, write_hostile_trace};

/// Every screen by key and by address; the address round trip; a walk with keys only; exports;
/// nothing asked outside; no error.
#[test]
fn the_page_works_in_a_real_browser() {
    let Some(mut browser) = Browser::new() else {
        eprintln!("skipped: no chromium is installed");
        return;
    };
    let viewer = Viewer::new(60_000, |_| {}, &[]);
    let base = format!("http://{}/", viewer.host());
    browser.open(&base);
    assert_eq!(browser.value("weftView.timeline.picture.lanes.length > 20"), json!(true), "lanes of all nodes");
    browser.picture("timeline");

    // Keys: zoom in, choose a span, walk, its request.
    let length = "weftView.state.to - weftView.state.from";
    let whole = browser.value(length).as_f64().unwrap();
    for _ in 0..12 {
        browser.press("w");
    }
    browser.until("weftView.idle");
    assert!(browser.value(length).as_f64().unwrap() < whole / 20.0);
    browser.value("weftView.timeline.canvas.focus()");
    browser.press("ArrowDown");
    browser.until("weftView.timeline.selected");
    let first = browser.value("weftView.state.selected");
    browser.press("ArrowRight");
    browser.until(&format!("weftView.state.selected !== {first}"));
    browser.until("document.querySelector('.details').innerText.length > 20");
    browser.until("weftView.timeline.chosenRequest && weftView.idle");
    browser.picture("timeline-zoomed");

    // The address holds all of it.
    let kept = browser.value("JSON.stringify([weftView.state.from, weftView.state.to, weftView.state.selected].map(Math.round))");
    let address = browser.value("location.href").as_str().unwrap().to_string();
    browser.open(&address);
    let again = browser.value("JSON.stringify([weftView.state.from, weftView.state.to, weftView.state.selected].map(Math.round))");
    assert_eq!(kept, again, "{address}");

    // The filter hides what the legend says, and only that.
    browser.until("document.querySelectorAll('.legend input').length > 5");
    browser.value("document.querySelector('.legend input').click()");
    browser.until("weftView.state.hidden.size === 1 && weftView.idle");
    let shown = "[...weftView.timeline.picture.lanes].some((part) => part.spans && [...Array(part.count).keys()].some((at) => weftView.state.hidden.has(part.spans[4 * at + 2])))";
    assert_eq!(browser.value(shown), json!(false));

    // A click chooses what lies under the pointer.
    browser.value("document.querySelector('.legend input').click()");
    browser.until("weftView.state.hidden.size === 0 && weftView.idle");
    browser.press("Escape");
    browser.until("weftView.state.selected === null && weftView.idle");
    let place = browser.value(
        "(() => { const t = weftView.timeline, box = t.canvas.getBoundingClientRect(); for (let y = 40; y < box.height - 4; y += 3) for (let x = 200; x < box.width - 20; x += 7) { const span = t.at(x, y); if (span && span.folded === 1) return [box.left + x, box.top + y, span.event]; } })()",
    );
    assert!(place.is_array(), "a span to click on");
    browser.click(place[0].as_f64().unwrap(), place[1].as_f64().unwrap());
    browser.until(&format!("weftView.state.selected === {}", place[2]));

    // Exports and the table twin.
    browser.value("weftView.timeline.exportSvg()");
    let parsed = "new DOMParser().parseFromString(weftView.lastSvg, 'image/svg+xml')";
    assert_eq!(
        browser.value(&format!("{parsed}.querySelector('parsererror') === null && {parsed}.querySelectorAll('rect').length > 50")),
        json!(true)
    );
    assert_eq!(browser.value("/NaN|Infinity|undefined/.test(weftView.lastSvg)"), json!(false));
    browser.value("weftView.timeline.canvas.focus()");
    browser.press("t");
    browser.until("document.querySelectorAll('.twin tbody tr').length > 3");
    browser.picture("timeline-table");

    // All screens, by key.
    let screens = BTreeMap::from([("1", "overview"), ("3", "latency"), ("4", "where"), ("5", "request"), ("6", "health")]);
    for (key, screen) in screens {
        browser.value("document.activeElement.blur()");
        browser.press(key);
        browser.until(&format!("document.querySelector('.page.{screen}') && weftView.idle"));
        browser.picture(screen);
        assert_eq!(browser.value("/NaN|undefined|\\[object/.test(document.querySelector('.page').innerText)"), json!(false), "{screen}");
    }

    // Names that are markup are text on every screen, and in the exported picture.
    let hostile = Viewer::new(500, |dir| write_hostile_trace(&dir.join("hostile.trace")), &[]);
    for screen in ["overview", "timeline", "latency", "where", "request", "running", "report", "health"] {
        browser.open(&format!("http://{}/#/{screen}", hostile.host()));
        browser.until("document.body.innerText.length > 100");
        if screen == "timeline" {
            browser.until("document.querySelector('.legend tbody tr')");
            browser.value("weftView.timeline.key({ key: 't' })");
            browser.until("document.querySelectorAll('.twin tbody tr').length > 3");
            browser.value("weftView.timeline.exportSvg()");
            assert_eq!(browser.value(&format!("{parsed}.querySelector('parsererror, script, img') === null")), json!(true));
            browser.picture("hostile");
        }
        assert_eq!(browser.value("document.body.innerText.includes('<img src=x')"), json!(true), "{screen} shows the name");
        assert_eq!(
            browser.value("document.querySelector('img, main script') === null && document.title !== 'broken into'"),
            json!(true),
            "{screen}"
        );
    }
    browser.asked_only_of(&[&viewer, &hostile]);
}

/// Several runs: the list, one against another with windows that move together, choices by key and
/// by address.
#[test]
fn runs_are_chosen_and_compared_in_a_real_browser() {
    let Some(mut browser) = Browser::new() else {
        eprintln!("skipped: no chromium is installed");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    make_sample(20_000, 4, &at("before"));
    make_sample(20_000, 1, &at("after"));
    fs::create_dir(at("nothing")).unwrap();
    fs::write(at("bench.json"), BENCH).unwrap();
    let paths = ["before", "after", "nothing", "bench.json"].map(at);
    let viewer = Viewer::of(dir, &paths, &[]);
    let base = format!("http://{}/", viewer.host());

    // The list comes first if there are several runs; what cannot be read is named there.
    browser.open(&base);
    browser.until("document.querySelectorAll('.page.runs tbody tr').length >= 5");
    assert_eq!(browser.value("document.body.innerText.includes('nothing could not be read')"), json!(true));
    browser.picture("runs");
    browser.value("document.querySelector('input[name=b][data-run=\"1\"]').click()");
    browser.until("weftView.state.b === 1");
    browser.press("9");
    browser.until("document.querySelectorAll('.compare-report tbody tr').length > 2 && weftView.idle");
    browser.picture("compare");
    // One data server instead of four: reads and writes wait for it, and the page says so.
    let said = browser.value("weftView.compare.data.sentences.join(' ')");
    assert!(said.as_str().unwrap().contains("server queue"), "{said}");

    // Both timelines move together, whatever moves them.
    let windows = "JSON.stringify(weftView.compare.halves.map((half) => [half.picture.from, half.picture.to]))";
    browser.press("w");
    browser.press("d");
    browser.until("weftView.idle && weftView.compare.data.a.seconds < 0.9 * weftView.state.run.duration / 1e9");
    let both: Vec<[u64; 2]> = serde_json::from_str(browser.value(windows).as_str().unwrap()).unwrap();
    assert!(both[0] == both[1] && both[0][0] > 0, "{both:?}");
    // Aligned at a mark, the mark is at the same place of both.
    browser.value("(() => { const select = [...document.querySelectorAll('.compare-tools select')][2]; select.value = '3'; select.dispatchEvent(new Event('change')); })()");
    browser.until("weftView.state.align === '3' && weftView.idle");
    let places = "weftView.compare.halves.map((half) => Math.round(half.x(half.run.marks.find(([, value]) => value === 3)[0])))";
    let places = browser.value(places);
    assert_eq!(places[0], places[1], "{places}");
    browser.picture("compare-aligned");
    // The address holds both runs, the window and the alignment.
    let kept = "JSON.stringify([weftView.state.a, weftView.state.b, weftView.state.align, Math.round(weftView.state.from), Math.round(weftView.state.to)])";
    let (before, address) = (browser.value(kept), browser.value("location.href").as_str().unwrap().to_string());
    browser.open(&address);
    browser.until("document.querySelector('.compare-report tbody tr') && weftView.idle");
    assert_eq!(browser.value(kept), before, "{address}");
    // X exchanges the runs: what was worse is better.
    browser.press("x");
    browser.until("weftView.state.a === 1 && weftView.state.b === 0 && weftView.compare.data && weftView.compare.data.a.name === 'after' && weftView.idle");
    assert_eq!(browser.value("weftView.compare.data.kinds[0].effect_us < 0"), json!(true));
    // The other screens show the chosen run; a result without a trace says what it cannot show.
    browser.press("2");
    browser.until("weftView.timeline.picture && weftView.timeline.run.name === 'after' && weftView.idle");
    browser.press("]");
    browser.until("weftView.state.run.name === 'bench.json' && weftView.idle");
    browser.until("document.querySelector('main').innerText.includes('needs a trace')");
    browser.asked_only_of(&[&viewer]);
}

/// Running: four charts from a trace and from a benchmark, a brush that is the window of every
/// other screen, metrics by formula.
#[test]
fn a_range_of_the_running_performance_is_the_window_of_every_screen() {
    let Some(mut browser) = Browser::new() else {
        eprintln!("skipped: no chromium is installed");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    make_sample(20_000, 4, dir.path());
    let rows = (0..2).flat_map(|process| {
        (1..=40).map(move |tenth| format!("create,0,{process},n{process},{}.{},{},0\n", tenth / 10, tenth % 10, 90 + tenth))
    });
    fs::write(dir.path().join("progress.csv"), format!("phase,repetition,proc,node,t_s,count,bytes\n{}", rows.collect::<String>()))
        .unwrap();
    let path = dir.path().to_path_buf();
    let viewer = Viewer::of(dir, &[path], &[]);
    browser.open(&format!("http://{}/", viewer.host()));
    browser.value("document.activeElement.blur()");
    browser.press("8");
    browser.until("document.querySelectorAll('.page.running .drawn svg').length === 4 && weftView.idle");
    browser.picture("running");
    // A drag over the middle half of the first chart.
    let area = "(() => { const box = document.querySelector('.brush').getBoundingClientRect(); return [box.left, box.width, box.top + box.height / 2]; })()";
    let area = browser.value(area);
    let at = |share: f64| area[0].as_f64().unwrap() + share * area[1].as_f64().unwrap();
    browser.drag((at(0.25), at(0.75)), area[2].as_f64().unwrap());
    browser.until("Math.abs(weftView.state.from / weftView.state.run.duration - 0.25) < 0.02 && Math.abs(weftView.state.to / weftView.state.run.duration - 0.75) < 0.02 && weftView.idle");
    browser.until("document.querySelectorAll('.inside').length === 4");
    browser.picture("running-brushed");
    // The others look at that window only.
    let all =
        browser.value("fetch('/api/explain').then((answer) => answer.json()).then((explain) => explain.operations)").as_u64().unwrap();
    let operations = "Number(document.querySelector('.page.where').innerText.match(/(\\d+) operations spent/)[1])";
    browser.press("4");
    browser.until("document.querySelector('.page.where') && weftView.idle");
    let within = browser.value(operations).as_u64().unwrap();
    assert!(within > all / 4 && within < all * 3 / 4, "{within} of {all}");
    browser.picture("where-window");
    browser.press("1");
    browser.until("document.querySelector('.page.overview') && weftView.idle");
    assert_eq!(browser.value("document.querySelector('.page.overview').innerText.includes('The window from')"), json!(true));
    browser.press("Home");
    browser.until("document.querySelector('.page.overview').innerText.includes('This run') && weftView.idle");
    // A benchmark's progress and a metric are in the address; a formula that is none says so.
    let address = format!("http://{}/#/running?src=create%3A0&f=bytes%20%2F%20time", viewer.host());
    browser.open(&address);
    browser.until("document.querySelector('.page.running').innerText.includes('n1, process 1') && weftView.idle");
    assert_eq!(browser.value("document.querySelector('.drawn .title').textContent.startsWith('bytes / time')"), json!(true));
    browser.value("(() => { const field = document.querySelector('.formula'); field.value = 'bytes / tim'; field.dispatchEvent(new Event('change')); })()");
    browser.until("document.querySelector('[role=alert]')?.innerText.includes('tim is unknown') && weftView.idle");
    browser.value("document.querySelector('.drawn summary').click()");
    browser.until("document.querySelectorAll('.twin-table tbody tr').length > 10");
    browser.asked_only_of(&[&viewer]);
}

/// Bounds: facts from a file of ceilings, typed in, or of the thesis; efficiency of what was
/// measured; all of it in the address.
#[test]
fn measurements_are_held_against_bounds_in_a_real_browser() {
    let Some(mut browser) = Browser::new() else {
        eprintln!("skipped: no chromium is installed");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let row = |name: &str, unit: &str, median: f64| json!({ "name": name, "unit": unit, "median": median, "min": median, "max": median, "note": "" });
    let rows = [
        row("rpc.unix.1x1.p50", "us", 20.0),
        row("rpc.unix.1x32.onecpu", "requests/s", 400_000.0),
        row("bulk.unix.upload.1c", "GiB/s", 4.0),
        row("disk.append.dsync.4KiB.p50", "us", 400.0),
        row("disk.write.durable", "GiB/s", 1.0),
    ];
    fs::write(dir.path().join("ceiling.json"), json!({ "rows": rows, "skipped": [] }).to_string()).unwrap();
    fs::write(dir.path().join("bench.json"), BENCH).unwrap();
    let path = dir.path().to_path_buf();
    let viewer = Viewer::of(dir, &[path], &[]);
    browser.open(&format!("http://{}/#/runs", viewer.host()));
    browser.value("document.activeElement.blur()");
    browser.press("0");
    browser.until("document.querySelectorAll('.page.bounds .drawn svg').length === 4 && weftView.idle");
    browser.picture("bounds");
    // 21000 creates a second by two processes: 2 / 20 us = 100 000 a second is the bound of the
    // network.
    let text = "document.querySelector('.page.bounds').innerText";
    browser.until(&format!("{text}.includes('21 % of 100k/s network')"));
    assert_eq!(browser.value(&format!("/NaN|undefined|Infinity/.test({text})")), json!(false));
    // Typing a fact moves its bounds, and the address keeps it.
    browser.value("(() => { const field = document.querySelector('[data-fact=rtt_us]'); field.value = '40'; field.dispatchEvent(new Event('change')); })()");
    browser.until(&format!("{text}.includes('42 % of 50.0k/s network') && weftView.idle"));
    let address = browser.value("location.href").as_str().unwrap().to_string();
    browser.open(&address);
    browser.until(&format!("{text}.includes('42 % of 50.0k/s network')"));
    browser.open(&format!("http://{}/#/bounds?hw=2006", viewer.host()));
    browser.until("document.querySelector('[data-fact=rtt_us]').value === '520' && weftView.idle");
    browser.picture("bounds-2006");
    browser.asked_only_of(&[&viewer]);
}

/// The report: as a command in both forms, and on the page with the same content; the HTML file
/// works by itself.
#[test]
fn a_report_is_one_file_that_needs_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    make_sample(8_000, 4, &at("before"));
    make_sample(8_000, 1, &at("after"));
    fs::write(at("bench.json"), BENCH).unwrap();
    write_hostile_trace(&at("before").join("hostile.trace"));
    let report = |output: &str| {
        let words = ["before", "after", "bench.json"].map(at);
        weft().args(["report", "--hardware", "2006", "-o"]).arg(at(output)).args(words).output().unwrap()
    };
    for output in ["report.html", "report.md"] {
        let done = report(output);
        assert!(done.status.success(), "{done:?}");
    }
    assert!(!report("report.pdf").status.success());
    let html = fs::read_to_string(at("report.html")).unwrap();
    assert!(html.contains("before (A) against after (B)") && html.contains("Bounds: bench.json"));
    let markdown = fs::read_to_string(at("report.md")).unwrap();
    let pictures: Vec<&str> = markdown.lines().filter_map(|line| line.strip_prefix("![")?.rsplit_once('(')?.1.strip_suffix(')')).collect();
    assert!(pictures.len() > 8 && pictures.iter().all(|picture| at(picture).is_file()), "{pictures:?}");
    assert!(!markdown.contains("<img"));

    let Some(mut browser) = Browser::new() else {
        eprintln!("skipped: no chromium is installed");
        return;
    };
    browser.call("Page.navigate", json!({ "url": format!("file://{}", at("report.html").display()) }));
    browser.until("document.querySelectorAll('svg').length > 8 && document.readyState === 'complete'");
    assert_eq!(browser.value("document.querySelector('img, script, iframe') === null && document.title !== 'broken into'"), json!(true));
    assert_eq!(browser.value("getComputedStyle(document.querySelector('svg .title')).fontSize"), json!("16px"), "styles are inside");
    browser.picture("report-file");
    browser.call("Page.navigate", json!({ "url": "about:blank" }));
    let paths = ["before", "after", "bench.json"].map(at);
    let viewer = Viewer::of(dir, &paths, &[]);
    browser.open(&format!("http://{}/#/overview?b=1", viewer.host()));
    browser.value("document.activeElement.blur()");
    browser.press("r");
    browser.until("document.querySelectorAll('.preview svg').length > 5 && weftView.idle");
    browser.until("document.querySelector('.preview').innerText.includes('<img src=x')");
    assert_eq!(browser.value("document.querySelector('.preview img, .preview script') === null"), json!(true));
    browser.picture("report");
    let asked = browser.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
    let asked: Vec<&str> = asked.filter_map(|event| event["params"]["request"]["url"].as_str()).collect();
    let foreign: Vec<&&str> = asked
        .iter()
        .filter(|url| !["file://", "about:", "data:", "http://127.0.0.1:"].iter().any(|begin| url.starts_with(begin)))
        .collect();
    assert_eq!(foreign, Vec::<&&str>::new());
    let refused = |event: &&Value| event["method"] == "Runtime.exceptionThrown" || event["params"]["entry"]["source"] == "security";
    assert_eq!(browser.events.iter().filter(refused).collect::<Vec<_>>(), Vec::<&Value>::new());
}

/// A search lists its hits and zooms to one, filters, and is in the address; tracks are hidden,
/// pinned and moved, by keys and by pointer.
#[test]
fn hits_are_listed_and_tracks_are_arranged_in_a_real_browser() {
    let Some(mut browser) = Browser::new() else {
        eprintln!("skipped: no chromium is installed");
        return;
    };
    let viewer = Viewer::new(5_000, |_| {}, &[]);
    browser.open(&format!("http://{}/", viewer.host()));
    browser.press("/");
    browser.value("weftView.timeline.search.field.value = 'create >100us node:meta'");
    browser.press("Enter");
    browser.until("document.querySelectorAll('.hits tbody tr').length > 2 && weftView.idle");
    browser.picture("hits");
    let said = browser.value("document.querySelector('.hits-said').innerText").as_str().unwrap().to_string();
    let listed = browser.value("weftView.timeline.search.hits.count").as_u64().unwrap();
    assert!(said.starts_with(&format!("{listed} spans")), "{said}");
    // A hit is zoomed to, and chosen.
    browser.value("document.querySelectorAll('.hits tbody button')[1].click()");
    let hit = "weftView.timeline.search.hits.rows[1]";
    browser.until(&format!("weftView.timeline.selected && weftView.timeline.selected.event === {hit}.event && weftView.idle"));
    let around = format!(
        "weftView.state.from <= {hit}.start && weftView.state.to >= {hit}.start + {hit}.dur && weftView.state.to - weftView.state.from < 4 * {hit}.dur + 4000"
    );
    assert_eq!(browser.value(&around), json!(true), "{}", browser.value("location.hash"));
    // What is not understood is said, and nothing is lost.
    browser.value("weftView.timeline.search.field.value = '(create'; weftView.timeline.search.toggleFilter()");
    browser.until("document.querySelector('.found').innerText.includes('not closed')");
    assert_eq!(browser.value("weftView.state.filter"), json!(""));
    // As a filter it leaves only what it describes.
    browser.value("weftView.timeline.search.field.value = 'journal or create node=meta0'; weftView.timeline.search.toggleFilter()");
    browser.until("weftView.state.filter && weftView.idle");
    browser.value("document.activeElement.blur()");
    browser.press("Home");
    browser.until("weftView.idle");
    let kinds = "[...new Set(weftView.timeline.picture.lanes.map((part) => weftView.state.run.lanes[part.lane]).map((lane) => lane.sub))].sort().join()";
    assert_eq!(browser.value(kinds), json!("journal,operation"));
    browser.until("[...document.querySelectorAll('.legend tbody tr:not(.empty) .name')].map((one) => one.innerText).sort().join() === 'journal.commit,meta.create'");
    let csv = browser.value("fetch(document.querySelector('a[download=\"weft-spans.csv\"]').href).then((answer) => answer.text())");
    let csv = csv.as_str().unwrap().to_string();
    assert!(
        csv.lines().count() > 10 && csv.lines().skip(1).all(|line| line.contains("journal.commit") || line.contains("meta0,meta.create"))
    );

    // Tracks: hide, pin, move; all of it is in the address.
    browser.value("weftView.timeline.search.toggleFilter(); document.activeElement.blur()");
    browser.until("weftView.state.filter === '' && weftView.idle");
    browser.press("k");
    browser.until("document.querySelectorAll('.tracks tbody tr').length === 8 && weftView.idle");
    let names = "weftView.timeline.rows.filter((row) => row.type === 'node').map((row) => row.text).join()";
    assert_eq!(browser.value(names), json!("client0,client1,meta0,meta1,data0,data1,data2,data3"));
    let press = |what: &str, name: &str| {
        let node = format!("weftView.state.run.nodes.findIndex((node) => node.name === '{name}')");
        format!("document.querySelector(`[data-track=\"{what}${{{node}}}\"]`).click()")
    };
    browser.value(&press("hide", "client1"));
    browser.until("weftView.state.gone.size === 1 && weftView.idle");
    browser.value(&press("pin", "data1"));
    browser.until("weftView.state.pinned.length === 1 && weftView.idle");
    browser.value(&press("up", "meta1"));
    browser.until("weftView.state.order.length > 0 && weftView.idle");
    let arranged = json!("data1,client0,meta1,meta0,data0,data2,data3");
    assert_eq!(browser.value(names), arranged);
    browser.picture("tracks");
    // What is pinned stays where it is while the others scroll, and a click there chooses what is
    // drawn there.
    let place = "JSON.stringify((() => { const t = weftView.timeline, row = (name) => t.rows.find((row) => row.type === 'node' && row.text === name); return [t.top(row('data1')), t.top(row('meta1'))]; })())";
    let at = |browser: &mut Browser| serde_json::from_str::<[f64; 2]>(browser.value(place).as_str().unwrap()).unwrap();
    let before = at(&mut browser);
    browser.value("weftView.timeline.scroller.scrollTop = 60");
    browser.until("weftView.timeline.scroller.scrollTop === 60 && weftView.idle");
    let after = at(&mut browser);
    assert_eq!((after[0], after[1]), (before[0], before[1] - 60.0));
    let there = "(() => { const t = weftView.timeline; for (let y = 26; y < 24 + t.pinnedHeight; y += 2) for (let x = 220; x < 900; x += 3) { const span = t.at(x, y); if (span) return weftView.state.run.nodes[weftView.state.run.lanes[span.lane].node].name; } })()";
    assert_eq!(browser.value(there), json!("data1"));
    // A name is dragged: meta1 below data0.
    let drag = "JSON.stringify((() => { const t = weftView.timeline, box = t.canvas.getBoundingClientRect(), y = (name) => box.top + t.top(t.rows.find((row) => row.type === 'node' && row.text === name)) + 8; t.scroller.scrollTop = 0; t.draw(); for (const node of t.run.nodes.keys()) weftView.state.folded.add(node); t.layOut(); t.draw(); return [box.left + 40, y('meta1'), y('data0')]; })())";
    let [x, from, to]: [f64; 3] = serde_json::from_str(browser.value(drag).as_str().unwrap()).unwrap();
    for (kind, y, buttons) in [("mouseMoved", from, 0), ("mousePressed", from, 1), ("mouseMoved", to, 1), ("mouseReleased", to, 0)] {
        let button = if kind == "mouseMoved" && buttons == 0 { "none" } else { "left" };
        browser.call(
            "Input.dispatchMouseEvent",
            json!({ "type": kind, "x": x, "y": y, "button": button, "buttons": buttons, "clickCount": 1 }),
        );
    }
    browser.until(&format!("{names} === 'data1,client0,meta0,data0,meta1,data2,data3'"));
    let address = browser.value("location.href").as_str().unwrap().to_string();
    browser.open(&address);
    browser.until("weftView.timeline.picture && weftView.idle");
    assert_eq!(browser.value(names), json!("data1,client0,meta0,data0,meta1,data2,data3"), "{address}");
    browser.asked_only_of(&[&viewer]);
}

/// Nobody waits before a page that will never show anything.
#[test]
fn what_holds_nothing_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let shown = weft().args(["view", "--no-open"]).arg(dir.path()).output().unwrap();
    assert_eq!(shown.status.code(), Some(1), "{shown:?}");
    assert!(String::from_utf8_lossy(&shown.stderr).contains("holds no trace file"), "{shown:?}");
}
