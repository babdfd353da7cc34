// Run A against run B: two timelines that move together, what changed by kind of operation, distributions over one another.

import { announce, ask, askOf, busy, count, el, filterQuery, kindTitle, moment, percent, set, stageTitle, state, time } from "./core.js";
import { GUTTER, Plot } from "./plot.js";
import { RULER } from "./rows.js";
import { chart } from "./drawn.js";
import { card, number, table } from "./parts.js";

/** One of the two timelines. Times of the window are those of A; B has its own, shifted and perhaps stretched. */
class Half extends Plot {
  constructor(run, index, letter, mapping, screen) {
    super(run, index, `Timeline of run ${letter}, ${run.name}. Both timelines move together.`);
    Object.assign(this, { letter, mapping, screen, onlyHere: new Set() });
    this.label = el("div", { class: "half-name" }, el("b", {}, letter), ` ${run.name}`, el("span", { class: "dim" }, ` ${run.simulated ? "simulated, " : ""}${time(run.duration)}`));
    this.facts = el("span", { class: "half-facts", role: "status" });
    this.label.append(this.facts);
    this.box = el("section", { class: "half", "aria-label": `Run ${letter}` }, this.label, this.stage);
    this.listen();
  }
  get from() {
    return this.mapping.own(state.from);
  }
  get to() {
    return this.mapping.own(state.to);
  }
  /** Tracks that are folded in A are folded in B too; those that only B has, by themselves. */
  get folded() {
    const names = new Set([...[...state.folded].map((track) => state.run.tracks[track]?.name), ...this.onlyHere]);
    return new Set(this.run.tracks.flatMap((track, at) => (names.has(track.name) ? [at] : [])));
  }
  own(ns) {
    return this.mapping.own(ns);
  }
  hiddenQuery() {
    // Numbers of kinds are those of A: the same kinds have other numbers in B.
    const same = (kind) => [...state.hidden].some((other) => state.run.kinds[other] && kindTitle(state.run.kinds[other]) === kindTitle(kind));
    return { ...this.windowQuery(), hide: this.run.kinds.map((kind, at) => (same(kind) ? at : null)).filter((at) => at !== null).join(","), ...filterQuery() };
  }
  failed(reason) {
    this.facts.textContent = reason;
  }

  listen() {
    const x = (event) => event.clientX - this.canvas.getBoundingClientRect().left;
    const shared = (at) => this.mapping.shared(this.ns(at));
    this.canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (x(event) < GUTTER) return void (this.scroller.scrollTop += event.deltaY);
      const turn = event.deltaY || event.deltaX;
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) return this.screen.pan(Math.sign(turn) * 0.08);
      this.screen.zoom(Math.exp(Math.max(-60, Math.min(60, turn)) * 0.005), shared(x(event)));
    }, { passive: false });
    this.canvas.addEventListener("pointerdown", (event) => {
      const box = this.canvas.getBoundingClientRect();
      const y = event.clientY - box.top;
      if (event.button !== 0) return;
      if (x(event) < GUTTER) {
        const row = this.rows.find((row) => row.type === "node" && y + this.scroller.scrollTop >= row.y && y + this.scroller.scrollTop < row.y + row.height);
        if (row && y > RULER) this.screen.fold(this.run.tracks[row.track].name);
        return;
      }
      this.canvas.setPointerCapture(event.pointerId);
      this.drag = { x: x(event), from: state.from, to: state.to, pan: event.shiftKey };
    });
    this.canvas.addEventListener("pointermove", (event) => {
      const here = x(event);
      if (this.drag && Math.abs(here - this.drag.x) > 3) {
        if (this.drag.pan) {
          const by = ((here - this.drag.x) / this.width) * (this.drag.to - this.drag.from);
          set({ from: this.drag.from - by, to: this.drag.to - by });
        } else set({ measure: [shared(Math.max(this.drag.x, GUTTER)), shared(Math.max(here, GUTTER))] });
        return;
      }
      this.hover = this.at(here, event.clientY - this.canvas.getBoundingClientRect().top);
      this.facts.textContent = this.hover ? describe(this.run, this.hover) : "";
      this.draw();
    });
    this.canvas.addEventListener("pointerup", () => (this.drag = null));
    this.canvas.addEventListener("dblclick", () => state.measure && this.screen.fit());
    this.canvas.addEventListener("pointerleave", () => {
      this.hover = null;
      this.facts.textContent = "";
      this.draw();
    });
  }
}

function describe(run, span) {
  const kind = kindTitle(run.kinds[span.kind]);
  const node = run.nodes[run.lanes[span.lane].node].name;
  if (span.longest !== undefined) return `${kind} at ${node}: ${span.folded} spans begin here, busy ${percent(span.busy)}, the longest takes ${time(span.longest)}`;
  return `${kind} at ${node}, ${time(span.dur)} from ${moment(span.start, span.dur)} on`;
}

export class Compare {
  constructor(main) {
    this.report = el("div", { class: "compare-report" });
    this.top = el("div", { class: "compare-tools" });
    this.box = el("div", { class: "page compare" }, this.top, this.report);
    this.main = main;
    this.halves = [];
    main.replaceChildren(this.box);
  }

  async begin() {
    busy(1);
    try {
      await this.build();
    } catch (error) {
      this.report.replaceChildren(el("p", {}, String(error.message || error)));
    }
    busy(-1);
  }

  async build() {
    const others = state.runs.filter((run) => !run.refused && run.has_trace && run.number !== state.a);
    if (state.b === null || state.b === state.a || !others.some((run) => run.number === state.b)) {
      const choices = others.map((run) => el("button", { type: "button", class: "go", onclick: () => set({ b: run.number }, true) }, run.name));
      this.report.replaceChildren(card("Compare", others.length ? el("p", {}, `Compare ${state.run.name} with `, choices) : el("p", {}, "There is only one trace. Start weft view with two: weft view before/ after/")));
      if (others.length === 1) set({ b: others[0].number });
      return;
    }
    this.other = await askOf(state.b, "run");
    if (this.closed) return;
    const own = { own: (ns) => ns, shared: (ns) => ns };
    const mapping = { own: (ns) => this.toB(ns), shared: (ns) => this.fromB(ns) };
    this.halves = [new Half(state.run, state.a, "A", own, this), new Half(this.other, state.b, "B", mapping, this)];
    this.drawTools();
    this.details = el("div", {});
    this.report.replaceChildren(el("div", { class: "halves" }, this.halves.map((half) => half.box)), this.details);
    this.halves.forEach((half) => half.layOut());
    // Both show all their lanes if these are few, else as many as fit.
    for (const half of this.halves) half.stage.style.height = `${Math.min(Math.max(half.height, 120), 300)}px`;
    this.resize = new ResizeObserver(() => this.halves.forEach((half) => half.refresh()));
    this.resize.observe(this.halves[0].scroller);
    this.halves.forEach((half) => half.refresh());
    await this.load();
  }

  close() {
    this.closed = true;
    this.resize?.disconnect();
    this.halves.forEach((half) => (half.closed = true));
    clearTimeout(this.timer);
    if (this.timer) busy(-1);
  }

  // A moment of A's time in B's: the same distance from the common point, and if both are stretched, the same share of the run.
  get scale() {
    return state.stretch ? this.other.duration / state.run.duration : 1;
  }
  get anchors() {
    const mark = (run) => run.marks.find(([, value]) => String(value) === state.align);
    const [a, b] = [mark(state.run), mark(this.other)];
    return state.align !== "start" && a && b ? [a[0], b[0]] : [0, 0];
  }
  toB(ns) {
    const [a, b] = this.anchors;
    return (ns - a) * this.scale + b;
  }
  fromB(ns) {
    const [a, b] = this.anchors;
    return (ns - b) / this.scale + a;
  }

  drawTools() {
    const inB = new Set(this.other.marks.map(([, value]) => value));
    const marks = state.run.marks.filter(([, value], at, all) => inB.has(value) && all.findIndex(([, other]) => other === value) === at).slice(0, 60);
    const kinds = [...new Set([...state.run.kinds, ...this.other.kinds].filter((kind) => kind.is_operation).map((kind) => kind.name))].filter((name) => /^(client|app|fuse)\./.test(name)).sort();
    const usable = state.runs.filter((run) => !run.refused && run.has_trace);
    const runChoice = (side) => el("label", {}, `${side.toUpperCase()} `, el("select", { "aria-label": `Run ${side.toUpperCase()}`, onchange: (event) => set({ [side]: Number(event.target.value) }, true) },
      usable.filter((run) => side === "a" ? run.number !== state.b : run.number !== state.a).map((run) => el("option", { value: run.number, selected: run.number === state[side] }, run.name))));
    this.top.replaceChildren(runChoice("a"), runChoice("b"),
      el("button", { type: "button", onclick: () => set({ a: state.b, b: state.a }) }, "Exchange (X)"),
      el("label", {}, "Aligned at ", el("select", { "aria-label": "What both runs have at the same place", onchange: (event) => set({ align: event.target.value }) },
        el("option", { value: "start", selected: state.align === "start" }, "their starts"), marks.map(([, value, label]) => el("option", { value, selected: state.align === String(value) }, `mark #${value} ${label}`)))),
      el("label", {}, el("input", { type: "checkbox", checked: state.stretch, onchange: (event) => set({ stretch: event.target.checked }) }), " stretch B to the length of A"),
      el("label", {}, "Distribution of ", el("select", { "aria-label": "Kind of operation whose distributions are compared", onchange: (event) => set({ of: event.target.value }) },
        el("option", { value: "", selected: state.of === "" }, "all operations"), kinds.map((name) => el("option", { value: name, selected: state.of === name }, name)))));
  }

  query() {
    const from = Math.max(0, Math.floor(state.from));
    const to = Math.max(1, Math.ceil(state.to));
    return { from, to, with: state.b, with_from: Math.max(0, Math.floor(this.toB(from))), with_to: Math.max(1, Math.ceil(this.toB(to))) };
  }

  async load() {
    const mine = (this.turn = (this.turn || 0) + 1);
    const query = this.query();
    const [data, ecdf, stages] = await Promise.all([ask("compare", query), chart("compare", { ...query, of: state.of }), chart("stages", query)]);
    if (mine !== this.turn || this.closed) return;
    this.data = data;
    const place = this.main.scrollTop;
    this.details.replaceChildren(...this.sections(data, ecdf, stages));
    this.main.scrollTop = place;
    announce(data.sentences.join(" "));
  }

  sections(data, ecdf, stages) {
    // What is not clear, or less than 2 %, is no difference.
    const ratio = (a, b, clear = true) => {
      if (!a) return "";
      const value = b / a;
      const word = Math.abs(value - 1) < 0.02 || !clear ? "same" : value < 1 ? "better" : "worse";
      return el("span", { class: word }, `${word === "same" ? "≈" : word === "better" ? "▲" : "▼"} ×${value >= 10 ? value.toFixed(0) : value.toFixed(2)}`);
    };
    const pair = (row, field, format, factor = 1) => [number(row.a ? format(row.a[field] * factor) : "–"), number(row.b ? format(row.b[field] * factor) : "–")];
    const rows = data.kinds.map((row) => el("tr", {}, el("td", {}, el("b", {}, row.operation)),
      ...pair(row, "count", count), ...pair(row, "share", percent),
      ...pair(row, "p50_us", time, 1e3), number(row.a && row.b ? ratio(row.a.p50_us, row.b.p50_us, row.clear) : ""),
      number(row.median_ratio ? `${row.median_ratio[0].toFixed(2)} to ${row.median_ratio[1].toFixed(2)}` : ""),
      ...pair(row, "p99_us", time, 1e3), number(row.a && row.b ? ratio(row.a.p99_us, row.b.p99_us) : ""),
      ...pair(row, "mean_us", time, 1e3), number(row.a && row.b ? ratio(row.a.mean_us, row.b.mean_us) : ""),
      el("td", {}, (row.stages || []).slice(0, 2).map(([stage, us]) => `${stageTitle(stage)} ${us > 0 ? "+" : "−"}${time(Math.abs(us) * 1e3)}`).join(", "))));
    return [
      card("What changed", el("p", { class: "sentence" }, data.sentences.join(" ")),
        el("dl", { class: "facts" }, [["a", "A"], ["b", "B"]].map(([side, letter]) => el("div", {}, el("dd", {}, `${count(data[side].rate)}/s`), el("dt", {}, `${letter}: ${count(data[side].operations)} operations in ${time(data[side].seconds * 1e9)}`))))),
      card("By kind of operation, what moved the mean most first", table(["operation", ">count A", ">B", ">of the time A", ">B", ">median A", ">B", ">B/A", ">95 % interval", ">p99 A", ">B", ">B/A", ">mean A", ">B", ">B/A", "where, an operation"], rows),
        el("p", { class: "dim" }, "▲ faster, ▼ slower, ≈ less than 2 % or, of medians, not clear. The interval is that of the ratio of the medians, from order statistics; if it holds 1, the usual operation may be the same.")),
      data.kinds.some((row) => row.a && row.b) ? el("section", { class: "card" }, stages) : null,
      el("section", { class: "card" }, ecdf),
    ].filter(Boolean);
  }

  zoom(factor, centre = (state.from + state.to) / 2) {
    set({ from: centre - (centre - state.from) * factor, to: centre + (state.to - centre) * factor }, true);
  }
  pan(share) {
    const by = (state.to - state.from) * share;
    set({ from: state.from + by, to: state.to + by }, true);
  }
  fit() {
    if (!state.measure) return set({ from: 0, to: state.run.duration }, true);
    set({ from: Math.min(...state.measure), to: Math.max(...state.measure), measure: null }, true);
  }
  fold(name) {
    const toggled = (all, one) => (all.has(one) ? new Set([...all].filter((other) => other !== one)) : new Set([...all, one]));
    const track = state.run.tracks.findIndex((track) => track.name === name);
    if (track >= 0) return set({ folded: toggled(state.folded, track) });
    this.halves[1].onlyHere = toggled(this.halves[1].onlyHere, name);
    this.changed({ folded: true });
  }

  key(event) {
    const large = event.shiftKey ? 3 : 1;
    const actions = {
      w: () => this.zoom(0.7 ** large), s: () => this.zoom(1 / 0.7 ** large), "+": () => this.zoom(0.7), "-": () => this.zoom(1 / 0.7), a: () => this.pan(-0.15 * large), d: () => this.pan(0.15 * large),
      f: () => this.fit(), c: () => set({ colour: { operation: "seek", seek: "duration", duration: "operation" }[state.colour] }), Escape: () => set({ measure: null }),
    };
    const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (action) action();
    return Boolean(action);
  }

  changed(changes) {
    if (!this.other) return;
    if ("folded" in changes) this.halves.forEach((half) => half.layOut());
    if ("metrics" in changes) this.halves.forEach((half) => half.refresh());
    if (!["from", "to", "hidden", "align", "stretch", "of"].some((name) => name in changes)) return this.halves.forEach((half) => half.draw());
    if ("align" in changes || "stretch" in changes) this.drawTools();
    this.halves.forEach((half) => half.refresh());
    // Numbers of a window that is still moving are of no use.
    if (this.timer) busy(-1);
    clearTimeout(this.timer);
    busy(1);
    this.timer = setTimeout(() => {
      this.timer = undefined;
      this.load().catch((error) => this.details.replaceChildren(el("p", {}, String(error.message || error)))).finally(() => busy(-1));
    }, 150);
  }
}
