// Live numbers of a running file system: asks once a second. Names reach the page as text nodes only.

import { announce, bytes, count, el, getLive, set, state } from "./core.js";
import { figure } from "./drawn.js";
import { number } from "./parts.js";

const seconds = (value) => (value < 0.001 ? `${Math.round(value * 1e6)} µs` : value < 1 ? `${(value * 1000).toFixed(value < 0.1 ? 1 : 0)} ms` : value < 120 ? `${value.toFixed(value < 10 ? 1 : 0)} s` : value < 7200 ? `${Math.round(value / 60)} min` : `${Math.round(value / 3600)} h`);
const bandwidth = (value) => `${bytes(Math.round(value))}/s`;
const rate = (value) => `${count(value)}/s`;
const table = (head, rows) => el("table", { class: "live-table" }, el("tr", {}, head.map((name) => el("th", { scope: "col", class: name.startsWith(">") ? "number" : false }, name.replace(/^>/, "")))), rows);
const BUSIEST = [["requests_s", "requests"], ["bytes_s", "bytes"]];

export class Live {
  constructor(main) {
    this.paused = false;
    this.drawn = 0;
    this.titleBefore = document.title;
    const choice = (label, name, options) => el("label", {}, `${label} `, el("select", { "data-state": name, onchange: (event) => set({ [name]: event.target.value }) }, options.map(([value, text]) => el("option", { value, selected: String(value) === String(state[name]) }, text))));
    this.words = el("span", { class: "dim" });
    this.warning = el("div", { class: "silence", role: "alert", hidden: true });
    this.pause = el("button", { type: "button", "aria-pressed": "false", title: "Let the screen stand still (P)", onclick: () => this.stop() }, "Pause");
    this.servers = el("div", { class: "card" });
    this.charts = el("div", { class: "live-charts" });
    this.tops = el("section", { class: "live-tops card", "aria-label": "The busiest and the oldest" });
    main.replaceChildren(el("div", { class: "page live" },
      el("div", { class: "compare-tools" }, this.words,
        choice("Last", "liveSpan", [[60, "1 min"], [300, "5 min"], [600, "10 min"]]),
        choice("A chart for", "liveEach", [["", "all servers"], ["1", "each server"]]),
        choice("Busiest by", "liveBy", BUSIEST), this.pause),
      this.warning, this.servers, el("section", { class: "card", "aria-label": "The last minutes" }, this.charts), this.tops,
      el("p", { class: "dim small" }, "The busiest clients, files and directories are those of the last 10 to 20 s; numbers are lower bounds. A request with a name counts for the directory. Times of operations are those inside the server; percentiles are rounded up to a power of two.")));
  }

  async begin() {
    while (!this.closed) {
      if (!this.paused) await this.look();
      await new Promise((wake) => setTimeout(wake, 1000));
    }
  }

  close() {
    this.closed = true;
    document.title = this.titleBefore;
  }

  changed(changes) {
    for (const select of document.querySelectorAll(".page.live select")) select.value = state[select.dataset.state];
    if (["liveSpan", "liveEach", "liveBy"].some((name) => name in changes) || "screen" in changes) this.look();
  }

  key(event) {
    if (event.key.toLowerCase() !== "p") return false;
    this.stop();
    return true;
  }

  stop() {
    this.paused = !this.paused;
    this.pause.setAttribute("aria-pressed", this.paused);
    this.pause.textContent = this.paused ? "Go on" : "Pause";
  }

  async look() {
    try {
      const width = Math.floor(Math.max(430, this.charts.clientWidth / Math.max(1, Math.floor((this.charts.clientWidth + 22) / 452)) - 22));
      const { now, charts } = await getLive({ span: state.liveSpan, each: state.liveEach, width });
      if (!this.closed) this.draw(now, charts);
    } catch (error) {
      this.warn(`The viewer does not answer: ${error.message || error}. What is shown is old.`);
    }
  }

  warn(text) {
    if (text && this.warning.textContent !== text) announce(text);
    this.warning.hidden = !text;
    this.warning.textContent = text;
  }

  draw(now, charts) {
    document.title = `weft live: ${now.fs}`;
    this.words.replaceChildren(el("b", {}, now.fs), `, ${now.servers.length} servers, every ${count(now.interval_s)} s; read ${bandwidth(now.sums.read_bytes_s)}, write ${bandwidth(now.sums.written_bytes_s)}, ${rate(now.sums.meta_reads_s)} metadata reads, ${rate(now.sums.meta_changes_s)} changes`);
    const silent = now.servers.filter((server) => !server.answers).map((server) => server.name);
    this.warn(silent.length ? `No answer from ${silent.join(", ")}.` : "");
    this.servers.replaceChildren(el("h2", {}, "Servers"), serverTable(now),
      el("p", { class: "dim small" }, "Space: ", el("b", { class: "green" }, "green"), ", ", el("b", { class: "yellow" }, "yellow, low"), " with less than 30 % of the disk free, ", el("b", { class: "red" }, "red, full"), " with less than 10 %. Queue: mean number of requests in the server since the last look (their time divided by the time that passed), and how many there were when it was asked. A server is silent after three intervals, at least 3 s, without an answer; its last numbers are not drawn on."));
    // A table that was opened stays open.
    const open = new Set([...this.charts.querySelectorAll("details[open]")].map((details) => details.closest("figure").dataset.title));
    this.charts.replaceChildren(...charts.map((data) => {
      const one = figure("live", data);
      one.dataset.title = data.title;
      if (open.has(data.title)) one.querySelector("details").open = true;
      return one;
    }));
    this.tops.replaceChildren(...busiest(now));
    this.drawn += 1;
  }
}

function serverTable(now) {
  const rows = now.servers.map((server) => {
    if (!server.answers) {
      const why = server.problem ? `: ${server.problem}` : "";
      return el("tr", { class: "silent" }, el("td", { class: "name" }, server.name), el("td", { colspan: 12, class: "words" }, server.age_s === null ? `no answer${why || " yet"}` : `no data for ${seconds(server.age_s)}${why}`));
    }
    const { rates } = server;
    const cell = (value, format) => number(rates ? format(value(rates)) : "");
    const free = server.free_share ?? 0;
    const word = { red: ", full", yellow: ", low", green: "" }[server.space] || "";
    const space = el("td", { class: server.space }, el("meter", { min: 0, max: 1, low: 0.7, high: 0.9, optimum: 0, value: 1 - free, title: `${bytes(server.free_bytes)} free; ${bytes(server.used_bytes)} used by this server` }), ` ${Math.round(free * 100)} % free${word}`);
    return el("tr", {}, el("td", { class: "name", title: server.address }, server.name), el("td", {}, server.state),
      cell((of) => of.read_bytes_s, bandwidth), cell((of) => of.written_bytes_s, bandwidth), cell((of) => of.meta_reads_s, rate), cell((of) => of.meta_changes_s, rate),
      number(rates ? `${count(rates.queue_mean)} (${server.queued})` : String(server.queued)), cell((of) => of.cpus, (value) => `${Math.round(value * 100)} %`),
      number(server.cache_bytes_max ? `${bytes(server.cache_bytes)} of ${bytes(server.cache_bytes_max)}` : "none"), number(String(server.clients)), space,
      el("td", { class: "number", title: `start number ${server.boot}` }, seconds(server.uptime_s)), number(seconds(server.age_s)));
  });
  return table(["Server", "State", ">Read", ">Write", ">Looks", ">Changes", ">Queue", ">Processor", ">Cache", ">Clients", "Space", ">Up", ">Last answer"], rows);
}

function busiest(now) {
  const by = state.liveBy;
  const rows = (list) => list.slice().sort((a, b) => b[by] - a[by]).slice(0, 12).filter((row) => row[by] > 0)
    .map((row) => el("tr", {}, el("td", { class: "name", title: row.name === null ? row.id : `${row.name} (${row.id})` }, row.name === null ? row.id : row.name), number(rate(row.requests_s)), number(bandwidth(row.bytes_s))));
  const operations = now.operations.filter((row) => row.per_s > 0).slice(0, 12)
    .map((row) => el("tr", {}, el("td", {}, row.name), number(rate(row.per_s)), number(seconds(row.mean_us / 1e6)), number(seconds(row.p50_us / 1e6)), number(seconds(row.p99_us / 1e6)), number(count(row.count)), number(count(row.failed))));
  const oldest = now.oldest.slice(0, 12)
    .map((row) => el("tr", {}, el("td", {}, row.operation), el("td", {}, row.server), el("td", { class: "name", title: row.object }, row.name || row.object || ""), el("td", { class: "name", title: row.client }, row.client_name || row.client), number(seconds(row.age_s))));
  const nothing = (rows, columns, text) => (rows.length ? rows : [el("tr", {}, el("td", { colspan: columns, class: "dim" }, text))]);
  return [
    ["Clients", table(["Client", ">Requests", ">Bytes"], nothing(rows(now.clients), 3, "Nobody asks."))],
    ["Files and directories", table(["Path, or handle", ">Requests", ">Bytes"], nothing(rows(now.objects), 3, "Nothing is asked for."))],
    ["Operations", table(["Operation", ">Rate", ">Mean", ">Median <", ">99 % <", ">Since start", ">Errors"], nothing(operations, 7, "None since the last look."))],
    ["Oldest waiting requests", table(["Operation", "At", "About", "Client", ">Age"], nothing(oldest, 5, "Nothing waits."))],
  ].map(([title, content]) => el("div", {}, el("h2", {}, title), content));
}
