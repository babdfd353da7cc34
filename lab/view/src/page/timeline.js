// The timeline: the plot of a run with its tools: search, choice of spans, measuring, legend, whole run, export.

import { announce, ask, busy, count, download, el, get, hiddenQuery, kindTitle, moment, percent, set, state, theme, time } from "./core.js";
import { NAMES } from "./calls.js";
import { CanvasPainter, SvgPainter } from "./paint.js";
import { GUTTER, Plot, decode } from "./plot.js";
import { Metrics } from "./metrics.js";
import { RULER } from "./rows.js";
import { PIECES, Search } from "./search.js";
import { Side } from "./side.js";
import { Tracks } from "./tracks.js";

export class Timeline extends Plot {
  constructor(main) {
    super(state.run, state.a, "Timeline. Arrow keys go from span to span, Enter opens the request, question mark lists all keys.");
    this.pointer = null;
    this.drag = null;
    this.details = el("div", { class: "details", role: "status", "aria-label": "The span under the cursor" });
    this.overview = el("canvas", { class: "overview", "aria-label": "The whole run; drag to choose a window", role: "img" });
    this.search = new Search(this);
    this.trackList = new Tracks(this);
    this.found = this.search.said;
    this.csv = el("a", { class: "button", href: "#", download: "weft-spans.csv" }, "CSV");
    this.side = new Side(this);
    this.lanesByFormula = new Metrics(this);
    const choice = (label, name, options) => el("label", {}, `${label} `, el("select", { "aria-label": label, "data-state": name, onchange: (event) => set({ [name]: event.target.value }) }, options.map(([value, text]) => el("option", { value, selected: state[name] === value }, text))));
    this.tools = el("div", { class: "tools" },
      choice("Colour", "colour", [["operation", "operation"], ["seek", "disk seeks"], ["duration", "duration"]]),
      choice("Pixel shows", "rule", [["dominant", "most time"], ["longest", "longest span"]]),
      this.search.bar,
      el("span", { class: "right" },
        el("button", { type: "button", title: "Values of each node by formula, as lanes", onclick: () => this.lanesByFormula.toggle() }, "Formula (E)"),
        el("button", { type: "button", onclick: () => set({ table: !state.table }) }, "Table (T)"),
        el("button", { type: "button", onclick: () => this.exportSvg() }, "SVG"),
        el("button", { type: "button", onclick: () => this.exportPng() }, "PNG"),
        this.csv));
    main.replaceChildren(el("div", { class: "timeline" },
      el("div", { class: "left" }, this.tools, this.lanesByFormula.bar, this.details, this.overview, this.stage, this.side.table), this.side.panel));
    this.layOut();
    this.listen();
    this.resize = new ResizeObserver(() => this.refresh());
    this.resize.observe(this.scroller);
    this.showDetails(null);
  }

  get tracks() {
    return state;
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

  async loadOverview() {
    const answer = await get("window", { width: 600 });
    this.whole = decode(await answer.arrayBuffer());
    this.drawOverview();
  }

  loaded() {
    this.lanesByFormula.draw();
    this.side.refresh();
    this.csv.setAttribute("href", `/api/table?${new URLSearchParams({ run: this.number, ...hiddenQuery(), format: "csv", limit: 100000 })}`);
  }

  failed(reason) {
    this.found.textContent = reason;
  }

  draw() {
    super.draw();
    this.drawOverview();
  }

  drawOverview() {
    const painter = new CanvasPainter(this.overview, this.scroller.clientWidth, 34);
    painter.rect(0, 0, painter.width, 34, theme("back"));
    const scale = (ns) => GUTTER + (ns / this.run.duration) * this.width;
    if (this.whole) {
      if (this.columns?.length !== Math.ceil(this.width) + 1) this.columns = this.busyColumns();
      const columns = this.columns;
      const largest = Math.max(...columns, 1e-9);
      const strip = theme("strip");
      columns.forEach((value, x) => value && painter.rect(GUTTER + x, 32 - (value / largest) * 28, 1, (value / largest) * 28, strip));
    }
    for (const place of this.search.places()) painter.rect(GUTTER + place * this.width, 0, Math.max(2, this.width / PIECES), 5, theme("worse"));
    painter.text(8, 17, "whole run", theme("dim"), { small: true });
    painter.text(GUTTER - 8, 17, time(this.run.duration), theme("dim"), { small: true, anchor: "end" });
    const [left, right] = [scale(Math.max(0, state.from)), scale(Math.min(this.run.duration, state.to))];
    painter.rect(GUTTER, 0, left - GUTTER, 34, theme("veil"));
    painter.rect(right, 0, GUTTER + this.width - right, 34, theme("veil"));
    painter.frame(left + 0.5, 0.5, Math.max(2, right - left - 1), 33, theme("ink"), 1);
  }

  /** Busy lanes at each moment: how much of the cluster works. */
  busyColumns() {
    const columns = new Float32Array(Math.ceil(this.width) + 1);
    const scale = (ns) => (ns / this.run.duration) * this.width;
    const add = (start, end, busy) => {
      const [first, last] = [scale(start), scale(end)];
      for (let x = Math.max(0, Math.floor(first)); x <= last && x < columns.length; x++) columns[x] += busy * Math.min(1, Math.min(last, x + 1) - Math.max(first, x));
    };
    for (const part of this.whole.lanes) {
      const sub = this.run.lanes[part.lane].sub;
      if (!["application", "operation", "disk"].includes(sub)) continue;
      for (let at = 0; at < part.count; at++) {
        if (part.spans) add(part.spans[4 * at], part.spans[4 * at] + part.spans[4 * at + 1], 1);
        else add((this.whole.first + part.words[8 * at]) * this.whole.tile, (this.whole.first + part.words[8 * at] + 1) * this.whole.tile, Math.min(1, part.floats[8 * at + 3]));
      }
    }
    return columns;
  }

  showDetails(span) {
    const shown = span || this.selected;
    if (!shown) {
      this.details.replaceChildren(el("span", { class: "dim hint" }, "Wheel: zoom at the pointer. Drag: measure, then F or a double click zooms in. Shift+drag or Shift+wheel: move. Click: choose a span. ", el("kbd", {}, "?"), " lists all keys."));
      return;
    }
    const kind = this.run.kinds[shown.kind];
    const lane = this.run.lanes[shown.lane];
    const swatch = el("i", { class: "swatch" });
    swatch.style.background = this.colourOf(shown.kind, shown.longest || shown.dur);
    const node = this.run.nodes[lane.node];
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

  showGauge({ name, node, value, start }) {
    this.details.replaceChildren(el("b", {}, name), ` at ${node}, from ${moment(start, state.to - state.from)} on: `, el("b", {}, value === null ? "no value" : count(value)));
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
    const above = RULER + this.pinnedHeight;
    if (lane && !lane.pinned && (this.top(lane) < above || this.top(lane) + 20 > this.scroller.clientHeight)) this.scroller.scrollTop = lane.y - this.scroller.clientHeight / 2;
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
    else set({ from: 0, to: this.run.duration }, true);
  }

  // The next or previous span of the same kind at the same node.
  async step(back) {
    if (!this.selected) return;
    const { kind, lane, event } = this.selected;
    const quoted = (text) => `"${text}"`;
    const [name, node] = [this.run.kinds[kind].name, this.run.nodes[this.run.lanes[lane].node].name];
    if (/["*]/.test(name + node)) return; // such a name cannot be searched for
    const answer = await ask("find", { q: `name=${quoted(name)} node=${quoted(node)}`, back: back ? 1 : 0, event });
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
        const row = y > RULER && this.rowAt(y, (row) => row.type === "node" || row.type === "sub");
        if (row?.type === "sub" && event.shiftKey) this.trackList.hidePart(row.sub, row.track);
        else if (row?.type === "node") {
          this.canvas.setPointerCapture(event.pointerId);
          this.dragged = { track: row.track, y };
        }
        return;
      }
      this.canvas.setPointerCapture(event.pointerId);
      this.drag = { x, y, from: state.from, to: state.to, pan: event.shiftKey, moved: false };
    });
    this.canvas.addEventListener("pointermove", (event) => {
      const [x, y] = place(event);
      // Names that do not fit are told in full.
      this.canvas.title = x < GUTTER && y > RULER ? this.rowAt(y, () => true)?.text || "" : "";
      if (this.dragged) return;
      this.pointer = this.ns(x);
      if (this.drag && Math.abs(x - this.drag.x) > 3) this.drag.moved = true;
      if (this.drag?.moved && this.drag.pan) {
        const by = ((x - this.drag.x) / this.width) * (this.drag.to - this.drag.from);
        set({ from: this.drag.from - by, to: this.drag.to - by });
      } else if (this.drag?.moved) set({ measure: [this.ns(Math.max(this.drag.x, GUTTER)), this.ns(Math.max(x, GUTTER))] });
      else {
        this.hover = this.at(x, y);
        const gauge = this.hover ? null : this.gaugeAt(x, y);
        if (gauge) this.showGauge(gauge);
        else this.showDetails(this.hover);
        this.draw();
      }
    });
    this.canvas.addEventListener("pointerup", (event) => {
      if (this.dragged) return this.dropped(place(event)[1]);
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
      const at = Math.max(0, ((event.clientX - box.left - GUTTER) / this.width) * this.run.duration);
      if (event.type === "pointerdown") this.brushed = at;
      else if (this.brushed === undefined || !event.buttons) return;
      const [from, to] = [Math.min(this.brushed, at), Math.max(this.brushed, at)];
      const length = state.to - state.from;
      // A click moves the window, a drag chooses a new one.
      if ((to - from) / this.run.duration < 4 / this.width) set({ from: at - length / 2, to: at + length / 2 }, true);
      else set({ from, to });
    };
    this.overview.addEventListener("pointerdown", brush);
    this.overview.addEventListener("pointermove", brush);
  }

  /** A name was let go: where it was taken it folds its track, elsewhere it moves it. */
  dropped(y) {
    const { track, y: taken } = this.dragged;
    this.dragged = null;
    if (Math.abs(y - taken) < 6) return this.fold(track);
    const target = this.rowAt(y, (row) => row.track !== undefined && row.track !== null);
    if (target && target.track !== track) this.trackList.move(track, target.track, y > taken);
  }

  fold(track) {
    const folded = new Set(state.folded);
    if (!folded.delete(track)) folded.add(track);
    set({ folded });
  }

  key(event) {
    const { key } = event;
    const large = event.shiftKey ? 3 : 1;
    const actions = {
      w: () => this.zoom(0.7 ** large, this.pointer ?? undefined), s: () => this.zoom(1 / 0.7 ** large, this.pointer ?? undefined), "+": () => this.zoom(0.7), "-": () => this.zoom(1 / 0.7),
      a: () => this.pan(-0.15 * large), d: () => this.pan(0.15 * large), f: () => this.fit(),
      m: () => this.mark(), n: () => this.step(false), p: () => this.step(true), t: () => set({ table: !state.table }), e: () => this.lanesByFormula.toggle(), g: () => this.goTo(),
      "/": () => this.search.field.focus(), k: () => this.side.open("tracks"), b: () => this.trackList.nextLevel(), ",": () => this.trackList.height(state.rowHeight / 1.25), ".": () => this.trackList.height(state.rowHeight * 1.25), z: () => this.trackList.fitAll(), i: () => this.side.nextMetric(), j: () => this.search.toggleLight(), c: () => set({ colour: { operation: "seek", seek: "duration", duration: "operation" }[state.colour] }),
      l: () => this.side.focusLegend(), Escape: () => (state.measure ? set({ measure: null }) : this.select(null)),
      Enter: () => this.selected && set({ screen: "request" }, true),
    };
    if (document.activeElement === this.canvas) Object.assign(actions, {
      ArrowRight: () => this.walk(1, 0), ArrowLeft: () => this.walk(-1, 0), ArrowDown: () => this.walk(0, 1), ArrowUp: () => this.walk(0, -1),
      PageDown: () => (this.scroller.scrollTop += this.scroller.clientHeight * 0.8), PageUp: () => (this.scroller.scrollTop -= this.scroller.clientHeight * 0.8),
      " ": () => this.selected && this.fold(this.run.lanes[this.selected.lane].track),
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
    if (["folded", "order", "pinned", "gone", "subs", "rowHeight", "screen"].some((name) => name in changes)) this.layOut();
    this.search.show();
    if ("selected" in changes && state.side === "hits") this.search.draw();
    if ("table" in changes || "screen" in changes) this.side.showTable();
    if ("sort" in changes || "screen" in changes) this.side.refresh();
    if ("metrics" in changes || "screen" in changes) this.lanesByFormula.draw(true);
    for (const select of this.tools.querySelectorAll("select")) select.value = state[select.dataset.state];
    const onlyDraw = !["from", "to", "hidden", "metrics", "filter", "light", ...(state.light ? ["search"] : [])].some((name) => name in changes);
    if (onlyDraw) {
      this.draw();
      if (["colour", "colours", "measure", "metric", "costsOf", "byName", "search", "side", "hitsBy", "hitsIn", "order", "pinned", "gone", "subs", "folded", "rowHeight"].some((name) => name in changes)) this.side.refresh();
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
  if (fields.process !== null && fields.process !== undefined) facts.push(["with process", String(fields.process)]);
  if (fields.file) facts.push(["file", fields.file]);
  if (fields.object) facts.push(["object", fields.object]);
  if (fields.bytes) facts.push(["bytes", `${fields.bytes}${fields.offset ? ` at ${fields.offset}` : ""}`]);
  for (const [name, value] of fields.given || []) facts.push([NAMES[name] || name, value]);
  if (fields.request) facts.push(["request", fields.request]);
  if (fields.result) facts.push(["result", String(fields.result)]);
  for (const [name, , ns] of fields.phases || []) facts.push([name, time(ns)]);
  for (const flag of fields.flags || []) if (flag !== "server" && flag !== "simulated") facts.push(["", flag]);
  return facts;
}

