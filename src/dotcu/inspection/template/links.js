// Choosing a line in one pane marks its lines in the others.
const panes = Object.fromEntries(["source", "ptx", "sass"].map((name) => [name, new Pane(name)]));
const each = Object.values(panes);
let active = panes.source;

function activate(pane) {
  active = pane;
  for (const one of each) one.element.classList.toggle("active", one === pane);
}

function choose(pane, index, { extend = false, quiet = false } = {}) {
  const row = pane.rows[index];
  if (!row || row.file || row.gap) return;
  const from = extend && state.chosen?.pane === pane ? state.chosen.from : index;
  const [low, high] = from < index ? [from, index] : [index, from];
  const chosen = pane.rows.slice(low, high + 1);
  const places = [...new Set(chosen.flatMap((one) => one.places.slice(0, 1)))];
  const calls = [...new Set(chosen.flatMap((one) => one.places.slice(1)))];
  state.chosen = { pane, index, from, places, calls };
  activate(pane);
  for (const one of each) {
    one.mark(places, calls, one === pane ? index : null);
    if (one === pane) one.keep(index);
    else one.reveal();
  }
  showStatus();
  if (!quiet) remember();
}

function choosePlace(place, options) {
  const pane = each.find((one) => one.inner.has(place));
  if (pane) choose(pane, pane.inner.get(place)[0], options);
  return Boolean(pane);
}

function unchoose() {
  state.chosen = null;
  for (const pane of each) pane.mark([], [], null);
  showStatus();
  remember();
}

// The next row up or down at which it is worth to stop: a source line that became code, an instruction.
function move(by) {
  const pane = active;
  const worth = (row) => row.places.length && (pane.name !== "source" || hues.has(row.places[0]) || noted.has(row.places[0]));
  let index = state.chosen?.pane === pane ? state.chosen.index : by > 0 ? -1 : pane.rows.length;
  do index += by; while (index >= 0 && index < pane.rows.length && !worth(pane.rows[index]));
  if (pane.rows[index]) choose(pane, index);
}

function focusPane(by) {
  const shown = each.filter((pane) => !pane.element.hidden);
  const pane = shown[(shown.indexOf(active) + by + shown.length) % shown.length];
  activate(pane);
  const here = pane.strong?.[0] ?? pane.weak?.[0];
  if (here !== undefined && state.chosen) choose(pane, pane.strong?.find((index) => pane.visible(index)) ?? here);
}

// A label that an instruction names leads to where it stands.
function follow(pane, element) {
  const label = element.textContent.replace(/[`():]/g, "");
  const index = pane.rows.findIndex((row) => row.text.trim() === `${label}:`);
  if (index >= 0) choose(pane, index), pane.scrollTo(index);
}

function showStatus() {
  const parts = [];
  if (state.chosen) {
    const { places, calls } = state.chosen;
    parts.push(`<span class="place">${escape(places.length > 1 ? `${placeText(places[0])} and ${places.length - 1} more` : places.length ? placeText(places[0]) : "no source line")}</span>`);
    if (calls.length) parts.push(`<span>inlined at <span class="place">${escape(calls.map(placeText).join(", "))}</span></span>`);
    for (const pane of [panes.ptx, panes.sass]) {
      if (pane.rows.length) parts.push(`<span><b>${exact(pane.strong.length)}</b> ${TITLES[pane.name]}${pane.weak.length ? ` + ${exact(pane.weak.length)} inlined` : ""}</span>`);
    }
    for (const metric of state.kernel.metrics) {
      const sum = places.reduce((total, place) => total + (metric.counts[place] ?? 0), 0);
      if (sum) parts.push(`<span title="${escape(metric.meaning)}">${escape(metric.name)} <b>${exact(sum)}</b>${share(sum, metric)}</span>`);
    }
    for (const [text, place, tone] of state.kernel.notes) if (places.includes(place)) parts.push(`<span data-tone="${tone}" class="note">${escape(text)}</span>`);
  } else if (!state.kernel.failure) {
    parts.push("<span>Click a line to see what it became. <kbd>j</kbd> <kbd>k</kbd> move, <kbd>/</kbd> searches, <kbd>?</kbd> shows the rest.</span>");
  }
  at("status").innerHTML = parts.join("");
}
function share(sum, metric) {
  metric.total ??= Object.values(metric.counts).reduce((a, b) => a + b, 0);
  return ` (${((100 * sum) / metric.total).toFixed(1)} %)`;
}
