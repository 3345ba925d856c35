// A pane: rows of one height, found by place, marked, and brought into view.
const ROW = 19;  // --row of theme.css
const CHUNK = 100;
const TITLES = { source: "Source", ptx: "PTX", sass: "SASS" };  // ptx: "Tile IR" while a tile kernel is shown

class Pane {
  constructor(name) {
    this.name = name;
    this.element = at(name);
    this.rows = [];
    this.elements = [];
    this.marked = [];
    this.hits = [];
  }

  fill(rows, missing) {
    this.rows = rows;
    this.marked = [];
    this.hits = [];
    this.inner = new Map();   // place -> rows that come from it
    this.outer = new Map();   // place -> rows that were inlined into it
    rows.forEach((row, index) => row.places.forEach((place, depth) => push(depth ? this.outer : this.inner, place, index)));
    this.element.classList.toggle("void", !rows.length && !missing);
    this.element.innerHTML =
      `<div class="head"><h2>${TITLES[this.name]}</h2><span>${this.summary()}</span><span class="runs" hidden></span></div>` +
      `<div class="body" tabindex="0">${rows.length ? "" : `<div class="empty">${escape(missing ?? "")}</div>`}</div>` +
      `<div class="ruler"></div>`;
    this.body = this.element.querySelector(".body");
    this.ruler = this.element.querySelector(".ruler");
    this.build();
  }

  summary() {
    if (this.name === "source") return "";
    return this.rows.length ? plural(this.rows.filter((row) => row.places.length).length, "instruction") : "";
  }

  build() {
    const columns = this.rows.reduce((most, row) => Math.max(most, width(row.text, this.name === "ptx" ? 8 : 4)), 0);
    const digits = this.rows.reduce((most, row) => Math.max(most, (row.label ?? "").length), 2);
    const control = this.rows.reduce((most, row) => Math.max(most, (row.control ?? "").length), 0) * 7;
    this.controls = control > 0;
    const gutter = digits * 7 + control + (this.name === "source" ? 62 : 0) + 70;
    const sizes = { columns, number: `${digits * 7 + 20}px`, control: `${control + 8}px`, gutter: `${gutter}px` };
    for (const [name, size] of Object.entries(sizes)) this.body.style.setProperty(`--${name}`, size);
    const paint = painter(this.name);
    let html = "", chunk = [];
    const close = () => {
      if (chunk.length) html += `<div class="chunk" style="--n:${chunk.length}">${chunk.join("")}</div>`;
      chunk = [];
    };
    for (const row of this.rows) {
      if (row.file) {
        close();
        html += `<div class="file"><span>${escape(row.file)}</span></div>`;
        continue;
      }
      chunk.push(row.gap ? '<div class="gap">⋯</div>' : this.rowHtml(row, paint));
      if (chunk.length === CHUNK) close();
    }
    close();
    if (html) this.body.innerHTML = html;
    this.elements = [...this.body.querySelectorAll(".r, .file, .gap")];
    this.elements.forEach((element, index) => (element.index = index));
  }

  rowHtml(row, paint) {
    const hue = hues.get(row.places[0]);
    const extra = this.name === "source" ? "<b></b>" : this.controls ? `<u>${escape(row.control)}</u>` : "";
    const style = hue === undefined ? "" : ` style="--h:${hue}"`;
    return `<div class="r" data-n="${escape(row.label ?? "")}"${style}>${extra}<code>${paint(row.text)}</code></div>`;
  }

  // Mark what comes from `places` and, more weakly, what was inlined into them or (in source) the calls that led there.
  mark(places, calls, cursor) {
    for (const index of this.marked) this.elements[index].classList.remove("marked", "inlined", "cursor");
    const strong = places.flatMap((place) => this.inner.get(place) ?? []);
    const weakly = this.name === "source"
      ? calls.flatMap((place) => this.inner.get(place) ?? [])
      : places.flatMap((place) => this.outer.get(place) ?? []);
    const known = new Set(strong);
    this.strong = [...known].sort(ascending);
    this.weak = [...new Set(weakly)].filter((index) => !known.has(index)).sort(ascending);
    this.strong.forEach((index) => this.elements[index].classList.add("marked"));
    this.weak.forEach((index) => this.elements[index].classList.add("inlined"));
    if (cursor !== null) this.elements[cursor].classList.add("cursor");
    this.marked = [...this.strong, ...this.weak, ...(cursor === null ? [] : [cursor])];
    this.runs = runsOf(this.strong.length ? this.strong : this.weak);
    this.drawRuns();
    this.drawRuler();
  }

  drawRuns() {
    const box = this.element.querySelector(".runs");
    box.hidden = this.name === "source" || !this.runs.length;
    if (box.hidden) return;
    const lines = this.strong.length || this.weak.length;
    const places = this.runs.length > 1 ? ` in ${this.runs.length} places` : "";
    box.innerHTML = `${plural(lines, "line")}${places} <button title="Previous ([)">▲</button><button title="Next (])">▼</button>`;
    const [up, down] = box.querySelectorAll("button");
    up.onclick = () => this.step(-1);
    down.onclick = () => this.step(1);
  }

  // Where marks and hits are in the whole: one tick for each run.
  drawRuler() {
    const tick = (kind) => ([first, last]) =>
      `<i class="${kind}" data-row="${first}" style="top:${(100 * first) / this.rows.length}%;height:${(100 * (last - first + 1)) / this.rows.length}%"></i>`;
    const few = (rows) => runsOf(rows, Math.ceil(this.rows.length / 300));
    this.ruler.innerHTML = [
      ...few(this.weak ?? []).map(tick("inlined")), ...few(this.strong ?? []).map(tick("")), ...few(this.hits).map(tick("hit")),
    ].join("");
  }

  step(by) {
    if (!this.runs?.length) return;
    const middle = this.body.scrollTop + this.body.clientHeight * 0.35;
    const tops = this.runs.map(([first]) => first * ROW);
    let next = by > 0 ? tops.findIndex((top) => top > middle + ROW) : tops.findLastIndex((top) => top < middle - ROW);
    if (this.stepped !== undefined && Math.abs(this.body.scrollTop - this.steppedTop) < 2 && this.runs[this.stepped]) next = this.stepped + by;
    next = (next + this.runs.length) % this.runs.length;
    this.scrollTo(this.runs[next][0]);
    this.stepped = next;
    this.steppedTop = this.body.scrollTop;
  }

  // In source the name of the file covers the first row.
  visible(index) {
    const top = index * ROW - this.body.scrollTop;
    return top >= (this.name === "source" ? ROW : 0) && top <= this.body.clientHeight - 2 * ROW;
  }

  scrollTo(index) {
    this.body.scrollTop = Math.max(0, index * ROW - this.body.clientHeight * 0.35);
  }

  // Bring the first marked row into view, unless one is there already.
  reveal() {
    const rows = this.strong.length ? this.strong : this.weak;
    if (rows.length && !rows.some((index) => this.visible(index))) this.scrollTo(rows[0]);
  }

  keep(index) {
    if (!this.visible(index)) this.scrollTo(index);
  }
}

const ascending = (a, b) => a - b;
const push = (map, key, value) => (map.get(key) ?? map.set(key, []).get(key)).push(value);
const width = (text, tab) => text.replace(/_Z\w{20,}?(?=_param_|\b)/g, "_".repeat(14)).replace(/\t/g, " ".repeat(tab)).length;
function runsOf(rows, slack = 1) {
  const runs = [];
  for (const row of rows) {
    if (runs.length && row - runs.at(-1)[1] <= slack) runs.at(-1)[1] = row;
    else runs.push([row, row]);
  }
  return runs;
}

// Each line that became code has a hue, the same in all panes; neighbours are far apart on the wheel.
let hues = new Map();
function giveHues(kernel) {
  const seen = new Set();
  for (const [, , places] of [...kernel.ptx, ...kernel.sass]) if (places.length) seen.add(places[0]);
  const ordered = [...seen].map((place) => place.split(":").map(Number)).sort(([a, b], [c, d]) => a - c || b - d);
  hues = new Map(ordered.map(([name, line], index) => [`${name}:${line}`, Math.round((index * 137.508) % 360)]));
}
