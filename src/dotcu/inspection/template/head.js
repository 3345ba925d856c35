// The head: kernels and architectures to pick from, what is known of the one shown, its findings.
let noted = new Map();
const names = [...new Set(page.kernels.map((kernel) => kernel.name))];
const button = (text, pressed, press, class_ = "") => {
  const made = document.createElement("button");
  Object.assign(made, { type: "button", textContent: text, className: class_, onclick: press });
  made.setAttribute("aria-pressed", pressed);
  return made;
};

function drawPickers() {
  const { name, arch } = state.kernel;
  at("kernel").innerHTML = names.map((one) => `<option${one === name ? " selected" : ""}>${escape(one)}</option>`).join("");
  at("kernel").disabled = names.length === 1;
  const same = page.kernels.filter((kernel) => kernel.name === name);
  at("archs").replaceChildren(...same.map((kernel) =>
    button(kernel.arch, kernel.arch === arch, () => show(kernel), kernel.failure ? "failed" : "")));
  at("shown").replaceChildren(...each.filter(({ element }) => !element.classList.contains("void")).map((pane) =>
    button(TITLES[pane.name], !pane.element.hidden, () => togglePane(pane))));
}

function togglePane(pane) {
  const shown = each.filter(({ element }) => !element.hidden);
  if (shown.length === 1 && shown[0] === pane) return;
  pane.element.hidden = !pane.element.hidden;
  pane.away = pane.element.hidden;
  arrange();
  find(search.text);
}

function arrange() {
  for (const splitter of document.querySelectorAll(".splitter")) {
    const before = each.findIndex(({ name }) => name === splitter.dataset.before);
    splitter.hidden = each[before].element.hidden || each.slice(before + 1).every(({ element }) => element.hidden);
  }
  drawPickers();
}

function drawFacts() {
  const { facts, notes } = state.kernel;
  at("facts").innerHTML = facts.map(([name, value, note, tone]) =>
    `<div><dt>${escape(name)}</dt><dd data-tone="${tone}">${escape(value)}${note ? `<small>${escape(note)}</small>` : ""}</dd></div>`).join("");
  at("rows").innerHTML = page.rows.map(([name, value]) => `<span>${escape(name)} <b>${escape(value)}</b></span>`).join(" ");
  at("notes").hidden = !notes.length;
  at("notes").querySelector("summary").textContent = plural(notes.length, "finding");
  at("notes").querySelector("ul").innerHTML = notes.map(([text, place, tone]) =>
    `<li data-tone="${tone}"${place ? ` data-place="${place}" tabindex="0"` : ""}>${place ? `<code>${escape(placeText(place))}</code>` : ""}<span>${escape(text)}</span></li>`).join("");
}

function drawNotes() {
  noted = new Map();
  for (const [text, place, tone] of state.kernel.notes) if (place) push(noted, place, [text, tone]);
  for (const [place, notes] of noted) {
    for (const index of panes.source.inner.get(place) ?? []) {
      const element = panes.source.elements[index];
      element.dataset.tone = notes[0][1];
      element.dataset.note = notes.map(([text]) => text).join("; ");
    }
  }
}

// The column of counts beside source: one metric at a time, all of them in the line of status.
function drawMetrics() {
  const { metrics } = state.kernel;
  const head = panes.source.element.querySelector(".head");
  head.querySelector("select")?.remove();
  if (!panes.source.rows.length) return;
  const select = document.createElement("select");
  select.setAttribute("aria-label", "Counts beside the lines");
  select.innerHTML = metrics.map((metric) => `<option>${escape(metric.name)}</option>`).join("");
  select.selectedIndex = Math.min(state.metric, metrics.length - 1);
  select.onchange = () => ((state.metric = select.selectedIndex), drawHeat(), remember());
  head.append(select);
  drawHeat();
}

function drawHeat() {
  const metric = state.kernel.metrics[Math.min(state.metric, state.kernel.metrics.length - 1)];
  const most = panes.source.rows.reduce((high, row) => Math.max(high, metric.counts[row.places[0]] ?? 0), 0);
  panes.source.element.querySelector(".head select").title = metric.meaning;
  panes.source.rows.forEach((row, index) => {
    const cell = panes.source.elements[index].querySelector("b");
    if (!cell) return;
    const value = metric.counts[row.places[0]];
    cell.textContent = value ? short(value) : "";
    cell.style.setProperty("--f", value ? value / most : 0);
    cell.title = value ? `${metric.name}: ${exact(value)}${share(value, metric)}` : "";
  });
}
