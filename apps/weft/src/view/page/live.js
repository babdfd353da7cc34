// The page of live numbers: asks once a second, keeps the last ten minutes, draws them. Names reach the page as text nodes only.

import { PALETTE, announce, ask, bytes, count, el, svg } from "./core.js";
import { key } from "./charts.js";

const serverColour = (number) => PALETTE[number % PALETTE.length];

const KEEP = 620; // seconds
const $ = (id) => document.getElementById(id);
const look = { span: 300, same: true, by: "requests_s", paused: false };
let history = []; // for each server its points
let after = -1;
let began = null; // tells one viewer from the next one at the same address
window.weftLive = { get state() { return { history, look }; }, drawn: 0 };

// What is drawn of a point: title, column of the point, how a number is written, which servers, the smallest scale, its steps.
const CHARTS = [
  ["Read bandwidth", 1, (value) => `${bytes(Math.round(value))}/s`, "data", 1024, 1024], ["Write bandwidth", 2, (value) => `${bytes(Math.round(value))}/s`, "data", 1024, 1024],
  ["Metadata reads", 3, (value) => `${count(value)}/s`, "meta", 10, 10], ["Metadata changes", 4, (value) => `${count(value)}/s`, "meta", 10, 10],
  ["Queue (mean requests in the server)", 5, (value) => count(value), "all", 1, 10], ["Processor time (processors)", 7, (value) => count(value), "all", 1, 10],
];

async function tick() {
  if (look.paused) return;
  const answer = await ask("live", { after });
  const now = answer.now;
  const restarted = began !== null && now.seconds < began;
  began = now.seconds;
  if (restarted || history.length !== now.servers.length) {
    history = now.servers.map(() => []);
    if (restarted) {
      after = -1;
      return;
    }
  }
  answer.history.forEach((points, server) => {
    history[server].push(...points);
    history[server] = history[server].filter((point) => point[0] > now.seconds - KEEP);
  });
  after = Math.max(after, ...answer.history.flat().map((point) => point[0]));
  draw(now);
}

function draw(now) {
  document.title = `weft live: ${now.fs}`;
  $("what").textContent = `${now.fs}, ${now.servers.length} servers, every ${count(now.interval_s)} s; read ${bytes(Math.round(now.sums.read_bytes_s))}/s, write ${bytes(Math.round(now.sums.written_bytes_s))}/s, ${count(now.sums.meta_reads_s)} metadata reads/s, ${count(now.sums.meta_changes_s)} changes/s`;
  const silent = now.servers.filter((server) => !server.answers).map((server) => server.name);
  const warning = $("warning");
  if (silent.length && warning.hidden) announce(`silent: ${silent.join(", ")}`);
  warning.hidden = silent.length === 0;
  warning.textContent = `No answer from ${silent.join(", ")}.`;
  servers(now);
  charts(now);
  tops(now);
  window.weftLive.drawn += 1;
}

const number = (text) => el("td", { class: "number" }, text);
const heads = (names) => el("tr", {}, names.map((name) => el("th", { scope: "col", class: name.startsWith(">") ? "number" : false }, name.replace(/^>/, ""))));
const seconds = (value) => (value < 0.001 ? `${Math.round(value * 1e6)} µs` : value < 1 ? `${(value * 1000).toFixed(value < 0.1 ? 1 : 0)} ms` : value < 120 ? `${value.toFixed(value < 10 ? 1 : 0)} s` : value < 7200 ? `${Math.round(value / 60)} min` : `${Math.round(value / 3600)} h`);

function servers(now) {
  const rows = now.servers.map((server) => {
    if (!server.answers) {
      const words = server.age_s === null ? `no answer${server.problem ? `: ${server.problem}` : " yet"}` : `no data for ${seconds(server.age_s)}${server.problem ? `: ${server.problem}` : ""}`;
      return el("tr", { class: "silent" }, el("td", { class: "name" }, server.name), el("td", { colspan: 12, class: "words" }, words));
    }
    const rates = server.rates;
    const rate = (value, format) => number(rates ? format(value(rates)) : "");
    const free = server.free_bytes / Math.max(server.capacity_bytes, 1);
    const sign = { red: "! ", yellow: "- ", green: "" }[server.space] || "";
    const space = el("td", { class: server.space }, el("meter", { min: 0, max: 1, low: 0.7, high: 0.9, optimum: 0, value: 1 - free, title: `${bytes(server.free_bytes)} of ${bytes(server.capacity_bytes)} free` }), ` ${sign}${Math.round(free * 100)} % free`);
    return el("tr", {}, el("td", { class: "name", title: server.address }, server.name), el("td", {}, server.state),
      rate((of) => of.read_bytes_s, (value) => `${bytes(Math.round(value))}/s`), rate((of) => of.written_bytes_s, (value) => `${bytes(Math.round(value))}/s`),
      rate((of) => of.meta_reads_s, (value) => `${count(value)}/s`), rate((of) => of.meta_changes_s, (value) => `${count(value)}/s`),
      number(rates ? `${count(rates.queue_mean)} (${server.queued})` : String(server.queued)), rate((of) => of.cpus, (value) => `${Math.round(value * 100)} %`),
      number(server.cache_bytes_max ? `${bytes(server.cache_bytes)} of ${bytes(server.cache_bytes_max)}` : "none"), number(String(server.clients)), space,
      el("td", { class: "number", title: `start number ${server.boot}` }, seconds(server.uptime_s)), number(seconds(server.age_s)));
  });
  $("servers").replaceChildren(heads(["Server", "State", ">Read", ">Write", ">Looks", ">Changes", ">Queue", ">Processor", ">Cache", ">Clients", "Space", ">Up", ">Last answer"]), ...rows);
}

/** Lines over time, one for each server; where a server was silent there is a gap. */
function lines(title, column, format, names, from, to, interval, largest) {
  const [width, height, left, top, bottom] = [520, 120, 74, 8, 20];
  const x = (second) => left + ((second - from) / (to - from)) * (width - left - 8);
  const y = (value) => top + (1 - value / largest) * (height - top - bottom);
  const parts = [];
  for (const share of [0, 0.5, 1]) {
    parts.push(svg("line", { x1: left, x2: width - 8, y1: y(largest * share), y2: y(largest * share), class: "grid" }));
    parts.push(svg("text", { x: left - 5, y: y(largest * share) + 4, "text-anchor": "end", class: "dim small" }, format(largest * share)));
  }
  parts.push(svg("text", { x: left, y: height - 4, class: "dim small" }, `${seconds(to - from)} ago`), svg("text", { x: width - 8, y: height - 4, "text-anchor": "end", class: "dim small" }, "now"));
  const facts = [];
  for (const [position, [server, name]] of names.entries()) {
    const points = history[server].filter((point) => point[0] >= from);
    const pieces = [[]];
    points.forEach((point, at) => {
      if (at > 0 && point[0] - points[at - 1][0] > 2.5 * interval) pieces.push([]);
      pieces[pieces.length - 1].push(`${x(point[0]).toFixed(1)},${y(Math.min(point[column], largest)).toFixed(1)}`);
    });
    const sum = points.reduce((all, point) => all + point[column], 0);
    const highest = points.reduce((all, point) => Math.max(all, point[column]), 0);
    if (points.length) facts.push(`${name}: mean ${format(sum / points.length)}, highest ${format(highest)}`);
    for (const piece of pieces.filter((piece) => piece.length)) {
      const line = svg("polyline", { points: piece.join(" "), fill: "none", stroke: serverColour(server), "stroke-width": 1.6, "stroke-dasharray": ["", "7 3", "2 3", "9 3 2 3"][position % 4] });
      line.append(svg("title", {}, facts[facts.length - 1] || name));
      parts.push(line);
    }
  }
  const label = `${title} over the last ${seconds(to - from)}. ${facts.join("; ")}`;
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, width: "100%", role: "img", "aria-label": label, class: "chart", "data-chart": title }, parts);
}

/** The next round number; of bytes, one of a binary unit. */
function nice(value, base) {
  const unit = base === 1024 ? 1024 ** Math.max(0, Math.floor(Math.log(value) / Math.log(1024))) : 1;
  const power = 10 ** Math.floor(Math.log10(value / unit));
  return unit * power * [1, 2, 4, 5, 8, 10].find((factor) => factor * power >= (value / unit) * 0.9999);
}

function charts(now) {
  const [from, to] = [now.seconds - look.span, now.seconds];
  const drawn = CHARTS.map(([title, column, format, role, least, base]) => {
    const names = now.servers.map((server, number) => [number, server.name, server.role]).filter(([, , its]) => role === "all" || its === role);
    const highest = (servers) => nice(servers.reduce((most, [server]) => history[server].reduce((all, point) => (point[0] >= from ? Math.max(all, point[column]) : all), most), least), base);
    const body = look.same || names.length < 2
      ? [lines(title, column, format, names, from, to, now.interval_s, highest(names))]
      : names.map((one) => lines(`${title} of ${one[1]}`, column, format, [one], from, to, now.interval_s, highest([one])));
    return el("div", {}, el("h3", {}, title), body, key(names.map(([server, name]) => [name, serverColour(server)]), true));
  });
  $("charts").replaceChildren(...drawn);
}

function tops(now) {
  const busiest = (rows) => rows.slice().sort((a, b) => b[look.by] - a[look.by]).slice(0, 12).filter((row) => row[look.by] > 0)
    .map((row) => el("tr", {}, el("td", { class: "name", title: row.name === null ? row.id : `${row.name} (${row.id})` }, row.name === null ? row.id : row.name), number(`${count(row.requests_s)}/s`), number(`${bytes(Math.round(row.bytes_s))}/s`)));
  $("clients").replaceChildren(heads(["Client", ">Requests", ">Bytes"]), ...busiest(now.clients));
  $("objects").replaceChildren(heads(["Path, or handle", ">Requests", ">Bytes"]), ...busiest(now.objects));
  const operations = now.operations.filter((row) => row.per_s > 0).slice(0, 12)
    .map((row) => el("tr", {}, el("td", {}, row.name), number(`${count(row.per_s)}/s`), number(seconds(row.mean_us / 1e6)), number(seconds(row.p50_us / 1e6)), number(seconds(row.p99_us / 1e6)), number(count(row.count)), number(count(row.failed))));
  $("operations").replaceChildren(heads(["Operation", ">Rate", ">Mean", ">Median <", ">99 % <", ">Since start", ">Errors"]), ...operations);
  const oldest = now.oldest.slice(0, 12)
    .map((row) => el("tr", {}, el("td", {}, row.operation), el("td", {}, row.server), el("td", { class: "name", title: row.object }, row.name || row.object || ""), el("td", { class: "name", title: row.client }, row.client_name || row.client), number(seconds(row.age_s))));
  $("oldest").replaceChildren(heads(["Operation", "At", "About", "Client", ">Age"]), ...(oldest.length ? oldest : [el("tr", {}, el("td", { colspan: 5, class: "dim" }, "Nothing waits."))]));
}

$("span").addEventListener("change", (event) => (look.span = Number(event.target.value)));
$("same").addEventListener("change", (event) => (look.same = event.target.checked));
$("by").addEventListener("change", (event) => (look.by = event.target.value));
const pause = () => {
  look.paused = !look.paused;
  $("pause").setAttribute("aria-pressed", look.paused);
  $("pause").textContent = look.paused ? "Go on" : "Pause";
};
$("pause").addEventListener("click", pause);
document.addEventListener("keydown", (event) => event.key.toLowerCase() === "p" && !event.target.matches("input, select") && !event.ctrlKey && !event.metaKey && pause());

for (;;) {
  try {
    await tick();
  } catch (error) {
    const warning = $("warning");
    warning.hidden = false;
    warning.textContent = `The viewer does not answer: ${error.message || error}. What is shown is old.`;
  }
  await new Promise((wake) => setTimeout(wake, 1000));
}
