// Two ways to draw the same picture: on a canvas for the screen, and as SVG text for export.

import { theme } from "./core.js";

const FONT = "12px system-ui, 'DejaVu Sans', sans-serif";
const SMALL = "10px system-ui, 'DejaVu Sans', sans-serif";

export class CanvasPainter {
  constructor(canvas, width, height) {
    const ratio = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    this.context = canvas.getContext("2d");
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.width = width;
    this.height = height;
    this.patterns = new Map();
  }
  rect(x, y, width, height, colour, pattern = 0) {
    this.context.fillStyle = colour;
    this.context.fillRect(x, y, width, height);
    if (pattern && width > 3 && height > 3) {
      this.context.fillStyle = this.pattern(pattern);
      this.context.fillRect(x, y, width, height);
    }
  }
  pattern(number) {
    if (!this.patterns.has(number)) {
      const tile = document.createElement("canvas");
      tile.width = tile.height = 6;
      const context = tile.getContext("2d");
      context.strokeStyle = context.fillStyle = "rgba(0,0,0,0.55)";
      if (number === 1) context.fillRect(2, 2, 2, 2);
      else for (const at of [-6, 0, 6]) {
        context.moveTo(at, 6);
        context.lineTo(at + 6, 0);
      }
      context.stroke();
      this.patterns.set(number, this.context.createPattern(tile, "repeat"));
    }
    return this.patterns.get(number);
  }
  frame(x, y, width, height, colour, line = 2) {
    this.context.strokeStyle = colour;
    this.context.lineWidth = line;
    this.context.strokeRect(x, y, width, height);
  }
  line(x1, y1, x2, y2, colour, dash = [], width = 1) {
    this.context.strokeStyle = colour;
    this.context.lineWidth = width;
    this.context.setLineDash(dash);
    this.context.beginPath();
    this.context.moveTo(x1, y1);
    this.context.lineTo(x2, y2);
    this.context.stroke();
    this.context.setLineDash([]);
  }
  polyline(points, colour, width) {
    this.context.strokeStyle = colour;
    this.context.lineWidth = width;
    this.context.beginPath();
    for (const [x, y] of points) this.context.lineTo(x, y);
    // A single point is seen too.
    if (points.length === 1) this.context.lineTo(points[0][0] + 1.5, points[0][1]);
    this.context.stroke();
  }
  arrow(x1, y1, x2, y2, colour, width = 1) {
    this.line(x1, y1, x2, y2, colour, [], width);
    const length = Math.hypot(x2 - x1, y2 - y1) || 1;
    const [ux, uy] = [((x2 - x1) / length) * 6, ((y2 - y1) / length) * 6];
    this.context.fillStyle = colour;
    this.context.beginPath();
    this.context.moveTo(x2, y2);
    this.context.lineTo(x2 - ux - uy / 2, y2 - uy + ux / 2);
    this.context.lineTo(x2 - ux + uy / 2, y2 - uy - ux / 2);
    this.context.fill();
  }
  text(x, y, text, colour, { anchor = "start", small = false, width = Infinity, bold = false } = {}) {
    this.context.font = (bold ? "600 " : "") + (small ? SMALL : FONT);
    this.context.fillStyle = colour;
    this.context.textAlign = anchor === "middle" ? "center" : anchor;
    this.context.textBaseline = "middle";
    this.context.fillText(this.fitted(text, width), x, y);
  }
  /** As much of the text as has room, or nothing. */
  fitted(text, width) {
    if (width === Infinity || this.context.measureText(text).width <= width) return text;
    let shown = text;
    while (shown.length > 1 && this.context.measureText(`${shown}…`).width > width) shown = shown.slice(0, -1);
    return shown.length > 2 ? `${shown}…` : "";
  }
  clip(x, y, width, height, draw) {
    this.context.save();
    this.context.beginPath();
    this.context.rect(x, y, width, height);
    this.context.clip();
    draw();
    this.context.restore();
  }
  /** Rows of pixels, each stretched to its lane: `pixels` is RGBA for `width` x `rows.length`. */
  pixelRows(x, width, rows, pixels) {
    if (!rows.length) return;
    const image = document.createElement("canvas");
    image.width = width;
    image.height = rows.length;
    image.getContext("2d").putImageData(new ImageData(pixels, width, rows.length), 0, 0);
    this.context.imageSmoothingEnabled = false;
    rows.forEach((row, number) => this.context.drawImage(image, 0, number, width, 1, x, row.y, width, row.height));
  }
}

const hex = (value) => value.toString(16).padStart(2, "0");

export class SvgPainter {
  constructor(width, height) {
    this.width = width;
    this.height = height;
    this.parts = [];
    this.clips = 0;
    this.measure = document.createElement("canvas").getContext("2d");
  }
  element(tag, attributes, text) {
    const list = Object.entries(attributes).map(([name, value]) => `${name}="${escape(typeof value === "number" ? String(Math.round(value * 100) / 100) : value)}"`);
    this.parts.push(`<${tag} ${list.join(" ")}${text === undefined ? "/>" : `>${escape(text)}</${tag}>`}`);
  }
  rect(x, y, width, height, fill, pattern = 0) {
    if (width <= 0 || height <= 0) return;
    this.element("rect", { x, y, width, height, fill });
    if (pattern) this.element("rect", { x, y, width, height, fill: `url(#pattern${pattern})` });
  }
  frame(x, y, width, height, stroke, line = 2) {
    this.element("rect", { x, y, width, height, fill: "none", stroke, "stroke-width": line });
  }
  line(x1, y1, x2, y2, stroke, dash = []) {
    this.element("line", { x1, y1, x2, y2, stroke, ...(dash.length ? { "stroke-dasharray": dash.join(" ") } : {}) });
  }
  polyline(points, stroke, width) {
    const all = points.length === 1 ? [points[0], [points[0][0] + 1.5, points[0][1]]] : points;
    this.element("polyline", { points: all.map((point) => point.map((value) => Math.round(value * 10) / 10).join(",")).join(" "), fill: "none", stroke, "stroke-width": width });
  }
  arrow(x1, y1, x2, y2, stroke, width = 1) {
    this.element("line", { x1, y1, x2, y2, stroke, "stroke-width": width, "marker-end": "url(#head)" });
  }
  text(x, y, text, fill, { anchor = "start", small = false, width = Infinity, bold = false } = {}) {
    this.measure.font = small ? SMALL : FONT;
    const shown = CanvasPainter.prototype.fitted.call({ context: this.measure }, text, width);
    if (shown) this.element("text", { x, y: y + 4, fill, "text-anchor": anchor, "font-size": small ? 10 : 12, ...(bold ? { "font-weight": 600 } : {}) }, shown);
  }
  clip(x, y, width, height, draw) {
    const name = `clip${this.clips++}`;
    this.parts.push(`<clipPath id="${name}"><rect x="${x}" y="${y}" width="${width}" height="${height}"/></clipPath><g clip-path="url(#${name})">`);
    draw();
    this.parts.push("</g>");
  }
  pixelRows(x, width, rows, pixels) {
    rows.forEach((row, number) => {
      let begin = 0;
      const at = (column) => ((pixels[4 * (number * width + column)] << 24) | (pixels[4 * (number * width + column) + 1] << 16) | (pixels[4 * (number * width + column) + 2] << 8) | pixels[4 * (number * width + column) + 3]) >>> 0;
      for (let column = 1; column <= width; column++) {
        if (column < width && at(column) === at(begin)) continue;
        const colour = at(begin);
        const alpha = colour & 255;
        if (alpha) this.element("rect", { x: x + begin, y: row.y, width: column - begin, height: row.height, fill: `#${hex(colour >>> 24)}${hex((colour >>> 16) & 255)}${hex((colour >>> 8) & 255)}`, "fill-opacity": Math.round((alpha / 255) * 100) / 100 });
        begin = column;
      }
    });
  }
  finish(title) {
    const patterns = '<pattern id="pattern1" width="6" height="6" patternUnits="userSpaceOnUse"><rect x="2" y="2" width="2" height="2" fill-opacity=".55"/></pattern>'
      + '<pattern id="pattern2" width="6" height="6" patternUnits="userSpaceOnUse"><path d="M0 6L6 0" stroke="#000" stroke-opacity=".55"/></pattern>'
      + '<marker id="head" markerWidth="7" markerHeight="7" refX="6" refY="3" orient="auto"><path d="M0 0L6 3L0 6z"/></marker>';
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${this.width}" height="${this.height}" viewBox="0 0 ${this.width} ${this.height}" font-family="system-ui, 'DejaVu Sans', sans-serif"><title>${escape(title)}</title><defs>${patterns}</defs><rect width="100%" height="100%" fill="${theme("back")}"/>${this.parts.join("")}</svg>`;
  }
}

const escape = (text) => String(text).replace(/[^\t\n\r\x20-\ud7ff\ue000-\ufffd]/g, "\ufffd").replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);
