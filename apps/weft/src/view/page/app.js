// The page: waits until the trace is loaded, shows a screen, hands keys to it.

import { address, ask, busy, count, el, moment, onChange, readAddress, set, state } from "./core.js";
import { Timeline } from "./timeline.js";
import * as screens from "./screens.js";

const SCREENS = [
  ["overview", "Overview"], ["timeline", "Timeline"], ["latency", "Latency"], ["where", "Where time goes"], ["request", "Request"], ["health", "Trace health"],
];
const KEYS = [
  ["1 to 6", "choose a screen"], ["W S, + −, wheel", "zoom in and out at the pointer"], ["A D, Shift+wheel, Shift+drag", "move (with Shift: faster)"],
  ["F", "zoom to the measured range or the chosen span"], ["Home", "look at the whole run"], ["U, Back", "undo a zoom"], ["M", "set a mark, then a second one: the time between is measured"],
  ["drag", "measure; a double click zooms in"], ["click, arrow keys", "choose a span"], ["Enter", "its request over all nodes"], ["N P", "next and previous span of this kind at this node"],
  ["/", "search"], ["G", "go to a time"], ["C", "change what colours mean"], ["L", "to the legend"], ["T", "the window as a table"], ["Space, click on a name", "fold a node"], ["Esc", "clear marks, then the choice"], ["?", "this list"],
];

const main = document.getElementById("main");
let shown = null;

async function start() {
  for (;;) {
    const answer = await ask("state");
    if (answer.state === "ready") break;
    if (answer.state === "failed") return void main.replaceChildren(el("p", { class: "loading" }, answer.reason));
    const share = answer.total ? Math.round((answer.read / answer.total) * 100) : 0;
    main.replaceChildren(el("div", { class: "loading" }, el("p", {}, share >= 100 ? "Sorting the records…" : `Reading the trace: ${share} %`), el("progress", { max: 100, value: share })));
    await new Promise((wake) => setTimeout(wake, 150));
  }
  state.run = await ask("run");
  readAddress(location.hash);
  if (!SCREENS.some(([name]) => name === state.screen)) state.screen = "timeline";
  document.title = `weft view: ${state.run.nodes.length} nodes, ${count(state.run.spans)} spans`;
  const warning = document.getElementById("warning");
  if (state.run.lost || state.run.problems) {
    const facts = [state.run.lost ? `${count(state.run.lost)} records were lost while recording` : null, state.run.problems ? `${state.run.problems} things are missing or damaged` : null];
    warning.replaceChildren(`${facts.filter(Boolean).join("; ")}. `, el("button", { type: "button", onclick: () => set({ screen: "health" }, true) }, "Trace health"));
    warning.hidden = false;
  }
  onChange(changed);
  window.addEventListener("popstate", () => {
    readAddress(location.hash);
    changed({ from: 0, screen: true, colour: true });
  });
  window.addEventListener("hashchange", () => {
    if (location.hash === address()) return;
    readAddress(location.hash);
    changed({ from: 0, screen: true });
  });
  document.addEventListener("keydown", key);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => changed({ colour: true }));
  document.getElementById("whole").addEventListener("click", () => set({ from: 0, to: state.run.duration }, true));
  document.getElementById("link").addEventListener("click", () => navigator.clipboard?.writeText(location.href));
  document.getElementById("help-button").addEventListener("click", help);
  history.replaceState(null, "", address());
  show();
  busy(-1);
}

function navigation() {
  document.getElementById("nav").replaceChildren(...SCREENS.map(([name, title], number) => el("a", { href: `#/${name}`, "aria-current": state.screen === name ? "page" : false, title: `Key ${number + 1}`, onclick: (event) => {
    event.preventDefault();
    set({ screen: name }, true);
  } }, title)));
  const length = state.to - state.from;
  const whole = length >= state.run.duration * 0.999;
  document.getElementById("window").textContent = whole ? "" : `${moment(Math.max(0, state.from), length)} to ${moment(Math.min(state.to, state.run.duration), length)}`;
  document.getElementById("whole").hidden = whole;
}

function changed(changes) {
  navigation();
  const isTimeline = shown instanceof Timeline;
  if (shown === null || (state.screen === "timeline") !== isTimeline || (!isTimeline && shown !== state.screen)) return show();
  if (isTimeline) return shown.changed(changes);
  // The others look at the window, the chosen kinds or the chosen record.
  if ("from" in changes || "to" in changes || "kinds" in changes || "selected" in changes || "colour" in changes) show();
}

let turn = 0;
async function show() {
  const mine = ++turn;
  navigation();
  if (shown instanceof Timeline) shown.close();
  if (state.screen === "timeline") {
    shown = window.weftView.timeline = new Timeline(main);
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
  dialog.replaceChildren(el("h2", { id: "help-title" }, "Keys"), el("table", {}, KEYS.map(([keys, text]) => el("tr", {}, el("th", { scope: "row" }, keys), el("td", {}, text)))), el("form", { method: "dialog" }, el("button", {}, "Close")));
  dialog.showModal();
}

function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input[type=search], input[type=text], textarea, select") || document.getElementById("help").open) return;
  const screen = SCREENS[Number(event.key) - 1];
  let used = true;
  if (event.key === "?") help();
  else if (screen && /^[1-6]$/.test(event.key)) set({ screen: screen[0] }, true);
  else if (event.key === "Home") set({ from: 0, to: state.run.duration }, true);
  else if (event.key.toLowerCase() === "u") history.back();
  else if (event.key === " " && event.target.matches("button, a, summary, input")) used = false;
  else if (event.key === "Enter" && event.target.matches("button, a, summary, input")) used = false;
  else used = shown instanceof Timeline && shown.key(event);
  if (used) event.preventDefault();
}

start().catch((error) => main.replaceChildren(el("p", { class: "loading" }, String(error.message || error))));
