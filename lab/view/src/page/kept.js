// What a person prefers, kept from one start of the viewer to the next. It is a cookie, because those hold for a machine whatever the port is; it says nothing
// about any trace. What an address says goes before it, so that a link shows the same to everybody.

import { HEIGHTS, WORDS } from "./address.js";

const NAME = "weft-view";
const YEAR = 365 * 24 * 3600;
/** The words of the state that are kept. */
const CHOICES = WORDS.filter(([, key]) => ["colour", "rule", "sort", "side", "metric", "costsOf", "scale", "per", "liveSpan", "liveBy", "liveEach", "hitsBy"].includes(key));
/** Colours of events that are kept: a cookie has 4,096 bytes. */
const COLOURS_MAX = 60;

/** The part of a state that a text from a cookie means; what makes no sense is left out. */
export function preferred(text) {
  const given = new URLSearchParams(text);
  const state = {};
  for (const [name, key, words] of CHOICES) if (words.includes(given.get(name))) state[key] = given.get(name);
  const height = Number(given.get("rh"));
  if (height >= HEIGHTS.least && height <= HEIGHTS.most) state.rowHeight = height;
  const colours = (given.get("co") || "").split(";").map((part) => /^(.+):([0-9a-f]{6})$/.exec(part)).filter(Boolean);
  if (colours.length) state.colours = new Map(colours.map(([, title, colour]) => [title, `#${colour}`]));
  return state;
}

/** The text of such a part. */
export function written(state) {
  const said = new URLSearchParams();
  for (const [name, key] of CHOICES) if (state[key] !== undefined) said.set(name, state[key]);
  if (state.rowHeight !== undefined) said.set("rh", state.rowHeight);
  const colours = [...(state.colours || [])].filter(([title]) => !title.includes(";")).slice(-COLOURS_MAX);
  if (colours.length) said.set("co", colours.map(([title, colour]) => `${title}:${colour.slice(1)}`).join(";"));
  return said.toString();
}

const cookie = () => (document.cookie || "").split("; ").find((one) => one.startsWith(`${NAME}=`))?.slice(NAME.length + 1) || "";
const put = (text, seconds) => (document.cookie = `${NAME}=${encodeURIComponent(text)}; path=/; samesite=strict; max-age=${seconds}`);

/** What was kept. */
export function kept() {
  try {
    return preferred(decodeURIComponent(cookie()));
  } catch {
    return {};
  }
}

const KEYS = [...CHOICES.map(([, key]) => key), "rowHeight", "colours"];

/** Keeps what a person has just changed, and nothing else: the rest may be from a link of somebody else. */
export function keep(changes) {
  const chosen = Object.entries(changes).filter(([key]) => KEYS.includes(key));
  if (chosen.length) put(written({ ...kept(), ...Object.fromEntries(chosen) }), YEAR);
}

/** Forgets all of it. */
export const forget = () => put("", 0);
