// Lanes of clients and servers over time, on a canvas: what the timeline and the comparison of two runs share. The server sends spans where
// there are few and tiles of a pixel where there are many, so the browser never sees more than its screen holds.

import { askOf, busy, count, durationColour, el, filterQuery, getOf, hiddenQuery, kindColour, kindLook, state, textOn, theme, time } from "./core.js";
import { CanvasPainter } from "./paint.js";
import { NO_CHOICE, RULER, layOut } from "./rows.js";

export const GUTTER = 196; // pixels of the names at the left

export class Plot {
  constructor(run, number, label) {
    this.run = run;
    this.number = number;
    this.picture = null;
    this.arrows = { arrows: [] };
    this.gauges = []; // what is drawn below the lanes of a track, or above all: { track, name, from, piece, least, largest, points, style }
    this.metrics = { metrics: [], gauges: [] };
    this.hover = this.selected = null;
    this.canvas = el("canvas", { class: "plot", tabindex: "0", role: "application", "aria-label": label });
    this.spacer = el("div", { class: "spacer" });
    // The canvas lies over the scroller, which only gives the scroll bar: it is never larger than the screen.
    this.scroller = el("div", { class: "scroller", tabindex: "-1" }, this.spacer);
    this.stage = el("div", { class: "stage" }, this.scroller, this.canvas);
    this.scroller.addEventListener("scroll", () => this.draw());
  }

  /** The window of this run in nanoseconds since its beginning. */
  get from() {
    return state.from;
  }
  get to() {
    return state.to;
  }
  /** A moment of the shown window in this run's own time. */
  own(ns) {
    return ns;
  }
  get folded() {
    return state.folded;
  }
  windowQuery() {
    return { from: Math.max(0, Math.floor(this.from)), to: Math.max(1, Math.ceil(this.to)) };
  }
  hiddenQuery() {
    return { ...this.windowQuery(), hide: hiddenQuery().hide, ...filterQuery() };
  }
  /** Which tracks and parts are drawn, how high and in which order. */
  get tracks() {
    return NO_CHOICE;
  }
  ask(path, query) {
    return askOf(this.number, path, query);
  }
  /** What follows when new data has been drawn, and when there is none. */
  loaded() {}
  failed() {}

  /** Where everything is. */
  layOut() {
    Object.assign(this, layOut(this.run, this.gauges, this.folded, this.tracks));
    this.spacer.style.height = `${this.height}px`;
  }

  /** Where a row or lane is on the canvas. */
  top(place, scroll = this.scroller.scrollTop) {
    return place.pinned ? place.y : place.y - scroll;
  }

  /** The row at a height of the canvas, of those that a condition holds for. */
  rowAt(y, holds) {
    const inPinned = y < RULER + this.pinnedHeight;
    return this.rows.find((row) => row.pinned === inPinned && holds(row) && y >= this.top(row) && y <= this.top(row) + row.height);
  }

  get width() {
    return Math.max(100, this.scroller.clientWidth - GUTTER);
  }
  x(ns) {
    return GUTTER + ((ns - this.from) / (this.to - this.from)) * this.width;
  }
  ns(x) {
    return this.from + ((x - GUTTER) / this.width) * (this.to - this.from);
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

  /** The hits of the search alone, if they shall stand out. What is no expression is said where it is written. */
  async hits(query) {
    if (!state.light || !state.search) return null;
    const filter = state.filter ? `(${state.filter}) and (${state.search})` : state.search;
    const answer = await getOf(this.number, "window", { ...query, filter });
    return answer.ok ? decode(await answer.arrayBuffer()) : null;
  }

  async load() {
    this.asking = true;
    busy(1);
    const query = { ...this.hiddenQuery(), width: Math.round(this.width) };
    try {
      const begun = performance.now();
      const answer = await getOf(this.number, "window", query);
      if (!answer.ok) throw new Error((await answer.text()).trim());
      this.picture = decode(await answer.arrayBuffer());
      this.lit = await this.hits(query);
      const answered = performance.now();
      this.draw();
      const { weftView } = window;
      // For measurements: request, drawing, and the time from the opened page to the first picture.
      Object.assign(weftView, { windowMs: answered - begun, drawMs: performance.now() - answered, firstPictureMs: weftView.firstPictureMs ?? performance.now() });
      const own = this.windowQuery();
      const formulas = state.metrics.map((metric) => metric.formula).join(";");
      const [arrows, gauges, metrics] = await Promise.all([this.ask("arrows", own), this.ask("gauges", own), formulas ? this.ask("metrics", { ...own, formulas }) : { metrics: [], gauges: [] }]);
      this.arrows = arrows;
      this.metrics = metrics;
      // What a process measured stands below the first of its tracks.
      const track = (node) => (node === null ? null : this.run.tracks.findIndex((track) => track.node === node));
      const drawn = [
        ...gauges.gauges.map((gauge) => ({ ...gauge, track: track(gauge.node), from: gauges.from, piece: gauges.piece, least: 0, style: "bars" })),
        ...metrics.metrics.flatMap(({ formula, least, largest, lanes }, at) => lanes.map(({ node, points }) => ({ track: track(node), name: formula, points, least, largest, from: metrics.from, piece: metrics.piece, style: state.metrics[at]?.style || "gradient" }))),
      ];
      const names = (list) => list.map((gauge) => `${gauge.track} ${gauge.style} ${gauge.name}`).join();
      const changed = names(drawn) !== names(this.gauges);
      this.gauges = drawn;
      if (changed) this.layOut();
      else this.rows.filter((row) => row.type === "gauge").forEach((row) => (row.gauge = drawn[row.at]));
      this.draw();
    } catch (error) {
      this.failed(String(error.message || error));
    }
    this.asking = false;
    if (this.askAgain && !this.closed) {
      this.askAgain = false;
      this.load();
    } else if (!this.closed) {
      this.loaded();
    }
    busy(-1);
  }

  draw() {
    this.paint(new CanvasPainter(this.canvas, this.scroller.clientWidth, this.scroller.clientHeight), this.scroller.scrollTop);
  }

  paint(painter, scroll) {
    const [ink, faint, back, band] = ["ink", "faint", "back", "band"].map(theme);
    const { width, height } = painter;
    painter.rect(0, 0, width, height, back);
    for (const pinned of this.pinnedHeight ? [false, true] : [false]) {
      const [top, bottom] = pinned ? [RULER, RULER + this.pinnedHeight] : [RULER + this.pinnedHeight, height];
      const on = (row) => row.pinned === pinned && this.top(row, scroll) + row.height > top - 30 && this.top(row, scroll) < bottom;
      painter.clip(0, top, width, bottom - top, () => {
        for (const row of this.rows.filter(on)) this.paintName(painter, row, this.top(row, scroll), { ink, faint, band });
        painter.clip(GUTTER, top, this.width, bottom - top, () => {
          this.paintGrid(painter, height);
          this.paintLanes(painter, scroll, this.picture, { top, bottom, pinned });
          if (this.lit) {
            painter.rect(GUTTER, top, this.width, bottom - top, `${back}cc`);
            this.paintLanes(painter, scroll, this.lit, { top, bottom, pinned });
          }
          this.paintGauges(painter, this.rows.filter((row) => row.type === "gauge" && row.gauge && on(row)), scroll);
        });
      });
      if (pinned) painter.rect(0, bottom - 1, width, 2, theme("dim"));
    }
    painter.clip(GUTTER, RULER, this.width, height - RULER, () => {
      this.paintArrows(painter, scroll);
      this.paintMarks(painter, height);
      this.paintSelection(painter, scroll, height);
    });
    this.paintRuler(painter, width);
    painter.line(GUTTER + 0.5, 0, GUTTER + 0.5, height, faint);
  }

  /** What stands at the left of a row. */
  paintName(painter, row, y, { ink, faint, band }) {
    const { width } = painter;
    if (row.type === "group") {
      painter.rect(0, y + 2, width, row.height - 3, band);
      painter.text(8, y + row.height / 2 + 1, row.text, ink, { bold: true });
    } else if (row.type === "node") {
      painter.line(0, y + 0.5, width, y + 0.5, faint);
      painter.text(8, y + row.height / 2 + 1, `${this.folded.has(row.track) ? "▸" : "▾"} ${row.text}`, ink, { width: GUTTER - 14 });
    } else {
      if (row.gauge && row.height > 20) painter.text(GUTTER - 8, y + 20, `${row.gauge.least < 0 ? `${count(row.gauge.least)} to` : "up to"} ${count(row.gauge.largest)}`, theme("dim"), { anchor: "end", small: true });
      // Names of rows that are too low for them are in the pointer's title.
      if (row.height >= 8) painter.text(GUTTER - 8, y + Math.min(row.height, 16) / 2, row.text, theme("dim"), { anchor: "end", small: true, width: GUTTER - 14 });
    }
  }

  ticks() {
    const raw = ((this.to - this.from) / this.width) * 110;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = Math.max(1, power * [1, 2, 5, 10].find((factor) => factor * power >= raw));
    const ticks = [];
    for (let at = Math.ceil(this.from / step) * step; at <= this.to; at += step) ticks.push(at);
    return { ticks, step };
  }

  paintGrid(painter, height) {
    for (const at of this.ticks().ticks) painter.line(Math.round(this.x(at)) + 0.5, RULER, Math.round(this.x(at)) + 0.5, height, theme("grid"));
    const end = this.x(this.run.duration);
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
      painter.text(x + (room < 50 ? -3 : 3), RULER / 2 - 2, tickText(at, step, this.to), theme("dim"), { small: true, anchor: room < 50 ? "end" : "start" });
    }
    painter.text(8, RULER / 2, time(this.to - this.from), theme("dim"), { small: true });
  }

  colourOf(kind, ns) {
    return state.colour === "duration" ? durationColour(ns) : kindColour(this.run.kinds[kind]);
  }

  paintLanes(painter, scroll, picture, { top, bottom, pinned }) {
    if (!picture) return;
    const width = Math.round(this.width);
    const back = theme("back");
    const rows = [];
    const tiled = [];
    for (const part of picture.lanes) {
      const lane = this.laneAt.get(part.lane);
      if (!lane || lane.pinned !== pinned) continue;
      const y = this.top(lane, scroll);
      if (y + lane.height < top || y > bottom) continue;
      if (part.spans) {
        for (let at = 0; at < part.count; at++) {
          const start = part.spans[4 * at];
          const x = this.x(start);
          const end = this.x(start + part.spans[4 * at + 1]);
          if (end < GUTTER || x > GUTTER + width) continue;
          const left = Math.max(x, GUTTER - 2);
          const wide = Math.max(Math.min(end, GUTTER + width + 2) - left, 1);
          const kind = this.run.kinds[part.spans[4 * at + 2]];
          const colour = this.colourOf(part.spans[4 * at + 2], part.spans[4 * at + 1]);
          painter.rect(left, y, wide, lane.height, colour, state.colour === "duration" ? 0 : kindLook(kind).pattern);
          if (wide > 3) painter.rect(left + wide - 1, y, 1, lane.height, back);
          if (wide > 42 && lane.height >= 9) painter.text(left + 4, y + lane.height / 2 + 0.5, `${kind.name} ${time(part.spans[4 * at + 1])}`, textOn(colour), { small: true, width: wide - 8 });
        }
      } else {
        rows.push({ y, height: lane.height });
        tiled.push(part);
      }
    }
    if (tiled.length) painter.pixelRows(GUTTER, width, rows, this.tilePixels(picture, tiled, width));
  }

  /** One row of pixels for each lane; how busy a pixel is shows in how strong its colour is. */
  tilePixels({ tile, first }, parts, width) {
    const pixels = new Uint8ClampedArray(4 * width * parts.length);
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
    const scale = this.width / (this.to - this.from);
    const longestWins = state.rule === "longest";
    parts.forEach((part, row) => {
      const best = new Float32Array(width);
      for (let at = 0; at < part.count; at++) {
        const begin = ((first + part.words[8 * at]) * tile - this.from) * scale;
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

  paintGauges(painter, rows, scroll) {
    for (const row of rows) {
      const { from, piece, points, least, largest, style } = row.gauge;
      const share = (value) => (value - least) / (largest - least || 1);
      const [top, bottom] = [this.top(row, scroll), this.top(row, scroll) + row.height - 1];
      if (style === "line") {
        // Where there is no value there is no line.
        const pieces = points.reduce((all, point) => (all.length && point[0] === all.at(-1).at(-1)[0] + 1 ? all.at(-1).push(point) : all.push([point]), all), []);
        painter.line(GUTTER, bottom + 0.5, GUTTER + this.width, bottom + 0.5, theme("faint"));
        for (const one of pieces) painter.polyline(one.map(([at, value]) => [this.x(from + (at + 0.5) * piece), bottom - share(value) * (row.height - 3)]), theme("blue"), 1.5);
        continue;
      }
      for (const [at, value] of points) {
        const left = this.x(from + at * piece);
        const wide = Math.max(this.x(from + (at + 1) * piece), left + 1) - left + 0.5;
        if (style === "gradient") painter.rect(left, top, wide, row.height - 1, `rgba(0, 114, 178, ${(0.04 + 0.96 * share(value)).toFixed(2)})`);
        else if (value) {
          // Height and strength of the colour both say how much.
          const bar = Math.max(1, share(value) * (row.height - 1));
          painter.rect(left, bottom - bar, wide, bar, share(value) > 0.66 ? "#1b6ca8" : share(value) > 0.33 ? "#4f97c7" : "#8fbfdd");
        }
      }
      if (style === "bars" && row.height >= 10) {
        const text = `max ${count(largest)}`;
        painter.rect(GUTTER + 1, top, 9 + 6 * text.length, row.height - 1, theme("band"));
        painter.text(GUTTER + 5, (top + bottom) / 2 + 0.5, text, theme("ink"), { small: true });
      }
    }
  }

  /** The gauge or metric under a point of the canvas, with its value there. */
  gaugeAt(x, y) {
    const row = x >= GUTTER && y >= RULER && this.rowAt(y, (row) => row.type === "gauge");
    if (!row?.gauge) return null;
    const { from, piece, points, name } = row.gauge;
    const at = Math.floor((this.ns(x) - from) / piece);
    const point = points.find((point) => point[0] === at);
    return { name: row.gauge.title ? `${row.gauge.title} (in formulas: ${name})` : name, node: row.track === null ? "all nodes" : this.run.tracks[row.track].name, value: point ? point[1] : null, start: from + at * piece };
  }

  paintArrows(painter, scroll) {
    const chosen = this.chosenRequest;
    const all = this.arrows.arrows;
    // Without a choice only those that are wide enough to see where they go.
    const wide = (arrow) => this.x(arrow.back ?? arrow.arrived) - this.x(arrow.sent) > 12;
    // A message belongs to the call that sent it and to the one that took it.
    const { lane, start, dur } = this.selected || {};
    const inside = (end, at) => lane !== undefined && this.run.lanes[end]?.track === this.run.lanes[lane]?.track && at >= start && at <= start + dur;
    const mine = (arrow) => chosen.has(arrow.call) || (arrow.back === null && (inside(arrow.from, arrow.sent) || inside(arrow.to, arrow.arrived)));
    const shown = chosen ? all.filter(mine) : all.length <= 120 ? all.filter(wide) : [];
    for (const arrow of shown) {
      const [from, to] = [this.laneAt.get(arrow.from), this.laneAt.get(arrow.to)];
      if (!from || !to) continue;
      const middle = (lane) => this.top(lane, scroll) + lane.height / 2;
      const colour = chosen ? theme("ink") : theme("arrow");
      const line = chosen ? 1.8 : 1;
      painter.arrow(this.x(arrow.sent), middle(from), this.x(arrow.arrived), middle(to), colour, line);
      if (arrow.back !== null) painter.arrow(this.x(arrow.left), middle(to), this.x(arrow.back), middle(from), colour, line);
    }
  }

  paintMarks(painter, height) {
    const seen = this.run.marks.filter(([at]) => at >= this.from && at <= this.to);
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
      const [from, to] = state.measure.map((at) => this.x(this.own(at)));
      painter.rect(Math.min(from, to), RULER, Math.abs(to - from), height, theme("veil"));
      for (const x of [from, to]) painter.line(x, RULER, x, height, theme("ink"), [2, 2]);
      const text = time(Math.abs(state.measure[1] - state.measure[0]));
      const middle = Math.min(Math.max((from + to) / 2, GUTTER + 30), GUTTER + this.width - 30);
      painter.rect(middle - 34, height - 24, 68, 18, theme("back"));
      painter.text(middle, height - 15, text, theme("ink"), { anchor: "middle", bold: true });
    }
    for (const [span, line] of [[this.hover, 1], [this.selected, 2]]) {
      const lane = span && this.laneAt.get(span.lane);
      if (lane && (lane.pinned || this.top(lane, scroll) >= RULER + this.pinnedHeight)) painter.frame(this.x(span.start) - 1, this.top(lane, scroll) - 1, Math.max(this.x(span.start + span.dur) - this.x(span.start), 2) + 2, lane.height + 2, theme("ink"), line);
    }
  }

  // What lies under a point of the canvas.
  at(x, y) {
    if (!this.picture || x < GUTTER || y < RULER) return null;
    const inPinned = y < RULER + this.pinnedHeight;
    const part = this.picture.lanes.find((part) => {
      const lane = this.laneAt.get(part.lane);
      return lane && lane.pinned === inPinned && y >= this.top(lane) && y <= this.top(lane) + lane.height + 1;
    });
    return part ? this.nearest(part, this.ns(x), (2 / this.width) * (this.to - this.from)) : null;
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
}

/** A tick in the unit of the window's end, with as many digits as its neighbours differ in. */
function tickText(at, step, end) {
  const [unit, name] = end >= 1e9 ? [1e9, "s"] : end >= 1e6 ? [1e6, "ms"] : [1e3, "µs"];
  return at === 0 ? "0" : `${(at / unit).toFixed(Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-9)))} ${name}`;
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
