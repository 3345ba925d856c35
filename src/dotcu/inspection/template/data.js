// The page's data, as page.py wrote it, and the small tools that all parts use.
const page = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);

const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
const escape = (text) => text.replace(/[&<>"]/g, (c) => ENTITIES[c]);

const plural = (count, word) => `${exact(count)} ${word}${count === 1 ? "" : "s"}`;
const exact = (number) => number.toLocaleString("en-US", { maximumFractionDigits: 2 });
const UNITS = ["", "k", "M", "G", "T"];
function short(number) {
  let power = 0;
  for (; Math.abs(number) >= 999.5 && power < UNITS.length - 1; power += 1) number /= 1000;
  const digits = Math.abs(number) < 10 && !(power === 0 && Number.isInteger(number)) ? 1 : 0;
  return number.toFixed(digits) + UNITS[power];
}

// A place is "index of a name:line".
function placeText(place) {
  const [name, line] = place.split(":");
  return `${page.names[name]}:${line}`;
}
function placeOf(file, line) {
  const name = file ? page.names.indexOf(file) : page.files[kernelFiles()[0]]?.name ?? 0;
  return `${name}:${line}`;
}
const kernelFiles = () => state.kernel.files;

// Rows of a pane: {text, label, places}, and of source also {file} before the first line of one and {gap}.
function sourceRows(kernel) {
  const rows = [];
  for (const number of kernel.files) {
    const file = page.files[number];
    rows.push({ file: page.names[file.name], text: "", places: [] });
    let previous = null;
    for (const [line, text] of file.lines) {
      if (previous !== null && line !== previous + 1) rows.push({ gap: true, text: "", places: [] });
      rows.push({ text, label: String(line), places: [`${file.name}:${line}`] });
      previous = line;
    }
  }
  return rows;
}
const codeRows = (lines) => lines.map(([text, label, places, control]) => ({ text, label, places, control }));

// How many instructions each line became: a metric that needs no run.
function emitted(kernel) {
  const name = kernel.sass.length ? "SASS" : kernel.language;
  const counts = {};
  for (const [, , places] of kernel.sass.length ? kernel.sass : kernel.ptx) {
    if (places.length) counts[places[0]] = (counts[places[0]] ?? 0) + 1;
  }
  return { name: `${name} instructions`, meaning: `${name} instructions that the line became`, counts };
}

// What is shown, and what is chosen in it; the fragment of the address says the same.
const state = { kernel: page.kernels[0], metric: 0, chosen: null };
