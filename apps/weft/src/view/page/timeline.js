// The timeline: lanes of clients and servers over time. The server sends spans where there are few and tiles of a pixel where there are
// many, so the browser never sees more than its screen holds.

import { announce, ask, busy, count, download, durationColour, el, get, hiddenQuery, kindColour, kindPattern, kindTitle, moment, percent, set, state, textOn, theme, time, windowQuery } from "./core.js";
import { CanvasPainter, SvgPainter } from "./paint.js";
import { Side } from "./side.js";

const GUTTER = 168; // pixels of the names at the left
const RULER = 24;
const GROUP = 22;
const NODE = 19;

export class Timeline {
  constructor(main) {
    this.picture = null;
    this.arrows = { arrows: [] };
    this.gauges = { gauges: [] };
    this.hover = null;
    this.pointer = null;
    this.drag = null;
    this.details = el("div", { class: "details", role: "status", "aria-label": "The span under the cursor" });
    this.overview = el("canvas", { class: "overview", "aria-label": "The whole run; drag to choose a window", role: "img" });
    this.canvas = el("canvas", { class: "plot", tabindex: "0", role: "application", "aria-label": "Timeline. Arrow keys go from span to span, Enter opens the request, question mark lists all keys." });
    this.spacer = el("div", { class: "spacer" });
    // The canvas lies over the scroller, which only gives the scroll bar: it is never larger than the screen.
    this.scroller = el("div", { class: "scroller", tabindex: "-1" }, this.spacer);
    this.stage = el("div", { class: "stage" }, this.scroller, this.canvas);
    this.search = el("input", { type: "search", placeholder: "Search (/): create >1ms node:meta0", "aria-label": "Search spans", title: "Words of the event's name, node:NAME, req:HEX, obj:HEX, >5ms, <10us, failed. Enter: next, Shift+Enter: previous." });
    this.found = el("span", { class: "found" });
    this.csv = el("a", { class: "button", href: "#", download: "weft-spans.csv" }, "CSV");
    this.side = new Side(this);
    const choice = (label, name, options) => el("label", {}, `${label} `, el("select", { "aria-label": label, "data-state": name, onchange: (event) => set({ [name]: event.target.value }) }, options.map(([value, text]) => el("option", { value, selected: state[name] === value }, text))));
    this.tools = el("div", { class: "tools" },
      choice("Colour", "colour", [["operation", "operation"], ["seek", "disk seeks"], ["duration", "duration"]]),
      choice("Pixel shows", "rule", [["dominant", "most time"], ["longest", "longest span"]]),
      this.search, this.found,
      el("span", { class: "right" },
        el("button", { type: "button", onclick: () => this.side.toggleTable() }, "Table (T)"),
        el("button", { type: "button", onclick: () => this.exportSvg() }, "SVG"),
        el("button", { type: "button", onclick: () => this.exportPng() }, "PNG"),
        this.csv));
    main.replaceChildren(el("div", { class: "timeline" },
      el("div", { class: "left" }, this.tools, this.details, this.overview, this.stage, this.side.table), this.side.panel));
    this.layOut();
    this.listen();
    this.resize = new ResizeObserver(() => this.refresh());
    this.resize.observe(this.scroller);
    this.showDetails(null);
  }

  /** Asks for data; apart from the constructor, as it may change the state, of which the page must know who listens. */
  begin() {
    this.loadOverview().catch((error) => (this.found.textContent = String(error.message || error)));
    this.refresh();
    if (state.selected !== null) this.select(state.selected, false);
  }

  close() {
    this.closed = true;
    this.resize.disconnect();
    this.side.close();
  }

  // Where everything is, from top to bottom, in pixels of the scrolled content.
  layOut() {
    const { nodes, lanes } = state.run;
    const order = nodes.map((_, node) => node).sort((a, b) => nodes[a].order - nodes[b].order);
    const groupOf = (node) => (nodes[node].server === null ? "Clients" : nodes[node].server < 0x8000 ? "Metadata servers" : "Data servers");
    this.rows = [];
    this.laneAt = new Map();
    let y = RULER;
    let group = null;
    for (const node of order) {
      if (groupOf(node) !== group) {
        group = groupOf(node);
        this.rows.push({ type: "group", y, height: GROUP, text: group });
        y += GROUP;
      }
      this.rows.push({ type: "node", y, height: NODE, node, text: nodes[node].name });
      y += NODE;
      if (state.folded.has(node)) continue;
      const own = lanes.map((lane, number) => ({ ...lane, number })).filter((lane) => lane.node === node);
      for (const sub of [...new Set(own.map((lane) => lane.sub))]) {
        const parts = own.filter((lane) => lane.sub === sub);
        const height = parts.length === 1 ? 16 : parts.length <= 4 ? 10 : parts.length <= 8 ? 7 : 4;
        this.rows.push({ type: "sub", y, height: Math.max(parts.length * height, 14), node, text: sub + (parts.some((lane) => lane.overlaps) ? " (more)" : "") });
        parts.forEach((lane, row) => this.laneAt.set(lane.number, { y: y + row * height, height: height - 1, node, sub, number: lane.number }));
        y += Math.max(parts.length * height, 14) + 3;
      }
      for (const gauge of this.gauges.gauges.filter((gauge) => gauge.node === node)) {
        this.rows.push({ type: "gauge", y, height: 12, node, gauge, text: gauge.name });
        y += 14;
      }
      y += 3;
    }
    this.height = y + 8;
    this.spacer.style.height = `${this.height}px`;
  }

  get width() {
    return Math.max(100, this.scroller.clientWidth - GUTTER);
  }
  x(ns) {
    return GUTTER + ((ns - state.from) / (state.to - state.from)) * this.width;
  }
  ns(x) {
    return state.from + ((x - GUTTER) / this.width) * (state.to - state.from);
  }

  /** Draws what is known, then asks for the rest. */
  refresh() {
    this.draw();
    if (this.asking) {
      this.askAgain = true;
      return;
    }
    this.load();
  }

  async load() {
    this.asking = true;
    busy(1);
    const query = { ...hiddenQuery(), width: Math.round(this.width) };
    try {
      const begun = performance.now();
      const answer = await get("window", query);
      this.picture = decode(await answer.arrayBuffer());
      const answered = performance.now();
      this.draw();
      const { weftView } = window;
      // For measurements: request, drawing, and the time from the opened page to the first picture.
      Object.assign(weftView, { windowMs: answered - begun, drawMs: performance.now() - answered, firstPictureMs: weftView.firstPictureMs ?? performance.now() });
      const [arrows, gauges] = await Promise.all([ask("arrows", windowQuery()), ask("gauges", windowQuery())]);
      this.arrows = arrows;
      const names = (list) => list.gauges.map((gauge) => `${gauge.node} ${gauge.name}`).join();
      const changed = names(gauges) !== names(this.gauges);
      this.gauges = gauges;
      if (changed) this.layOut();
      else for (const row of this.rows.filter((row) => row.type === "gauge")) row.gauge = gauges.gauges.find((gauge) => gauge.node === row.node && gauge.name === row.gauge.name);
      this.draw();
    } catch (error) {
      this.found.textContent = String(error.message || error);
    }
    this.asking = false;
    if (this.askAgain && !this.closed) {
      this.askAgain = false;
      this.load();
    } else if (!this.closed) {
      this.side.refresh();
      this.csv.setAttribute("href", `/api/table?${new URLSearchParams({ ...hiddenQuery(), format: "csv", limit: 100000 })}`);
    }
    busy(-1);
  }

  async loadOverview() {
    const answer = await get("window", { width: 600 });
    this.whole = decode(await answer.arrayBuffer());
    this.drawOverview();
  }

  draw() {
    this.paint(new CanvasPainter(this.canvas, this.scroller.clientWidth, this.scroller.clientHeight), this.scroller.scrollTop);
    this.drawOverview();
  }

  paint(painter, scroll) {
    const [ink, faint, back, band] = ["ink", "faint", "back", "band"].map(theme);
    const { width, height } = painter;
    painter.rect(0, 0, width, height, back);
    const on = (row) => row.y + row.height > scroll + RULER - 30 && row.y < scroll + height;
    painter.clip(0, RULER, width, height - RULER, () => {
      for (const row of this.rows.filter(on)) {
        const y = row.y - scroll;
        if (row.type === "group") {
          painter.rect(0, y + 2, width, row.height - 3, band);
          painter.text(8, y + row.height / 2 + 1, row.text, ink, { bold: true });
        } else if (row.type === "node") {
          painter.line(0, y + 0.5, width, y + 0.5, faint);
          painter.text(8, y + row.height / 2 + 1, `${state.folded.has(row.node) ? "▸" : "▾"} ${row.text}`, ink, { width: GUTTER - 14 });
        } else {
          const text = row.gauge ? `${row.text}, max ${count(row.gauge.largest)}` : row.text;
          painter.text(GUTTER - 8, y + Math.min(row.height, 16) / 2, text, theme("dim"), { anchor: "end", small: true, width: GUTTER - 14 });
        }
      }
      painter.clip(GUTTER, RULER, this.width, height - RULER, () => {
        this.paintGrid(painter, height);
        this.paintLanes(painter, scroll, height);
        this.paintGauges(painter, scroll, height);
        this.paintArrows(painter, scroll);
        this.paintMarks(painter, height);
        this.paintSelection(painter, scroll, height);
      });
    });
    this.paintRuler(painter, width);
    painter.line(GUTTER + 0.5, 0, GUTTER + 0.5, height, faint);
  }

  ticks() {
    const raw = ((state.to - state.from) / this.width) * 110;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = Math.max(1, power * [1, 2, 5, 10].find((factor) => factor * power >= raw));
    const ticks = [];
    for (let at = Math.ceil(state.from / step) * step; at <= state.to; at += step) ticks.push(at);
    return { ticks, step };
  }

  paintGrid(painter, height) {
    for (const at of this.ticks().ticks) painter.line(Math.round(this.x(at)) + 0.5, RULER, Math.round(this.x(at)) + 0.5, height, theme("grid"));
    const end = this.x(state.run.duration);
    if (end < GUTTER + this.width) painter.rect(end, RULER, GUTTER + this.width - end, height, theme("band"));
    if (this.x(0) > GUTTER) painter.rect(GUTTER, RULER, this.x(0) - GUTTER, height, theme("band"));
  }

  paintRuler(painter, width) {
    painter.rect(0, 0, width, RULER, theme("back"));
    painter.line(0, RULER - 0.5, width, RULER - 0.5, theme("faint"));
    const { ticks, step } = this.ticks();
    for (const at of ticks) {
      const x = Math.round(this.x(at));
      if (x < GUTTER - 1) continue;
      painter.line(x + 0.5, RULER - 5, x + 0.5, RULER, theme("dim"));
      const room = GUTTER + this.width - x;
      painter.text(x + (room < 50 ? -3 : 3), RULER / 2 - 2, moment(at, step * 20), theme("dim"), { small: true, anchor: room < 50 ? "end" : "start" });
    }
    painter.text(8, RULER / 2, time(state.to - state.from), theme("dim"), { small: true });
  }

  colourOf(kind, ns) {
    return state.colour === "duration" ? durationColour(ns) : kindColour(state.run.kinds[kind]);
  }

  paintLanes(painter, scroll, height) {
    if (!this.picture) return;
    const width = Math.round(this.width);
    const back = theme("back");
    const rows = [];
    const tiled = [];
    for (const part of this.picture.lanes) {
      const lane = this.laneAt.get(part.lane);
      if (!lane || lane.y + lane.height < scroll + RULER || lane.y > scroll + height) continue;
      if (part.spans) {
        for (let at = 0; at < part.count; at++) {
          const start = part.spans[4 * at];
          const x = this.x(start);
          const end = this.x(start + part.spans[4 * at + 1]);
          if (end < GUTTER || x > GUTTER + width) continue;
          const left = Math.max(x, GUTTER - 2);
          const wide = Math.max(Math.min(end, GUTTER + width + 2) - left, 1);
          const kind = state.run.kinds[part.spans[4 * at + 2]];
          const colour = this.colourOf(part.spans[4 * at + 2], part.spans[4 * at + 1]);
          painter.rect(left, lane.y - scroll, wide, lane.height, colour, kindPattern(kind));
          if (wide > 3) painter.rect(left + wide - 1, lane.y - scroll, 1, lane.height, back);
          if (wide > 42 && lane.height >= 9) painter.text(left + 4, lane.y - scroll + lane.height / 2 + 0.5, `${kind.name} ${time(part.spans[4 * at + 1])}`, textOn(colour), { small: true, width: wide - 8 });
        }
      } else {
        rows.push({ y: lane.y - scroll, height: lane.height });
        tiled.push(part);
      }
    }
    if (tiled.length) painter.pixelRows(GUTTER, width, rows, this.tilePixels(tiled, width));
  }

  /** One row of pixels for each lane; how busy a pixel is shows in how strong its colour is. */
  tilePixels(parts, width) {
    const pixels = new Uint8ClampedArray(4 * width * parts.length);
    const { tile, first } = this.picture;
    const cache = new Map();
    const rgb = (kind, ns) => {
      const key = state.colour === "duration" ? -1 - Math.round(Math.log2(ns + 1) * 4) : kind;
      if (!cache.has(key)) {
        const [r, g, b] = [1, 3, 5].map((at) => parseInt(this.colourOf(kind, ns).slice(at, at + 2), 16));
        cache.set(key, (b << 16) | (g << 8) | r);
      }
      return cache.get(key);
    };
    const words = new Uint32Array(pixels.buffer); // little-endian, as every machine with a browser
    const scale = this.width / (state.to - state.from);
    const longestWins = state.rule === "longest";
    parts.forEach((part, row) => {
      const best = new Float32Array(width);
      for (let at = 0; at < part.count; at++) {
        const begin = ((first + part.words[8 * at]) * tile - state.from) * scale;
        const busyShare = part.floats[8 * at + 3];
        const longest = part.floats[8 * at + 5];
        const weight = longestWins ? longest + 1 : busyShare + 1e-6;
        const last = Math.min(width, Math.max(Math.ceil(begin + tile * scale), Math.floor(begin) + 1));
        for (let x = Math.max(0, Math.floor(begin)); x < last; x++) {
          if (weight <= best[x]) continue;
          best[x] = weight;
          const alpha = Math.round(255 * (0.32 + 0.68 * Math.min(1, busyShare)));
          words[row * width + x] = (alpha << 24) | rgb(part.words[8 * at + (longestWins ? 2 : 1)], longest);
        }
      }
    });
    return pixels;
  }

  paintGauges(painter, scroll, height) {
    for (const row of this.rows) {
      if (row.type !== "gauge" || !row.gauge || row.y < scroll - 20 || row.y > scroll + height) continue;
      const { from, piece } = this.gauges;
      for (const [at, value] of row.gauge.points) {
        const share = value / row.gauge.largest;
        const left = this.x(from + at * piece);
        const right = Math.max(this.x(from + (at + 1) * piece), left + 1);
        // Height and strength of the colour both say how much.
        const bar = Math.max(1, share * (row.height - 1));
        if (value) painter.rect(left, row.y - scroll + row.height - 1 - bar, right - left + 0.5, bar, share > 0.66 ? "#1b6ca8" : share > 0.33 ? "#4f97c7" : "#8fbfdd");
      }
    }
  }

  paintArrows(painter, scroll) {
    const chosen = this.chosenRequest;
    const all = this.arrows.arrows;
    // Without a choice only requests that are wide enough to see where they go.
    const wide = (arrow) => this.x(arrow.back) - this.x(arrow.sent) > 12;
    const shown = chosen ? all.filter((arrow) => chosen.has(arrow.call)) : all.length <= 120 ? all.filter(wide) : [];
    for (const arrow of shown) {
      const [from, to] = [this.laneAt.get(arrow.from), this.laneAt.get(arrow.to)];
      if (!from || !to) continue;
      const middle = (lane) => lane.y - scroll + lane.height / 2;
      const colour = chosen ? theme("ink") : theme("arrow");
      const line = chosen ? 1.8 : 1;
      painter.arrow(this.x(arrow.sent), middle(from), this.x(arrow.arrived), middle(to), colour, line);
      painter.arrow(this.x(arrow.left), middle(to), this.x(arrow.back), middle(from), colour, line);
    }
  }

  paintMarks(painter, height) {
    const seen = state.run.marks.filter(([at]) => at >= state.from && at <= state.to);
    if (seen.length > 60) return;
    let free = -Infinity;
    for (const [at, value, label] of seen) {
      const x = Math.round(this.x(at)) + 0.5;
      painter.line(x, RULER, x, height, theme("dim"), [4, 4]);
      if (x < free) continue;
      painter.text(x + 3, RULER + 11, `#${value} ${label}`, theme("dim"), { small: true, width: 160 });
      free = x + 10 + 6 * Math.min(26, label.length + 3);
    }
  }

  paintSelection(painter, scroll, height) {
    if (state.measure) {
      const [from, to] = state.measure.map((at) => this.x(at));
      painter.rect(Math.min(from, to), RULER, Math.abs(to - from), height, theme("veil"));
      for (const x of [from, to]) painter.line(x, RULER, x, height, theme("ink"), [2, 2]);
      const text = time(Math.abs(state.measure[1] - state.measure[0]));
      const middle = Math.min(Math.max((from + to) / 2, GUTTER + 30), GUTTER + this.width - 30);
      painter.rect(middle - 34, height - 24, 68, 18, theme("back"));
      painter.text(middle, height - 15, text, theme("ink"), { anchor: "middle", bold: true });
    }
    for (const [span, line] of [[this.hover, 1], [this.selected, 2]]) {
      const lane = span && this.laneAt.get(span.lane);
      if (lane) painter.frame(this.x(span.start) - 1, lane.y - scroll - 1, Math.max(this.x(span.start + span.dur) - this.x(span.start), 2) + 2, lane.height + 2, theme("ink"), line);
    }
  }

  drawOverview() {
    const painter = new CanvasPainter(this.overview, this.scroller.clientWidth, 34);
    painter.rect(0, 0, painter.width, 34, theme("back"));
    const scale = (ns) => GUTTER + (ns / state.run.duration) * this.width;
    if (this.whole) {
      if (this.columns?.length !== Math.ceil(this.width) + 1) this.columns = this.busyColumns();
      const columns = this.columns;
      const largest = Math.max(...columns, 1e-9);
      const strip = theme("strip");
      columns.forEach((value, x) => value && painter.rect(GUTTER + x, 32 - (value / largest) * 28, 1, (value / largest) * 28, strip));
    }
    painter.text(8, 17, "whole run", theme("dim"), { small: true });
    painter.text(GUTTER - 8, 17, time(state.run.duration), theme("dim"), { small: true, anchor: "end" });
    const [left, right] = [scale(Math.max(0, state.from)), scale(Math.min(state.run.duration, state.to))];
    painter.rect(GUTTER, 0, left - GUTTER, 34, theme("veil"));
    painter.rect(right, 0, GUTTER + this.width - right, 34, theme("veil"));
    painter.frame(left + 0.5, 0.5, Math.max(2, right - left - 1), 33, theme("ink"), 1);
  }

  /** Busy lanes at each moment: how much of the cluster works. */
  busyColumns() {
    const columns = new Float32Array(Math.ceil(this.width) + 1);
    const scale = (ns) => (ns / state.run.duration) * this.width;
    const add = (start, end, busy) => {
      const [first, last] = [scale(start), scale(end)];
      for (let x = Math.max(0, Math.floor(first)); x <= last && x < columns.length; x++) columns[x] += busy * Math.min(1, Math.min(last, x + 1) - Math.max(first, x));
    };
    for (const part of this.whole.lanes) {
      const sub = state.run.lanes[part.lane].sub;
      if (sub !== "operation" && sub !== "disk") continue;
      for (let at = 0; at < part.count; at++) {
        if (part.spans) add(part.spans[4 * at], part.spans[4 * at] + part.spans[4 * at + 1], 1);
        else add((this.whole.first + part.words[8 * at]) * this.whole.tile, (this.whole.first + part.words[8 * at] + 1) * this.whole.tile, Math.min(1, part.floats[8 * at + 3]));
      }
    }
    return columns;
  }

  // What lies under a point of the canvas.
  at(x, y) {
    if (!this.picture || x < GUTTER || y < RULER) return null;
    const scrolled = y + this.scroller.scrollTop;
    const part = this.picture.lanes.find((part) => {
      const lane = this.laneAt.get(part.lane);
      return lane && scrolled >= lane.y && scrolled <= lane.y + lane.height + 1;
    });
    return part ? this.nearest(part, this.ns(x), (2 / this.width) * (state.to - state.from)) : null;
  }

  /** The span or tile of a lane at a time, or not farther than `slack` from it. */
  nearest(part, ns, slack) {
    let best = null;
    for (let at = 0; at < part.count; at++) {
      const item = this.item(part, at);
      const distance = ns < item.start ? item.start - ns : Math.max(0, ns - item.start - item.dur);
      if (distance <= slack && (!best || distance < best.distance)) best = { ...item, distance };
    }
    return best;
  }

  item(part, at) {
    if (part.spans) return { lane: part.lane, start: part.spans[4 * at], dur: part.spans[4 * at + 1], kind: part.spans[4 * at + 2], event: part.spans[4 * at + 3], folded: 1 };
    const start = (this.picture.first + part.words[8 * at]) * this.picture.tile;
    return { lane: part.lane, start, dur: this.picture.tile, kind: part.words[8 * at + 2], event: part.words[8 * at + 6], folded: part.words[8 * at + 4], longest: part.floats[8 * at + 5], busy: part.floats[8 * at + 3] };
  }

  showDetails(span) {
    const shown = span || this.selected;
    if (!shown) {
      this.details.replaceChildren(el("span", { class: "dim" }, "Wheel: zoom at the pointer. Drag: measure, then F or a double click zooms in. Shift+drag or Shift+wheel: move. Click: choose a span. ", el("kbd", {}, "?"), " lists all keys."));
      return;
    }
    const kind = state.run.kinds[shown.kind];
    const lane = state.run.lanes[shown.lane];
    const swatch = el("i", { class: "swatch" });
    swatch.style.background = this.colourOf(shown.kind, shown.longest || shown.dur);
    const node = state.run.nodes[lane.node];
    const facts = [swatch, el("b", {}, kindTitle(kind)), ` at ${node.name}, ${lane.sub}`];
    if (shown.longest !== undefined && !shown.fields) {
      facts.push(`, ${shown.folded} span${shown.folded === 1 ? "" : "s"} begin here, busy ${percent(shown.busy)}, the longest takes `, el("b", {}, time(shown.longest)), "; a click chooses it");
    } else {
      facts.push(", ", el("b", {}, time(shown.dur)), ` from ${moment(shown.start, state.to - state.from)} on`);
      for (const [name, value] of describe(shown.fields)) facts.push(el("span", { class: "fact" }, `${name} `, el("b", {}, value)));
      if (node.clock_error_ns) facts.push(el("span", { class: "fact" }, `clock ±${time(node.clock_error_ns)}`));
    }
    if (!span && shown.fields) facts.push(el("a", { class: "button", href: `#/request?sel=${shown.event}`, onclick: (event) => { event.preventDefault(); set({ screen: "request" }, true); } }, "Request (Enter)"));
    this.details.replaceChildren(...facts);
  }

  /** Chooses a record, shows what it says and the arrows of its request. */
  async select(event, scroll = true) {
    if (event !== state.selected) set({ selected: event });
    if (event === null) {
      this.selected = this.chosenRequest = null;
      this.showDetails(null);
      this.draw();
      return;
    }
    busy(1);
    try {
      const fields = await ask("event", { event });
      this.selected = { lane: fields.lane, start: fields.start, dur: fields.dur, kind: fields.kind, event, fields };
      announce(`${fields.name} at ${fields.node}, ${time(fields.dur)}, from ${moment(fields.start, state.to - state.from)} on`);
      if (scroll) this.reveal(this.selected);
      this.showDetails(null);
      this.draw();
      const request = await ask("request", { event });
      this.chosenRequest = new Set(request.steps.map((step) => step.event));
    } catch (error) {
      this.found.textContent = String(error.message || error);
    }
    this.draw();
    busy(-1);
  }

  /** Brings a span into view, in time and in the list of lanes. */
  reveal(span) {
    const lane = this.laneAt.get(span.lane);
    if (lane && (lane.y < this.scroller.scrollTop + RULER || lane.y + 20 > this.scroller.scrollTop + this.scroller.clientHeight)) this.scroller.scrollTop = lane.y - this.scroller.clientHeight / 2;
    if (span.start + span.dur < state.from || span.start > state.to) {
      const length = state.to - state.from;
      set({ from: span.start + span.dur / 2 - length / 2, to: span.start + span.dur / 2 + length / 2 }, true);
    }
  }

  zoom(factor, centre = (state.from + state.to) / 2) {
    set({ from: centre - (centre - state.from) * factor, to: centre + (state.to - centre) * factor }, true);
  }
  pan(share) {
    const by = (state.to - state.from) * share;
    set({ from: state.from + by, to: state.to + by }, true);
  }
  zoomTo(from, to) {
    set({ from: from - (to - from) * 0.02, to: to + (to - from) * 0.02, measure: null }, true);
  }
  fit() {
    if (state.measure) this.zoomTo(Math.min(...state.measure), Math.max(...state.measure));
    else if (this.selected) this.zoomTo(this.selected.start - this.selected.dur, this.selected.start + 2 * this.selected.dur);
    else set({ from: 0, to: state.run.duration }, true);
  }

  async find(back) {
    const text = this.search.value.trim();
    if (!text) return;
    const query = { q: text, back: back ? 1 : 0, at: Math.max(0, Math.round(state.from)) };
    if (this.selected) query.event = this.selected.event;
    const answer = await ask("find", query);
    this.found.textContent = answer.error || (answer.found ? "" : `no ${back ? "earlier" : "later"} span`);
    if (answer.found) await this.select(answer.found.event);
  }

  // The next or previous span of the same kind at the same node.
  async step(back) {
    if (!this.selected) return;
    const { kind, lane, event } = this.selected;
    const name = `${state.run.kinds[kind].name} node:${state.run.nodes[state.run.lanes[lane].node].name}`;
    if (/\s.*\snode:/.test(name)) return; // a name with spaces cannot be searched for
    const answer = await ask("find", { q: name, back: back ? 1 : 0, event });
    if (answer.found) await this.select(answer.found.event);
  }

  // Arrow keys: along the lane, or to the nearest span of a lane above or below.
  walk(dx, dy) {
    if (!this.picture) return;
    const order = this.picture.lanes.filter((part) => part.count && this.laneAt.has(part.lane)).sort((a, b) => this.laneAt.get(a.lane).y - this.laneAt.get(b.lane).y);
    if (!order.length) return;
    const here = this.selected ? order.findIndex((part) => part.lane === this.selected.lane) : -1;
    const centre = this.selected ? Math.min(Math.max(this.selected.start + this.selected.dur / 2, state.from), state.to) : (state.from + state.to) / 2;
    const part = order[Math.min(order.length - 1, Math.max(0, here + dy))] || order[0];
    let target = null;
    if (dx && here >= 0) {
      const items = Array.from({ length: part.count }, (_, at) => this.item(part, at)).sort((a, b) => a.start - b.start);
      const later = items.filter((item) => item.event !== this.selected.event && (dx > 0 ? item.start >= this.selected.start + (part.spans ? 0 : 1) : item.start + item.dur <= this.selected.start));
      target = dx > 0 ? later[0] : later[later.length - 1];
      if (!target) return void this.step(dx < 0);
    } else target = this.nearest(part, centre, Infinity);
    if (target) this.select(target.event);
  }

  listen() {
    const place = (event) => {
      const box = this.canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    this.scroller.addEventListener("scroll", () => this.draw());
    this.canvas.addEventListener("wheel", (event) => {
      const [x] = place(event);
      event.preventDefault();
      // Over the names the wheel scrolls.
      if (x < GUTTER) return void (this.scroller.scrollTop += event.deltaY);
      const turn = event.deltaY || event.deltaX;
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan(Math.sign(turn) * 0.08);
      else this.zoom(Math.exp(Math.max(-60, Math.min(60, turn)) * 0.005), this.ns(x));
    }, { passive: false });
    this.canvas.addEventListener("pointerdown", (event) => {
      const [x, y] = place(event);
      if (event.button !== 0) return;
      if (x < GUTTER) {
        const row = this.rows.find((row) => row.type === "node" && y + this.scroller.scrollTop >= row.y && y + this.scroller.scrollTop < row.y + row.height);
        if (row && y > RULER) this.fold(row.node);
        return;
      }
      this.canvas.setPointerCapture(event.pointerId);
      this.drag = { x, y, from: state.from, to: state.to, pan: event.shiftKey, moved: false };
    });
    this.canvas.addEventListener("pointermove", (event) => {
      const [x, y] = place(event);
      this.pointer = this.ns(x);
      if (this.drag && Math.abs(x - this.drag.x) > 3) this.drag.moved = true;
      if (this.drag?.moved && this.drag.pan) {
        const by = ((x - this.drag.x) / this.width) * (this.drag.to - this.drag.from);
        set({ from: this.drag.from - by, to: this.drag.to - by });
      } else if (this.drag?.moved) set({ measure: [this.ns(Math.max(this.drag.x, GUTTER)), this.ns(Math.max(x, GUTTER))] });
      else {
        this.hover = this.at(x, y);
        this.showDetails(this.hover);
        this.draw();
      }
    });
    this.canvas.addEventListener("pointerup", (event) => {
      const drag = this.drag;
      this.drag = null;
      if (!drag || drag.moved) return;
      const span = this.at(...place(event));
      set({ measure: null });
      this.select(span ? span.event : null, false);
    });
    this.canvas.addEventListener("dblclick", (event) => {
      const span = this.at(...place(event));
      if (state.measure) this.fit();
      else if (span) this.zoomTo(span.start - span.dur, span.start + 2 * span.dur);
    });
    this.canvas.addEventListener("pointerleave", () => {
      this.hover = null;
      this.showDetails(null);
      this.draw();
    });
    const brush = (event) => {
      const box = this.overview.getBoundingClientRect();
      const at = Math.max(0, ((event.clientX - box.left - GUTTER) / this.width) * state.run.duration);
      if (event.type === "pointerdown") this.brushed = at;
      else if (this.brushed === undefined || !event.buttons) return;
      const [from, to] = [Math.min(this.brushed, at), Math.max(this.brushed, at)];
      const length = state.to - state.from;
      // A click moves the window, a drag chooses a new one.
      if ((to - from) / state.run.duration < 4 / this.width) set({ from: at - length / 2, to: at + length / 2 }, true);
      else set({ from, to });
    };
    this.overview.addEventListener("pointerdown", brush);
    this.overview.addEventListener("pointermove", brush);
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.find(event.shiftKey);
      if (event.key === "Escape") this.canvas.focus();
    });
  }

  fold(node) {
    const folded = new Set(state.folded);
    if (!folded.delete(node)) folded.add(node);
    set({ folded });
  }

  key(event) {
    const { key } = event;
    const large = event.shiftKey ? 3 : 1;
    const actions = {
      w: () => this.zoom(0.7 ** large, this.pointer ?? undefined), s: () => this.zoom(1 / 0.7 ** large, this.pointer ?? undefined), "+": () => this.zoom(0.7), "-": () => this.zoom(1 / 0.7),
      a: () => this.pan(-0.15 * large), d: () => this.pan(0.15 * large), f: () => this.fit(),
      m: () => this.mark(), n: () => this.step(false), p: () => this.step(true), t: () => this.side.toggleTable(), g: () => this.goTo(),
      "/": () => this.search.focus(), c: () => set({ colour: { operation: "seek", seek: "duration", duration: "operation" }[state.colour] }),
      l: () => this.side.focusLegend(), Escape: () => (state.measure ? set({ measure: null }) : this.select(null)),
      Enter: () => this.selected && set({ screen: "request" }, true),
    };
    if (document.activeElement === this.canvas) Object.assign(actions, {
      ArrowRight: () => this.walk(1, 0), ArrowLeft: () => this.walk(-1, 0), ArrowDown: () => this.walk(0, 1), ArrowUp: () => this.walk(0, -1),
      PageDown: () => (this.scroller.scrollTop += this.scroller.clientHeight * 0.8), PageUp: () => (this.scroller.scrollTop -= this.scroller.clientHeight * 0.8),
      " ": () => this.selected && this.fold(state.run.lanes[this.selected.lane].node),
    });
    else if (key === "Enter") return false;
    const action = actions[key.length === 1 ? key.toLowerCase() : key];
    if (action) action();
    return Boolean(action);
  }

  // M: the first point, then the second; the time between them is measured.
  mark() {
    const at = this.pointer ?? (this.selected ? this.selected.start : (state.from + state.to) / 2);
    if (this.marked === undefined || state.measure?.[0] !== state.measure?.[1]) {
      this.marked = at;
      set({ measure: [at, at] });
    } else {
      set({ measure: [this.marked, at] });
      announce(`${time(Math.abs(at - this.marked))} between the marks`);
    }
  }

  goTo() {
    const text = prompt("Go to (seconds since the beginning of the run, for example 0.25)");
    const at = Number(text) * 1e9;
    const length = state.to - state.from;
    if (text && Number.isFinite(at)) set({ from: at - length / 2, to: at + length / 2 }, true);
  }

  changed(changes) {
    if ("folded" in changes) this.layOut();
    for (const select of this.tools.querySelectorAll("select")) select.value = state[select.dataset.state];
    const onlyDraw = !("from" in changes || "to" in changes || "hidden" in changes);
    if (onlyDraw) {
      this.draw();
      if ("colour" in changes || "measure" in changes) this.side.refresh();
    } else this.refresh();
  }

  exportSvg() {
    const painter = new SvgPainter(this.scroller.clientWidth, this.height);
    this.paint(painter, 0);
    const text = painter.finish(`Timeline, ${moment(state.from, state.to - state.from)} to ${moment(state.to, state.to - state.from)}`);
    window.weftView.lastSvg = text;
    download("weft-timeline.svg", "image/svg+xml", text);
  }

  exportPng() {
    const canvas = document.createElement("canvas");
    this.paint(new CanvasPainter(canvas, this.scroller.clientWidth, Math.min(this.height, 16000)), 0);
    canvas.toBlob((blob) => download("weft-timeline.png", "image/png", blob));
  }
}

function describe(fields) {
  if (!fields) return [];
  const facts = [];
  if (fields.wait) facts.push(["waited", time(fields.wait)]);
  if (fields.peer) facts.push(["with", fields.peer]);
  if (fields.object) facts.push(["object", fields.object]);
  if (fields.bytes) facts.push(["bytes", `${fields.bytes}${fields.offset ? ` at ${fields.offset}` : ""}`]);
  if (fields.request) facts.push(["request", fields.request]);
  if (fields.result) facts.push(["result", String(fields.result)]);
  for (const [name, , ns] of fields.phases || []) facts.push([name, time(ns)]);
  for (const flag of fields.flags || []) if (flag !== "at a server" && flag !== "simulated") facts.push(["", flag]);
  return facts;
}

/** The answer of /api/window; window.rs describes its bytes. */
export function decode(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  let at = 4 + length;
  header.lanes = header.lanes.map(([lane, mode, items]) => {
    const part = { lane, count: items };
    if (mode === "spans") part.spans = new Float64Array(buffer, at, 4 * items);
    else Object.assign(part, { words: new Uint32Array(buffer, at, 8 * items), floats: new Float32Array(buffer, at, 8 * items) });
    at += 32 * items;
    return part;
  });
  return header;
}
