// What all screens share: the state and its address, requests, numbers for people, colours, elements. Text from a trace reaches the page as
// text nodes only.

import { firstOf, read, says, usual, write } from "./address.js";
import { keep, kept } from "./kept.js";

export const state = {
  ...usual(),
  runs: [], // what /api/runs says
  a: 0, // number of the run that is shown
  run: null, // what /api/run says about run a
  screen: "timeline",
  from: 0,
  to: 1, // nanoseconds since the beginning of the run
  looks: { stages: {}, seeks: [] }, // colours and patterns of stages and disk accesses
  live: false, // there are live numbers
};

// For tests and the console: what the page shows, and whether it waits for anything.
let pending = 1; // until the first screen is there
window.weftView = { state, get idle() { return pending === 0; } };
/** Something begins (1) or is over (-1) that the page waits for. */
export const busy = (by) => (pending += by);

const listeners = [];
export const onChange = (listener) => listeners.push(listener);

/** Changes the state; `step`: the back button undoes it. */
export function set(changes, step = false) {
  Object.assign(state, changes);
  if ("from" in changes || "to" in changes) clampWindow();
  keep(changes);
  writeAddress(step);
  for (const listener of listeners) listener(changes);
}

const SHORTEST = 50; // ns; below there is nothing to see

function clampWindow() {
  const whole = state.run ? state.run.duration : 1;
  let length = Math.min(Math.max(state.to - state.from, SHORTEST), whole * 1.04);
  let from = state.from;
  if (from + length > whole * 1.02) from = whole * 1.02 - length;
  if (from < -whole * 0.02) from = -whole * 0.02;
  state.from = from;
  state.to = from + length;
}

/** The address says everything that is needed to see the same again. */
export const address = () => write(state, firstOf(state.runs));

/** What the address says becomes the state; if it says nothing, what the person prefers. */
export function readAddress(text, screens) {
  Object.assign(state, read(text, { runs: state.runs, duration: state.run.duration, screens }), says(text) ? {} : kept());
  clampWindow();
}

let lastStep = 0;
function writeAddress(step) {
  const now = Date.now();
  // A turn of the wheel is many small steps; the back button shall undo all of them at once.
  const push = step && now - lastStep > 700;
  if (step) lastStep = now;
  if (address() !== location.hash) history[push ? "pushState" : "replaceState"](null, "", address());
}

/** An answer from the server about run a. */
export const get = (path, query = {}) => getOf(state.a, path, query);

/** An answer from the server about a run. */
export const getOf = (run, path, query = {}) => fetched(path, { run, ...(state.level === "rank" ? {} : { by: state.level }), ...query });

/** What the servers of the file system do now. */
export const getLive = (query) => fetched("live", query).then(parsed);

/** A question that is not answered for long is asked again on a new connection: reading twice does no harm. */
async function fetched(path, query) {
  const url = `/api/${path}?${new URLSearchParams(query)}`;
  for (let tries = 3; ; tries -= 1) {
    try {
      return await fetch(url, tries > 0 ? { signal: AbortSignal.timeout(8000) } : {});
    } catch (error) {
      if (error.name !== "TimeoutError" || tries === 0) throw error;
    }
  }
}

/** JSON about run a. */
export const ask = (path, query = {}) => askOf(state.a, path, query);

/** JSON about a run; until it is there, and the caller has gone on, the page waits. */
export async function askOf(run, path, query = {}) {
  busy(1);
  try {
    return await getOf(run, path, query).then(parsed);
  } finally {
    busy(-1);
  }
}

async function parsed(answer) {
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.json();
}

export const windowQuery = () => ({ from: Math.max(0, Math.floor(state.from)), to: Math.max(1, Math.ceil(state.to)) });
export const hiddenQuery = () => ({ ...windowQuery(), hide: [...state.hidden].join(","), ...filterQuery() });
export const filterQuery = () => (state.filter ? { filter: state.filter } : {});

/** An element; attributes that begin with "on" are listeners; children are elements or text. */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

/** Nanoseconds for people: three digits and a unit. */
export function time(ns) {
  const size = Math.abs(ns);
  if (size === 0) return "0";
  if (size < 999.5) return `${digits(ns)} ns`;
  if (size < 999.5e3) return `${digits(ns / 1e3)} µs`;
  if (size < 999.5e6) return `${digits(ns / 1e6)} ms`;
  return `${digits(ns / 1e9)} s`;
}

function digits(value) {
  const size = Math.abs(value);
  return value.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
}

/** A moment of the run with as many digits as a window of this length needs. */
export function moment(ns, length) {
  const [unit, name] = ns >= 1e9 || length >= 1e9 ? [1e9, "s"] : length >= 1e5 || ns >= 1e6 ? [1e6, "ms"] : [1e3, "µs"];
  const places = Math.min(9, Math.max(0, Math.ceil(Math.log10(unit / (length / 100)))));
  return `${(ns / unit).toFixed(places)} ${name}`;
}

export function count(number) {
  const size = Math.abs(number);
  if (size < 10000) return String(size >= 100 ? Math.round(number) : Math.round(number * 100) / 100);
  const [unit, name] = size < 999500 ? [1e3, "k"] : size < 999.5e6 ? [1e6, "M"] : [1e9, "G"];
  return digits(number / unit) + name;
}

/** A number of things: 1 operation, 12.5k operations. */
export const things = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

export function bytes(number) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; number >= 1024 && unit < units.length - 1; unit++) number /= 1024;
  return `${unit ? digits(number) : number} ${units[unit]}`;
}

/** A share; what is not all of it never reads as 100 %. */
export const percent = (share) => share === 0 ? "0 %" : share > 0 && share < 0.0005 ? "<0.1 %" : `${(share * 100).toFixed(share < 0.0995 || (share > 0.985 && share < 0.9995) ? 1 : share >= 0.9995 && share < 1 ? 2 : 0)} %`;

export const SEEK_NAMES = ["", "no seek", "near seek", "far seek"];
const NO_DISK = { colour: "#b9b9b9", pattern: 0 };

/** The look of a kind in the present mode: a colour, and a pattern that says the same: 0 none, 1 dots, 2 hatched. */
export function kindLook(kind) {
  if (state.colour === "seek") return kind.sub_lane === "disk" ? state.looks.seeks[kind.class] : NO_DISK;
  return { colour: state.colours.get(kindTitle(kind)) || kind.colour, pattern: 0 };
}
export const kindColour = (kind) => kindLook(kind).colour;

// Dark is short, bright is long; lightness alone tells the order.
const SEQUENTIAL = [[42, 30, 80], [57, 64, 126], [52, 97, 141], [42, 127, 142], [43, 157, 134], [81, 185, 115], [159, 208, 79], [243, 229, 30]];
/** 1 us and less to 1 s and more. */
export function durationColour(ns) {
  const place = Math.min(1, Math.max(0, Math.log10(Math.max(ns, 1) / 1e3) / 6)) * (SEQUENTIAL.length - 1);
  const low = Math.min(SEQUENTIAL.length - 2, Math.floor(place));
  const mixed = SEQUENTIAL[low].map((value, channel) => Math.round(value + (SEQUENTIAL[low + 1][channel] - value) * (place - low)));
  return `#${mixed.map((value) => value.toString(16).padStart(2, "0")).join("")}`;
}

export const kindTitle = (kind) => kind.name + (kind.class ? `, ${SEEK_NAMES[kind.class]}` : "");

export const stageTitle = (stage) => state.looks.stages[stage]?.title || stage;
export const stageLook = (stage) => state.looks.stages[stage]?.look || NO_DISK;

/** Black or white, whichever is read better on this colour. */
export function textOn(colour) {
  const [r, g, b] = [1, 3, 5].map((at) => {
    const channel = parseInt(colour.slice(at, at + 2), 16) / 255;
    return channel <= 0.04045 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.2 ? "#000000" : "#ffffff";
}

/** Hands text to the browser as a file. */
export function download(name, type, content) {
  const link = el("a", { href: URL.createObjectURL(new Blob([content], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** Says something to those who cannot see it. */
export function announce(text) {
  document.getElementById("announce").textContent = text;
}

/** A colour of the theme. */
export const theme = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
