// The page: waits until the trace is loaded, shows a screen, hands keys to it.

import { runsIn } from "./address.js";
import { address, ask, busy, count, el, moment, onChange, readAddress, set, state } from "./core.js";
import { histogram } from "./histogram.js";
import { Timeline } from "./timeline.js";
import { Compare } from "./compare.js";
import { Live } from "./live.js";
import { bounds } from "./bounds.js";
import { report } from "./report.js";
import { running } from "./running.js";
import { runs } from "./runs.js";
import * as documents from "./screens.js";
import { forget } from "./kept.js";

// Name, title, key, and whether the screen needs a trace.
const SCREENS = [
  ["runs", "Runs", "7", false], ["overview", "Overview", "1", true], ["timeline", "Timeline", "2", true], ["latency", "Latency", "3", true], ["where", "Where time goes", "4", true], ["request", "Request", "5", true],
  ["histogram", "Histogram", "H", true], ["running", "Running", "8", false], ["compare", "Compare", "9", true], ["bounds", "Bounds", "0", false], ["report", "Report", "R", false], ["health", "Trace health", "6", false],
  ["live", "Live", "V", false],
];
/** The screens that there is something for. */
const present = () => SCREENS.filter(([name]) => (name === "live" ? state.live : state.runs.length > 0));
/** The run that is shown if no trace was given, only live numbers. */
const NO_RUN = { name: "", has_trace: false, duration: 1, spans: 0, nodes: [], tracks: [], lanes: [], kinds: [], marks: [], lost: 0, problems: 0 };
// Screens that keep what they have drawn while the state changes.
const LASTING = { timeline: Timeline, compare: Compare, live: Live };
const screens = { ...documents, runs, histogram, running, bounds, report };
const KEYS = [
  ["0 to 9, H, R, V", "choose a screen"], ["[ ]", "previous and next run"], ["X", "exchange runs A and B"], ["W S, + −, wheel", "zoom in and out at the pointer"], ["A D, Shift+wheel, Shift+drag", "move (with Shift: faster)"],
  ["F", "zoom to the measured range or the chosen span"], ["Home", "look at the whole run"], ["U, Back", "undo a zoom"], ["M", "set a mark, then a second one: the time between is measured"],
  ["drag", "measure; a double click zooms in"], ["click, arrow keys", "choose a span"], ["Enter", "its request over all nodes"], ["N P", "next and previous span of this kind at this node"],
  ["/", "search; Enter lists what is found"], ["J", "hits of the search stand out"], ["K", "tracks: hide, pin, reorder them"], ["B", "what tracks are: processes by role or host, threads, work for clients"], [", .", "lower and higher rows"], ["Z", "all rows in view"], ["I", "the next metric of the profile"], ["G", "go to a time"], ["C", "change what colours mean"], ["L", "to the legend"], ["T", "the window as a table"], ["E", "lanes by formula"], ["Space, click on a name", "fold a track"], ["Shift+click on the name of a part", "hide it there"], ["Esc", "clear marks, then the choice"], ["P", "in Live: stand still, go on"], ["?", "this list"],
];

const main = document.getElementById("main");
let shown = null;

async function start() {
  let answer;
  for (;;) {
    answer = await ask("state");
    if (answer.state === "ready") break;
    // Live numbers need no trace.
    if (answer.state === "failed" && answer.live) break;
    if (answer.state === "failed") return void main.replaceChildren(el("p", { class: "loading" }, answer.reason));
    const share = answer.total ? Math.round((answer.read / answer.total) * 100) : 0;
    main.replaceChildren(el("div", { class: "loading" }, el("p", {}, share >= 100 ? "Sorting the records…" : `Reading the trace: ${share} %`), el("progress", { max: 100, value: share })));
  }
  Object.assign(state, { live: answer.live, looks: answer.looks });
  state.runs = answer.traces && answer.state === "ready" ? await ask("runs") : [];
  const names = SCREENS.map(([name]) => name);
  Object.assign(state, runsIn(location.hash, state.runs));
  await openRun();
  readAddress(location.hash, names);
  if (!present().some(([name]) => name === state.screen)) state.screen = state.runs.length ? "timeline" : "live";
  if (!location.hash && state.runs.length > 1) state.screen = "runs";
  onChange(changed);
  const moved = async () => {
    const { a, level } = runsIn(location.hash, state.runs);
    const other = a !== state.a || level !== state.level;
    Object.assign(state, { a, level });
    await meanwhile(async () => {
      if (other && !(await openRun())) return;
      readAddress(location.hash, names);
      changed({ from: 0, screen: true, colour: true, a: other });
    });
  };
  window.addEventListener("popstate", moved);
  window.addEventListener("hashchange", () => location.hash === address() || moved());
  document.addEventListener("keydown", key);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => changed({ colour: true }));
  document.getElementById("whole").addEventListener("click", () => set({ from: 0, to: state.run.duration }, true));
  document.getElementById("link").addEventListener("click", () => navigator.clipboard?.writeText(location.href));
  document.getElementById("help-button").addEventListener("click", help);
  history.replaceState(null, "", address());
  show();
  busy(-1);
}

/** The page is busy while this is done; if it fails, the reason is what is shown. */
async function meanwhile(action) {
  busy(1);
  try {
    await action();
  } catch (error) {
    main.replaceChildren(el("p", { class: "loading" }, String(error.message || error)));
  }
  busy(-1);
}

let opening = 0;
/**
 * Learns what run a is; what was chosen in another run, or of other tracks, means nothing in this one.
 * False if another run was asked for in the meantime.
 */
async function openRun(sameRun = false) {
  const mine = ++opening;
  const run = state.runs.length ? await ask("run") : NO_RUN;
  if (mine !== opening) return false;
  state.run = run;
  Object.assign(state, { folded: new Set(), order: [], pinned: [], gone: new Set(), subs: new Set([...state.subs].filter((part) => !/^\d/.test(part))) });
  if (!sameRun) Object.assign(state, { hidden: new Set(), selected: null, measure: null, kinds: null });
  warn();
  if (state.runs.length) tellWhenAnalysed(state.a);
  document.title = state.run.has_trace ? `weft view: ${state.run.name}, ${state.run.nodes.length} nodes, ${count(state.run.spans)} spans` : `weft view: ${state.run.name}`;
  return true;
}

/** Whether requests violate cause and effect is known when the analysis is there. */
async function tellWhenAnalysed(run) {
  while (state.a === run && !(await ask("state")).analysed) await new Promise((wake) => setTimeout(wake, 500));
  if (state.a !== run) return;
  state.run.problems = (await ask("run")).problems;
  warn();
}

/** Says on top of every screen what is missing. */
function warn() {
  const warning = document.getElementById("warning");
  const refused = state.runs.filter((run) => run.refused).map((run) => `${run.name} could not be read: ${run.refused}`);
  const facts = [state.run.lost ? `${count(state.run.lost)} records were lost while recording` : null, state.run.problems ? `${state.run.problems} things are missing or damaged` : null, ...refused].filter(Boolean);
  warning.hidden = facts.length === 0;
  warning.replaceChildren(`${facts.join("; ")}. `, el("button", { type: "button", onclick: () => set({ screen: "health" }, true) }, "Trace health"));
}

/** Shows another run with the same window, if it is as long as that, else whole. */
async function otherRun(a, sameRun) {
  const whole = state.from <= 0 && state.to >= state.run.duration * 0.999;
  await meanwhile(async () => {
    if (!(await openRun(sameRun))) return;
    if (whole || state.from >= state.run.duration) Object.assign(state, { from: 0, to: state.run.duration });
    set({ from: state.from, to: Math.min(state.to, state.run.duration), opened: a }, true);
  });
}

/** The next run that could be read. */
function step(by) {
  const usable = state.runs.filter((run) => !run.refused).map((run) => run.number);
  const a = usable[(usable.indexOf(state.a) + by + usable.length) % usable.length];
  if (a !== state.a) set({ a });
}

function runChoice() {
  const usable = state.runs.filter((run) => !run.refused);
  if (usable.length < 2) return [];
  return [el("label", { class: "run-choice" }, "Run ", el("select", { "aria-label": "The run that is shown ([ and ])", onchange: (event) => set({ a: Number(event.target.value) }) },
    usable.map((run) => el("option", { value: run.number, selected: run.number === state.a }, run.name))))];
}

function navigation() {
  document.getElementById("run").replaceChildren(...runChoice());
  document.getElementById("nav").replaceChildren(...present().map(([name, title, key]) => el("a", { href: `#/${name}`, "aria-current": state.screen === name ? "page" : false, title: `Key ${key}`, onclick: (event) => {
    event.preventDefault();
    set({ screen: name }, true);
  } }, title)));
  const length = state.to - state.from;
  const whole = length >= state.run.duration * 0.999 || state.screen === "live";
  document.getElementById("window").textContent = whole ? "" : `${moment(Math.max(0, state.from), length)} to ${moment(Math.min(state.to, state.run.duration), length)}`;
  document.getElementById("whole").hidden = whole;
}

function changed(changes) {
  if (("a" in changes || "level" in changes) && !("screen" in changes)) return otherRun(state.a, !("a" in changes));
  navigation();
  const lasts = state.screen in LASTING && shown instanceof LASTING[state.screen];
  if (shown === null || !(lasts || shown === state.screen) || "a" in changes || "opened" in changes || "b" in changes) return show();
  if (lasts) return shown.changed(changes);
  // The others look at the window, the chosen kinds, the chosen record or the formula.
  if (["kinds", "stage", "selected", "colour", "colours", "filter", "again"].some((name) => name in changes)) show();
  else if ("from" in changes || "to" in changes) soon();
}

let waiting;
/** Draws the screen once the window stands still: what is asked for a window that is still moving is of no use. */
function soon() {
  if (waiting !== undefined) busy(-1);
  clearTimeout(waiting);
  busy(1);
  waiting = setTimeout(() => {
    waiting = undefined;
    show();
    busy(-1);
  }, 120);
}

let turn = 0;
async function show() {
  const mine = ++turn;
  navigation();
  if (shown?.close) shown.close();
  const [, title, , needsTrace] = SCREENS.find(([name]) => name === state.screen) || [];
  if (needsTrace && !state.run.has_trace) {
    shown = state.screen;
    return void main.replaceChildren(el("p", { class: "loading" }, `${title} needs a trace; ${state.run.name} holds results of weft bench only.`));
  }
  if (state.screen in LASTING) {
    shown = window.weftView[state.screen] = new LASTING[state.screen](main);
    return shown.begin();
  }
  const isNew = shown !== state.screen;
  shown = state.screen;
  busy(1);
  if (isNew) main.replaceChildren(el("p", { class: "loading" }, "Computing…"));
  try {
    const place = el("div");
    Object.defineProperty(place, "clientWidth", { value: main.clientWidth });
    await screens[state.screen](place);
    if (mine === turn) main.replaceChildren(...place.childNodes);
  } catch (error) {
    if (mine === turn) main.replaceChildren(el("p", { class: "loading" }, String(error.message || error)));
  }
  busy(-1);
}

function help() {
  const dialog = document.getElementById("help");
  dialog.replaceChildren(el("h2", { id: "help-title" }, "Keys"), el("table", {}, KEYS.map(([keys, text]) => el("tr", {}, el("th", { scope: "row" }, keys), el("td", {}, text)))), 
    el("p", {}, "Colours, the height of rows, the metric of the profile and what lists are sorted by are kept in this browser for the next time. ", el("button", { type: "button", class: "forget", onclick: forget }, "Forget them")),
    el("form", { method: "dialog" }, el("button", {}, "Close")));
  dialog.showModal();
}

function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input[type=search], input[type=text], input[type=number], textarea, select") || document.getElementById("help").open) return;
  const screen = present().find(([, , key]) => key === event.key.toUpperCase());
  let used = true;
  if (event.key === "?") help();
  else if (screen) set({ screen: screen[0] }, true);
  else if (event.key === "Home") set({ from: 0, to: state.run.duration }, true);
  else if (event.key.toLowerCase() === "u") history.back();
  else if (event.key === " " && event.target.matches("button, a, summary, input")) used = false;
  else if (event.key === "Enter" && event.target.matches("button, a, summary, input")) used = false;
  else if (event.key === "[" || event.key === "]") step(event.key === "[" ? -1 : 1);
  else if (event.key.toLowerCase() === "x" && state.b !== null) set({ a: state.b, b: state.a });
  else if (shown?.key) used = shown.key(event);
  else used = moveWindow(event);
  if (used) event.preventDefault();
}

/** The window of time by keys, for screens that are no timeline. */
function moveWindow(event) {
  const length = state.to - state.from;
  const zoom = (factor) => [state.from + (length * (1 - factor)) / 2, state.to - (length * (1 - factor)) / 2];
  const pan = (share) => [state.from + length * share, state.to + length * share];
  const large = event.shiftKey ? 3 : 1;
  const windows = { w: () => zoom(0.7 ** large), "+": () => zoom(0.7), s: () => zoom(1 / 0.7 ** large), "-": () => zoom(1 / 0.7), a: () => pan(-0.15 * large), d: () => pan(0.15 * large) };
  const found = windows[event.key.toLowerCase()];
  if (!found) return false;
  const [from, to] = found();
  set({ from, to }, true);
  return true;
}

start().catch((error) => main.replaceChildren(el("p", { class: "loading" }, String(error.message || error))));
