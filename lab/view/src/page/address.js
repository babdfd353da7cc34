// What the page shows, as its address says it. It touches nothing of the page, so that it can be tried without one; whatever stands in a
// link, something sound comes out.

/** The usual state, and what all of it means. */
export const usual = () => ({
  align: "start", // what two runs have at the same place: their starts, or the mark of this number
  b: null, // number of the run that run a is compared with
  byName: "", // 1: costs are sorted by name
  colour: "operation", // operation, seek or duration
  colours: new Map(), // colours that a person gave to events: by title
  costsOf: "kind", // what a line of the profile's table is: a kind, a group, or both
  facts: {}, // facts of Bounds that were typed in
  filter: "", // the expression that all shown spans fulfil
  folded: new Set(), // numbers of tracks whose lanes are folded
  formula: "", // the metric of Running
  gone: new Set(), // numbers of tracks that are not drawn
  hardware: "unix", // where the facts of Bounds come from: ceilings of unix or tcp sockets, or the cluster of 2006
  hidden: new Set(), // numbers of kinds
  hitsBy: "", // longest: the longest hits first
  hitsIn: "", // 1: only hits of the window
  interval: 0, // nanoseconds of an interval of Running; 0: automatic
  kinds: null, // kinds of the latency screen, or null for the usual ones
  level: "rank", // what tracks are: processes by role (rank) or host, threads, or work for clients (relation)
  light: "", // 1: the hits of the search stand out, what is no hit is pale
  liveBy: "requests_s", // what the busiest are sorted by
  liveEach: "", // 1: Live has a chart for each server
  liveSpan: "300", // seconds that Live shows
  measure: null, // [from, to] in nanoseconds
  metric: "inclusive", // what the profile shows: inclusive, exclusive, calls or longest
  metrics: [], // lanes by formula: { formula, style: gradient or line }
  of: "", // the kind of operation whose distributions are compared; empty: all
  order: [], // numbers of tracks in the order of a person; the others follow
  per: "count", // what the bars of a histogram are: count or time
  pinned: [], // numbers of tracks that stay in view
  rowHeight: 1, // how much higher than usual rows are
  rule: "dominant", // what a pixel with several spans shows: dominant or longest
  scale: "", // the axis of a histogram: log, linear or what fits
  search: "", // the expression whose hits are listed
  selected: null, // number of a record
  side: "legend", // what lies below the profile: legend, hits or tracks
  sort: "time", // what the legend is sorted by: time, count or name
  source: "", // what Running shows: trace, or PHASE:REPETITION
  stage: "", // the stage of operations whose distribution Latency shows; empty: all of their time
  statistic: "", // what a histogram is of; empty: durations of operations
  stretch: false, // both runs are drawn with the same length
  subs: new Set(), // parts that are not drawn: of all tracks ("disk") or of one ("3.disk")
  table: false, // the window is shown as a table too
});

export const HEIGHTS = { least: 0.25, most: 6 };

// Names in the address: of one of some words, of which the first is usual; of texts, of lists and of flags.
export const WORDS = [
  ["c", "colour", ["operation", "seek", "duration"]], ["p", "rule", ["dominant", "longest"]], ["so", "sort", ["time", "count", "name"]], ["sd", "side", ["legend", "hits", "tracks"]],
  ["hw", "hardware", ["unix", "tcp", "2006"]], ["ls", "liveSpan", ["300", "60", "600"]], ["lb", "liveBy", ["requests_s", "bytes_s"]], ["lv", "level", ["rank", "host", "thread", "relation"]],
  ["pm", "metric", ["inclusive", "exclusive", "calls", "longest"]], ["po", "costsOf", ["kind", "group", "both"]], ["hp", "per", ["count", "time"]], ["hx", "scale", ["", "log", "linear"]],
  ["le", "liveEach", ["", "1"]], ["pn", "byName", ["", "1"]], ["hl", "light", ["", "1"]], ["hb", "hitsBy", ["", "longest"]], ["hi", "hitsIn", ["", "1"]],
];
const TEXTS = [["of", "of"], ["src", "source"], ["f", "formula"], ["q", "search"], ["fi", "filter"], ["hs", "statistic"], ["stg", "stage"]];
const NUMBERS = [["hide", "hidden"], ["fold", "folded"], ["ord", "order"], ["pin", "pinned"], ["gone", "gone"]];
const FLAGS = [["st", "stretch"], ["tb", "table"]];

/** The address of a state; without a name for the run that is shown anyway. */
export function write(state, firstRun) {
  // Without a run there is no window of it.
  const parts = state.runs.length ? [`w=${Math.round(state.from)}..${Math.round(state.to)}`] : [];
  const say = (name, value) => parts.push(`${name}=${encodeURIComponent(value)}`);
  const list = (name, values) => values.length && parts.push(`${name}=${values.join(",")}`);
  if (state.a !== firstRun) say("r", state.a);
  if (state.b !== null) say("b", state.b);
  if (state.align !== "start") say("al", state.align);
  if (Number(state.interval)) say("i", state.interval);
  if (state.selected !== null) say("sel", state.selected);
  if (state.rowHeight !== 1) say("rh", state.rowHeight);
  for (const [name, key, [first]] of WORDS) if (state[key] !== first) say(name, state[key]);
  for (const [name, key] of TEXTS) if (state[key]) say(name, state[key]);
  for (const [name, key] of FLAGS) if (state[key]) say(name, 1);
  for (const [name, key] of NUMBERS) list(name, [...state[key]]);
  list("sub", [...state.subs]);
  list("k", state.kinds || []);
  list("facts", Object.entries(state.facts).map(([name, value]) => `${name}:${value}`));
  if (state.measure) parts.push(`m=${state.measure.map(Math.round).join("..")}`);
  if (state.metrics.length) say("mt", state.metrics.map(({ formula, style }) => `${style[0]}:${formula}`).join(";"));
  if (state.colours.size) say("co", [...state.colours].map(([title, colour]) => `${encodeURIComponent(title)}:${colour.slice(1)}`).join(";"));
  return `#/${state.screen}${parts.length ? `?${parts.join("&")}` : ""}`;
}

const values = (text) => new URLSearchParams(text.split("?")[1] || "");
/** A whole number, or null if it is none that can be counted with. */
const whole = (text) => (/^-?\d+$/.test(text || "") && Number.isSafeInteger(Number(text)) ? Number(text) : null);
const natural = (text) => (/^\d+$/.test(text || "") ? whole(text) : null);
const oneOf = (words, value) => (words.includes(value) ? value : words[0]);

/** The run that is shown if an address names none: the first one with a trace. */
export const firstOf = (runs) => (runs.find((run) => run.has_trace) || runs.find((run) => !run.refused) || { number: 0 }).number;

/** What must be known before a run can be asked for: { a, b, level }. */
export function runsIn(text, runs) {
  const given = values(text);
  const run = (name, otherwise) => {
    const number = natural(given.get(name));
    return runs.some((run) => run.number === number && !run.refused) ? number : otherwise;
  };
  return { a: run("r", firstOf(runs)), b: run("b", null), level: oneOf(WORDS.find(([name]) => name === "lv")[2], given.get("lv")) };
}

/** True if an address says what is shown, and not only on which screen. */
export const says = (text) => text.includes("?");

/** The state that an address means, of a run that lasts so many nanoseconds; what it does not say is as usual. */
export function read(text, { runs, duration, screens }) {
  const given = values(text);
  const list = (name) => (given.get(name) || "").split(",").filter(Boolean);
  const numbers = (name) => [...new Set(list(name).map(natural).filter((number) => number !== null))];
  const range = (name) => {
    const ends = /^(-?\d+)\.\.(-?\d+)$/.exec(given.get(name) || "")?.slice(1).map(whole);
    return ends && !ends.includes(null) ? ends : null;
  };
  const pairs = (name, by, shape) => (given.get(name) || "").split(by).map((part) => shape.exec(part)).filter(Boolean).map(([, key, value]) => [key, value]);
  const state = usual();
  const [from, to] = range("w") || [0, duration];
  Object.assign(state, { from, to: Math.max(to, from + 1), b: runsIn(text, runs).b, screen: oneOf(["timeline", ...screens], text.replace(/^#?\/?/, "").split("?")[0]) });
  for (const [name, key, words] of WORDS) state[key] = oneOf(words, given.get(name));
  for (const [name, key] of TEXTS) state[key] = given.get(name) || "";
  for (const [name, key] of FLAGS) state[key] = given.get(name) === "1";
  for (const [name, key] of NUMBERS) state[key] = Array.isArray(state[key]) ? numbers(name) : new Set(numbers(name));
  if (natural(given.get("al")) !== null) state.align = given.get("al");
  state.interval = natural(given.get("i")) ?? 0;
  state.selected = natural(given.get("sel"));
  state.measure = range("m");
  state.kinds = given.has("k") ? numbers("k") : null;
  state.subs = new Set(list("sub"));
  state.facts = Object.fromEntries(pairs("facts", ",", /^([a-z_]+):([0-9.e+-]+)$/));
  state.metrics = pairs("mt", ";", /^([gl]):(.+)$/).map(([style, formula]) => ({ formula, style: style === "l" ? "line" : "gradient" }));
  const height = Number(given.get("rh"));
  if (height >= HEIGHTS.least && height <= HEIGHTS.most) state.rowHeight = height;
  for (const [title, colour] of pairs("co", ";", /^([^:]+):([0-9a-f]{6})$/)) {
    try {
      state.colours.set(decodeURIComponent(title), `#${colour}`);
    } catch {
      // A link that was cut.
    }
  }
  return state;
}
