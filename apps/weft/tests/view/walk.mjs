// A walk through the page without a browser: node walk.mjs ADDRESS FOLDER, of a viewer of the synthetic trace.

import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";
import { join } from "node:path";

const { page } = await import(pathToFileURL(join(import.meta.dirname, "standin.mjs")));
const { state } = page;
const timeline = () => window.weftView.timeline;
const names = () => timeline().rows.filter((row) => row.type === "node").map((row) => row.text);
/** What the address brings back. */
const again = async (read) => {
  const [before, hash] = [read(), location.hash];
  await page.go("#/runs");
  await page.go(hash);
  assert.deepEqual(read(), before, hash);
};

// Every screen has something to say. (The preview of a report is markup, which only a browser reads.)
for (const screen of ["overview", "latency", "where", "request", "histogram", "running", "compare", "bounds", "health", "runs", "timeline"]) {
  await page.go(`#/${screen}`);
  assert.ok(page.text.length > 60, screen);
}
assert.deepEqual(names(), ["client0", "client1", "meta0", "meta1", "data0", "data1", "data2", "data3"]);

// The profile: every metric as bars and as a table sorted by it.
const cells = (place) => document.querySelectorAll(".costs tbody tr").map((row) => row.children[place].textContent);
const metrics = [];
for (let turn = 0; turn < 4; turn++) {
  metrics.push(state.metric);
  assert.equal(page.one("table.costs [aria-sort]").textContent.slice(0, 4), { inclusive: "incl", exclusive: "excl", calls: "call", longest: "long" }[state.metric]);
  assert.ok(document.querySelectorAll(".profile .bar").length > 5, state.metric);
  await page.press("i");
}
assert.deepEqual(metrics, ["inclusive", "exclusive", "calls", "longest"]);
assert.ok(cells(3).every((cell) => cell !== ""), "exclusive times are known");
page.one('[data-choice="by-name"]').click();
await page.idle();
assert.deepEqual(cells(0), [...cells(0)].sort((a, b) => a.localeCompare(b, "en", { numeric: true })));
await page.choose("Lines of the table", "group");
assert.equal(cells(0).length, 8);
await again(() => [state.metric, state.costsOf, state.byName, cells(0)]);

// Levels: what tracks are, and their headings.
const headings = () => timeline().rows.filter((row) => row.type === "group").map((row) => row.text);
assert.deepEqual(headings(), ["Clients", "Metadata servers", "Data servers"]);
await page.press("k");
for (const [level, heading] of [["host", "client0"], ["thread", "client0"], ["relation", "For client0"]]) {
  await page.choose("What tracks are", level);
  assert.equal(state.level, level);
  assert.equal(headings()[0], heading);
  assert.ok(timeline().picture.lanes.every((part) => timeline().run.lanes[part.lane]), "lanes are those of the level");
  await again(() => [state.level, names()]);
}
assert.ok(names().includes("data1 for client0"), names());
// Two steps back at once, and the answer to the first comes last.
const related = location.hash;
const { fetch } = globalThis;
let late = 300;
globalThis.fetch = async (...question) => {
  const answer = await fetch(...question);
  if (String(question[0]).includes("/api/run?")) await new Promise((wake) => setTimeout(wake, late));
  late = 0;
  return answer;
};
for (const hash of ["#/timeline", related]) {
  location.hash = hash;
  window.dispatchEvent(new Event("hashchange"));
}
await page.idle();
globalThis.fetch = fetch;
assert.equal(state.level, "relation");
assert.ok(names().includes("data1 for client0"), names());
// A span is chosen on its lane of this level, and its arrows lead between such lanes.
timeline().walk(0, 1);
await page.idle();
assert.ok(timeline().laneAt.has(timeline().selected.lane));
await page.press("b");
assert.equal(state.level, "rank");

// Rows: their height, all of them in view, single parts of single tracks.
const height = timeline().height;
await page.press(".");
assert.ok(timeline().height > height);
await page.press("z");
assert.ok(timeline().height <= 700 || state.rowHeight === 0.25, `${timeline().height}`);
await again(() => [state.rowHeight, timeline().height]);
const part = timeline().rows.find((row) => row.type === "sub" && row.text === "disk");
timeline().trackList.hidePart("disk", part.track);
await page.idle();
const disks = () => timeline().rows.filter((row) => row.type === "sub" && row.text === "disk").length;
const [few, subs] = [disks(), [...state.subs]];
assert.deepEqual(subs, [`${part.track}.disk`]);
await again(() => [[...state.subs], disks()]);
page.one(`[title="Show disk of ${state.run.tracks[part.track].name}"]`).click();
await page.idle();
assert.equal(disks(), few + 1);
const track = (name) => state.run.tracks.findIndex((track) => track.name === name);
page.one(`[data-track="hide${track("client1")}"]`).click();
page.one(`[data-track="pin${track("data1")}"]`).click();
await page.idle();
assert.ok(!names().includes("client1") && names()[0] === "data1");
await again(names);

// Colours of a person, in the picture and in the address.
state.side = "legend";
await page.press("l");
await page.choose("Colour of meta.create", "#123456");
const kind = () => state.run.kinds.findIndex((kind) => kind.name === "meta.create");
assert.equal(timeline().colourOf(kind(), 1), "#123456");
await again(() => timeline().colourOf(kind(), 1));
page.one('[aria-label="Colour of meta.create"]').fire("dblclick");
await page.idle();
assert.notEqual(timeline().colourOf(kind(), 1), "#123456");

// Lanes by formula of all nodes together lie above the others.
await page.go("#/timeline?mt=l%3Asum%3A%20count%20%2F%20time");
const shared = timeline().rows.find((row) => row.type === "gauge" && row.track === null);
assert.ok(shared && shared.gauge.points.length > 50);

// Expressions: as search, as filter, and as what stands out; where one is wrong, the cursor stands.
await page.go("#/timeline");
const { search } = timeline();
search.field.value = 'op == "write" && bytes >= 4096 && server == "data1"';
await search.enter(false);
await page.idle();
const { count } = search.hits;
assert.ok(count > 10 && timeline().selected, `${count} hits`);
await page.press("j");
const lit = () => timeline().lit.lanes.reduce((sum, part) => sum + part.count, 0);
assert.ok(lit() > 0 && timeline().picture.lanes.reduce((sum, part) => sum + part.count, 0) > 5 * lit(), "all is drawn, and the hits above it");
await again(lit);
await page.press("j");
assert.equal(timeline().lit, null);
await search.toggleFilter();
await page.idle();
assert.ok(names().length === 8 && timeline().picture.lanes.every((part) => part.count === 0 || ["disk", "operation", "calls", "journal"].includes(state.run.lanes[part.lane].sub)));
search.field.value = ' op == "é" && bites > 5';
await search.toggleFilter();
assert.match(search.said.textContent, /^at letter 14: there is no attribute bites/);
assert.equal(search.field.value.slice(...search.field.range), "bites > 5");
document.activeElement.blur();

// Histograms of attributes, of a gauge and of a formula; what is none says so.
for (const of of ["", "bytes(disk.*)", "queue", "bytes / time", "sum: count / time"]) {
  for (const per of ["count", "time"]) {
    await page.go(`#/histogram?hs=${encodeURIComponent(of)}&hp=${per}`);
    assert.ok(page.text.includes("mean over time") && document.querySelector("[data-chart=histogram]"), `${of}: ${page.text.slice(0, 300)}`);
  }
}
await page.choose("What the histogram is of", "bites");
assert.match(page.one("[role=alert]").textContent, /bites is unknown/);

// The distribution of one stage of operations.
await page.go("#/latency");
const operations = () => Number(/(\d+)\D*operations?/.exec(page.one(".page h2").textContent)?.[1]);
await page.choose("Which part of the time of operations", "journal");
assert.equal(state.stage, "journal");
assert.match(page.text, /Operations that were never in this stage do not count/);
assert.match(page.one("[data-chart=latency]").textContent, /in the stage journal wait/);
await again(() => [state.stage, operations()]);

// What a person prefers is there at the next start; what a link says goes before it, and is not kept.
await page.go("#/timeline");
await page.press("z");
await page.press(".");
const preferred = state.rowHeight;
await page.go("#/timeline?w=0..1000000&pm=calls");
assert.deepEqual([state.rowHeight, state.metric], [1, "calls"]);
await page.go("#/timeline");
assert.deepEqual([state.rowHeight, state.metric], [preferred, "inclusive"]);
assert.notEqual(preferred, 1);
await page.press("?");
page.one(".forget").click();
document.getElementById("help").open = false;
await page.go("#/timeline");
assert.equal(state.rowHeight, 1);

// Links that make no sense show something that does.
for (const wrong of ["#/nothing", "#/constructor", "#/__proto__?lv=x", "#/timeline?w=9e9..-1", `#/timeline?w=${"9".repeat(400)}..${"9".repeat(401)}`, "#/timeline?w=5..2&rh=-3&co=%25E0%25A4:123456;x:12&pin=99,1e9&ord=7,7,99&fold=1000&gone=-1&sub=,99.disk",
  "#/timeline?q=((&fi=((&hl=1&hs=%00&lv=thread&sel=4294967296&m=1..x", "#/histogram?hs=((((&fi=))", "#/latency?k=99,-1,70000", "#/request?sel=99999999999", "#/timeline?mt=g:((;l:;x", "#/compare?b=77&al=9", "?????", "#//"]) {
  location.hash = wrong;
  window.dispatchEvent(new Event("hashchange"));
  await page.idle();
  assert.ok(Number.isFinite(state.from) && state.to > state.from && page.text.length > 20, wrong);
  assert.doesNotMatch(page.text, /NaN|is not a function|Cannot read/, wrong);
}
console.log("walked");
process.exit(0);
