// Showing a kernel, the address's fragment, the mouse and the keys.
for (const kernel of page.kernels) kernel.metrics.push(emitted(kernel));

function show(kernel, { place = state.chosen?.places[0], quiet = false } = {}) {
  state.kernel = kernel;
  state.chosen = null;
  const scrolled = kernel.name === state.shown ? each.map((pane) => pane.body.scrollTop) : null;
  state.shown = kernel.name;
  TITLES.ptx = kernel.language;
  panes.ptx.element.setAttribute("aria-label", kernel.language);
  giveHues(kernel);
  panes.source.fill(sourceRows(kernel), kernel.missing.source);
  panes.ptx.fill(codeRows(kernel.ptx), kernel.missing.ptx);
  panes.sass.fill(codeRows(kernel.sass), kernel.missing.sass);
  for (const pane of each) pane.element.hidden = pane.away || pane.element.classList.contains("void");
  at("panes").hidden = Boolean(kernel.failure);
  at("failure").hidden = !kernel.failure;
  at("failure").textContent = kernel.failure;
  arrange();
  drawFacts();
  drawNotes();
  drawMetrics();
  if (scrolled) each.forEach((pane, index) => (pane.body.scrollTop = scrolled[index]));
  else panes.source.body.scrollTop = (firstRow(kernel) - 4) * ROW;
  for (const pane of each) pane.mark([], [], null);
  if (!(place && choosePlace(place, { quiet }))) showStatus();
  if (search.text) find(search.text);
  if (!quiet) remember();
}

// Where the kernel itself begins in source: the first line into which others were inlined, not they.
function firstRow(kernel) {
  const outermost = new Set([...kernel.ptx, ...kernel.sass].map(([, , places]) => places.at(-1)));
  return Math.max(0, panes.source.rows.findIndex(({ places }) => outermost.has(places[0] ?? "")));
}

// #kernel=name&arch=sm_90&line=79&file=kernel.cu&metric=name&search=LDG&theme=dark: a view that can be kept and passed on.
function remember() {
  const said = new URLSearchParams();
  if (page.kernels.length > 1) said.set("kernel", state.kernel.name), said.set("arch", state.kernel.arch);
  const place = state.chosen?.places[0];
  if (place) said.set("file", page.names[place.split(":")[0]]), said.set("line", place.split(":")[1]);
  if (state.metric) said.set("metric", state.kernel.metrics[state.metric]?.name ?? "");
  const theme = document.documentElement.dataset.theme;
  if (theme) said.set("theme", theme);
  history.replaceState(null, "", `#${said}`);
}

function recall() {
  const said = new URLSearchParams(location.hash.slice(1));
  if (said.has("theme")) document.documentElement.dataset.theme = said.get("theme");
  const kernel = page.kernels.find(({ name, arch }) =>
    name === (said.get("kernel") ?? page.kernels[0].name) && (!said.has("arch") || arch === said.get("arch")));
  state.kernel = kernel ?? page.kernels[0];
  state.metric = Math.max(0, state.kernel.metrics.findIndex(({ name }) => name === said.get("metric")));
  show(state.kernel, { place: said.has("line") ? placeOf(said.get("file"), said.get("line")) : undefined, quiet: true });
  if (said.has("search")) at("query").value = said.get("search"), find(said.get("search"));
}

for (const pane of each) {
  pane.element.addEventListener("click", (event) => {
    if (event.target.dataset.row) return pane.scrollTo(Number(event.target.dataset.row));
    if (event.target.closest(".head")) return activate(pane);
    if (event.target.classList.contains("a")) return follow(pane, event.target);
    const row = event.target.closest(".r");
    if (!row || (!getSelection().isCollapsed && !event.shiftKey)) return;  // a selection of text is not a choice of a line
    if (event.shiftKey) getSelection().removeAllRanges();
    choose(pane, row.index, { extend: event.shiftKey });
  });
  pane.element.addEventListener("mouseover", (event) => {
    const name = event.target.classList;
    if (name.contains("y")) event.target.title = event.target.textContent;
    if (name.contains("o")) event.target.title = CLASS_NAMES[name[1]] ?? "";
  });
}
for (const splitter of document.querySelectorAll(".splitter")) {
  splitter.onpointerdown = (event) => {
    splitter.setPointerCapture(event.pointerId);
    splitter.classList.add("held");
    const index = each.findIndex(({ name }) => name === splitter.dataset.before);
    const left = each[index], right = each.slice(index + 1).find(({ element }) => !element.hidden);
    const widths = new Map(each.map((pane) => [pane, pane.element.offsetWidth]));  // all, before the first is changed
    for (const [pane, width] of widths) if (width) pane.element.style.setProperty("--share", width);
    const [from, a, b] = [event.clientX, widths.get(left), widths.get(right)];
    splitter.onpointermove = ({ clientX }) => {
      const by = Math.max(120 - a, Math.min(b - 120, clientX - from));
      left.element.style.setProperty("--share", a + by);
      right.element.style.setProperty("--share", b - by);
    };
  };
  splitter.onpointerup = splitter.onpointercancel = () => (splitter.classList.remove("held"), (splitter.onpointermove = null));
  splitter.ondblclick = () => each.forEach(({ element }) => element.style.removeProperty("--share"));
}

function turnTheme() {
  const root = document.documentElement;
  const dark = (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  root.dataset.theme = dark ? "light" : "dark";
  remember();
}
const KEYS = {
  j: ["next line that became code", () => move(1)], k: ["previous one", () => move(-1)],
  l: ["next pane", () => focusPane(1)], h: ["previous pane", () => focusPane(-1)],
  "]": ["next lines marked, in PTX, Tile IR and SASS", () => [panes.ptx, panes.sass].forEach((pane) => pane.step(1))],
  "[": ["previous ones", () => [panes.ptx, panes.sass].forEach((pane) => pane.step(-1))],
  "/": ["search", () => at("query").select()], n: ["next hit", () => nextHit(1)], N: ["previous hit", () => nextHit(-1)],
  t: ["light or dark", turnTheme], Escape: ["let go of the line, or of the search", () => (search.text ? clearSearch() : unchoose())],
  "?": ["this help", () => at("keys").showModal()],
};
const ALSO = { ArrowDown: "j", ArrowUp: "k", ArrowRight: "l", ArrowLeft: "h" };
function clearSearch() {
  at("query").value = "";
  find("");
}
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || at("keys").open) return;
  if (event.target === at("query")) {
    if (event.key === "Escape") clearSearch(), at("query").blur();
    return;
  }
  if (event.target.tagName === "SELECT") return;
  const key = KEYS[ALSO[event.key] ?? event.key];
  if (key) event.preventDefault(), key[1]();
});
at("query").oninput = () => find(at("query").value);
at("search").onsubmit = (event) => (event.preventDefault(), nextHit(1));
at("query").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.shiftKey) event.preventDefault(), nextHit(-1);
});
at("kernel").onchange = () => {
  const same = page.kernels.filter(({ name }) => name === at("kernel").value);
  show(same.find(({ arch }) => arch === state.kernel.arch) ?? same[0]);
};
at("notes").onclick = (event) => {
  const place = event.target.closest("li")?.dataset.place;
  if (place) choosePlace(place);
};
at("notes").onkeydown = (event) => event.key === "Enter" && event.target.click();
at("theme").onclick = turnTheme;
at("help").onclick = () => at("keys").showModal();
at("keys").onclick = (event) => event.target === at("keys") && at("keys").close();
at("keys").innerHTML =
  `<h2>Keys</h2><dl>${Object.entries(KEYS).map(([key, [meaning]]) => `<dt><kbd>${escape(key)}</kbd></dt><dd>${meaning}</dd>`).join("")}` +
  "<dt>Shift-click</dt><dd>choose several lines</dd></dl>" +
  `<h2>Colours of instructions</h2><dl>${Object.entries(CLASS_NAMES).map(([name, meaning]) => `<dt><code class="${name}">■</code></dt><dd>${meaning}</dd>`).join("")}</dl>`;
at("title").textContent = page.title;
window.onhashchange = recall;
recall();
